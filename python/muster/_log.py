"""Log lines and events of the library, in Python's logging. It calls from threads of its own."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Callable, Optional

from muster._binding import ffi, lib
from muster._errors import text_of

# Silent unless the program says where lines go.
logging.getLogger("muster").addHandler(logging.NullHandler())

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_STATES = ("INIT", "RUNNING", "SUCCEEDED", "FAILED")


@dataclasses.dataclass(frozen=True)
class Event:
    """What a node of a rendezvous does, for those who watch."""

    name: str  #: ``next_rendezvous``, ``keep_alive``, …
    run_id: str
    node: str
    message: str  #: a sentence
    state: str  #: ``INIT``, ``RUNNING``, ``SUCCEEDED`` or ``FAILED``
    round: int  #: -1 = none yet
    rank: int  #: -1 = none yet
    time: float  #: seconds since 1970


class Listener:
    """Where lines and events of one handle go. It must live as long as the handle."""

    def __init__(self, logger: Optional[logging.Logger],
                 on_event: Optional[Callable[[Event], None]] = None) -> None:
        self.logger = logger or logging.getLogger("muster")
        self.on_event = on_event
        self.arg: Any = ffi.new_handle(self)

    def close(self) -> None:
        """Nobody calls any more. The library is released by a thread that may outlive those who
        refer to this, so it is kept until then."""
        self.arg = None

    def fill(self, log: Any) -> None:
        """Fill a struct mst_log. Lines below the logger's present level do not get as far as
        here."""
        levels = [level for level, number in enumerate(_LEVELS)
                  if self.logger.isEnabledFor(number)]
        if levels:
            log.fn, log.arg, log.level = lib.muster_python_log, self.arg, levels[0]


def _log(arg: Any, level: int, line: Any) -> None:
    """An mst_log_fn."""
    ffi.from_handle(arg).logger.log(_LEVELS[level], "%s", text_of(line))


def _event(arg: Any, event: Any) -> None:
    """An mst_event_fn."""
    ffi.from_handle(arg).on_event(Event(
        text_of(event.name), text_of(event.run_id), text_of(event.node), text_of(event.message),
        _STATES[event.state], event.round, event.rank, event.time_us / 1e6))


ffi.def_extern("muster_python_log")(_log)
ffi.def_extern("muster_python_event")(_event)
