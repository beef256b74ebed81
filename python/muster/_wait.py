"""Waiting inside the library, with Ctrl-C and other signals handled.

Python runs signal handlers only in the main thread, and not during a call into C. Calls that can be
interrupted are made there: the library calls back while it waits, and that runs the handlers
(<muster/wait.h>). A handler that raises ends the call. The other calls are made in another thread,
for which the main thread waits. A handler that raises ends this waiting, not the call.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import queue
import threading
from typing import Any, Callable, Optional, TypeVar

from muster._binding import ffi, lib
from muster._errors import MusterError

ResultType = TypeVar("ResultType")

_NONE = ffi.NULL


class _Process:
    """State that a forked child must reset."""

    def __init__(self) -> None:
        self.generation = 0
        self.main_ident = threading.main_thread().ident
        #: Current calls inside the main thread; several if a signal handler makes one, too.
        self.calls: list[_Inside] = []
        #: Idle threads for other calls.
        self.idle: list[_Caller] = []

    def fork(self) -> None:
        self.generation += 1
        self.main_ident = threading.get_ident()
        self.calls = []
        self.idle = []


process = _Process()
os.register_at_fork(after_in_child=process.fork)


class _Inside:
    __slots__ = ("interrupt", "error")

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self.interrupt = interrupt
        self.error: Optional[BaseException] = None


def _end_call(_kind: Any, error: BaseException, _trace: Any) -> None:
    call = process.calls[-1]
    call.error = error
    call.interrupt()


def _run_handlers(_arg: Any) -> None:
    """An mst_wait_fn. Running Python code runs the pending signal handlers; a loop does so in
    every version."""
    for _ in (0, 1):
        pass


ffi.def_extern("muster_python_wait", onerror=_end_call)(_run_handlers)


def is_main() -> bool:
    """Whether this thread runs signal handlers."""
    return threading.get_ident() == process.main_ident


def inside(function: Callable[..., int], arguments: tuple[Any, ...],
           interrupt: Callable[[], None]) -> tuple[int, Optional[BaseException]]:
    """Make a call in the main thread that can be interrupted. Returns its result and what a
    handler has raised meanwhile."""
    calls = process.calls
    depth = len(calls)
    call = _Inside(interrupt)
    try:
        calls.append(call)
        lib.mst_on_wait(lib.muster_python_wait, _NONE)
        return function(*arguments), call.error
    finally:
        del calls[depth:]
        if depth == 0:
            lib.mst_on_wait(_NONE, _NONE)


class _Caller:
    """A thread that makes calls. To start one takes longer than most calls, so it is kept."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[Aside] = queue.SimpleQueue()
        _thread.start_new_thread(self._work, ())

    def _work(self) -> None:
        while True:
            self.calls.get().run(self)


class Aside:
    """A call in a separate thread."""

    def __init__(self, call: Callable[[], Any], discard: Callable[[Any], None]) -> None:
        self.result: Any = None
        self.error: Optional[BaseException] = None
        self.done = threading.Lock()
        self._call = call
        self._discard = discard
        self._lock = threading.Lock()
        self._is_left = False
        self.done.acquire()

    def start(self) -> bool:
        """False if no thread can start because the interpreter ends."""
        try:
            caller = process.idle.pop() if process.idle else _Caller()
        except RuntimeError:
            return False
        caller.calls.put(self)
        return True

    def run(self, caller: _Caller) -> None:
        result, error = None, None
        try:
            result = self._call()
        except BaseException as raised:  # raised in the waiting thread
            error = raised
        with self._lock:
            self.result, self.error = result, error
            is_left = self._is_left
            process.idle.append(caller)  # before the main thread makes the next call
            self.done.release()
        if is_left and error is None:
            self._discard(result)

    def wait(self, timeout_s: float = -1) -> None:
        """Wait for its end; by default without a limit."""
        if self.done.acquire(timeout=timeout_s):
            self.done.release()

    def leave(self) -> None:
        """Stop waiting for it."""
        with self._lock:
            self._is_left = True
            is_over = self.done.acquire(blocking=False)
        if is_over and self.error is None:
            self._discard(self.result)


def _keep(_result: Any) -> None:
    pass


def aside(call: Callable[[], ResultType], *,
          discard: Callable[[ResultType], None] = _keep) -> ResultType:
    """Make a call that may wait and cannot be interrupted. If a handler raises in the main
    thread, the call goes on and its result is discarded."""
    if not is_main():
        return call()
    it = Aside(call, discard)
    # A handler may raise while the thread starts, too.
    try:
        has_thread = it.start()
        if has_thread:
            it.done.acquire()
    except BaseException:
        it.leave()
        raise
    if not has_thread:
        return call()
    if it.error is not None:
        raise it.error
    result: ResultType = it.result
    return result


def begin_aside(call: Callable[[], None]) -> Optional[Aside]:
    """Begin such a call, whose errors are ignored. None if it had to be made at once."""
    it = Aside(call, _keep)
    if is_main() and it.start():
        return it
    with contextlib.suppress(MusterError):
        call()
    return None
