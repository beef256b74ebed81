"""Nodes of a job meet, agree who is in, and get ranks and a world size."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import logging
import select
import time
import weakref
from collections.abc import Mapping
from typing import Any, Callable, Optional, Union

from muster._binding import ffi, lib
from muster._errors import CanceledError, Error, TimedOutError, check, error_of, text_of
from muster._handle import Handle, Seconds, milliseconds, wait
from muster._store import Store

Option = Union[str, int, float, bool]

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


class Outcome(enum.Enum):
    """How a rendezvous that is closed has ended."""

    NONE = 0
    CLOSED = 1
    FINISHED = 2
    FAILED = 3


class Kind(enum.Enum):
    """What a notice tells of."""

    COMPLETE = 0
    FAILED = 1
    WAITING = 2
    LOST = 3
    REOPENED = 4
    EXPELLED = 5
    CLOSED = 6
    UNREACHABLE = 7
    REACHABLE = 8


@dataclasses.dataclass(frozen=True)
class Cause:
    """Why work has failed: the first failure of a round, the same on all its nodes."""

    rank: int  #: of the node; -1 = nobody's
    worker: int  #: on the node; -1 = none in particular
    exit_status: int
    signal: int  #: 0 = none
    time: float  #: on the node's clock; 0 = not known
    node: str
    text: str


@dataclasses.dataclass(frozen=True)
class LostNode:
    """A member of the round that is gone."""

    name: str
    rank: int  #: -1 = not known
    has_left: bool  #: it has said so; else nobody has heard of it


@dataclasses.dataclass(frozen=True)
class Notice:
    """What has happened to the round."""

    kind: Kind
    round: int  #: -1 = none
    nodes_waiting: int
    nodes_lost: int
    nodes: tuple[LostNode, ...]
    reason: str
    outcome: Outcome
    cause: Optional[Cause]
    error: Optional[Error]


@dataclasses.dataclass(frozen=True)
class Changes:
    """How the round has changed since it was complete."""

    nodes_waiting: int
    nodes_lost: int
    closed: bool
    expelled: bool
    reopened: bool
    should_return: bool  #: whether this node should come back with next()
    reason: str
    outcome: Outcome
    cause: Optional[Cause]


@dataclasses.dataclass(frozen=True)
class Round:
    """A round that this node is in."""

    round: int
    rank: int
    world_size: int
    epoch: int  #: of the authority that made it; 0 = the backend has none
    master_addr: str  #: where the workers' store is; empty = nobody has told
    master_port: int
    store: Store  #: keys of this round only


@dataclasses.dataclass(frozen=True)
class Event:
    """What a handler does, for those who watch."""

    name: str
    run_id: str
    node: str
    message: str
    state: str
    round: int
    rank: int
    time: float


_STATES = ("INIT", "RUNNING", "SUCCEEDED", "FAILED")


def _cause(given: Any) -> Optional[Cause]:
    if not given.has_cause:
        return None
    cause = given.cause
    return Cause(cause.rank, cause.worker, cause.exit_status, cause.signal, cause.time_us / 1e6,
                 text_of(cause.node), text_of(cause.text))


def _notice(given: Any) -> Notice:
    nodes = tuple(LostNode(text_of(given.nodes[i].name), given.nodes[i].rank,
                           bool(given.nodes[i].has_left)) for i in range(given.node_count))
    error = error_of(given.err.code, given.err) if given.err.code != 0 else None
    return Notice(Kind(given.kind), given.round, given.nodes_waiting, given.nodes_lost, nodes,
                  text_of(given.reason), Outcome(given.outcome), _cause(given), error)


class _Listener:
    """Where log lines and events of one handler go. The library calls it from its own threads."""

    def __init__(self, logger: logging.Logger, on_event: Optional[Callable[[Event], None]]) -> None:
        self.logger = logger
        self.on_event = on_event
        self.handle: Any = ffi.new_handle(self)


@ffi.def_extern()  # type: ignore[misc]
def muster_python_log(arg: Any, level: int, line: Any) -> None:
    ffi.from_handle(arg).logger.log(_LEVELS[level], "%s", text_of(line))


@ffi.def_extern()  # type: ignore[misc]
def muster_python_event(arg: Any, event: Any) -> None:
    listener = ffi.from_handle(arg)
    listener.on_event(Event(text_of(event.name), text_of(event.run_id), text_of(event.node),
                            text_of(event.message), _STATES[event.state], event.round, event.rank,
                            event.time_us / 1e6))


def _option(value: Option) -> bytes:
    return (str(int(value)) if isinstance(value, bool) else str(value)).encode()


class Rendezvous(Handle):
    """This node's side of a rendezvous.

    ``backend`` is ``muster`` (at a ``muster serve``), ``etcd-v3``, or one that PyTorch's nodes
    share: ``c10d``, ``etcd-v2``, ``etcd``, ``static``. Further options are those of the backend,
    as keyword arguments or in ``options``: ``join_timeout``, ``last_call_timeout``,
    ``keep_alive_interval``, ``node_name``, …

    A context manager: at its end the node leaves. Its methods may be called from several threads.
    Ctrl-C ends those that wait, and the rendezvous can be used on.
    """

    def __init__(self, endpoint: str = "", run_id: str = "", *, backend: str = "muster",
                 nodes: Union[int, tuple[int, int]] = 1, local_addr: Optional[str] = None,
                 options: Optional[Mapping[str, Option]] = None,
                 ignore_unknown: bool = False, logger: Optional[logging.Logger] = None,
                 on_event: Optional[Callable[[Event], None]] = None, **more: Option) -> None:
        nodes_min, nodes_max = (nodes, nodes) if isinstance(nodes, int) else nodes
        self._listener = _Listener(logger or logging.getLogger("muster"), on_event)
        err = ffi.new("struct mst_err *")
        ret_params = ffi.new("struct mst_params **")
        check(lib.mst_params_new(backend.encode(), run_id.encode(), ret_params, err), err)
        params = ret_params[0]
        try:
            check(lib.mst_params_set_endpoint(params, endpoint.encode(), err), err)
            check(lib.mst_params_set_nodes(params, nodes_min, nodes_max, err), err)
            if local_addr is not None:
                check(lib.mst_params_set_local_addr(params, local_addr.encode(), err), err)
            for key, value in {**(options or {}), **more}.items():
                check(lib.mst_params_set(params, key.encode(), _option(value), err), err)
            lib.mst_params_ignore_unknown(params, ignore_unknown)
            log = ffi.new("struct mst_log *", {
                "fn": lib.muster_python_log, "arg": self._listener.handle,
                "level": lib.MST_LOG_DEBUG if self._listener.logger.isEnabledFor(logging.DEBUG)
                else lib.MST_LOG_INFO})
            lib.mst_params_log(params, log)
            if on_event is not None:
                lib.mst_params_on_event(params, lib.muster_python_event, self._listener.handle)
            ret = ffi.new("struct mst_handler **")
            check(lib.mst_handler_new(params, ret, err), err)
        finally:
            lib.mst_params_free(params)
        super().__init__(ret[0])
        self._stores: weakref.WeakSet[Store] = weakref.WeakSet()

    def _free(self, pointer: Any) -> None:
        lib.mst_handler_free(pointer)

    # --- rounds ---

    def begin(self, timeout: Optional[Seconds] = None) -> None:
        """Want the next round, and leave the one that is joined. Returns at once: notices tell what
        comes of it. Without a timeout the option ``join_timeout`` counts."""
        err = ffi.new("struct mst_err *")
        check(lib.mst_handler_begin(self._open, milliseconds(timeout, -1), err), err)

    def take(self, timeout: Optional[Seconds] = 0) -> Optional[Notice]:
        """The next notice, or None if there is none within the timeout; 0 = look only."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            notice = self._take_now()
            if notice is not None or not self._await(deadline):
                return notice

    def _take_now(self) -> Optional[Notice]:
        err = ffi.new("struct mst_err *")
        ret = ffi.new("struct mst_notice **")
        code = lib.mst_handler_take(self._open, 0, ret, err)
        if code == lib.MST_ETIMEOUT:
            return None
        check(code, err)
        try:
            return _notice(ret[0])
        finally:
            lib.mst_notice_free(ret[0])

    def _await(self, deadline: Optional[float]) -> bool:
        """Wait until there is a notice; whether there is. Python waits, so that it hears signals."""
        poller = select.poll()
        poller.register(self.fileno(), select.POLLIN)
        left_ms = None if deadline is None else max(0.0, (deadline - time.monotonic()) * 1000)
        return bool(poller.poll(left_ms))

    def round(self) -> Round:
        """The round that is joined, with a store of its own."""
        err = ffi.new("struct mst_err *")
        ret = ffi.new("struct mst_rendezvous *")
        lib.mst_rendezvous_init(ret, ffi.sizeof("struct mst_rendezvous"))
        check(lib.mst_handler_round(self._open, ret, err), err)
        store = Store._of(ret.store, milliseconds(300))
        return Round(ret.round, ret.rank, ret.world_size, ret.epoch, text_of(ret.master_addr),
                     ret.master_port, store)

    def next(self, timeout: Optional[Seconds] = None) -> Round:
        """Take part in the next round and wait until it is complete."""
        self.begin(timeout)
        try:
            while True:
                notice = self.take(None)
                assert notice is not None
                if notice.kind is Kind.COMPLETE:
                    return self.round()
                if notice.kind is Kind.FAILED:
                    raise notice.error or TimedOutError("the round does not come")
        except (KeyboardInterrupt, SystemExit, asyncio.CancelledError, CanceledError):
            self.abandon()
            raise

    def abandon(self) -> None:
        """Withdraw the round that is begun."""
        err = ffi.new("struct mst_err *")
        check(lib.mst_handler_abandon(self._open, err), err)

    def fileno(self) -> int:
        """A descriptor that is readable while there is a notice to take."""
        return int(lib.mst_handler_fd(self._open))

    async def take_async(self) -> Notice:
        """Wait for the next notice in an event loop."""
        loop = asyncio.get_running_loop()
        while True:
            notice = self._take_now()
            if notice is not None:
                return notice
            ready = loop.create_future()
            loop.add_reader(self.fileno(), lambda: ready.done() or ready.set_result(None))
            try:
                await ready
            finally:
                loop.remove_reader(self.fileno())

    async def next_async(self, timeout: Optional[Seconds] = None) -> Round:
        """next() for an event loop; cancelling it withdraws the round."""
        self.begin(timeout)
        try:
            while True:
                notice = await self.take_async()
                if notice.kind is Kind.COMPLETE:
                    return self.round()
                if notice.kind is Kind.FAILED:
                    raise notice.error or TimedOutError("the round does not come")
        except asyncio.CancelledError:
            self.abandon()
            raise

    # --- looking ---

    def poll(self, timeout: Seconds = 0) -> Changes:
        """The present state; with a timeout, wait for a change that was not told. Use this or
        take(), not both."""
        if timeout > 0:
            self._await(time.monotonic() + timeout)
        err = ffi.new("struct mst_err *")
        ret = ffi.new("struct mst_changes *")
        lib.mst_changes_init(ret, ffi.sizeof("struct mst_changes"))
        code = lib.mst_handler_poll(self._open, 0, ret, err)
        if code != lib.MST_ETIMEOUT:
            check(code, err)
        return Changes(ret.nodes_waiting, ret.participants_lost, bool(ret.closed),
                       bool(ret.expelled), bool(ret.reopened), bool(ret.should_return),
                       text_of(ret.reason), Outcome(ret.outcome), _cause(ret))

    def is_closed(self) -> bool:
        """Whether the rendezvous is closed."""
        err, ret = ffi.new("struct mst_err *"), ffi.new("bool *")
        pointer = self._open
        check(wait(lambda: lib.mst_handler_is_closed(pointer, ret, err), self.cancel), err)
        return bool(ret[0])

    def nodes_waiting(self) -> int:
        """How many nodes wait for the next round."""
        err, ret = ffi.new("struct mst_err *"), ffi.new("int64_t *")
        pointer = self._open
        check(wait(lambda: lib.mst_handler_nodes_waiting(pointer, ret, err), self.cancel), err)
        return int(ret[0])

    @property
    def node(self) -> str:
        """What the others call this node."""
        return text_of(lib.mst_handler_node(self._open))

    @property
    def run_id(self) -> str:
        """The job."""
        return text_of(lib.mst_handler_run_id(self._open))

    @property
    def backend(self) -> str:
        """The backend."""
        return text_of(lib.mst_handler_backend(self._open))

    @property
    def use_agent_store(self) -> bool:
        """Whether workers should use the store at master_addr instead of starting one."""
        return bool(lib.mst_handler_use_agent_store(self._open))

    # --- ends ---

    def cancel(self) -> None:
        """End the calls that wait in other threads, or the next one that would."""
        lib.mst_handler_cancel(self._open)

    def _end(self, function: Callable[..., int], *arguments: Any) -> None:
        err, pointer = ffi.new("struct mst_err *"), self._open
        check(wait(lambda: function(pointer, *arguments, err), self.cancel), err)

    def leave(self) -> None:
        """Leave the round without closing the rendezvous; next() enters again."""
        self._end(lib.mst_handler_leave)

    def finish(self, status: int = 0, text: str = "") -> None:
        """The work of this node in the round is done. When that of all members is, the job has
        finished."""
        self._end(lib.mst_handler_finish, status, text.encode())

    def restart(self, *, worker: int = -1, exit_status: int = 0, signal: int = 0, text: str = "",
                at: float = 0) -> None:
        """The work of this node has failed. Within the job's budget (``max_restarts``) the next
        round begins, else the job has failed."""
        memory = ffi.new("char[]", text.encode())
        failure = ffi.new("struct mst_failure *")
        lib.mst_failure_init(failure, ffi.sizeof("struct mst_failure"))
        failure.worker, failure.exit_status, failure.signal = worker, exit_status, signal
        failure.time_us, failure.text = round(at * 1e6), memory
        self._end(lib.mst_handler_restart, failure)

    def set_closed(self) -> None:
        """Close the rendezvous for good, for everybody."""
        self._end(lib.mst_handler_set_closed)

    def shutdown(self) -> None:
        """The job is over: stop heartbeats, close the rendezvous."""
        self._end(lib.mst_handler_shutdown)

    def __repr__(self) -> str:
        return f"<muster.Rendezvous {'closed' if self.closed else repr(self.run_id)}>"
