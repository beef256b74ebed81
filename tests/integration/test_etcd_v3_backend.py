"""Backend `etcd-v3`: leases and keys in real etcds, nodes as processes."""

import base64
import itertools
import json
import signal
import time
import unittest

import etcd_cluster
import harness
from nodes import CLOSED, PATIENCE_S, SPARE, settle
from test_etcd_rdzv import USAGE, Job, conf_text

TIMEOUT, NO_CONNECTION, EXPELLED = 4, 5, 12

# The shortest lease that etcd grants, two seconds.
QUICK = {"last_call_timeout": "100ms", "join_timeout": PATIENCE_S, "keep_alive_interval": 1,
         "keep_alive_max_attempt": 2}
LEASE_S = 2

# Leases that outlive what a test does to a node.
PATIENT = {**QUICK, "keep_alive_interval": 4, "keep_alive_max_attempt": 5}


def encode(text):
    return base64.b64encode(text.encode()).decode()


def holds(request, text):
    """Whether a value in it, which is encoded, has the text somewhere."""
    size = 8 * len(text)
    for shift in (0, 8, 16):
        code = base64.b64encode(b"\0" * (shift // 8) + text.encode())
        if code[(shift + 5) // 6:(shift + size) // 6] in request:
            return True
    return False


# A command, which gets what is put behind it as its own arguments.
SLEEP = ("--rejoin", "--", "sh", "-c", "exec sleep 600")


class V3Job(Job):
    """The nodes of one rendezvous, and its keys."""

    def __init__(self, etcd, limits, conf=QUICK, endpoint=None, **options):
        self.limits, self.env, self.backend = limits, None, "etcd-v3"
        self.etcd, self.endpoint = etcd, endpoint or etcd.endpoint
        V3Job.count = getattr(V3Job, "count", 0) + 1
        self.run_id = f"job/{V3Job.count} v3"  # both characters have to be escaped
        self.root = f"/muster/job%2F{V3Job.count}%20v3/"
        self.conf = {**conf, **options}
        self.nodes = []
        self.is_record_lost = False

    def start(self, words=("--hold", "0", "--rejoin"), **more):
        more.setdefault("node_name", f"n{len(self.nodes)}")
        return super().start(words, **more)

    def start_in_order(self, count, **more):
        """Each has its key before the next one comes: the first is the authority."""
        nodes = []
        for _ in range(count):
            nodes.append(self.start(**more))
            expected = len(self.nodes)
            harness.wait_until(lambda: len(self.keys("n/")) >= expected, f"{expected} keys")
        return nodes

    def range(self, below):
        """Keys with all that etcd tells of them."""
        key = self.root + below
        end = key[:-1] + chr(ord(key[-1]) + 1)
        answer = self.etcd.ok("POST", "/v3/kv/range",
                              {"key": encode(key), "range_end": encode(end)}).json
        return {base64.b64decode(kv["key"]).decode()[len(self.root):]: kv
                for kv in answer.get("kvs", [])}

    def keys(self, below):
        """Keys and what they hold."""
        return {key: base64.b64decode(kv.get("value", "")).decode()
                for key, kv in self.range(below).items()}

    def round(self):
        found = self.keys("round")
        return json.loads(found["round"]) if "round" in found else None

    def wait_state(self, state):
        return harness.wait_until(
            lambda: (self.round() or {}).get("state") == state, f"a round that is {state}")

    def claims(self):
        """How many nodes have come back from a round."""
        return sum('"claim"' in text for text in self.keys("n/").values())


class Etcd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.etcd = etcd_cluster.Etcd(keep=True)
        cls.addClassCleanup(cls.etcd.stop)

    def job(self, limits, conf=QUICK, **options):
        return V3Job(self.etcd, limits, conf, **options)


class Plain(Etcd):
    """Events of the nodes of a job."""

    def test_whole_story(self):
        """Four meet, one is killed, the others re-form, a newcomer is let in, it is closed."""
        with self.job("3:4") as job:
            nodes = [job.start() for _ in range(4)]
            first = settle(nodes)
            nodes[1].kill()
            killed = time.monotonic()
            others = [nodes[0], nodes[2], nodes[3]]
            for node in others:
                lost = node.wait("lost")
                self.assertEqual(lost["nodes"], [nodes[1].name])
                self.assertLess(lost["at"] - killed, LEASE_S + 1 + harness.DEADLINE_S / 10)
            second = settle(others, after=first)
            late = job.start()
            settle([*others, late], after=second)

            closed = job.run("close")
            self.assertEqual(closed.returncode, 0, closed.stderr)
            for node in (*others, late):
                self.assertEqual(node.ended(), CLOSED, node.story())
            again = job.run("join", "--nnodes", "3:4")
            self.assertEqual(again.returncode, CLOSED, again.stderr)
            self.assertIn(b"closed by", again.stderr)
            self.assertEqual(job.keys("n/"), {})

    def test_status(self):
        with self.job("2:3") as job:
            nodes = job.start_in_order(2)
            settle(nodes)
            status = job.status()
            self.assertTrue(status["complete"])
            self.assertEqual([p["node"] for p in status["participants"]], ["n0", "n1"])
            self.assertEqual([p["rank"] for p in status["participants"]], [0, 1])
            self.assertIn("runs with 2 nodes", status["summary"])
        missing = job.run("status", "--json")
        self.assertEqual(missing.returncode, 0)  # a round was sealed, which stays
        self.assertEqual(json.loads(missing.stdout)["participants"], [])

    def test_status_of_a_last_call(self):
        """When it ends only the authority knows."""
        with self.job("1:3", last_call_timeout=60) as job:
            node, = job.start_in_order(1)
            told = job.status()
            self.assertIn("1 waiting", told["summary"])
            self.assertNotIn("last call", told["summary"])
            node.kill()

    def test_lease_lasts_as_long_as_silence_may(self):
        """The lease of a node has whole seconds: not fewer than its keep-alives may take."""
        with self.job("1:1", keep_alive_interval="700ms", keep_alive_max_attempt=5) as job:
            settle([job.start()])
            lease, = (kv["lease"] for kv in job.range("n/").values())
            told = self.etcd.ok("POST", "/v3/lease/timetolive", {"ID": lease}).json
            self.assertEqual(int(told["grantedTTL"]), 4)

    def test_keys_of_a_round(self):
        """They are its own, also when rounds are counted anew, and go when it is two rounds old."""
        with self.job("2:2") as job:
            job.is_record_lost = True
            done = [job.start(("--", "true"), node_name=name) for name in ("a", "b")]
            for node in done:
                self.assertEqual(node.ended(), 0, node.story())
            stored = job.round()
            self.assertEqual((stored["state"], stored["outcome"]), ("closed", "finished"))
            self.etcd.ok("POST", "/v3/kv/put", {
                "key": encode(f"{job.root}kv/{stored['round']}.{stored['epoch']}/key"),
                "value": encode("")})
            self.etcd.ok("POST", "/v3/kv/deleterange", {"key": encode(job.root + "round")})
            nodes = [job.start(SLEEP, node_name=name) for name in ("a", "b")]
            first = settle(nodes)
            self.assertEqual(first, 1)
            nodes[0].kill()
            self.assertEqual(nodes[1].wait("lost")["nodes"], ["a"])
            for count in range(2):
                late = job.start(SLEEP, node_name=f"late{count}")
                settle([nodes[1], late])
                if count == 0:
                    self.assertEqual(len(job.keys("kv/1.")), 1)
                late.kill()
                nodes[1].wait("lost", count=count + 2)
            self.assertEqual(job.keys("kv/1."), {})
            nodes[1].kill()

    def test_ranks_stay_and_pinned_ones_are_given(self):
        with self.job("2:3") as job:
            nodes = [job.start(rank=2 - i) for i in range(3)]
            first = settle(nodes)
            self.assertEqual([node.last_joined()["rank"] for node in nodes], [2, 1, 0])
            nodes[1].kill()
            settle([nodes[0], nodes[2]], after=first)
            self.assertEqual(nodes[2].last_joined()["rank"], 0)

    def test_leaving_is_quick(self):
        """The others do not wait for a lease to expire."""
        with self.job("2:3", PATIENT) as job:
            nodes = [job.start() for _ in range(3)]
            first = settle(nodes)
            nodes[2].process.send_signal(signal.SIGTERM)
            left = time.monotonic()
            self.assertEqual(nodes[2].ended(), 0)
            settle(nodes[:2], after=first)
            took = max(node.last_joined()["at"] for node in nodes[:2]) - left
            self.assertLess(took, harness.DEADLINE_S / 4)

    def test_news_that_was_read(self):
        """A node whose predecessor dies looks for another one and finds the news by that read:
        no watch will bring it."""
        with etcd_cluster.Swallow(self.etcd.address) as tap, \
                self.job("3:4", PATIENT, keep_alive_interval=30) as job:
            stay = {"words": ("--hold", "0")}
            nodes = job.start_in_order(1, **stay)
            nodes += job.start_in_order(1, **stay, keep_alive_interval=1, keep_alive_max_attempt=2)
            job.endpoint, direct = tap.endpoint, job.endpoint
            nodes += job.start_in_order(1, **stay)
            settle(nodes)
            job.endpoint = direct
            job.start_in_order(1, **stay)
            nodes[2].wait("waiting")  # its watch has come up to date, and tells things in order
            looking = tap.hold_back_next(b"/kv/txn")
            nodes[1].kill()
            looking.wait()
            nodes[0].wait("lost")
            looking.release()
            released = time.monotonic()
            self.assertEqual(nodes[2].wait("lost")["nodes"], ["n1"])
            self.assertLess(time.monotonic() - released, harness.DEADLINE_S / 4)

    def test_over_as_soon_as_known(self):
        """A round that was sealed and over while a node could not see it: both are told to it."""
        with etcd_cluster.Swallow(self.etcd.address) as tap, \
                self.job("3:3", PATIENT, keep_alive_interval=30) as job:
            stay = {"words": ("--hold", "0")}
            nodes = job.start_in_order(1, **stay)
            job.endpoint, direct = tap.endpoint, job.endpoint
            nodes += job.start_in_order(1, **stay)
            harness.wait_until(lambda: tap.count(b"/watch") > 0, "a watch")
            tap.refuse()
            job.endpoint = direct
            nodes += job.start_in_order(1, **stay)
            for node in (nodes[0], nodes[2]):
                node.wait("joined")
            nodes[2].process.terminate()
            nodes[0].wait("lost")
            # What has happened cannot be watched any more; how things are can be read.
            other = self.etcd.ok("POST", "/v3/kv/put", {"key": encode("other")}).json
            self.etcd.ok("POST", "/v3/kv/compaction", {"revision": other["header"]["revision"]})
            tap.heal()
            joined = nodes[1].wait("joined")
            self.assertEqual((joined["round"], joined["world_size"]), (1, 3))
            lost = nodes[1].wait("lost")
            self.assertEqual(lost["nodes"], ["n2"])
            self.assertLess(lost["at"] - joined["at"], harness.DEADLINE_S / 4)

    def test_spare_takes_a_place(self):
        with self.job("2:2") as job:
            nodes = job.start_in_order(3)
            first = settle(nodes[:2])
            nodes[2].wait("spare")
            nodes[1].kill()
            settle([nodes[0], nodes[2]], after=first)

    def test_closed_while_a_spare(self):
        with self.job("2:2") as job:
            nodes = job.start_in_order(3)
            settle(nodes[:2])
            self.assertEqual(job.run("close").returncode, 0)
            self.assertEqual(nodes[2].ended(), SPARE, nodes[2].story())

    def test_returning_process_replaces_its_ghost(self):
        """A new process of a node is let in at once, though the lease of the old one lives."""
        with self.job("2:2", PATIENT) as job:
            nodes = job.start_in_order(2)
            first = settle(nodes)
            nodes[1].kill()
            killed = time.monotonic()
            again = job.start(node_name="n1")
            settle([nodes[0], again], after=first)
            self.assertLess(again.last_joined()["at"] - killed, harness.DEADLINE_S / 2)
            self.assertEqual(again.last_joined()["rank"], nodes[1].last_joined()["rank"])

    def test_returning_process_of_the_authority(self):
        """Nor do they wait for the lease of an authority whose node is back."""
        with self.job("2:2", PATIENT) as job:
            nodes = job.start_in_order(2)
            first = settle(nodes)
            nodes[0].kill()
            killed = time.monotonic()
            again = job.start(node_name="n0")
            settle([again, nodes[1]], after=first)
            self.assertLess(again.last_joined()["at"] - killed, harness.DEADLINE_S / 2)

    def test_old_process_does_not_replace_a_newer_one(self):
        with self.job("2:2", PATIENT) as job:
            nodes = job.start_in_order(2)
            first = settle(nodes)
            newer = job.start(node_name="n1")
            settle([nodes[0], newer], after=first)
            self.assertEqual(nodes[1].ended(), EXPELLED, nodes[1].story())
            self.assertIn("a newer process of node 'n1'", nodes[1].stderr())
            job.nodes.remove(nodes[1])

    def test_replaced_while_it_waits(self):
        with self.job("2:2", PATIENT) as job:
            first = job.start_in_order(1)[0]
            newer = job.start(node_name="n0")
            self.assertEqual(first.ended(), EXPELLED, first.story())
            job.nodes.remove(first)
            settle([newer, job.start(node_name="n1")])

    def test_old_process_wakes_up_late(self):
        """It enters again, without a word from the authority, and takes nothing from the newer."""
        with self.job("3:3", PATIENT) as job:
            sleepers = job.start_in_order(2)
            before = set(job.keys("n/n1"))
            for node in sleepers:
                harness.pause(node.process.pid)
            newer = job.start(node_name="n1")
            harness.wait_until(lambda: job.keys("n/n1") and not before & set(job.keys("n/n1")),
                               "the key to be replaced")
            after = set(job.keys("n/n1"))
            for node in sleepers:
                node.process.send_signal(signal.SIGCONT)
            authority, older = sleepers
            self.assertEqual(older.ended(), EXPELLED, older.story())
            job.nodes.remove(older)
            self.assertEqual(set(job.keys("n/n1")) & after, after)
            settle([authority, newer, job.start(node_name="n2")])

    def test_who_is_out_takes_its_key_back(self):
        """A node that finds a later round without it does not leave its key to the lease, and is
        not refused for it when it enters again."""
        with self.job("2:2", PATIENT) as job:
            nodes = job.start_in_order(2)
            settle(nodes)
            before = set(job.keys("n/"))
            last = job.round()
            strange = {**last, "round": last["round"] + 5,
                       "members": [["x", "0" * 16], ["y", "1" * 16]]}
            self.etcd.ok("POST", "/v3/kv/put", {"key": encode(job.root + "round"),
                                                "value": encode(json.dumps(strange))})
            put = time.monotonic()
            for node in nodes:
                node.wait("expelled")
            harness.wait_until(lambda: not before & set(job.keys("n/")), "the keys to go")
            self.assertLess(time.monotonic() - put, harness.DEADLINE_S / 2)
            settle(nodes, after=strange["round"])
            self.assertEqual(len(job.keys("n/")), 2)

    def test_conflicting_settings_name_both_values(self):
        with self.job("2:3") as job:
            job.start_in_order(1)
            other = job.run("join", "--nnodes", "2:4", node_name="other")
            self.assertEqual(other.returncode, USAGE, other.stderr)
            for part in ("'other' asks for 2 to 4 nodes", "this run has 2 to 3", "'n0' said"):
                self.assertIn(part, other.stderr.decode())
            self.assertEqual(job.keys("a/"), {})  # its refusal is gone with it
            settle([job.nodes[0], job.start()])

    def test_timeout_names_who_is_missing(self):
        with self.job("3:3") as job:
            job.start_in_order(1)
            late = job.run("join", "--nnodes", "3:3", join_timeout="1s", node_name="late")
            self.assertEqual(late.returncode, TIMEOUT, late.stderr)
            self.assertIn("1 more needed for the minimum of 3", late.stderr.decode())

    def test_one_id_twice(self):
        """The next job of the same name goes on with higher numbers."""
        with self.job("2:2") as job:
            first = settle([job.start(), job.start()])
            for node in job.nodes:
                node.stop()
            job.nodes.clear()
            self.assertGreater(settle([job.start(), job.start()]), first)


class Authority(Etcd):
    """The holder of the oldest key dies, or sleeps, at the worst moment."""

    def test_killed_before_the_seal(self):
        with self.job("3:3") as job:
            nodes = job.start_in_order(2)
            nodes[0].kill()
            nodes += [job.start(), job.start()]
            self.assertEqual(settle(nodes[1:]), 1)

    def test_killed_after_the_seal(self):
        with self.job("2:3") as job:
            nodes = job.start_in_order(3)
            first = settle(nodes)
            for victim in (0, 1):
                nodes[victim].kill()
                survivors = nodes[victim + 1:]
                if len(survivors) == 1:
                    survivors.append(job.start())
                for node in nodes[victim + 1:]:
                    harness.wait_until(lambda node=node, victim=victim: any(
                        nodes[victim].name in event["nodes"] for event in node.of("lost")),
                        f"{node} to be told of {victim}")
                first = settle(survivors, after=first)

    def test_killed_while_re_forming(self):
        """The round is over, some have come back, and then the authority dies."""
        with self.job("2:4", {**PATIENT, "keep_alive_interval": 2, "keep_alive_max_attempt": 2}
                      ) as job:
            nodes = job.start_in_order(4)
            first = settle(nodes)
            harness.pause(nodes[3].process.pid)  # keeps its place, and does not come back
            nodes[1].process.send_signal(signal.SIGTERM)
            job.wait_state("open")
            harness.wait_until(lambda: job.claims() == 2, "two to come back")
            nodes[0].kill()
            nodes[3].process.send_signal(signal.SIGCONT)
            settle([nodes[2], nodes[3]], after=first)

    def test_stopped_before_the_seal_and_wakes_up_late(self):
        """Its decisions after waking up have been made without it."""
        with self.job("2:2") as job:
            sleeper = job.start_in_order(1)[0]
            harness.pause(sleeper.process.pid)
            nodes = [job.start(), job.start()]
            self.assertEqual(settle(nodes), 1)
            before = job.round()
            sleeper.process.send_signal(signal.SIGCONT)
            harness.wait_until(lambda: len(job.keys("n/")) == 3, "the sleeper to enter again")
            self.assertEqual(job.round(), before)
            self.assertEqual(sleeper.of("joined"), [])
            nodes[0].kill()
            settle([nodes[1], sleeper], after=1)

    def test_stopped_in_a_round_and_wakes_up_late(self):
        with self.job("2:3") as job:
            nodes = job.start_in_order(3)
            first = settle(nodes)
            harness.pause(nodes[0].process.pid)
            second = settle(nodes[1:], after=first)
            nodes[0].process.send_signal(signal.SIGCONT)
            nodes[0].wait("expelled")
            third = settle(nodes, after=second)
            self.assertGreater(third, second)

    def test_lost_answers(self):
        """Whether something was written is found out by reading."""
        with etcd_cluster.Swallow(self.etcd.address) as tap:
            with self.job("3:3", endpoint=tap.endpoint) as job:
                entering = tap.swallow_next(b"/kv/txn")
                nodes = job.start_in_order(2)
                entering.wait()
                sealing = tap.swallow_next(b'"MOD"')  # bound to what `round` was
                nodes.append(job.start())
                sealing.wait()
                self.assertEqual(settle(nodes), 1)

    def test_lost_answer_of_the_last_one(self):
        """Its key has completed the round. It is not put again: that would ask for the next one."""
        with etcd_cluster.Swallow(self.etcd.address) as tap:
            with self.job("3:3", PATIENT) as job:
                nodes = job.start_in_order(2)
                entering = tap.swallow_next(b"/kv/txn")
                job.endpoint = tap.endpoint
                nodes.append(job.start())
                entering.wait()
                self.assertEqual(settle(nodes), 1)
                self.assertEqual([kv["version"] for kv in job.range("n/").values()], ["1"] * 3)


class Trouble(unittest.TestCase):
    """The etcd is in trouble."""

    def test_compaction_under_the_watch(self):
        with etcd_cluster.Etcd() as etcd, etcd_cluster.Swallow(etcd.address) as tap:
            with V3Job(etcd, "2:3", PATIENT, endpoint=tap.endpoint) as job:
                nodes = job.start_in_order(2)
                first = settle(nodes)
                tap.refuse()
                tap.cut()
                for i in range(3):
                    revision = etcd.ok("POST", "/v3/kv/put", {"key": encode(f"other{i}")}
                                       ).json["header"]["revision"]
                job.endpoint = etcd.endpoint
                nodes += job.start_in_order(1)  # which the authority has not seen
                revision = etcd.ok("POST", "/v3/kv/put", {"key": encode("other")}
                                   ).json["header"]["revision"]
                etcd.ok("POST", "/v3/kv/compaction", {"revision": revision})
                tap.heal()
                settle(nodes, after=first)
                self.assertEqual(nodes[0].of("expelled") + nodes[1].of("expelled"), [])

    def test_one_of_three_members_is_killed(self):
        with etcd_cluster.Cluster() as cluster:
            member = cluster.leader()
            survivor = cluster.followers()[0]
            job = V3Job(survivor, "2:5", {**PATIENT, "keep_alive_interval": 2},
                        endpoint=cluster.endpoint)
            with job:
                nodes = job.start_in_order(3)
                first = settle(nodes)
                member.kill()
                late = job.start()
                second = settle([*nodes, late], after=first)
                nodes[0].kill()  # the authority, too
                settle([*nodes[1:], late], after=second)
                for node in (*nodes, late):
                    self.assertEqual(node.of("expelled"), [])

    def test_lease_lost_is_told(self):
        """A node whose lease is revoked is told, and enters again."""
        with etcd_cluster.Etcd() as etcd, V3Job(etcd, "2:2", PATIENT,
                                                keep_alive_interval=1) as job:
            nodes = job.start_in_order(2)
            first = settle(nodes)
            kvs = etcd.ok("POST", "/v3/kv/range", {
                "key": encode(job.root + "n/n1/"), "range_end": encode(job.root + "n/n10")
            }).json["kvs"]
            etcd.ok("POST", "/v3/lease/revoke", {"ID": kvs[0]["lease"]})
            nodes[1].wait("expelled")
            self.assertEqual(nodes[0].wait("lost")["nodes"], ["n1"])
            settle(nodes, after=first)

    def test_unreachable_is_told_and_survived(self):
        with etcd_cluster.Etcd(keep=True) as etcd, V3Job(etcd, "2:2") as job:
            nodes = job.start_in_order(2, words=("--hold", "0"))
            settle(nodes)
            etcd.stop_server()
            for node in nodes:
                node.wait("unreachable")
            etcd.start_server()
            for node in nodes:
                node.wait("reachable")
                self.assertEqual(node.of("expelled", "lost"), [])

    def test_silence_is_told(self):
        """A network that carries nothing: the node knows when its lease has expired, and gives up
        after read_timeout. It does not wait to leave."""
        with etcd_cluster.Etcd() as etcd, etcd_cluster.Swallow(etcd.address) as tap:
            with V3Job(etcd, "2:2", endpoint=tap.endpoint, read_timeout=1) as job:
                nodes = job.start_in_order(2, words=("--hold", "0"))
                settle(nodes)
                tap.silence()
                began = time.monotonic()
                for node in nodes:
                    node.wait("unreachable", timeout=LEASE_S + 5 * harness.SLOWNESS)
                for node in nodes:
                    job.nodes.remove(node)
                    self.assertEqual(node.ended(), NO_CONNECTION)
                    node.discard()
                self.assertLess(time.monotonic() - began, LEASE_S + 10 * harness.SLOWNESS)

    def test_hiccup_is_not_told(self):
        """An etcd that is away for less than the rest of a lease, which has been kept alive for
        longer than it lasts: nothing to report."""
        interval = 2 * harness.SLOWNESS
        with etcd_cluster.Etcd() as etcd, etcd_cluster.Swallow(etcd.address) as tap:
            conf = {**QUICK, "keep_alive_interval": interval, "keep_alive_max_attempt": 3}
            with V3Job(etcd, "2:2", conf, endpoint=tap.endpoint) as job:
                nodes = job.start_in_order(2)
                settle(nodes)
                kept = tap.count(b"/lease/keepalive")
                harness.wait_until(lambda: tap.count(b"/lease/keepalive") >= kept + 8,
                                   "leases that are older than their time", 30 * interval)
                tap.refuse()
                tap.cut()
                time.sleep(1.25 * interval)  # each node tries in vain, with two intervals left
                tap.heal()
                kept = tap.count(b"/lease/keepalive")
                harness.wait_until(lambda: tap.count(b"/lease/keepalive") >= kept + 4,
                                   "leases that are kept alive again", 30 * interval)
                for node in nodes:
                    self.assertEqual(node.of("unreachable", "expelled", "lost"), [])
                    self.assertEqual(len(node.of("joined")), 1)


class Many(unittest.TestCase):
    """More than one document holds: ranks in keys of their own."""

    def bench(self, etcd, *words, conf=QUICK):
        done = harness.run("rendezvous", "--rdzv-backend", "etcd-v3", "--rdzv-endpoint",
                           etcd.endpoint, "--rdzv-id", "bench", "--json", "--rdzv-conf",
                           conf_text(conf), "--steady", "0", *words, program=harness.BENCH,
                           timeout=2 * PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_ranks_in_letters_and_a_death(self):
        with etcd_cluster.Etcd() as etcd:
            # The one that is to die is a process and may come last: it is waited for. The last call
            # ends when all are there, and again when all who are left are back.
            self.bench(etcd, "--nodes", "270", "--death",
                       conf={**QUICK, "last_call_timeout": PATIENCE_S, "keep_alive_interval": 3,
                             "keep_alive_max_attempt": 3})
            # Letters of the last round only: none of the node that has died.
            answer = etcd.ok("POST", "/v3/kv/range", {
                "key": encode("/muster/bench/a/"), "range_end": encode("/muster/bench/a0"),
                "count_only": True}).json
            self.assertEqual(answer.get("count"), "269")

    def test_requests(self):
        """A node that joins sends three requests: a lease, its key, a watch. The bench says so."""
        count = 20
        with etcd_cluster.Etcd() as etcd, etcd_cluster.Swallow(etcd.address) as tap:
            result = self.bench(tap, "--nodes", str(count), conf=PATIENT)
            # At the end they leave, which is not counted.
            meeting = list(itertools.takewhile(lambda it: not holds(it, '"left"'), tap.requests))
            watches, writes = (sum(what in request for request in meeting)
                               for what in (b"/watch", b"/kv/"))
            self.assertEqual(sum(b"/lease/grant" in request for request in meeting), count)
            self.assertEqual(watches, count)
            # The authority has also read everything, and written the round.
            self.assertLessEqual(writes, count + 4)
            self.assertEqual(len(meeting), count + watches + writes)
            self.assertEqual(result["watches_per_node"], 1)
            self.assertAlmostEqual(result["requests_per_node"], (len(meeting) - count) / count,
                                   places=5)

    def test_who_is_freed_is_gone(self):
        """A program that frees its nodes and does not leave: their keys go at once."""
        with etcd_cluster.Etcd() as etcd:
            self.bench(etcd, "--nodes", "3", conf=PATIENT)
            answer = etcd.ok("POST", "/v3/kv/range", {"key": encode("/muster/bench/n/"),
                                                      "range_end": encode("/muster/bench/n0")}).json
            self.assertEqual(answer.get("kvs", []), [])


if __name__ == "__main__":
    harness.main()
