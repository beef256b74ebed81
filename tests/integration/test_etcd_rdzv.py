"""muster join, status and close, and muster-bench, with backends `etcd` and `etcd-v2`, at real
etcds."""

import itertools
import json
import os
import re
import signal
import socket
import tempfile
import time
import unittest

import etcd_cluster
import harness
from nodes import CLOSED, PATIENCE_S, JoinNode, check_rounds, settle

BACKENDS = ("etcd-v2", "etcd")

# Quick where the protocol leaves it to us; the older one has fixed times to live.
CONF = {
    "etcd-v2": {"last_call_timeout": 1, "join_timeout": PATIENCE_S, "keep_alive_interval": 1},
    "etcd": {"last_call_timeout": 1, "timeout": PATIENCE_S},
}

USAGE, ABSENT, NO_CONNECTION, NO_RENDEZVOUS, FAILED = 2, 3, 5, 10, 1

_numbers = itertools.count()


def conf_text(options):
    return ",".join(f"{key}={value}" for key, value in options.items())


class Job:
    """The nodes of one rendezvous."""

    def __init__(self, backend, endpoint, limits, env=None, **options):
        self.run_id = f"rdzv-{os.getpid()}-{next(_numbers)}"
        self.backend, self.endpoint, self.limits, self.env = backend, endpoint, limits, env
        self.conf = {**CONF[backend], **options}
        self.nodes = []
        self.is_record_lost = False  # rounds are counted anew then

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        problems = []
        for node in self.nodes:
            try:
                node.stop()
            except Exception as error:  # all others have to be stopped, too
                problems.append(error)
        if kind is None and problems:
            raise problems[0]
        if kind is None and not self.is_record_lost:
            check_rounds(self.nodes)

    def options(self, **more):
        return ["--rdzv-backend", self.backend, "--rdzv-endpoint", self.endpoint,
                "--rdzv-id", self.run_id, "--rdzv-conf", conf_text({**self.conf, **more})]

    def start(self, words=("--hold", "0", "--rejoin"), **more):
        node = JoinNode(self.options(**more),
                        ["--nnodes", self.limits, "--local-addr", "127.0.0.1", *words], self.env)
        self.nodes.append(node)
        node.join()
        return node

    def run(self, command, *words, **more):
        return harness.run(command, *self.options(**more), *words, env=self.env)

    def status(self):
        done = self.run("status", "--json")
        if done.returncode != 0:
            raise AssertionError(f"muster status ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)


class Plain(unittest.TestCase):
    """At one etcd without TLS and users."""

    @classmethod
    def setUpClass(cls):
        cls.etcd = etcd_cluster.Etcd(enable_v2=True, keep=True)
        cls.addClassCleanup(cls.etcd.stop)

    def job(self, backend, limits, **options):
        return Job(backend, self.etcd.endpoint, limits, **options)

    def each(self):
        for backend in BACKENDS:
            with self.subTest(backend=backend):
                yield backend

    def test_whole_story(self):
        """Four meet, one is killed, the others re-form, a newcomer is let in, it is closed."""
        for backend in self.each():
            with self.job(backend, "3:4") as job:
                nodes = [job.start() for _ in range(4)]
                first = settle(nodes)
                nodes[1].kill()
                others = [nodes[0], nodes[2], nodes[3]]
                second = settle(others, after=first)
                late = job.start()
                settle([*others, late], after=second)

                status = job.status()
                self.assertTrue(status["complete"])
                self.assertEqual(sorted(p["rank"] for p in status["participants"]), [0, 1, 2, 3])
                self.assertEqual({p["node"] for p in status["participants"]},
                                 {node.name for node in (*others, late)})
                for participant in status["participants"]:
                    self.assertIsNotNone(participant["heartbeat_age_ms"], participant)
                self.assertIn("running with 4 nodes and waiting for nobody", status["summary"])

                closed = job.run("close")
                self.assertEqual(closed.returncode, 0, closed.stderr)
                for node in (*others, late):
                    self.assertEqual(node.ended(), CLOSED, node.story())
                    node.wait("closed")
                again = job.run("join", "--nnodes", "3:4")
                self.assertEqual(again.returncode, CLOSED, again.stderr)
                self.assertTrue(job.status()["closed"])

    def test_lost_is_named(self):
        for backend in self.each():
            with self.job(backend, "1:3") as job:
                nodes = [job.start(words=("--hold", "0")) for _ in range(3)]
                settle(nodes)
                nodes[2].kill()
                self.assertEqual(nodes[0].wait("lost")["nodes"], [nodes[2].name])
                self.assertEqual(nodes[1].wait("lost")["nodes"], [nodes[2].name])

    def test_leaving_is_quick(self):
        """The others do not wait for the keys of a node that has left to expire."""
        for backend in self.each():
            options = {"keep_alive_interval": 5} if backend == "etcd-v2" else {}
            with self.job(backend, "2:3", last_call_timeout="100ms", **options) as job:
                nodes = [job.start() for _ in range(3)]
                first = settle(nodes)
                nodes[2].process.send_signal(signal.SIGTERM)
                left = time.monotonic()
                self.assertEqual(nodes[2].ended(), 0)
                settle(nodes[:2], after=first)
                took = max(node.last_joined()["at"] for node in nodes[:2]) - left
                # Half of the ten seconds that keys of the older protocol live; the others fifteen.
                self.assertLess(took, 5 * harness.SLOWNESS)

    def test_nodes_are_woken(self):
        """Between their heartbeats nodes ask for nothing; a change reaches them at once."""
        for backend in self.each():
            with etcd_cluster.Swallow(self.etcd.address) as tap:
                options = {"keep_alive_interval": 5} if backend == "etcd-v2" else {}
                job = Job(backend, tap.endpoint, "2:3", **options)
                with job:
                    nodes = [job.start(words=("--hold", "0")) for _ in range(2)]
                    settle(nodes)
                    # The joining itself may still have echoes; three heartbeats of each, and not
                    # one look per second.
                    before = tap.count()
                    until = time.monotonic() + 6
                    harness.wait_until(lambda: time.monotonic() >= until, "six seconds to pass")
                    self.assertLessEqual(tap.count() - before, 2 * 10)
                    late = job.start()
                    since = time.monotonic()
                    for node in nodes:
                        node.wait("waiting")
                    self.assertLess(time.monotonic() - since, harness.DEADLINE_S / 10)
                    late.process.terminate()

    def test_deleted_key(self):
        """A vanished record counts as a lost race."""
        with self.job("etcd-v2", "2:2") as job:
            nodes = [job.start() for _ in range(2)]
            settle(nodes)
            joined = [len(node.of("joined")) for node in nodes]
            job.is_record_lost = True
            self.etcd.v2.key("DELETE", f"/torch/elastic/rendezvous/{job.run_id}")
            for node, count in zip(nodes, joined):
                node.wait("joined", count=count + 1)

    def test_record_is_torchs(self):
        with self.job("etcd-v2", "1:1") as job:
            node = job.start()
            settle([node])
            stored = self.etcd.v2.get(f"/torch/elastic/rendezvous/{job.run_id}")
            self.assertRegex(stored["value"], r"\A[A-Za-z0-9+/]+=*\Z")
            self.assertGreater(stored["ttl"], 7100)
            self.assertLessEqual(stored["ttl"], 7200)
            self.assertTrue(self.etcd.v2.names("/torch/elastic/store"))

    def test_run_id_below_another(self):
        """`a` and `a/b` cannot both be keys."""
        with self.job("etcd-v2", "1:1") as job:
            settle([job.start()])
            job.run_id, whole = f"{job.run_id}-x", job.run_id
            self.etcd.v2.put(f"/torch/elastic/rendezvous/{job.run_id}/b", value="1")
            done = job.run("join", "--nnodes", "1")
            self.assertEqual(done.returncode, NO_RENDEZVOUS, done.stderr)
            self.assertIn(b"is a directory", done.stderr)
            job.run_id = whole

    def test_prefix_without_slash(self):
        """torch's own nodes count such a round as dead."""
        prefix = f"jobs-{os.getpid()}/elastic/"
        with self.job("etcd", "2:2", etcd_prefix=prefix) as job:
            nodes = [job.start() for _ in range(2)]
            settle(nodes)
            document = self.etcd.v2.json(f"/{prefix}run_{job.run_id}/rdzv/active_version")
            self.assertEqual(document["status"], "final")
            self.assertTrue(all(key.startswith(f"/{prefix}") for key in document["keep_alives"]))

    def test_status_of_documents(self):
        """One sentence: what the document of the older protocol waits for."""
        job = self.job("etcd", "1:1")
        key = f"/torchelastic/p2p/run_{job.run_id}/rdzv/active_version"
        absent = job.run("status", "--json")
        self.assertEqual(absent.returncode, ABSENT)
        self.assertFalse(json.loads(absent.stdout)["exists"])
        round_ = {"version": "7", "participants": [0, 1, 2]}
        cases = (
            ({"status": "setup"}, "about to open a round"),
            ({"status": "joinable", **round_}, "Round 7 is waiting for 2 more nodes (3 of min 5)."),
            ({"status": "frozen", **round_, "keep_alives": ["/x/rank_1"]},
             "waiting for 2 of its 3 to confirm"),
            ({"status": "final", **round_, "keep_alives": ["/a", "/b", "/c"],
              "num_workers_waiting": 2}, "2 nodes are waiting for the 3 members of round 7"),
            ({"status": "final", **round_, "keep_alives": ["/a", "/b", "/c"],
              "muster": {"nodes": [8 * "a1", 8 * "b2", 8 * "c3"], "left": [8 * "b2"]}},
             " 1 has left. 2 have been silent for more than 10 s."),
            ({"status": "closed"}, "closed"),
        )
        for document, sentence in cases:
            with self.subTest(status=document["status"]):
                self.etcd.v2.put(key, value=json.dumps(document))
                status = json.loads(job.run("status", "--json", "--nnodes", "5:6").stdout)
                self.assertEqual(status["status"], document["status"])
                self.assertIn(sentence, status["summary"])
                table = job.run("status", "--nnodes", "5:6")
                self.assertEqual(table.returncode, 0, table.stderr)
                self.assertIn(sentence, table.stdout.decode())
        for garbage in ("[]", "{", '{"status": "final", "participants": "x"}'):
            with self.subTest(garbage=garbage):
                self.etcd.v2.put(key, value=garbage)
                self.assertEqual(job.run("status").returncode, NO_RENDEZVOUS)

    def test_close_needs_one(self):
        for backend in self.each():
            done = self.job(backend, "1:1").run("close")
            self.assertEqual(done.returncode, ABSENT, done.stderr)
            self.assertIn(b"there is no rendezvous", done.stderr)

    def test_url_says_all(self):
        for backend in self.each():
            job = self.job(backend, "2:2")
            url = (f"{backend}://{self.etcd.endpoint}/{job.run_id}?min_workers=2&max_workers=3"
                   "&last_call_timeout=100ms")
            with job:
                for _ in range(2):
                    node = JoinNode(["--rdzv-endpoint", url], ["--hold", "0"])
                    job.nodes.append(node)
                    node.join()
                settle(job.nodes)
                done = harness.run("status", "--rdzv-endpoint", url, "--json")
                self.assertEqual(json.loads(done.stdout)["run_id"], job.run_id)
                self.assertEqual(harness.run("close", "--rdzv-endpoint", url).returncode, 0)
                for node in job.nodes:
                    self.assertEqual(node.ended(), CLOSED)
            for words, said in ((["--rdzv-id", "other"], b"--rdzv-id is 'other'"),
                                (["--rdzv-backend", "c10d"], b"--rdzv-backend is 'c10d'")):
                done = harness.run("join", "--rdzv-endpoint", url, *words)
                self.assertEqual(done.returncode, USAGE)
                self.assertIn(said, done.stderr)

    def test_bad_options(self):
        cases = (
            ({"protocl": "https"}, b"did you mean 'protocol'?"),
            ({"protocol": "ftp"}, b"'ftp' is neither http nor https"),
            ({"cert": "/x"}, b"set protocol=https"),
            ({"protocol": "https", "key": "/x"}, b"key without its certificate"),
            ({"user": "job"}, b"without a password"),
            ({"password": "x"}, b"without a 'user'"),
            ({"read_timeout": 0}, b"'read_timeout' must be longer than 0"),
            ({"last_call_timeout": "soon"}, b"'soon' is not a duration"),
        )
        for backend in BACKENDS:
            for options, said in cases:
                with self.subTest(backend=backend, options=options):
                    done = self.job(backend, "1:1").run("join", "--nnodes", "1", **options)
                    self.assertEqual(done.returncode, USAGE, done.stderr)
                    self.assertIn(said, done.stderr)
                    self.assertNotIn(b"Traceback", done.stderr)

    def test_unequal_limits(self):
        """Of one job, in the older protocol: told, instead of going wrong."""
        with self.job("etcd", "2:3") as job:
            settle([job.start(words=("--hold", "0")) for _ in range(2)])
            job.limits, ours = "1:9", job.limits
            done = job.run("join", "--nnodes", "1:9", timeout=10)
            self.assertEqual(done.returncode, USAGE, done.stderr)
            self.assertIn(b"2:3", done.stderr)
            job.limits = ours

    def test_nobody_listens(self):
        with etcd_cluster.hold_port() as held:
            endpoint = "{}:{}".format(*held.getsockname())
            for backend in self.each():
                timeout = {"timeout": 1} if backend == "etcd" else {"join_timeout": 1}
                done = Job(backend, endpoint, "1:1", **timeout).run("join", "--nnodes", "1")
                self.assertEqual(done.returncode, NO_CONNECTION, done.stderr)
                self.assertIn(endpoint.encode(), done.stderr)

    def test_etcd_comes_last(self):
        for backend in self.each():
            with self.job(backend, "2:2") as job:
                self.etcd.stop_server()
                with socket.create_server(self.etcd.address) as refuses:
                    refuses.settimeout(harness.DEADLINE_S)
                    nodes = [job.start() for _ in range(2)]
                    for _ in range(10): # a single request is tried twice
                        refuses.accept()[0].close()
                self.assertEqual([node.process.poll() for node in nodes], [None, None])
                self.etcd.start_server()
                settle(nodes)

    def test_bench(self):
        for backend in self.each():
            with etcd_cluster.Swallow(self.etcd.address) as tap:
                done = harness.run("rendezvous", "--rdzv-backend", backend, "--rdzv-endpoint",
                                   tap.endpoint, "--nodes", "8", "--json", "--steady", "300ms",
                                   program=harness.BENCH, timeout=PATIENCE_S)
                self.assertEqual(done.returncode, 0, done.stderr)
                result = json.loads(done.stdout)
                self.assertEqual(result["nodes"], 8)
                # What comes after the meeting is in the tap alone.
                watches = tap.count(b"wait=true")
                requests = len(tap.requests) - watches
                self.assertGreaterEqual(result["requests_per_node"], 2)
                self.assertLessEqual(result["requests_per_node"], requests / 8)
                self.assertGreater(result["watches_per_node"], 0)
                self.assertLessEqual(result["watches_per_node"], watches / 8)
                self.assertGreaterEqual(result["steady_bytes_per_s"], 0)
                self.assertIsNone(result["steady_cpu_pct"])


class Guarded(unittest.TestCase):
    """With TLS, client certificates and users. For a v2 request etcd hashes the password, which
    takes a tenth of a second, so nodes ask no more often than by default."""

    @classmethod
    def setUpClass(cls):
        cls.tls = etcd_cluster.Tls()
        cls.addClassCleanup(cls.tls.close)
        cls.etcd = etcd_cluster.Etcd(enable_v2=True, tls=cls.tls, client_auth=True, auth="v2")
        cls.addClassCleanup(cls.etcd.stop)

    def options(self, spelling):
        names = {"ours": ("cacert", "cert", "key"),
                 "other": ("ca_cert", "ssl_cert", "ssl_cert_key")}[spelling]
        paths = (self.tls.ca, self.tls.client_cert, self.tls.client_key)
        return {"protocol": "https", "user": etcd_cluster.USER, **dict(zip(names, paths))}

    def test_both_spellings(self):
        """Of the options, one with each backend; unit/etcd_settings tells which there are. One node
        uses them all, and every node more costs seconds of a processor."""
        for backend, spelling in (("etcd-v2", "ours"), ("etcd", "other")):
            with self.subTest(backend=backend, spelling=spelling), \
                    tempfile.NamedTemporaryFile("w") as file:
                file.write(etcd_cluster.PASSWORD + "\n")
                file.flush()
                given = {"password_file": file.name} if spelling == "ours" else {}
                env = {} if given else {"MUSTER_ETCD_PASSWORD": etcd_cluster.PASSWORD}
                with Job(backend, self.etcd.endpoint, "1:1", env=env,
                         **self.options(spelling), **given) as job:
                    job.conf.pop("keep_alive_interval", None)
                    node = job.start()
                    settle([node])
                    self.assertTrue(job.status()["complete"])
                    closed = job.run("close", "--timeout", f"{harness.DEADLINE_S:.0f}s")
                    self.assertEqual(closed.returncode, 0, closed.stderr)
                    self.assertEqual(node.ended(), CLOSED)

    def test_refused(self):
        for backend in BACKENDS:
            good = self.options("ours")
            wrong = "not-it"
            cases = (
                ("password", {**good, "password": wrong}, b"user"),
                ("authority", {**good, "password": etcd_cluster.PASSWORD,
                               "cacert": self.tls.other_ca}, b"certificate"),
            )
            for name, options, said in cases:
                with self.subTest(backend=backend, wrong=name):
                    job = Job(backend, self.etcd.endpoint, "1:1", **options)
                    done = job.run("join", "--nnodes", "1")
                    self.assertEqual(done.returncode, FAILED, done.stderr)
                    self.assertIn(said, done.stderr)
                    self.assertNotIn(wrong.encode(), done.stderr)


class Without(unittest.TestCase):
    def test_no_user(self):
        """Where one is wanted."""
        with etcd_cluster.Etcd(enable_v2=True, auth="v2") as etcd:
            for backend in BACKENDS:
                for command, words in (("join", ("--nnodes", "1")), ("status", ()), ("close", ())):
                    with self.subTest(backend=backend, command=command):
                        done = Job(backend, etcd.endpoint, "1:1").run(command, *words)
                        self.assertEqual(done.returncode, FAILED, done.stderr)
                        self.assertIn(b"user", done.stderr)

    def test_v2_is_off(self):
        """Said at once, with how to switch it on, and not taken for an absent key."""
        with etcd_cluster.Etcd() as etcd:
            for backend in BACKENDS:
                for command, words in (("join", ("--nnodes", "1")), ("status", ()), ("close", ())):
                    with self.subTest(backend=backend, command=command):
                        done = Job(backend, etcd.endpoint, "1:1").run(command, *words)
                        self.assertEqual(done.returncode, FAILED, done.stderr)
                        self.assertRegex(done.stderr, rb"v2.*enable-v2")


class NotBuilt(unittest.TestCase):
    def test_reason(self):
        if os.environ.get("MUSTER_ETCD", "1") != "0":
            raise unittest.SkipTest("this muster was built with etcd")
        for backend in BACKENDS:
            for command, words in (("join", ("--nnodes", "1")), ("status", ()), ("close", ())):
                with self.subTest(backend=backend, command=command):
                    done = harness.run(command, "--rdzv-backend", backend, "--rdzv-id", "a", *words)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIsNotNone(re.search(rb"built without etcd", done.stderr))


if __name__ == "__main__":
    harness.main()
