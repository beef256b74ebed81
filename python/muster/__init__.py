"""muster: elastic rendezvous for distributed jobs.

Nodes of a job meet, agree on the members, get ranks and a world size, exchange addresses through a
shared store, and meet again when a node joins, leaves or dies.

    with muster.Rendezvous("server:29400", "job", nodes=(2, 4)) as rendezvous:
        here = rendezvous.next()
        here.store.set(f"address/{here.rank}", address)

All classes are thread-safe. Calls that wait release the GIL, and Ctrl-C ends them. A forked child
cannot use the handles of its parent.
"""

from muster._binding import ffi as _ffi
from muster._binding import lib as _lib
from muster._errors import (AuthError, CanceledError, ClosedError, ConnectionFailedError,
                            ExpelledError, FinishedError, InvalidError, LimitError, MusterError,
                            NotFoundError, NotSupportedError, OutOfMemoryError, ProtocolError,
                            ResolveError, SpareError, StateError, SystemCallError, TimedOutError,
                            TypeMismatchError, UnknownOutcomeError)
from muster._log import Event
from muster._rendezvous import (Cause, Changes, Kind, LostNode, Notice, Outcome, Rendezvous, Round,
                                Start)
from muster._server import Server
from muster._status import Member, jobs, status
from muster._store import Store

__version__: str = _ffi.string(_lib.mst_version()).decode()

__all__ = [
    "AuthError", "CanceledError", "Cause", "Changes", "ClosedError", "ConnectionFailedError",
    "Event", "ExpelledError", "FinishedError", "InvalidError", "Kind", "LimitError", "LostNode",
    "Member", "MusterError", "NotFoundError", "NotSupportedError", "Notice", "OutOfMemoryError",
    "Outcome", "ProtocolError", "Rendezvous", "ResolveError", "Round", "Server", "SpareError",
    "Start", "StateError", "Store", "SystemCallError", "TimedOutError", "TypeMismatchError",
    "UnknownOutcomeError", "__version__", "jobs", "status",
]
