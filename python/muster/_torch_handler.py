"""torch's RendezvousHandler on top of ours. This module imports torch, see muster.torch."""

from __future__ import annotations

import contextlib
import datetime
import logging
import random
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.elastic import events
from torch.distributed.elastic.rendezvous import api

from muster._binding import ffi, lib
from muster._errors import (AuthError, ClosedError, ConnectionFailedError, FinishedError,
                            InvalidError, MusterError, NotSupportedError, ProtocolError,
                            ResolveError, SpareError, StateError, SystemCallError, TimedOutError,
                            check, text_of)
from muster._log import Event
from muster._params import Option
from muster._rendezvous import Rendezvous, Round
from muster._status import expected_nodes, summary_of
from muster._torch_store import Client
from muster._wait import aside

#: A child of torch's logger, to inherit its settings.
logger = logging.getLogger("torch.distributed.elastic.rendezvous.muster")

#: The keys of --rdzv-conf of torch's own handlers. Each of those silently ignores the keys of the
#: others.
_TORCH_KEYS = frozenset((
    "ca_cert", "cacert", "cert", "close_timeout", "etcd_prefix", "heartbeat_timeout", "is_host",
    "join_timeout", "keep_alive_interval", "keep_alive_max_attempt", "key", "last_call_timeout",
    "local_addr", "protocol", "rank", "read_timeout", "ssl_cert", "ssl_cert_key", "store_type",
    "timeout", "use_libuv",
))

#: Those that have no effect here and need none.
_QUIET_KEYS = frozenset(("heartbeat_timeout", "local_addr", "rank", "timeout", "use_libuv"))

_READ_TIMEOUT_MS = 60_000

#: How long to try to connect before the first round.
_CONNECT_S = 1.0

#: When a waiting node first reports what it waits for, and again.
_REPORT_S = 2.0
_REPORT_AGAIN_S = 10.0

#: How long a look at the job may take. How many names all nodes together look at per second.
_LOOK_MS = 1000
_LOOK_NODES_PER_S = 10_000

#: torch's names for the backends of the library.
_NAMES = {"muster": "muster", "etcd-v3": "muster-etcd", "c10d": "muster-c10d"}

#: The dialect in which torch's own handler writes the shared record, by first release.
_DIALECTS = (((2, 6), "D4"), ((2, 3), "D3"), ((2, 0), "D2"), ((0, 0), "D1"))

#: Agents before torch 2.4 get a tuple, and choose the address of the workers' store.
_Info: Any = getattr(api, "RendezvousInfo", None)
_StoreInfo: Any = getattr(api, "RendezvousStoreInfo", None)

#: "Not needed": not a failure, in releases that know it.
_Unneeded: Any = getattr(api, "RendezvousGracefulExitError", api.RendezvousClosedError)

_ERRORS: tuple[tuple[type[MusterError], Any], ...] = (
    (SpareError, _Unneeded),
    (FinishedError, _Unneeded),
    (ClosedError, api.RendezvousClosedError),
    (TimedOutError, api.RendezvousTimeoutError),
    (StateError, api.RendezvousStateError),
    (ConnectionFailedError, api.RendezvousConnectionError),
    (ResolveError, api.RendezvousConnectionError),
    (AuthError, api.RendezvousConnectionError),
    (ProtocolError, api.RendezvousConnectionError),
    (NotSupportedError, api.RendezvousConnectionError),
    (SystemCallError, api.RendezvousConnectionError),
)


@contextlib.contextmanager
def _torch_errors() -> Iterator[None]:
    """Raise our errors as those of torch."""
    try:
        yield
    except MusterError as error:
        kind = next((theirs for ours, theirs in _ERRORS if isinstance(error, ours)),
                    api.RendezvousError)
        raise kind(str(error)) from error


def _known(backend: str) -> frozenset[str]:
    """The options of a backend of the library."""
    count = ffi.new("size_t *")
    names = lib.mst_backend_options(backend.encode(), count)
    return frozenset(text_of(names[i]) for i in range(count[0]))


def _options(config: dict[str, Any], backend: str) -> dict[str, Option]:
    """The options for the library from torch's configuration. The library refuses unknown ones
    and names the nearest known one."""
    known = _known(backend)
    options: dict[str, Option] = {}
    for key, value in config.items():
        # A launcher adds the node's number, which only the static handler uses. In the text of
        # --rdzv-conf it is intended.
        is_launchers = key == "rank" and not isinstance(value, str)
        if value is None:
            continue
        if key == "store_type" and str(value).strip().lower() != "tcp":
            raise ValueError(f"store_type={value}: backend {_NAMES[backend]} has no such store")
        if key not in _TORCH_KEYS or (key in known and not is_launchers):
            options[key] = value
        elif key not in _QUIET_KEYS and key != "store_type":
            logger.warning("%s=%s has no effect with backend %s", key, value, _NAMES[backend])
    if "state_dialect" in known:
        options.setdefault("state_dialect", _dialect())
    return options


def _expected(value: Option) -> str:
    """The names of the expected nodes. In --rdzv-conf, a comma ends the value."""
    names = str(value).replace(";", ",")
    try:
        expected_nodes(names)
    except InvalidError as error:
        raise InvalidError(f"option 'expect': {error}") from error
    return names


def _dialect() -> str:
    """The dialect of the installed torch, for agents of the same release."""
    release = str(getattr(torch, "__version__"))
    version = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    return next(name for first, name in _DIALECTS if version >= first)


def _read_timeout(rendezvous: Rendezvous) -> datetime.timedelta:
    """The timeout of store calls, as parsed by the library."""
    err, ret = ffi.new("struct mst_err *"), ffi.new("int64_t *")
    check(lib.mst_params_duration_ms(rendezvous._params, b"read_timeout", _READ_TIMEOUT_MS, ret,
                                     err), err)
    return datetime.timedelta(milliseconds=int(ret[0]))


def _record(event: Event) -> None:
    """Log an event of the library, and pass it to torch's events."""
    is_failure = event.state == "FAILED"
    logger.log(logging.WARNING if is_failure else logging.INFO, "%s", event.message)
    events.construct_and_record_rdzv_event(
        run_id=event.run_id, message=event.message, node_state=events.NodeState[event.state],
        name=f"Handler.{event.name}", rank=None if event.rank < 0 else event.rank)


def _are_events_seen() -> bool:
    """Whether all events are logged or recorded, and not failures only."""
    handler = events.get_logging_handler("dynamic_rendezvous")
    return logger.isEnabledFor(logging.INFO) or not isinstance(handler, logging.NullHandler)


def _is_torchrun() -> bool:
    """Whether this is torchrun, and not another program that uses torch's launcher."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        # With `python -m` the name of the module differs.
        if getattr(frame.f_globals.get("__spec__"), "name", "") == "torch.distributed.run":
            return True
        frame = frame.f_back
    return False


class Handler(api.RendezvousHandler):  # type: ignore[misc]
    """A node of a job, for torch's agents."""

    def __init__(self, parameters: Any, backend: str) -> None:
        self._backend = _NAMES[backend]
        options = _options(parameters.config, backend)
        expect = options.pop("expect", None)
        self._expect = None if expect is None else _expected(expect)
        are_seen = _are_events_seen()
        #: A node that failed to join must not end the job of the others with shutdown(), which
        #: torch calls in any case.
        self._is_refused = False
        #: The job has ended, and this node was not needed.
        self._is_unneeded = False
        try:
            self._rendezvous = Rendezvous(
                parameters.endpoint, parameters.run_id, backend=backend,
                nodes=(parameters.min_nodes, parameters.max_nodes),
                local_addr=getattr(parameters, "local_addr", None) or None,
                options=options, logger=logger,
                on_event=_record if are_seen else None, on_failure=None if are_seen else _record)
        except InvalidError:
            raise  # a ValueError, as torch's are
        except MusterError as error:
            with _torch_errors():
                raise error
        self._nodes_max = int(parameters.max_nodes)
        self._client = Client(_read_timeout(self._rendezvous))
        with contextlib.suppress(MusterError):  # next_rendezvous waits for the server
            self._rendezvous.connect(_CONNECT_S)
            if backend != "etcd-v3":
                aside(lambda: self._client.prepare(parameters.endpoint))

    def get_backend(self) -> str:
        return self._backend

    def get_run_id(self) -> str:
        return self._rendezvous.run_id

    @property
    def use_agent_store(self) -> bool:
        return self._rendezvous.use_agent_store

    # --- rounds ---

    def next_rendezvous(self) -> Any:
        self._is_refused = True
        try:
            with _torch_errors():
                found = self._rendezvous._next(None, self._reports())
                store = self._store(found)
        except _Unneeded as error:
            self._is_unneeded = isinstance(error.__cause__, (SpareError, FinishedError))
            raise
        self._is_refused = False
        if _Info is None:
            return store, found.rank, found.world_size
        return _Info(store, found.rank, found.world_size, self._store_info(found, store))

    def _reports(self) -> Iterator[float]:
        """Report what this node waits for, after each pause. The cost of a look grows with the
        group, and so does the number of nodes that look: they wait longer and at random."""
        began = time.monotonic()
        spread = self._nodes_max ** 2 / _LOOK_NODES_PER_S
        yield _REPORT_S + spread * random.random()
        while True:
            try:
                summary = summary_of(self._rendezvous._params, _LOOK_MS, self._expect)
            except MusterError as error:
                summary = f"the job cannot be seen: {error}"
            logger.warning("The node '%s' has waited %d s for rendezvous '%s': %s",
                           self._rendezvous.node, time.monotonic() - began, self.get_run_id(),
                           summary)
            yield max(_REPORT_AGAIN_S, spread)

    def _store(self, found: Round) -> Any:
        is_old = _Info is None
        try:
            store = self._client.store(found, is_old)
            if is_old and found.rank == 0 and found.master_port != 0:
                aside(lambda: store.publish(found.master_addr, found.master_port))
            return store
        except RuntimeError as error:
            raise api.RendezvousConnectionError(
                f"the store of round {found.round}: {error}") from error

    @staticmethod
    def _store_info(found: Round, store: Any) -> Any:
        if found.master_port != 0:
            return _StoreInfo(found.master_addr, found.master_port)
        # Rank 0 is another kind of node and publishes it in the store.
        return aside(lambda: _StoreInfo(store.get("MASTER_ADDR").decode(),
                                        int(store.get("MASTER_PORT"))))

    def num_nodes_waiting(self) -> int:
        """Also above 0 if a member was lost or left, or the round is over for this node: agents
        check nothing else while their workers run."""
        with _torch_errors():
            changes = self._rendezvous.poll()
            if changes.should_return:
                return max(changes.nodes_waiting, 1)
            return changes.nodes_waiting

    # --- ends ---

    def is_closed(self) -> bool:
        with _torch_errors():
            return self._rendezvous.is_closed()

    def set_closed(self) -> None:
        with _torch_errors():
            self._rendezvous.set_closed()

    def shutdown(self) -> bool:
        try:
            with _torch_errors():
                if self._is_refused:
                    self._rendezvous.leave()
                else:
                    self._rendezvous.shutdown()
        except api.RendezvousError as error:
            logger.warning("The node '%s' has failed to shut down the rendezvous '%s': %s",
                           self._rendezvous.node, self.get_run_id(), error)
            return False
        if _is_torchrun():
            self._linger()
        # torchrun stops its agent after the graceful exit, and then fails because the agent has no
        # result. Releases without a graceful exit fail with our error. Neither is a failure, and
        # this is torchrun's last call to us, so end the process here.
        if self._is_unneeded and isinstance(sys.exc_info()[1], (AttributeError, _Unneeded)) and \
                _is_torchrun():
            raise SystemExit(0)
        return True

    def _linger(self) -> None:
        """The process is about to end, and with it its server, which other jobs may use."""
        try:
            self._rendezvous.linger(0)
        except TimeoutError as error:
            logger.warning("The node '%s' stays at its end, until a signal: %s",
                           self._rendezvous.node, error)
            with contextlib.suppress(MusterError):
                self._rendezvous.linger()
        except MusterError:
            pass  # a server that does not answer serves nobody
