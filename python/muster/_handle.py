"""The base of all handles: they belong to one process, are released once, never during a call, and
signals can end their calls.

There is no lock here. A signal handler may run, or raise, between any two steps of the main thread,
even while it holds a lock. Atomic steps are single operations on a list or a set.
"""

from __future__ import annotations

import atexit
import datetime
import time
import weakref
from types import TracebackType
from typing import Any, Callable, Optional, TypeVar, Union

from muster._binding import ffi, lib
from muster._errors import CanceledError, ClosedError, InvalidError, check
from muster._wait import aside, inside, is_main, process

#: A time in seconds; None = the default, which each call documents.
Timeout = Union[int, float, datetime.timedelta, None]

HandleType = TypeVar("HandleType", bound="Handle")
ResultType = TypeVar("ResultType")

#: Wait without a limit.
FOREVER_MS = 2**53

#: How long close() waits for the calls that it has ended, and how often it checks.
_CLOSE_S = 3.0
_CLOSE_LOOK_S = 0.001


def milliseconds(timeout: Timeout, default_ms: int) -> int:
    """A timeout in milliseconds."""
    if timeout is None:
        return default_ms
    seconds = (timeout.total_seconds() if isinstance(timeout, datetime.timedelta)
               else float(timeout))
    if not seconds >= 0:
        raise InvalidError(f"timeout {timeout!r} is no number of seconds")
    return round(seconds * 1000) if seconds * 1000 < FOREVER_MS else FOREVER_MS


class Handle:
    """A handle of the library: a context manager, closed at the end of the interpreter at the
    latest."""

    _living: weakref.WeakSet[Handle] = weakref.WeakSet()

    def __init__(self, pointer: Any) -> None:
        self._pointer: Any = pointer  # None = closed
        self._owned = [pointer]  # taken by the code that releases it
        self._doomed: list[Any] = []  # closed; the last call releases it
        self._calls: set[Any] = set()  # current calls, by their struct mst_err
        self._is_rung = False  # an interrupt came too late for its call
        self._generation = process.generation
        Handle._living.add(self)

    # Defined by each kind of handle.

    def _free(self, pointer: Any) -> None:
        raise NotImplementedError

    def _free_in_child(self, pointer: Any) -> None:
        self._free(pointer)

    def _ring(self, pointer: Any) -> None:
        """End the waiting calls."""

    # Calls

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"this {type(self).__name__} is closed")

    def _open(self) -> Any:
        pointer = self._pointer
        if pointer is None:
            raise self._closed_error()
        if self._generation != process.generation:
            raise InvalidError(f"this {type(self).__name__} was made by another process: "
                               "a forked child has to make its own")
        return pointer

    def _interrupt(self) -> None:
        pointer = self._pointer
        if pointer is not None:
            self._ring(pointer)

    def _inside(self, function: Callable[..., int], *arguments: Any) -> None:
        """Make a call that may wait and can be interrupted; the library calls back in the main
        thread."""
        err = ffi.new("struct mst_err *")
        try:
            self._calls.add(err)
            pointer = self._open()
            while True:
                if is_main():
                    code, error = inside(function, (pointer, *arguments, err), self._interrupt)
                    if error is not None:
                        self._is_rung = code not in (lib.MST_ECANCELED, lib.MST_EUNKNOWN)
                        raise error
                else:
                    code = function(pointer, *arguments, err)
                if code != lib.MST_ECANCELED or not self._is_rung:
                    break
                self._is_rung = False
        finally:
            self._calls.discard(err)
            if self._doomed:
                self._release()
        if code == lib.MST_ECANCELED and self._pointer is None:
            raise self._closed_error()
        if code != 0:
            check(code, err)

    def _plain(self, call: Callable[[Any, Any], ResultType]) -> ResultType:
        """Make a call with the pointer and a struct mst_err in this thread."""
        err = ffi.new("struct mst_err *")
        try:
            self._calls.add(err)
            return call(self._open(), err)
        except CanceledError:
            if self._pointer is None:
                raise self._closed_error() from None
            raise
        finally:
            self._calls.discard(err)
            if self._doomed:
                self._release()

    def _aside(self, call: Callable[[Any, Any], ResultType]) -> ResultType:
        """Make a call with the pointer and a struct mst_err that may wait and cannot be
        interrupted."""
        self._open()  # fail early, without a thread
        return aside(lambda: self._plain(call))

    # Closing

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._pointer is None

    def _release(self) -> None:
        """Release the pointer of a closed handle unless a call still uses it."""
        if not self._calls:
            try:
                pointer = self._doomed.pop()
            except IndexError:
                return
            self._free(pointer)

    def close(self) -> None:
        """End the calls of other threads and release everything. Later calls fail, except
        close()."""
        try:
            pointer = self._owned.pop()
        except IndexError:
            return
        if self._generation != process.generation:
            self._pointer = None
            self._free_in_child(pointer)
            return
        self._pointer = None
        try:
            end_s = time.monotonic() + _CLOSE_S
            while self._calls and time.monotonic() < end_s:
                self._ring(pointer)
                if is_main() and process.calls:
                    break  # called by a signal handler during such a call
                time.sleep(_CLOSE_LOOK_S)
        finally:
            self._doomed.append(pointer)
            Handle._living.discard(self)
            self._release()

    def __enter__(self: HandleType) -> HandleType:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_owned", None):
            self.close()


@atexit.register
def _close_all() -> None:
    # Threads of the library must not outlive the interpreter, because they log to it.
    for handle in list(Handle._living):
        if handle._generation == process.generation:
            handle.close()
