"""Nodes of a job meet, agree on the members, and get ranks and a world size."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Optional, Union

from muster._binding import ffi, lib
from muster._errors import CanceledError, MusterError, TimedOutError, check, error_of, text_of
from muster._handle import FOREVER_MS, Handle, Timeout, milliseconds
from muster._log import Event, Listener
from muster._params import Option, new_params
from muster._status import LOOK_MS, Member, members_of
from muster._store import Store
from muster._wait import Aside, aside, begin_aside

#: How long an interrupted wait for a round stays to withdraw from it.
_WITHDRAW_S = 0.03

#: Timeout of the store of a round.
_STORE_MS = 300_000


class Outcome(enum.Enum):
    """The outcome of a closed rendezvous."""

    NONE = 0
    CLOSED = 1
    FINISHED = 2
    FAILED = 3


class Start(enum.Enum):
    """Why a round began."""

    UNKNOWN = 0  #: the backend does not tell
    FIRST = 1  #: there was none before it
    JOINED = 2  #: nodes waited for it
    LOST = 3  #: a member of the last round was lost
    LEFT = 4  #: a member left
    FAILED = 5  #: a member's work failed
    ASKED = 6  #: a member wanted another round, without a new node


class Kind(enum.Enum):
    """The kind of a notice."""

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

    rank: int  #: of the node; -1 = none
    worker: int  #: on the node; -1 = not known
    exit_status: int
    signal: int  #: 0 = none
    time: float  #: on the node's clock; 0 = not known
    node: str
    text: str
    report: str = ""  #: lines for people, such as a stack trace


@dataclasses.dataclass(frozen=True)
class LostNode:
    """A gone member of the round."""

    name: str  #: "" = not known
    rank: int  #: -1 = not known
    has_left: bool  #: it left; else it was lost


@dataclasses.dataclass(frozen=True)
class Notice:
    """News of the round."""

    kind: Kind
    round: int  #: -1 = none
    nodes_waiting: int
    nodes_lost: int
    nodes: tuple[LostNode, ...]
    reason: str
    outcome: Outcome
    cause: Optional[Cause]
    error: Optional[MusterError]


@dataclasses.dataclass(frozen=True)
class Changes:
    """How the round has changed since it was complete."""

    nodes_waiting: int
    nodes_lost: int
    closed: bool
    expelled: bool
    reopened: bool
    should_return: bool  #: this node should call next()
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
    master_addr: str  #: address of the workers' store; empty = not known
    master_port: int
    store: Store  #: keys of this round only
    restarts: int  #: rounds before it that ended with a failure
    start: Start
    #: When this node connected to the server, as time.monotonic(); 0 = not known
    connected: float
    #: Ranks of this node's workers: ``first_worker`` and following of ``workers``; the same among
    #: those with this node's role. With the options ``workers`` and ``role``; 0 = not known
    first_worker: int
    workers: int
    role_first_worker: int
    role_workers: int


def _cause(given: Any) -> Optional[Cause]:
    if not given.has_cause:
        return None
    cause = given.cause
    return Cause(cause.rank, cause.worker, cause.exit_status, cause.signal, cause.time_us / 1e6,
                 text_of(cause.node), text_of(cause.text), text_of(cause.report))


def _notice(given: Any) -> Notice:
    nodes = tuple(LostNode(text_of(given.nodes[i].name), given.nodes[i].rank,
                           bool(given.nodes[i].has_left)) for i in range(given.node_count))
    error = error_of(given.err.code, given.err) if given.err.code != 0 else None
    return Notice(Kind(given.kind), given.round, given.nodes_waiting, given.nodes_lost, nodes,
                  text_of(given.reason), Outcome(given.outcome), _cause(given), error)


def _round(found: Any) -> Round:
    return Round(found.round, found.rank, found.world_size, found.epoch,
                 text_of(found.master_addr), found.master_port,
                 Store._of(found.store, _STORE_MS), found.restarts, Start(found.start),
                 found.connected_us / 1e6, found.first_worker, found.workers,
                 found.role_first_worker, found.role_workers)


def _new_round() -> Any:
    found = ffi.new("struct mst_rendezvous *")
    lib.mst_rendezvous_init(found, ffi.sizeof("struct mst_rendezvous"))
    return found


class Rendezvous(Handle):
    """This node's side of a rendezvous.

    ``backend`` is ``muster`` (at a ``muster serve``, or the first node serves), ``etcd-v3``, or one
    that PyTorch's nodes share: ``c10d``, ``etcd-v2``, ``etcd``, ``static``. ``nodes`` is the number
    of nodes of a round, or its minimum and maximum. Further keyword arguments are options of the
    backend: ``join_timeout``, ``last_call_timeout``, ``keep_alive_interval``, ``node_name``, …;
    times are in seconds. Options whose names are not valid in Python go into ``options``. Unknown
    options are an error, or with ``ignore_unknown`` a line in the log.

    A context manager: at its end the node leaves. Thread-safe. Ctrl-C ends methods that wait, and
    the rendezvous stays usable. A forked child must make its own.
    """

    def __init__(self, endpoint: str = "", run_id: str = "", *, backend: str = "muster",
                 nodes: Union[int, tuple[int, int]] = 1, local_addr: Optional[str] = None,
                 options: Optional[Mapping[str, Option]] = None,
                 ignore_unknown: bool = False, logger: Optional[logging.Logger] = None,
                 on_event: Optional[Callable[[Event], None]] = None,
                 on_failure: Optional[Callable[[Event], None]] = None, **more: Option) -> None:
        listener = Listener(logger, on_event, on_failure)
        params = new_params(backend, endpoint, run_id, {**(options or {}), **more},
                            (nodes, nodes) if isinstance(nodes, int) else nodes, local_addr)
        lib.mst_params_ignore_unknown(params, ignore_unknown)
        log = ffi.new("struct mst_log *")
        listener.fill(log)
        lib.mst_params_log(params, log)
        listener.listen(params)

        def call() -> Any:
            err = ffi.new("struct mst_err *")
            ret = ffi.new("struct mst_handler **")
            check(lib.mst_handler_new(params, ret, err), err)
            return ret[0]

        def discard(pointer: Any) -> None:
            lib.mst_handler_free(pointer)
            listener.close()

        super().__init__(aside(call, discard=discard))
        self._withdrawal: Optional[Aside] = None
        self._listener = listener
        self._params = params

    def _free(self, pointer: Any) -> None:
        # A member leaves first.
        listener = self._listener

        def call() -> None:
            lib.mst_handler_free(pointer)
            listener.close()

        aside(call)

    def _free_in_child(self, pointer: Any) -> None:
        lib.mst_handler_free(pointer)

    def _ring(self, pointer: Any) -> None:
        lib.mst_handler_cancel(pointer)

    # --- rounds ---

    def connect(self, timeout: Timeout = None) -> None:
        """Connect to the server before the first round; the default timeout is 10 seconds. This
        is optional: next() connects, too, and waits for a server. Without effect with other
        backends than ``muster``."""
        self._inside(lib.mst_handler_connect, milliseconds(timeout, LOOK_MS))

    def next(self, timeout: Timeout = None) -> Round:
        """Leave the joined round, if any, join the next one, and wait until it is complete. The
        default timeout is the option ``join_timeout``. An interrupted call withdraws from the
        round."""
        return self._next(timeout, iter(()))

    def _next(self, timeout: Timeout, pauses: Iterator[float]) -> Round:
        """The same. The iterator gives pauses in seconds; it runs before each of them, and the
        wait after the last one has no limit."""
        try:
            self.begin(timeout)
            for pause in pauses:
                if self._await(milliseconds(pause, 0)):
                    break
            else:
                self._await(FOREVER_MS)
            return self.round()
        except CanceledError:
            self.abandon()
            raise
        except MusterError:
            raise  # the round is over
        except BaseException:
            self._withdraw()
            raise

    def _withdraw(self) -> None:
        self._withdrawal = begin_aside(lambda: self._plain(self._abandon))
        if self._withdrawal is not None:
            self._withdrawal.wait(_WITHDRAW_S)

    def _await(self, timeout_ms: int) -> bool:
        """Wait for the begun round. Returns whether it is complete."""
        is_over = ffi.new("bool *")
        try:
            self._inside(lib.mst_handler_await, timeout_ms, is_over)
        except TimedOutError:
            if is_over[0]:
                raise
        return bool(is_over[0])

    def begin(self, timeout: Timeout = None) -> None:
        """Begin to join the next round, and leave the joined one. Returns at once; a notice
        tells the result. The timeout is that of next()."""
        timeout_ms = milliseconds(timeout, -1)
        withdrawal = self._withdrawal
        if withdrawal is not None:  # else this would be the round that is being given up
            withdrawal.wait()
            self._withdrawal = None
        self._plain(lambda pointer, err: check(
            lib.mst_handler_begin(pointer, timeout_ms, err), err))

    def take(self, timeout: Timeout = 0) -> Optional[Notice]:
        """The next notice, or None if there is none within the timeout; 0 = do not wait, None =
        wait without a limit."""
        ret = ffi.new("struct mst_notice **")
        try:
            self._inside(lib.mst_handler_take, milliseconds(timeout, FOREVER_MS), ret)
        except TimedOutError:
            return None
        try:
            return _notice(ret[0])
        finally:
            lib.mst_notice_free(ret[0])

    def round(self) -> Round:
        """The joined round, with a store handle of its own."""
        def call(pointer: Any, err: Any) -> Round:
            found = _new_round()
            check(lib.mst_handler_round(pointer, found, err), err)
            return _round(found)

        return self._plain(call)

    def abandon(self) -> None:
        """Withdraw the begun round."""
        self._aside(self._abandon)

    @staticmethod
    def _abandon(pointer: Any, err: Any) -> None:
        check(lib.mst_handler_abandon(pointer, err), err)

    def fileno(self) -> int:
        """A descriptor that is readable while there is a notice to take."""
        return self._plain(lambda pointer, _: int(lib.mst_handler_fd(pointer)))

    # --- looking ---

    def poll(self, timeout: Timeout = 0) -> Changes:
        """The present state; with a timeout, wait for a change that was not reported yet. It
        removes the notices of the changes that it reports: use either this or take()."""
        ret = ffi.new("struct mst_changes *")
        lib.mst_changes_init(ret, ffi.sizeof("struct mst_changes"))
        with contextlib.suppress(TimedOutError):  # it is filled all the same
            self._inside(lib.mst_handler_poll, milliseconds(timeout, FOREVER_MS), ret)
        return Changes(ret.nodes_waiting, ret.participants_lost, bool(ret.closed),
                       bool(ret.expelled), bool(ret.reopened), bool(ret.should_return),
                       text_of(ret.reason), Outcome(ret.outcome), _cause(ret))

    def members(self, timeout: Timeout = None) -> list[Member]:
        """The nodes of the joined round, by rank, with their names, addresses and labels. It
        asks the server; the default timeout is 10 seconds. StateError if the job is in another
        round by now."""
        timeout_ms = milliseconds(timeout, LOOK_MS)

        def call(pointer: Any, err: Any) -> list[Member]:
            ret = ffi.new("struct mst_status **")
            check(lib.mst_handler_members(pointer, timeout_ms, ret, err), err)
            try:
                return members_of(ret[0])
            finally:
                lib.mst_status_free(ret[0])

        return self._aside(call)

    def is_closed(self) -> bool:
        """Whether the rendezvous is closed."""
        def call(pointer: Any, err: Any) -> bool:
            ret = ffi.new("bool *")
            check(lib.mst_handler_is_closed(pointer, ret, err), err)
            return bool(ret[0])

        return self._aside(call)

    def nodes_waiting(self) -> int:
        """How many nodes wait for the next round. poll() returns it, too, and never waits."""
        def call(pointer: Any, err: Any) -> int:
            ret = ffi.new("int64_t *")
            check(lib.mst_handler_nodes_waiting(pointer, ret, err), err)
            return int(ret[0])

        return self._aside(call)

    @property
    def node(self) -> str:
        """The name of this node."""
        return self._plain(lambda pointer, _: text_of(lib.mst_handler_node(pointer)))

    @property
    def run_id(self) -> str:
        """The run id of the job."""
        return self._plain(lambda pointer, _: text_of(lib.mst_handler_run_id(pointer)))

    @property
    def backend(self) -> str:
        """The backend."""
        return self._plain(lambda pointer, _: text_of(lib.mst_handler_backend(pointer)))

    @property
    def use_agent_store(self) -> bool:
        """Whether workers should use the store at master_addr instead of starting one."""
        return self._plain(lambda pointer, _: bool(lib.mst_handler_use_agent_store(pointer)))

    # --- ends ---

    def cancel(self) -> None:
        """End the waiting calls of other threads with CanceledError; if there are none, the next
        call that would wait. The rendezvous stays usable."""
        self._plain(lambda pointer, _: lib.mst_handler_cancel(pointer))

    def finish(self, status: int = 0, text: str = "") -> None:
        """Report that the work of this node in the round is done. When all members have
        finished, the job has. ``status`` and ``text`` are for people."""
        self._inside(lib.mst_handler_finish, status, text.encode())

    def restart(self, *, worker: int = -1, exit_status: int = 0, signal: int = 0, text: str = "",
                time: float = 0, report: str = "") -> None:
        """Report that the work of this node in the round has failed: worker, exit status or
        signal, time (seconds since 1970; 0 = now), a sentence (text) and lines for people
        (report), such as a stack trace. Within the job's budget (``max_restarts``) the next round
        begins, and next() joins it; else the job has failed."""
        memory = ffi.new("char[]", text.encode())
        lines = ffi.new("char[]", report.encode())
        failure = ffi.new("struct mst_failure *")
        lib.mst_failure_init(failure, ffi.sizeof("struct mst_failure"))
        failure.worker, failure.exit_status, failure.signal = worker, exit_status, signal
        failure.time_us, failure.text, failure.report = int(time * 1e6), memory, lines
        self._inside(lib.mst_handler_restart, failure)

    def leaving(self, seconds: float = 0) -> None:
        """Tell the others that this node will leave its round in so many seconds: work of theirs
        that fails about then, because its peer is gone, uses no restart."""
        self._inside(lib.mst_handler_leaving, milliseconds(seconds, 0))

    def leave(self) -> None:
        """Leave the round without closing the rendezvous; next() joins again."""
        self._aside(lambda pointer, err: check(lib.mst_handler_leave(pointer, err), err))

    def set_closed(self) -> None:
        """Close the rendezvous for good, for all nodes."""
        self._aside(lambda pointer, err: check(lib.mst_handler_set_closed(pointer, err), err))

    def shutdown(self) -> None:
        """The job is over: stop heartbeats, close the rendezvous."""
        self._aside(lambda pointer, err: check(lib.mst_handler_shutdown(pointer, err), err))

    def linger(self, timeout: Timeout = None) -> None:
        """Keep serving for others: leave the round, and wait until no node is left in any open
        job at the server of this node, by default as the option ``linger`` says (24 hours).
        TimeoutError if there are still nodes. Returns at once if it serves nobody else."""
        self._inside(lib.mst_handler_linger, milliseconds(timeout, -1))

    # --- in an event loop ---

    async def take_async(self, timeout: Timeout = None) -> Optional[Notice]:
        """take() for asyncio; by default it waits without a limit. One task at a time."""
        timeout_ms = milliseconds(timeout, FOREVER_MS)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_ms / 1000
        while True:
            notice = self.take()
            left_s = end_s - loop.time()
            if notice is not None or left_s <= 0:
                return notice
            await self._readable(loop, None if timeout_ms == FOREVER_MS else left_s)

    async def _readable(self, loop: asyncio.AbstractEventLoop, timeout_s: Optional[float]) -> None:
        ready = asyncio.Event()
        fd = self.fileno()
        loop.add_reader(fd, ready.set)
        try:
            await asyncio.wait_for(ready.wait(), timeout_s)
        except asyncio.TimeoutError:
            pass
        finally:
            loop.remove_reader(fd)

    async def next_async(self, timeout: Timeout = None) -> Round:
        """next() for asyncio. A cancelled task withdraws from the round."""
        self.begin(timeout)
        try:
            while True:
                notice = await self.take_async()
                if notice is not None and notice.kind is Kind.COMPLETE:
                    return self.round()
                if notice is not None and notice.kind is Kind.FAILED:
                    raise notice.error or TimedOutError("the round does not come")
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.to_thread(self.abandon))
            raise

    async def finish_async(self, status: int = 0, text: str = "") -> None:
        """finish() for asyncio."""
        await asyncio.to_thread(self.finish, status, text)

    async def restart_async(self, *, worker: int = -1, exit_status: int = 0, signal: int = 0,
                            text: str = "", time: float = 0, report: str = "") -> None:
        """restart() for asyncio."""
        await asyncio.to_thread(lambda: self.restart(
            worker=worker, exit_status=exit_status, signal=signal, text=text, time=time,
            report=report))

    async def leaving_async(self, seconds: float = 0) -> None:
        """leaving() for asyncio."""
        await asyncio.to_thread(self.leaving, seconds)

    async def leave_async(self) -> None:
        """leave() for asyncio."""
        await asyncio.to_thread(self.leave)

    async def members_async(self, timeout: Timeout = None) -> list[Member]:
        """members() for asyncio."""
        return await asyncio.to_thread(self.members, timeout)

    async def close_async(self) -> None:
        """close() for asyncio."""
        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> Rendezvous:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_async()

    def __repr__(self) -> str:
        return f"<muster.Rendezvous {'closed' if self.closed else repr(self.run_id)}>"
