"""`muster store` in an etcd, v2 and v3: every verb, TLS, users, leases, lost answers, an etcd that
is away for a while, and a cluster that loses its leader."""

import base64
import itertools
import os
import threading
import time
import unittest

import etcd_cluster
import harness
from test_store_cli import (
    ABSENT, CONNECT, FAILED, OK, TIMEOUT, UNKNOWN, USAGE, Case, Verbs, store)

SCHEMES = ("etcd2", "etcd3")
numbers = itertools.count(1)


def fresh():
    """A path that nothing else here uses."""
    return f"/it/{os.getpid()}/{next(numbers)}"


class Shared(Case):
    """One etcd for all tests of a class."""

    @classmethod
    def setUpClass(cls):
        cls.etcd = etcd_cluster.Etcd(enable_v2=True, keep=True)

    @classmethod
    def tearDownClass(cls):
        cls.etcd.stop()

    def with_prefix(self, prefix):
        return f"{self.url}?prefix={prefix}"

    def test_queue(self):
        for verb in ("push", "pop", "len"):
            words = ("q", "v") if verb == "push" else ("q",)
            self.expect(store(verb, self.url, *words), FAILED, b"", f"no queue_{verb}")


class OnEtcd2(Verbs, Shared):
    def setUp(self):
        super().setUp()
        self.path = fresh()
        self.url = f"etcd2://{self.etcd.endpoint}{self.path}"

    def test_layout(self):
        self.expect(store("set", self.url, "ab?", "v"), OK, b"")
        self.expect(store("set", self.url, "key", "value"), OK, b"")
        for name, value in (("YWI-", "dg=="), (base64.b64encode(b"key").decode(), "dmFsdWU=")):
            answer = self.etcd.ok("GET", f"/v2/keys{self.path}/{name}")
            self.assertEqual(answer.json["node"]["value"], value)


class OnEtcd3(Verbs, Shared):
    def setUp(self):
        super().setUp()
        self.url = f"etcd3://{self.etcd.endpoint}{fresh()}"

    def test_lease(self):
        leased = f"{self.url}?lease=2"
        self.expect(store("set", leased, "k", "v"), OK, b"")
        self.expect(store("set", self.url, "stays", "v"), OK, b"")
        harness.wait_until(
            lambda: store("check", self.url, "k").returncode == ABSENT, "the lease to expire")
        self.expect(store("list", self.url), OK, b"stays\n")
        # A waiting handle keeps the key of one that has ended.
        self.expect(store("set", leased, "k", "v"), OK, b"")
        keeper = self.start("wait", leased, "k", "later")
        end = time.monotonic() + 5
        while time.monotonic() < end:
            self.expect(store("check", self.url, "k"), OK, b"")
            time.sleep(0.2)  # time is what is tested
        self.expect(store("set", self.url, "later", "v"), OK, b"")
        self.finish(keeper, OK, b"")
        harness.wait_until(
            lambda: store("check", self.url, "k").returncode == ABSENT, "the lease to expire")

    def test_large_value(self):
        self.expect(store("set", self.url, "some", "-", input=bytes(1 << 20)), OK, b"")
        for size in (1700 << 10, 3 << 20):
            self.expect(store("set", self.url, "big", "-", input=bytes(size)), FAILED, b"",
                        "--max-request-bytes")
            self.expect(store("append", self.url, "some", "-", input=bytes(size)), FAILED, b"",
                        "--max-request-bytes")
        self.expect(store("check", self.url, "big"), ABSENT, b"")
        self.expect(store("get", self.url, "some", "--raw"), OK, bytes(1 << 20))


class Trouble(Case):
    def setUp(self):
        super().setUp()
        self.etcd = etcd_cluster.Etcd(enable_v2=True, keep=True)
        self.addCleanup(self.etcd.stop)

    def test_stopped_in_a_wait(self):
        waiting = []
        urls = [f"{scheme}://{self.etcd.endpoint}{fresh()}" for scheme in SCHEMES]
        for url in urls:
            self.expect(store("add", url, "n", "1"), OK, b"1\n")
            waiting.append(self.start("get", "--wait", "--timeout", "60s", url, "k"))
        self.etcd.pause()
        adding = [self.start("add", "--timeout", "60s", url, "n", "1") for url in urls]
        self.expect(
            store("get", urls[0], "k", "--timeout", "300ms"), TIMEOUT, b"", self.etcd.endpoint)
        time.sleep(3)  # what is tested
        self.etcd.resume()
        for url, one, another in zip(urls, waiting, adding):
            self.expect(store("set", url, "k", "come"), OK, b"")
            self.finish(one, OK, b"come\n")
            self.finish(another, OK, b"2\n")

    def test_restarted_in_a_wait(self):
        urls = [f"{scheme}://{self.etcd.endpoint}{fresh()}" for scheme in SCHEMES]
        waiting = [self.start("wait", "--timeout", "60s", url, "a", "b") for url in urls]
        for url in urls:
            self.expect(store("set", url, "a", "1"), OK, b"")
        self.etcd.stop_server()
        self.expect(store("get", urls[0], "a", "--timeout", "300ms"), CONNECT, b"", "connect")
        self.expect(store("get", urls[1], "a", "--timeout", "300ms"), CONNECT, b"", "connect")
        late = [self.start("get", "--timeout", "60s", url, "a") for url in urls]
        self.etcd.start_server()
        for url, one, another in zip(urls, waiting, late):
            self.finish(another, OK, b"1\n")
            self.expect(store("set", url, "b", "1"), OK, b"")
            self.finish(one, OK, b"")

    def test_swallowed_answers(self):
        # Whatever is lost, an add is done once, and a returned sum is right.
        with etcd_cluster.Swallow(self.etcd.address) as proxy:
            for scheme, pattern in zip(SCHEMES, (rb"prev(Index|Exist)=", rb"kv/txn.*request_put")):
                url = f"{scheme}://{proxy.endpoint}{fresh()}"
                unknown = 0
                for done in range(1, 7):
                    fault = proxy.swallow_next(pattern)
                    result = store("add", url, "n", "1")
                    fault.wait()
                    if result.returncode == UNKNOWN:
                        unknown += 1
                        self.expect(result, UNKNOWN, b"", "was lost")
                    else:
                        self.expect(result, OK, b"%d\n" % done)
                    self.expect(store("get", url, "n"), OK, b"%d\n" % done)
                self.assertEqual(unknown, 6 if scheme == "etcd2" else 0)
                fault = proxy.swallow_next(pattern)
                self.expect(store("cas", url, "n", "6", "six"), OK, b"six\n")
                fault.wait()
                fault = proxy.cut_next(pattern)
                self.expect(store("append", url, "n", "ty"), OK, b"")
                fault.wait()
                self.expect(store("get", url, "n"), OK, b"sixty\n")


class Secured(Case):
    def expect_all(self, etcd, query, env=None):
        for scheme in SCHEMES:
            url = f"{scheme}://{etcd.endpoint}{fresh()}?{query}"
            with self.subTest(scheme=scheme, query=query):
                self.expect(self.store(env, "set", url, "k", "v"), OK, b"")
                self.expect(self.store(env, "get", url, "k"), OK, b"v\n")
                self.expect(self.store(env, "add", url, "n"), OK, b"1\n")
                self.expect(self.store(env, "wait", url, "k", "n"), OK, b"")

    def refuse_all(self, etcd, query, said, env=None):
        for scheme in SCHEMES:
            url = f"{scheme}://{etcd.endpoint}{fresh()}?{query}"
            with self.subTest(scheme=scheme, query=query):
                self.expect(self.store(env, "set", "--timeout", "3s", url, "k", "v"), FAILED, b"",
                            said)

    @staticmethod
    def store(env, *args):
        return harness.run("store", *args, env=env)

    def test_tls(self):
        with etcd_cluster.Tls() as tls, etcd_cluster.Etcd(
                enable_v2=True, tls=tls, client_auth=True) as etcd:
            certificates = f"cert={tls.client_cert}&key={tls.client_key}"
            self.expect_all(etcd, f"cacert={tls.ca}&{certificates}")
            self.expect_all(etcd, f"tls=1&ca_cert={tls.ca}&ssl_cert={tls.client_both}")
            self.refuse_all(etcd, f"cacert={tls.other_ca}&{certificates}", "certificate")
            self.refuse_all(
                etcd, f"cacert={tls.ca}&{certificates}&server_name=elsewhere", "elsewhere")
            for scheme in SCHEMES:
                self.expect(
                    store("get", f"{scheme}://{etcd.endpoint}/x?cacert=/none/at/all", "k"), USAGE,
                    b"", "/none/at/all")

    def test_users(self):
        password_file = os.path.join(self.directory, "password")
        wrong_file = os.path.join(self.directory, "wrong")
        for path, text in ((password_file, etcd_cluster.PASSWORD), (wrong_file, "wrong")):
            with open(path, "w", encoding="ascii") as file:
                file.write(text + "\n")
        user = f"user={etcd_cluster.USER}"
        with etcd_cluster.Etcd(enable_v2=True, auth="v2 v3") as etcd:
            self.expect_all(etcd, f"{user}&password_file={password_file}")
            self.expect_all(etcd, user, env={"MUSTER_ETCD_PASSWORD": etcd_cluster.PASSWORD})
            self.refuse_all(etcd, f"{user}&password_file={wrong_file}", etcd.endpoint)
            self.refuse_all(etcd, "tls=0", etcd.endpoint)
            for scheme in SCHEMES:
                self.expect(
                    store("get", f"{scheme}://{etcd.endpoint}/x?{user}", "k"), USAGE, b"",
                    "MUSTER_ETCD_PASSWORD")


class OnCluster(Case):
    def test_leader_killed(self):
        # Adds go on while the leader is killed.
        with etcd_cluster.Cluster(enable_v2=True) as cluster:
            endpoints = ",".join(member.endpoint for member in cluster.members)
            for scheme in SCHEMES:
                with self.subTest(scheme=scheme):
                    self.check(cluster, f"{scheme}://{endpoints}{fresh()}")

    def check(self, cluster, url):
        waiting = self.start("get", "--wait", "--timeout", "90s", url, "late")
        results = []

        def add_many():
            for _ in range(30):
                results.append(
                    harness.run("store", "add", "--timeout", "60s", url, "n", timeout=90))

        adder = threading.Thread(target=add_many)
        adder.start()
        harness.wait_until(lambda: len(results) >= 5, "the first sums")
        leader = cluster.leader()
        cluster.kill(leader)
        adder.join(120)
        self.assertFalse(adder.is_alive())
        cluster.restart(leader)
        unknown = 0
        for result in results:
            if result.returncode == UNKNOWN:
                unknown += 1
            else:
                self.expect(result, OK)
        done = len(results) - unknown
        total = int(store("get", url, "n").stdout)
        self.assertTrue(done <= total <= done + unknown,
                        f"a value was lost: {done} done, {unknown} unknown, {total} stored")
        if url.startswith("etcd3"):
            self.assertEqual(unknown, 0)
        self.expect(store("set", url, "late", "come"), OK, b"")
        self.finish(waiting, OK, b"come\n")


class Without(Case):
    @unittest.skipIf(os.environ.get("MUSTER_ETCD") != "0", "this muster was built with etcd")
    def test_refused(self):
        for scheme in SCHEMES:
            self.expect(store("get", f"{scheme}://h:1/x", "k"), FAILED, b"", "built without etcd")

    def test_usage(self):
        for url, said in (
            ("etcd2://u:secret@h:1/x", "password_file=PATH"),
            ("etcd2://h:1/x?lease=5", "only etcd3:// has leases"),
            ("etcd3://h:1/x?lese=5", "unknown parameter 'lese'"),
            ("etcd3://h/x", "lacks a port"),
        ):
            with self.subTest(url=url):
                result = store("get", url, "k")
                self.expect(result, USAGE, b"", said)
                self.assertNotIn(b"secret", result.stderr)


# It is only there to be derived from.
del Shared, Verbs

if __name__ == "__main__":
    harness.main()
