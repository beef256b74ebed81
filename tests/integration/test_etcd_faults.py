"""Nodes of muster at an etcd when something breaks: a node in each phase of the older protocol, an
answer that is lost, the etcd itself.

Real `muster join` processes, real etcds. A node that has to die at a certain point talks through a
proxy that withholds the answer to the write that brings it there, and is killed then.
"""

import base64
import concurrent.futures
import itertools
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

import etcd_cluster
import etcd_v2
import harness
from agents import Agent
from nodes import PATIENCE_S, JoinNode, check_rounds, settle

BACKENDS = ("etcd", "etcd-v2")

# The older protocol's times to live, which all of its nodes use.
SETUP_S = 5
DOCUMENT_S = 10
KEY_S = 10
# etcd-v2 with the default keep-alives: three of them, five seconds apart.
EXPIRY_S = {"etcd": KEY_S, "etcd-v2": 15}

LAST_CALL_S = 1
# etcd notices an expiry up to half a second late, and nodes on a busy machine later than that.
SLACK_S = 2 * harness.SLOWNESS
# Who waits for a time to live that nothing forces is late by SETUP_S at least. Less than that is
# the machine's doing: a recovery is some twenty steps of several processes.
MARGIN_S = (SETUP_S - 1) * harness.SLOWNESS

_numbers = itertools.count()


class Group:
    """The nodes of one rendezvous at one etcd."""

    def __init__(self, etcd, backend, min, max, **options):
        self.etcd, self.backend = etcd, backend
        self.limits = f"{min}:{max}"
        self.run_id = f"faults-{os.getpid()}-{next(_numbers)}"
        self.nodes = []
        self.taps = []
        self.options = {"last_call_timeout": LAST_CALL_S, **options}
        self.options.setdefault("timeout" if backend == "etcd" else "join_timeout", PATIENCE_S)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        problems = []
        for node in self.nodes:
            try:
                node.stop()
            except Exception as error:  # all others have to be stopped, too
                problems.append(error)
        for tap in self.taps:
            tap.close()
        if kind is None and problems:
            raise problems[0]
        if kind is None:
            check_rounds(self.nodes)

    def endpoint(self):
        """Of a cluster all members, in another order for every node, so that each member is the
        first one of some."""
        if not hasattr(self.etcd, "endpoints"):
            return self.etcd.endpoint
        all_ = self.etcd.endpoints()
        first = len(self.nodes) % len(all_)
        return ",".join(all_[first:] + all_[:first])

    def known(self, endpoint=None, **options):
        options = {**self.options, **options}
        return ["--rdzv-backend", self.backend, "--rdzv-endpoint", endpoint or self.endpoint(),
                "--rdzv-id", self.run_id, "--rdzv-conf",
                ",".join(f"{key}={value}" for key, value in options.items())]

    def start(self, endpoint=None, words=("--hold", "0", "--rejoin"), **options):
        """A node on its way into the rendezvous."""
        node = JoinNode(self.known(endpoint, **options),
                        ["--nnodes", self.limits, "--local-addr", "127.0.0.1", *words])
        self.nodes.append(node)
        node.join()
        return node

    def several(self, count, **options):
        return [self.start(**options) for _ in range(count)]

    def tap(self):
        """A proxy for one node."""
        tap = etcd_cluster.Swallow(self.etcd.address)
        self.taps.append(tap)
        return tap

    def status(self):
        done = harness.run("status", *self.known(), "--json")
        if done.returncode != 0:
            raise AssertionError(f"muster status ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    # --- the older protocol's keys

    def key(self, name):
        return f"/torchelastic/p2p/run_{self.run_id}/rdzv/{name}"

    def document(self):
        return self.etcd.v2.json(self.key("active_version"))

    def wait_document(self, what, holds):
        """Wait for a document of which holds(document) is true."""
        def look():
            document = self.document()
            return document if document is not None and holds(document) else None
        return harness.wait_until(look, what)


def writes(holds):
    """For a proxy: a write of the document for which holds(document) is true."""
    def fits(data):
        request = etcd_v2.Request.of(data)
        return (request.is_write("/active_version") and request.document() != {}
                and holds(request.document()))
    return fits


def watches(data):
    """For a proxy: a long poll."""
    return etcd_v2.Request.of(data).is_watch()


def joins(count):
    return writes(lambda document: document["status"] == "joinable"
                    and len(document.get("participants", ())) == count)


def confirms(data):
    """For a proxy: the write of a member's own key, by which it confirms."""
    request = etcd_v2.Request.of(data)
    return request.is_write("/rank_" + request.path.rsplit("_", 1)[-1])


def check_stays(nodes, seconds):
    """They stay in the round in which they are."""
    rounds = [node.last_joined()["round"] for node in nodes]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert [node.last_joined()["round"] for node in nodes] == rounds
        assert not any(node.is_gone for node in nodes)
        time.sleep(0.1)


def recovered(death_s, survivors):
    """Seconds from the death until the last of them was in the round in which all are now."""
    return max(node.last_joined()["at"] for node in survivors) - death_s


def foreign_connections(etcd):
    """How many connections to the etcd there are, but for those from itself."""
    own = set()
    directory = f"/proc/{etcd.etcd_pid}/fd"
    for name in os.listdir(directory):
        try:
            own.add(os.readlink(f"{directory}/{name}"))
        except FileNotFoundError:
            pass  # closed in the meantime
    count = 0
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}", encoding="ascii") as table:
            for line in table.readlines()[1:]:
                fields = line.split()
                remote, state, inode = fields[2], fields[3], fields[9]
                if int(remote.rsplit(":", 1)[1], 16) == etcd.port and state == "01":
                    count += f"socket:[{inode}]" not in own
    return count


class Case(unittest.TestCase):
    """Each test has an etcd of its own, and nothing is left of it in the end."""

    def setUp(self):
        self.addCleanup(etcd_cluster.Leaks().check)

    def etcd(self, **options):
        etcd = etcd_cluster.Etcd(enable_v2=True, **options)
        self.addCleanup(etcd.stop)
        self.addCleanup(self.check_left, etcd)
        return etcd

    def check_left(self, etcd):
        """Nodes that have ended have left no connection, nor a lease."""
        if not etcd.is_healthy():
            return
        harness.wait_until(lambda: foreign_connections(etcd) == 0, "connections to be closed")
        leases = etcd.ok("POST", "/v3/lease/leases", {}).json.get("leases", [])
        self.assertEqual(leases, [])

    def all_of(self, *scenarios):
        """Run scenarios at the same time, for they wait most of it."""
        with concurrent.futures.ThreadPoolExecutor(len(scenarios)) as pool:
            futures = [(scenario, pool.submit(scenario)) for scenario in scenarios]
        for scenario, future in futures:
            with self.subTest(scenario.__name__):
                print(f"  {scenario.__name__}: {future.result()}", flush=True)


# --- a node dies in each phase of the older protocol -----------------------------------------


class Phases(Case):
    """Recovery is never slower than the times to live force; it is told for each phase."""

    def test_death_in_each_phase(self):
        etcd = self.etcd()

        def victim_at(group, fits):
            """A node that has just done a write for which fits is true, and has died."""
            tap = group.tap()
            rule = tap.withhold_next(fits)
            victim = group.start(tap.endpoint)
            rule.wait(PATIENCE_S)
            victim.kill()
            return time.monotonic()

        def renewed(group, what, fits):
            """When a survivor has written the document once more: its time to live counts from
            there, and not from the death. Until then a process has to start."""
            group.wait_document(what, fits)
            return time.monotonic()

        def is_frozen(doc):
            return doc["status"] == "frozen"

        def check(group, death_s, survivors, limit_s, after=-1):
            settle(survivors, after)
            took = recovered(death_s, survivors)
            assert took <= limit_s + MARGIN_S, f"{took:.1f} s; forced are {limit_s} s"
            return f"{took:.2f} s of {limit_s} s"

        def setup():
            with Group(etcd, "etcd", 2, 2) as group:
                death_s = victim_at(group, writes(lambda doc: doc["status"] == "setup"))
                return check(group, death_s, group.several(2), SETUP_S)

        def joinable():
            with Group(etcd, "etcd", 2, 2) as group:
                victim_at(group, joins(1))
                survivors = group.several(2)
                began_s = renewed(group, "the dead one and another", is_frozen)
                return check(group, began_s, survivors, DOCUMENT_S)

        def last_call():
            with Group(etcd, "etcd", 2, 3) as group:
                first = group.start()
                group.wait_document("the first to have joined",
                                    lambda doc: len(doc.get("participants", ())) == 1)
                # It brings the count to the minimum, so the last call is its business.
                victim_at(group, joins(2))
                survivors = [first, group.start()]
                began_s = renewed(group, "the dead one and two others", is_frozen)
                return check(group, began_s, survivors, DOCUMENT_S + LAST_CALL_S)

        def frozen():
            with Group(etcd, "etcd", 3, 3) as group:
                first = group.several(2)
                group.wait_document("two to have joined",
                                    lambda doc: len(doc.get("participants", ())) == 2)
                victim_at(group, writes(lambda doc: is_frozen(doc) and doc["keep_alives"] == []))
                began_s = renewed(group, "all but the dead one to confirm",
                                  lambda doc: is_frozen(doc) and len(doc["keep_alives"]) == 2)
                return check(group, began_s, [*first, group.start()], DOCUMENT_S)

        def confirmed():
            with Group(etcd, "etcd", 2, 3, last_call_timeout=5) as group:
                # The others confirm after the victim, so that it is not the last.
                taps = [group.tap() for _ in range(2)]
                rules = [tap.hold_back_next(confirms) for tap in taps]
                others = [group.start(tap.endpoint) for tap in taps]
                death_s = victim_at(group, confirms)
                assert group.document()["status"] == "frozen", group.document()
                for rule in rules:
                    rule.release()
                return check(group, death_s, others, KEY_S + 5)

        def final():
            with Group(etcd, "etcd", 2, 3) as group:
                nodes = group.several(3)
                done = settle(nodes)
                victim = nodes.pop()
                victim.kill()
                death_s = time.monotonic()
                # The first to notice re-enters, which is what the other may hear of first.
                for node in nodes:
                    node.wait("lost", "waiting", timeout=KEY_S + MARGIN_S)
                return check(group, death_s, nodes, KEY_S + LAST_CALL_S, after=done)

        announces = writes(lambda doc: doc.get("num_workers_waiting", 0) > 0)

        def waiter():
            with Group(etcd, "etcd", 2, 3) as group:
                nodes = group.several(2)
                done = settle(nodes)
                # They have made room for it, and go on without it when the last call is over.
                death_s = victim_at(group, announces)
                return check(group, death_s, nodes, LAST_CALL_S, after=done)

        def waiter_forgotten():
            with Group(etcd, "etcd", 2, 3) as group:
                nodes = group.several(2, words=("--hold", "0"))
                settle(nodes)
                death_s = victim_at(group, announces)
                for node in nodes:
                    assert node.wait("waiting")["nodes"] == 1, node.story()
                harness.wait_until(lambda: group.status()["waiting"] == [], "nobody to wait",
                                   KEY_S + MARGIN_S)
                return f"{time.monotonic() - death_s:.2f} s of {KEY_S} s"

        self.all_of(setup, joinable, last_call, frozen, confirmed, final, waiter,
                    waiter_forgotten)

    def test_reentry_with_nobody_dead(self):
        """Only nodes of ours: no key has to expire before the next round."""
        etcd = self.etcd()
        with Group(etcd, "etcd", 3, 4) as group:
            nodes = group.several(3)
            done = settle(nodes)
            began = time.monotonic()
            nodes.append(group.start())
            settle(nodes, done)
            took = recovered(began, nodes)
            print(f"  a fourth is let in: {took:.2f} s", flush=True)
            assert took < 2 * harness.DEADLINE_S / 20, f"{took:.2f} s"


# --- lost answers ----------------------------------------------------------------------------


class Swallowed(Case):
    """The write is done, the connection breaks, and the node does not do it again."""

    def test_every_write_of_the_document(self):
        etcd = self.etcd()

        def swallow(name, fits, min=2, max=3, others=1):
            def scenario():
                with Group(etcd, "etcd", min, max) as group:
                    tap = group.tap()
                    rule = tap.swallow_next(fits)
                    began = time.monotonic()
                    node = group.start(tap.endpoint)
                    nodes = [node, *group.several(others)]
                    rule.wait(PATIENCE_S)
                    done = settle(nodes)
                    took = recovered(began, nodes)
                    document = group.document()
                    count = others + 1
                    assert document["participants"] == list(range(count)), document
                    assert len(set(document["keep_alives"])) == count, document
                    assert len(document["keep_alives"]) == count, document
                    assert document["version"] == str(done) == "1", document
                    # No key had to expire for it.
                    assert took < SETUP_S + SLACK_S, f"{took:.1f} s"
                    return f"{took:.2f} s"
            scenario.__name__ = name
            return scenario

        self.all_of(
            swallow("setup", writes(lambda doc: doc["status"] == "setup"), min=1, others=0),
            swallow("join", writes(lambda doc: doc["status"] in ("joinable", "frozen")
                                     and len(doc.get("participants", ())) >= 1)),
            swallow("freeze", writes(lambda doc: doc["status"] == "frozen"
                                       and doc["keep_alives"] == []), min=1, others=0),
            swallow("confirm", confirms, max=2),
            swallow("finish", writes(lambda doc: doc["status"] == "final"), min=1, others=0))

    def test_announcement(self):
        """A newcomer whose announcement was not answered counts once as waiting, not twice."""
        etcd = self.etcd()
        with Group(etcd, "etcd", 1, 3) as group:
            member = group.start(words=("--hold", "0"))
            settle([member])
            tap = group.tap()
            rule = tap.swallow_next(writes(lambda doc: doc.get("num_workers_waiting", 0) > 0))
            group.start(tap.endpoint)
            rule.wait(PATIENCE_S)
            assert member.wait("waiting")["nodes"] == 1, member.story()
            # It has found its announcement when it waits for the round to end.
            asked = len(tap.requests)
            harness.wait_until(lambda: any(watches(data) for data in tap.requests[asked:]),
                               "the newcomer to wait")
            assert group.document()["num_workers_waiting"] == 1, group.document()

    def test_record(self):
        """etcd-v2: the record is read, and the node finds itself in it."""
        etcd = self.etcd()
        with Group(etcd, "etcd-v2", 2, 2) as group:
            tap = group.tap()
            rule = tap.swallow_next(
                lambda data: etcd_v2.Request.of(data).is_write("/" + group.run_id))
            began = time.monotonic()
            nodes = [group.start(tap.endpoint), group.start()]
            rule.wait(PATIENCE_S)
            settle(nodes)
            took = recovered(began, nodes)
            assert took < SETUP_S + SLACK_S, f"{took:.1f} s"
            assert tap.requests.count(rule.request) == 1, "the same write was sent twice"


# --- the etcd stops, ends, forgets -----------------------------------------------------------


class Disturbed(Case):
    def joined(self, etcd, backend, count, **options):
        group = Group(etcd, backend, count, count, **options)
        group.__enter__()
        self.addCleanup(group.__exit__, None, None, None)
        nodes = group.several(count)
        return group, nodes, settle(nodes)

    def expect_calm(self, nodes, seconds):
        """No node is expelled or lost, and none enters another round."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for node in nodes:
                assert node.of("lost", "expelled", "waiting", "closed") == [], node.story()
                assert len(node.of("joined")) == 1, node.story()
                assert not node.is_gone, node.story()
            time.sleep(0.1)

    def expect_together(self, nodes, backend, done):
        """After an outage longer than any TTL: all nodes were told, and all are in one round.
        The keys of the older protocol have expired; a record has not, and no node could expel
        others."""
        began = time.monotonic()
        for node in nodes:
            node.wait("expelled", "lost", "unreachable", "waiting")
        settle(nodes, after=done if backend == "etcd" else -1)
        check_stays(nodes, EXPIRY_S[backend] + SLACK_S)
        took = recovered(began, nodes)
        return f"together again after {took:.2f} s" if took > 0 else "the round has gone on"


class Outage(Disturbed):
    def test_stopped_for_3_s(self):
        def stopped(backend):
            etcd = self.etcd()
            _, nodes, _ = self.joined(etcd, backend, 4)
            etcd.pause()
            time.sleep(3)
            etcd.resume()
            self.expect_calm(nodes, EXPIRY_S[backend] + SLACK_S)
            return "calm"

        self.all_of(*(named(stopped, backend) for backend in BACKENDS))

    def test_stopped_for_20_s(self):
        def stopped(backend):
            etcd = self.etcd()
            _, nodes, done = self.joined(etcd, backend, 4)
            etcd.pause()
            time.sleep(20)
            etcd.resume()
            return self.expect_together(nodes, backend, done)

        self.all_of(*(named(stopped, backend) for backend in BACKENDS))

    def test_expelled_by_the_own_clock(self):
        """A node whose key must have expired says so, and not that the etcd answers again."""
        etcd = self.etcd()
        _, (node,), _ = self.joined(etcd, "etcd", 1)
        etcd.pause()
        node.wait("expelled")
        etcd.resume()
        node.wait("joined", count=2)
        self.assertEqual([event["event"] for event in node.of("unreachable", "reachable")],
                         ["unreachable"], node.story())

    def test_terminated_during_a_watch(self):
        """A node that waits for others goes on waiting at the etcd that has come back."""
        def terminated(backend):
            etcd = self.etcd(keep=True)
            with Group(etcd, backend, 2, 2) as group:
                tap = group.tap()
                first = group.start(tap.endpoint)
                harness.wait_until(lambda: any(watches(data) for data in list(tap.requests)),
                                   "the first to wait", PATIENCE_S)
                etcd.stop_server(signal.SIGTERM)
                etcd.start_server()
                began = time.monotonic()
                nodes = [first, group.start()]
                settle(nodes)
                return f"{recovered(began, nodes):.2f} s"

        self.all_of(*(named(terminated, backend) for backend in BACKENDS))

    def test_history_is_cleared(self):
        """A watch from an index that etcd has forgotten is an occasion to read."""
        def cleared(backend):
            etcd = self.etcd()
            # It remembers the last 1,000 changes.
            etcd.v2.put("/other", value="x", ttl=100)
            for _ in range(1100):
                etcd.v2.put("/other", ttl=100, refresh=True, prevExist=True)
            with Group(etcd, backend, 2, 2) as group:
                tap = group.tap()
                # As if so much had changed since the node has read. A node whose watch is held back
                # for as long as that takes may have given it up.
                tap.alter_next(watches, lambda request: re.sub(
                    rb"waitIndex=\d+", b"waitIndex=1", request))
                first = group.start(tap.endpoint)
                harness.wait_until(lambda: b'"errorCode":401' in tap.answers, "etcd to refuse",
                                   PATIENCE_S)
                nodes = [first, group.start()]
                settle(nodes)
                return "read anew"

        self.all_of(*(named(cleared, backend) for backend in BACKENDS))


class Sixteen(Disturbed):
    """etcd is killed under sixteen nodes."""

    def killed(self, backend, away_s):
        etcd = self.etcd(keep=True)
        group, nodes, done = self.joined(etcd, backend, 16)
        etcd.stop_server(signal.SIGKILL)
        killed = time.monotonic()
        time.sleep(away_s)
        return etcd, nodes, done, killed

    def back_in_time(self, backend):
        etcd, nodes, _, _ = self.killed(backend, 2)
        etcd.start_server()
        self.expect_calm(nodes, EXPIRY_S[backend] + SLACK_S)

    def not_back(self, backend):
        etcd, nodes, done, killed = self.killed(backend, 0)
        # While it is away, all nodes learn that their membership cannot have lasted.
        for node in nodes:
            told = node.wait("unreachable", "expelled", timeout=EXPIRY_S[backend] + SLACK_S)
            assert told["at"] <= killed + EXPIRY_S[backend] + SLACK_S
        time.sleep(max(0, killed + EXPIRY_S[backend] + 1 - time.monotonic()))
        etcd.start_server()
        print(f"  {backend}: {self.expect_together(nodes, backend, done)}", flush=True)

    # Each by itself, so that they can run at the same time.

    def test_back_in_time_etcd(self):
        self.back_in_time("etcd")

    def test_back_in_time_etcd_v2(self):
        self.back_in_time("etcd-v2")

    def test_not_back_etcd(self):
        self.not_back("etcd")

    def test_not_back_etcd_v2(self):
        self.not_back("etcd-v2")


# --- three members ---------------------------------------------------------------------------


class Cluster(Disturbed):
    def survive(self, break_it):
        """Nodes that know all members are not disturbed by what break_it(cluster) does, and a
        newcomer gets in afterwards."""
        with etcd_cluster.Cluster(enable_v2=True) as cluster, \
                Group(cluster, "etcd", 4, 5) as older, Group(cluster, "etcd-v2", 4, 5) as newer:
            groups = [(group, group.several(4)) for group in (older, newer)]
            done = [settle(nodes) for _, nodes in groups]
            break_it(cluster)
            self.expect_calm([node for _, nodes in groups for node in nodes],
                             max(EXPIRY_S.values()) + SLACK_S)
            for (group, nodes), before in zip(groups, done):
                with self.subTest(group.backend):
                    nodes.append(group.start())
                    settle(nodes, after=before)

    def test_leader_is_killed(self):
        self.survive(lambda cluster: cluster.leader().kill())

    def test_follower_is_killed(self):
        self.survive(lambda cluster: cluster.followers()[0].kill())

    def test_member_is_restarted(self):
        def restart(cluster):
            member = cluster.followers()[0]
            member.kill()
            cluster.restart(member)
        self.survive(restart)

    def test_quorum_is_lost_and_got_back(self):
        def lose(cluster):
            one, two = cluster.followers()
            one.kill()
            two.kill()
            time.sleep(2)  # without a majority, for less than a node's key lives
            cluster.restart(one)
        self.survive(lose)


# How long a wait may stay at a member that hangs: a watch is checked after 15 s of silence.
WATCH_S = 20


class Hung(unittest.TestCase):
    """One of three members stands still; its connections stay open and silent, and the other two
    have a leader. Every client names it first."""

    def setUp(self):
        self.addCleanup(etcd_cluster.Leaks().check)
        self.cluster = etcd_cluster.Cluster(enable_v2=True)
        self.addCleanup(self.cluster.stop)

    def first(self, member):
        """The endpoints, with that of the member first."""
        return ",".join([member.endpoint, *(other.endpoint for other in self.cluster.members
                                            if other is not member)])

    def agent(self, backend, endpoint, done):
        """A node whose worker works until the file `done` exists."""
        agent = Agent("--nnodes", 2, "--rdzv-backend", backend, "--rdzv-endpoint", endpoint,
                      "--rdzv-id", self.id(), "--", "sh", "-c",
                      "echo at $RANK/$WORLD_SIZE $TORCHELASTIC_RESTART_COUNT; "
                      f"while [ ! -e {done} ]; do sleep 0.1; done")
        self.addCleanup(agent.close)
        return agent

    def start(self, endpoint, done):
        """Two nodes for each backend, which work: {backend: nodes}."""
        groups = {backend: [self.agent(backend, endpoint, done) for _ in range(2)]
                  for backend in (*BACKENDS, "etcd-v3")}
        for backend, agents in groups.items():
            with self.subTest(backend):
                ranks = sorted(agent.until("at ")[0] for agent in agents)
                self.assertEqual(ranks, ["at 0/2 0", "at 1/2 0"])
        return groups

    def expect_end(self, groups):
        """All end well, and none has begun a second time."""
        for backend, agents in groups.items():
            with self.subTest(backend):
                for agent in agents:
                    self.assertEqual(agent.wait(PATIENCE_S), 0, agent.stderr())
                    self.assertEqual(len(agent.lines), 1, agent.stderr())

    def work_through(self, member):
        """The member stands still while jobs work and end."""
        with tempfile.TemporaryDirectory() as directory:
            done = os.path.join(directory, "done")
            groups = self.start(self.first(member), done)
            member.pause()
            end = time.monotonic() + max(EXPIRY_S.values()) + KEY_S + SLACK_S
            while time.monotonic() < end:
                for agents in groups.values():
                    for agent in agents:
                        self.assertIsNone(agent.process.poll(), agent.stderr())
                        self.assertEqual(len(agent.lines), 1, agent.stderr())
                time.sleep(0.1)
            began = time.monotonic()
            with open(done, "w", encoding="ascii"):
                pass
            self.expect_end(groups)
            self.assertLess(time.monotonic() - began, KEY_S + SLACK_S)
            for agents in groups.values():
                for agent in agents:
                    turns = agent.stderr().count("ev=etcd.rotated")
                    self.assertLessEqual(turns, 3 * len(self.cluster.members), agent.stderr())

    def test_follower(self):
        self.work_through(self.cluster.followers()[0])

    def test_leader(self):
        self.work_through(self.cluster.leader())

    def test_before_the_start(self):
        """Nodes whose first member hangs from the beginning meet nearly as soon as others."""
        member = self.cluster.followers()[0]
        member.pause()
        with tempfile.TemporaryDirectory() as directory:
            done = os.path.join(directory, "done")
            with open(done, "w", encoding="ascii"):
                pass
            began = time.monotonic()
            self.expect_end(self.start(self.first(member), done))
            # The last call of the older protocol lasts 30 s, but its rounds are full here.
            self.assertLess(time.monotonic() - began, 12 + SLACK_S)

    def test_stores(self):
        member = self.cluster.followers()[0]
        for scheme in ("etcd2", "etcd3"):
            url = f"{scheme}://{self.first(member)}/{scheme}"
            with self.subTest(scheme):
                waiter = subprocess.Popen(
                    [harness.MUSTER, "store", "wait", "--timeout", "60s", url, "late"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.addCleanup(waiter.communicate)
                self.addCleanup(waiter.kill)
                time.sleep(1)
                member.pause()
                for words in (("set", url, "a", "b"), ("get", url, "a"), ("add", url, "n", "1"),
                              ("set", url, "late", "x")):
                    began = time.monotonic()
                    done = harness.run("store", *words, "--timeout", "10s")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertLess(time.monotonic() - began, 5 + SLACK_S, words)
                self.assertEqual(waiter.wait(PATIENCE_S), 0, waiter.stderr.read())
                self.assertLess(time.monotonic() - began, WATCH_S + SLACK_S)
            member.resume()
            self.cluster.wait_healthy(member)


# --- the v3 store ----------------------------------------------------------------------------


def text64(text):
    return base64.b64encode(text.encode()).decode()


class Store3(Case):
    def store(self, *words):
        """A `muster store` that runs."""
        process = subprocess.Popen([harness.MUSTER, "store", *words], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_compaction_under_a_watch(self):
        etcd = self.etcd()
        tap = etcd_cluster.Swallow(etcd.address)
        self.addCleanup(tap.close)
        rule = tap.hold_back_next(rb"^POST \S*/watch ")
        waiter = self.store("wait", "--timeout", "60s", f"etcd3://{tap.endpoint}/p", "key")
        rule.wait()
        for number in range(3):
            put = {"key": text64("/other"), "value": text64(str(number))}
            revision = etcd.ok("POST", "/v3/kv/put", put).json["header"]["revision"]
        etcd.ok("POST", "/v3/kv/compaction", {"revision": revision})
        rule.release()
        harness.wait_until(lambda: b"compact_revision" in tap.answers, "the watch to be cancelled")
        self.assertIsNone(waiter.poll())
        done = harness.run("store", "set", f"etcd3://{etcd.endpoint}/p", "key", "value")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(waiter.wait(harness.DEADLINE_S), 0)

    def test_lease_is_lost(self):
        """A call that waits at a store whose lease is gone fails, and does not wait for ever."""
        etcd = self.etcd()
        tap = etcd_cluster.Swallow(etcd.address)
        self.addCleanup(tap.close)
        waiter = self.store("wait", "--timeout", "10m", f"etcd3://{tap.endpoint}/p?lease=6", "key")
        harness.wait_until(lambda: tap.count(rb"^POST \S*/watch "), "the store to wait")
        (lease,) = etcd.ok("POST", "/v3/lease/leases", {}).json["leases"]
        etcd.ok("POST", "/v3/lease/revoke", {"ID": lease["ID"]})
        self.assertNotEqual(waiter.wait(PATIENCE_S), 0)
        self.assertIn(b"lease", waiter.stderr.read())


def named(function, *args):
    """function(*args) as a scenario with a name of its own."""
    def scenario():
        return function(*args)
    scenario.__name__ = "-".join([function.__name__, *map(str, args)])
    return scenario


class Silence(Case):
    """Launchers end although the etcd hangs: it accepts connections and answers nothing."""

    LEAVE_S = 5 * harness.SLOWNESS
    # A write that is under way is not interrupted at an etcd.
    TELL_S = 10 + 4 + 2 * LEAVE_S

    def work(self, script):
        """Two nodes for each backend, which work when the etcd hangs."""
        self.server = etcd_cluster.Etcd(enable_v2=True)
        self.addCleanup(self.server.stop)  # leases stay: nobody could revoke them
        agents = []
        for backend in (*BACKENDS, "etcd-v3"):
            for _ in range(2):
                agents.append(Agent(
                    "--nnodes", 2, "--rdzv-backend", backend, "--rdzv-endpoint",
                    self.server.endpoint, "--rdzv-id", f"{self.id()}-{backend}", "--rdzv-conf",
                    f"last_call_timeout={LAST_CALL_S}", "--", "sh", "-c", f"echo at; {script}"))
                self.addCleanup(agents[-1].close)
        for agent in agents:
            agent.until("at")
        self.server.pause()
        return agents

    def check(self, agents, since, limit_s, status, *words):
        for agent in agents:
            self.assertEqual(agent.wait(limit_s + harness.DEADLINE_S), status, agent.stderr())
            self.assertLess(agent.end - since, limit_s, agent.stderr())
            for word in words:
                self.assertIn(word, agent.stderr())

    def finish(self, status, *words):
        with tempfile.TemporaryDirectory() as directory:
            go = os.path.join(directory, "go")
            agents = self.work(f"while [ ! -e {go} ]; do sleep 0.1; done; exit {status}")
            since = time.monotonic()
            os.mkdir(go)
            self.check(agents, since, self.TELL_S, status, *words,
                       "the others were not told: the rendezvous at "
                       f"{self.server.endpoint} ")

    def test_signal(self):
        agents = self.work("exec sleep 1000")
        since = time.monotonic()
        for agent in agents:
            agent.signal(signal.SIGTERM)
        self.check(agents, since, self.LEAVE_S, 128 + signal.SIGTERM)

    def test_success(self):
        self.finish(0, "the work of this node is done")

    def test_failure(self):
        self.finish(7, "this node has failed", "exitcode  : 7")


if __name__ == "__main__":
    harness.main()
