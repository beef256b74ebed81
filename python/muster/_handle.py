"""What all handles have in common: they belong to one process, are closed once, and calls that may
wait can be ended by a signal."""

from __future__ import annotations

import atexit
import os
import queue
import threading
import weakref
from types import TracebackType
from typing import Any, Callable, Optional, TypeVar, Union

from muster._errors import ClosedError, InvalidError

Seconds = Union[int, float]
HandleType = TypeVar("HandleType", bound="Handle")
ResultType = TypeVar("ResultType")

#: The longest wait that a call is asked for.
_WAIT_MS_MAX = 2**53


def milliseconds(seconds: Optional[Seconds], default: Optional[int] = None) -> int:
    """A timeout for the library; None stands for the default, or for no end."""
    if seconds is None:
        return _WAIT_MS_MAX if default is None else default
    if not seconds >= 0:
        raise InvalidError(f"timeout {seconds!r} is no number of seconds")
    return min(round(seconds * 1000), _WAIT_MS_MAX)


class _Waiter:
    """A thread that waits inside the library for the main thread, which has to run the handlers of
    signals meanwhile: Python runs them nowhere else."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="muster-waiter", daemon=True).start()

    def _run(self) -> None:
        while True:
            call, box, done = self._calls.get()
            try:
                box.append((call(), None))
            except BaseException as error:  # it belongs to the main thread
                box.append((None, error))
            done.release()
            del call, box, done

    def wait(self, call: Callable[[], ResultType], interrupt: Callable[[], None]) -> ResultType:
        box: list[tuple[Any, Optional[BaseException]]] = []
        done = threading.Lock()
        done.acquire()
        self._calls.put((call, box, done))
        try:
            done.acquire()
        except BaseException:
            # A handler has raised. The call must have ended before its memory goes.
            interrupt()
            done.acquire()
            raise
        result, error = box[0]
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]


_waiter: Optional[_Waiter] = None


def wait(call: Callable[[], ResultType], interrupt: Callable[[], None]) -> ResultType:
    """Make a call that may wait. In the main thread, @interrupt ends it when a signal's handler
    raises, as that of Ctrl-C does."""
    global _waiter
    if threading.current_thread() is not threading.main_thread():
        return call()
    if _waiter is None:
        _waiter = _Waiter()
    return _waiter.wait(call, interrupt)


class Handle:
    """A handle of the library. A context manager; closed at the latest when the interpreter ends."""

    _living: weakref.WeakSet[Handle] = weakref.WeakSet()

    def __init__(self, pointer: Any) -> None:
        self._pointer: Any = pointer
        self._pid = os.getpid()
        self._uses = 0
        self._lock = threading.Lock()
        Handle._living.add(self)

    def _free(self, pointer: Any) -> None:
        raise NotImplementedError

    @property
    def _open(self) -> Any:
        if self._pointer is None:
            raise ClosedError(f"this {type(self).__name__} is closed")
        if self._pid != os.getpid():
            raise InvalidError(f"this {type(self).__name__} was made by process {self._pid}: "
                               "a child process has to make its own")
        return self._pointer

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._pointer is None

    def close(self) -> None:
        """Release everything. Calls on it are an error afterwards; closing again is fine."""
        with self._lock:
            pointer, self._pointer = self._pointer, None
        Handle._living.discard(self)
        if pointer is not None:
            self._free(pointer)

    def __enter__(self: HandleType) -> HandleType:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None:
            self.close()


@atexit.register
def _close_all() -> None:
    # Threads of the library must not outlive the interpreter that they log to.
    for handle in list(Handle._living):
        if handle._pid == os.getpid():
            handle.close()


def _forget_waiter() -> None:
    global _waiter
    _waiter = None


os.register_at_fork(after_in_child=_forget_waiter)
