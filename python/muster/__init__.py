"""muster: elastic rendezvous for distributed jobs.

Nodes of a job meet, agree who is in, get ranks and a world size, exchange addresses through a
shared store, and agree again when somebody joins, leaves or dies.

    with muster.Rendezvous("server:29400", "job", nodes=(2, 4)) as rendezvous:
        here = rendezvous.next()
        here.store.set(f"address/{here.rank}", address)
"""

from muster._binding import ffi as _ffi, lib as _lib
from muster._errors import *  # noqa: F403
from muster._errors import __all__ as _errors
from muster._rendezvous import (Cause, Changes, Event, Kind, LostNode, Notice, Outcome, Rendezvous,
                                Round)
from muster._server import Server
from muster._status import jobs, status
from muster._store import Store

__version__: str = _ffi.string(_lib.mst_version()).decode()

__all__ = [*_errors, "Cause", "Changes", "Event", "Kind", "LostNode", "Notice", "Outcome",
           "Rendezvous", "Round", "Server", "Store", "__version__", "jobs", "status"]
