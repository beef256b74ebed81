"""muster.Store and muster.Server: all calls, errors, threads, forks, closing."""

import datetime
import errno
import os
import pickle
import subprocess
import sys
import tempfile
import time

from package import Case, Thread, harness, mute_server, muster, url

SHORT_S = 0.05


class Calls(Case):
    """Each kind of store."""

    def each(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        for where in (url(self.server()), "hash:", f"file://{directory.name}/store"):
            with self.subTest(url=where.partition(":")[0]), muster.Store(where) as store:
                yield store

    def test_values(self):
        for store in self.each():
            store.set("key", "text")
            self.assertEqual(store.get("key"), b"text")
            for value in (b"", b"\0\xff" * 1000, bytearray(b"array"), memoryview(b"view")):
                store.set(b"\xff key", value)
                self.assertEqual(store.get(b"\xff key"), bytes(value))
            self.assertIsNone(store.try_get("absent"))
            self.assertEqual(store.try_get("key"), b"text")
            self.assertEqual(store.add("n", 5), 5)
            self.assertEqual(store.add("n", -7), -2)
            with self.assertRaises(muster.TypeMismatchError):
                store.add("key", 1)
            store.append("key", "s")
            self.assertEqual(store.get("key"), b"texts")

    def test_several_keys(self):
        for store in self.each():
            store.multi_set(["a", "b"], [b"1", "2"])
            self.assertEqual(store.multi_get(["b", "a"]), [b"2", b"1"])
            self.assertEqual(store.multi_get([]), [])
            self.assertTrue(store.check(["a", "b"]))
            self.assertFalse(store.check(["a", "c"]))
            store.wait(iter(["a", b"b"]))
            self.assertEqual(sorted(store.list_keys()), [b"a", b"b"])
            self.assertEqual(store.num_keys(), 2)
            self.assertTrue(store.delete_key("a"))
            self.assertFalse(store.delete_key("a"))
            with self.assertRaises(ValueError):
                store.multi_set(["a"], [])

    def test_compare_set(self):
        for store in self.each():
            self.assertEqual(store.compare_set("k", "", "one"), b"one")
            self.assertEqual(store.compare_set("k", "no", "two"), b"one")
            self.assertEqual(store.compare_set("k", "one", "two"), b"two")

    def test_prefixes(self):
        for store in self.each():
            outer = store.prefix("a")
            inner = outer.prefix(b"b")
            self.assertEqual((store.key_prefix, inner.key_prefix), (None, b"a/b"))
            inner.set("k", "v")
            self.assertEqual(store.get("a/b/k"), b"v")
            outer.close()
            with inner.clone() as clone:
                inner.close()
                self.assertEqual(clone.get("k"), b"v")

    def test_queues_and_barriers(self):
        store = self.store(url(self.server()))
        store.queue_push("q", "1")
        store.queue_push("q", "2")
        self.assertEqual(store.queue_len("q"), 2)
        self.assertEqual([store.queue_pop("q"), store.queue_pop("q")], [b"1", b"2"])
        with self.assertRaises(muster.NotFoundError):
            store.queue_pop("q", block=False)
        other = Thread(store.barrier, "b", 2)
        store.barrier("b", 2)
        other.end()

    def test_timeouts(self):
        for store in self.each():
            with self.assertRaises(TimeoutError) as caught:
                store.get("absent", SHORT_S)
            self.assertIsInstance(caught.exception, muster.TimedOutError)
            self.assertIn("absent", str(caught.exception))
            store.timeout = datetime.timedelta(seconds=SHORT_S)
            self.assertEqual(store.timeout, SHORT_S)
            with self.assertRaises(muster.TimedOutError):
                store.wait(["absent"])
            for wrong in (-1, float("nan")):
                with self.assertRaises(muster.InvalidError):
                    store.get("absent", wrong)


class Errors(Case):
    def test_every_code_has_a_class(self):
        from muster._binding import lib
        codes = {name for name in dir(lib) if name.startswith("MST_E")
                 and isinstance(getattr(lib, name), int) and getattr(lib, name) < 0}
        classes = [item for item in vars(muster).values() if isinstance(item, type)
                   and issubclass(item, muster.MusterError) and item is not muster.MusterError]
        self.assertEqual({f"MST_{item.name}" for item in classes}, codes)
        for item in classes:
            self.assertEqual(item.code, getattr(lib, f"MST_{item.name}"))

    def test_errors_are_those_of_python_where_there_is_one(self):
        for ours, pythons in ((muster.TimedOutError, TimeoutError),
                              (muster.InvalidError, ValueError),
                              (muster.ConnectionFailedError, ConnectionError),
                              (muster.NotFoundError, LookupError),
                              (muster.AuthError, PermissionError)):
            self.assertTrue(issubclass(ours, pythons))
            self.assertTrue(issubclass(ours, muster.MusterError))

    def test_an_error_survives_pickling(self):
        for given in (muster.TimedOutError("text", 5), muster.StateError("text", 5)):
            copy = pickle.loads(pickle.dumps(given))
            self.assertEqual((type(copy), str(copy), copy.system), (type(given), "text", 5))

    def test_a_wrong_url(self):
        with self.assertRaisesRegex(muster.InvalidError, "nonsense"):
            muster.Store("nonsense://x")
        with self.assertRaises(ConnectionError):
            muster.Store("tcp://127.0.0.1:1", timeout=SHORT_S)
        with mute_server() as address, self.assertRaises(TimeoutError):
            muster.Store(f"tcp://{address}", timeout=SHORT_S)

    def test_a_wrong_server(self):
        server = self.server()
        with self.assertRaisesRegex(muster.SystemCallError, "in use") as caught:
            muster.Server(["127.0.0.1"], server.port)
        self.assertEqual(caught.exception.errno, errno.EADDRINUSE)


class Life(Case):
    def test_closed(self):
        server = self.server()
        with muster.Store(url(server)) as store:
            self.assertFalse(store.closed)
            self.assertIn(url(server), repr(store))
        self.assertTrue(store.closed)
        store.close()
        self.assertIn("closed", repr(store))
        with self.assertRaisesRegex(muster.ClosedError, "this Store is closed"):
            store.get("k")
        server.close()
        with self.assertRaises(muster.ClosedError):
            server.port

    def test_closing_ends_calls_of_other_threads(self):
        store = self.store(url(self.server()))
        threads = [Thread(store.get, f"never {i}") for i in range(4)]
        harness.wait_until(lambda: len(store._calls) == 4, "calls")
        store.close()
        for thread in threads:
            with self.assertRaises(muster.ClosedError):
                thread.end()

    def test_interrupt(self):
        store = self.store(url(self.server()))
        thread = Thread(store.get, "never")
        harness.wait_until(lambda: store._calls, "the call")
        store.interrupt()
        with self.assertRaises(muster.CanceledError):
            thread.end()
        store.set("k", "v")
        self.assertEqual(store.get("k"), b"v")

    def test_other_threads_run_while_one_waits(self):
        store = self.store(url(self.server()))
        waits = Thread(store.get, "late")
        store.set("soon", "1")
        self.assertEqual(store.get("soon"), b"1")
        store.set("late", "2")
        self.assertEqual(waits.end(), b"2")

    def test_a_forked_child_has_to_open_its_own(self):
        server = self.server()
        store = self.store(url(server))
        store.set("k", "parent")
        waits = Thread(store.get, "late")
        where = url(server)
        child = os.fork()
        if child == 0:
            wrong = 0
            for call in (lambda: store.get("k"), lambda: store.prefix("p"), lambda: server.port,
                         lambda: store.url):
                try:
                    call()
                    wrong += 1
                except muster.InvalidError as error:
                    wrong += "forked child has to make its own" not in str(error)
            store.close()
            server.close()
            with muster.Store(where) as own:
                wrong += own.get("k") != b"parent"
                own.set("late", "child")
            os._exit(wrong)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(waits.end(), b"child")
        self.assertEqual(store.get("k"), b"parent")

    def test_a_server_that_nobody_closes_ends_with_its_last_reference(self):
        server = muster.Server()
        where = url(server)
        self.store(where).set("k", "v")
        del server
        with self.assertRaises(ConnectionError):
            muster.Store(where, timeout=SHORT_S)

    def test_handles_are_closed_when_the_interpreter_ends(self):
        code = ("import muster; s = muster.Server(); t = muster.Store(f'tcp://127.0.0.1:{s.port}');"
                "r = muster.Rendezvous(f'127.0.0.1:{s.port}', 'job'); r.next(); t.set('k', 'v');"
                # When no thread can be started any more.
                "import atexit; atexit.register(r.leave); atexit.register(t.set, 'k', 'w')")
        began_s = time.monotonic()
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False,
                              timeout=harness.DEADLINE_S)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertLess(time.monotonic() - began_s, harness.DEADLINE_S / 2)

    def test_addresses(self):
        server = self.server(hosts=["127.0.0.1"])
        self.assertEqual(server.addresses, [f"127.0.0.1:{server.port}"])
        self.assertEqual(server.http_address, "")
        self.assertIn("127.0.0.1", repr(server))


class Binary(Case):
    def test_python_m_muster(self):
        path = os.pathsep.join([os.path.dirname(harness.MUSTER), os.environ["PATH"]])
        done = subprocess.run([sys.executable, "-m", "muster", "--version"], check=True,
                              stdout=subprocess.PIPE, text=True, env={**os.environ, "PATH": path})
        self.assertEqual(done.stdout, f"muster {muster.__version__}\n")


if __name__ == "__main__":
    harness.main()
