"""Signals while the main thread waits: a handler that raises ends each kind of wait soon, and one
that does not raise leaves it as it is."""

import contextlib
import gc
import os
import signal
import tempfile
import threading
import time
from unittest import mock

from package import (Case, Interrupted, Thread, alarms, endpoint, harness, interrupted_after,
                     mute_server, muster, url)

# It takes a tenth of that. A machine that is busy with other tests may stop for a while.
SOON_S = 1.0 * harness.SLOWNESS


class Raising(Case):
    def assert_soon(self, call):
        self.assertLess(interrupted_after(call), SOON_S)

    def test_stores(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        for where in (url(self.server()), "hash:", f"file://{directory.name}/store"):
            store = self.store(where)
            calls = [lambda: store.get("never"), lambda: store.wait(["never"]),
                     lambda: store.multi_get(["never"])]
            if where.startswith("tcp"):
                calls += [lambda: store.queue_pop("queue"), lambda: store.barrier("b", 2)]
            for i, call in enumerate(calls):
                with self.subTest(url=where, call=i):
                    self.assert_soon(call)
                    store.set("k", "v")
                    self.assertEqual(store.get("k"), b"v")
            store.close()

    def test_a_server_that_says_nothing(self):
        with mute_server() as address:
            for name, call in (
                    ("Store", lambda: muster.Store(f"tcp://{address}")),
                    ("status", lambda: muster.status(address, "job", timeout=60)),
                    ("jobs", lambda: muster.jobs(address, timeout=60)),
                    ("connect", lambda: muster.Rendezvous(address, "job").connect(60)),
                    ("c10d", lambda: muster.Rendezvous(address, "job", backend="c10d").next())):
                with self.subTest(call=name):
                    self.assert_soon(call)

    def test_a_server_that_stops(self):
        with harness.Server() as server:
            store = self.store(f"tcp://127.0.0.1:{server.port}")
            rendezvous = self.rendezvous(f"127.0.0.1:{server.port}")
            joined = rendezvous.next()
            harness.pause(server.process.pid)
            try:
                for name, call in (("add", lambda: store.add("n", 1)),
                                   ("set", lambda: joined.store.set("k", "v")),
                                   ("members", rendezvous.members),
                                   ("leave", rendezvous.leave), ("close", rendezvous.close)):
                    with self.subTest(call=name):
                        self.assert_soon(call)
            finally:
                os.kill(server.process.pid, signal.SIGCONT)

    def test_a_server_that_is_gone(self):
        with harness.Server() as server:
            rendezvous = self.rendezvous(f"127.0.0.1:{server.port}")
            rendezvous.next()
        for call in (rendezvous.finish, rendezvous.restart):
            with self.subTest(call=call.__name__):
                self.assert_soon(call)

    def test_rendezvous(self):
        server = self.server()
        rendezvous = self.rendezvous(endpoint(server), nodes=2)
        other = self.rendezvous(endpoint(server), nodes=2)
        for name in ("take", "poll", "next"):  # the first two have nothing to tell yet
            with self.subTest(call=name):
                self.assert_soon(lambda: getattr(rendezvous, name)(60))
        # It has withdrawn from the round, and comes back.
        harness.wait_until(lambda: not muster.jobs(endpoint(server)), "the end of the job")
        thread = Thread(other.next)
        rendezvous.next()
        thread.end()

    def test_a_busy_rendezvous(self):
        """Wherever in a call it happens, the node withdraws and can come back."""
        where = endpoint(self.server())
        rendezvous = self.rendezvous(where, nodes=2)

        def work():
            while True:
                with contextlib.suppress(muster.TimedOutError, muster.ConnectionFailedError):
                    rendezvous.next(0.002)

        for _ in range(30):
            interrupted_after(work)
        harness.wait_until(lambda: not muster.jobs(where), "the end of the job")
        self.assertIsNone(rendezvous.take(0.05))
        thread = Thread(self.rendezvous(where, nodes=2).next)
        rendezvous.next()
        thread.end()

    def test_a_return_before_the_end_of_a_withdrawal(self):
        rendezvous = self.rendezvous(endpoint(self.server()), nodes=2)
        abandon = muster.Rendezvous._abandon

        def abandon_late(pointer, err):
            time.sleep(0.2)
            abandon(pointer, err)

        with mock.patch.object(muster.Rendezvous, "_abandon", staticmethod(abandon_late)):
            self.assert_soon(lambda: rendezvous.next(60))
            with self.assertRaises(muster.TimedOutError):
                rendezvous.next(0.3)

    def test_while_a_call_is_handed_over(self):
        """Its result is discarded, or it is not made; nothing of it is left for the next one."""
        gc.collect()  # no handle of another test is closed meanwhile
        where = endpoint(self.server())
        call_class = muster._wait.Aside
        start = call_class.start

        def start_and_raise(call):
            start(call)
            raise Interrupted

        def raise_first(_call):
            raise Interrupted

        for raising in (start_and_raise, raise_first):
            with self.subTest(raising.__name__):
                with mock.patch.object(call_class, "start", raising):
                    with self.assertRaises(Interrupted):
                        self.rendezvous(where)
                rendezvous = self.rendezvous(where)
                with mock.patch.object(call_class, "start", raising):
                    with self.assertRaises(Interrupted):
                        rendezvous.is_closed()
                self.assertEqual(rendezvous.next(60).world_size, 1)
                rendezvous.close()

    def test_an_event_that_is_a_key_of_the_keyboard(self):
        store = self.store("hash:")
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            store.get("never")

    def test_a_busy_store(self):
        """Wherever in a call it happens, the store can be used and closed afterwards."""
        server = self.server()
        store = muster.Store(url(server))
        store.set("k", "v")

        def work():
            while True:
                store.get("k")

        for _ in range(30):
            interrupted_after(work)
            self.assertEqual(store.get("k"), b"v")
        began_s = time.monotonic()
        store.close()
        self.assertLess(time.monotonic() - began_s, SOON_S)


class NotRaising(Case):
    def test_a_wait_goes_on(self):
        """The handler runs while the store waits, and may use it."""
        server = self.server()
        store = self.store(url(server))

        def count(*_):
            if store.add("alarms", 1) == 3:
                store.set("late", "v")

        with alarms(count, 0.01, 0.01):
            self.assertEqual(store.get("late"), b"v")
        self.assertGreaterEqual(store.add("alarms", 0), 3)

    def test_a_rendezvous_goes_on(self):
        rendezvous = self.rendezvous(endpoint(self.server()), nodes=2)
        seen = []
        with alarms(lambda *_: seen.append(1), 0.02, 0.02), self.assertRaises(TimeoutError):
            rendezvous.next(0.3)
        self.assertGreater(len(seen), 2)

    def test_a_handler_closes_what_the_program_waits_for(self):
        server = self.server()
        store = muster.Store(url(server))
        with alarms(lambda *_: store.close()), self.assertRaises(muster.ClosedError):
            store.get("never")
        self.assertTrue(store.closed)
        self.assertEqual(store._doomed, [])
        rendezvous = muster.Rendezvous(endpoint(server), "job", nodes=2)
        with alarms(lambda *_: rendezvous.close()), self.assertRaises(muster.ClosedError):
            rendezvous.next()
        self.assertEqual(rendezvous._doomed, [])

    def test_nested_calls_end_from_the_inside(self):
        store = self.store("hash:")

        def wait_inside(*_):
            signal.signal(signal.SIGALRM, lambda *_: store.set("inner", "v"))
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            store.get("inner")
            raise Interrupted

        with self.assertRaises(Interrupted), alarms(wait_inside):
            store.get("never")
        self.assertEqual(store.get("inner"), b"v")


if __name__ == "__main__":
    harness.main()
