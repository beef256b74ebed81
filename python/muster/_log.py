"""Log lines and events of the library, for Python's logging. They come from the library's own
threads."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Callable, Optional

from muster._binding import ffi, lib
from muster._errors import text_of

# Silent unless the program configures logging.
logging.getLogger("muster").addHandler(logging.NullHandler())

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_STATES = ("INIT", "RUNNING", "SUCCEEDED", "FAILED")


@dataclasses.dataclass(frozen=True)
class Event:
    """An event of a node in a rendezvous."""

    name: str  #: ``next_rendezvous``, ``keep_alive``, …
    run_id: str
    node: str
    message: str  #: a sentence
    state: str  #: ``INIT``, ``RUNNING``, ``SUCCEEDED`` or ``FAILED``
    round: int  #: -1 = none yet
    rank: int  #: -1 = none yet
    time: float  #: seconds since 1970


class Listener:
    """Receives the lines and events of one handle, and must outlive it."""

    def __init__(self, logger: Optional[logging.Logger],
                 on_event: Optional[Callable[[Event], None]] = None,
                 on_failure: Optional[Callable[[Event], None]] = None) -> None:
        self.logger = logger or logging.getLogger("muster")
        self.on_event = on_event
        self.on_failure = on_failure
        self.arg: Any = ffi.new_handle(self)

    def close(self) -> None:
        """No more calls follow. A thread that releases the handle may outlive all references to
        this object, so it is kept alive until now."""
        self.arg = None

    def fill(self, log: Any) -> None:
        """Fill a struct mst_log. Lines below the logger's present level are dropped in the
        library."""
        levels = [level for level, number in enumerate(_LEVELS)
                  if self.logger.isEnabledFor(number)]
        if levels:
            log.fn, log.arg, log.level = lib.muster_python_log, self.arg, levels[0]

    def listen(self, params: Any) -> None:
        """Receive the events of handlers made from params."""
        if self.on_event is not None:
            lib.mst_params_on_event(params, lib.muster_python_event, self.arg)
        elif self.on_failure is not None:
            # The library's threads need the interpreter only when something fails.
            failure = ffi.addressof(lib, "muster_python_failure")
            lib.mst_params_on_event(params, failure, self.arg)


def _log(arg: Any, level: int, line: Any) -> None:
    """An mst_log_fn."""
    ffi.from_handle(arg).logger.log(_LEVELS[level], "%s", text_of(line))


def _event(arg: Any, event: Any) -> None:
    """An mst_event_fn."""
    listener = ffi.from_handle(arg)
    told = Event(
        text_of(event.name), text_of(event.run_id), text_of(event.node), text_of(event.message),
        _STATES[event.state], event.round, event.rank, event.time_us / 1e6)
    if listener.on_event is not None:
        listener.on_event(told)
    if listener.on_failure is not None and told.state == "FAILED":
        listener.on_failure(told)


ffi.def_extern("muster_python_log")(_log)
ffi.def_extern("muster_python_event")(_event)
