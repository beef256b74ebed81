"""Shared by the tests of the Python package. They need only the package."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

import harness  # noqa: E402

try:
    import muster
except ImportError as error:
    muster = None
    WHY_NOT = f"the package is not built or cannot be loaded: {error}"


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if muster is None:
            raise unittest.SkipTest(WHY_NOT)

    def server(self, **options):
        server = muster.Server(**options)
        self.addCleanup(server.close)
        return server

    def store(self, url, **options):
        store = muster.Store(url, **options)
        self.addCleanup(store.close)
        return store

    def rendezvous(self, endpoint, run_id="job", **options):
        rendezvous = muster.Rendezvous(endpoint, run_id, **options)
        self.addCleanup(rendezvous.close)
        return rendezvous


def endpoint(server):
    return f"127.0.0.1:{server.port}"


def url(server):
    return f"tcp://{endpoint(server)}"


@contextlib.contextmanager
def mute_server():
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


class Interrupted(BaseException):
    """Raised by a handler of SIGALRM."""


@contextlib.contextmanager
def alarms(handler, first_s=0.05, every_s=0.0):
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, first_s, every_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupted_after(call):
    """How long a call goes on after a handler has raised Interrupted in the middle of it."""
    raised = []

    def raise_it(*_):
        raised.append(time.monotonic())
        raise Interrupted

    try:
        with alarms(raise_it):
            call()
    except Interrupted:
        return time.monotonic() - raised[0]
    raise AssertionError("it was not interrupted")


class Thread(threading.Thread):
    """A thread; end() returns its result or raises its exception."""

    def __init__(self, call, *arguments):
        super().__init__(daemon=True)
        self._run_it = lambda: call(*arguments)
        self._result = self._error = None
        self.start()

    def run(self):
        try:
            self._result = self._run_it()
        except BaseException as error:
            self._error = error

    def end(self):
        self.join(harness.DEADLINE_S)
        assert not self.is_alive(), "the thread goes on"
        if self._error is not None:
            raise self._error
        return self._result
