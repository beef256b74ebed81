"""Stores with torch's interface, for the keys of one round."""

from __future__ import annotations

import datetime
import socket
import time
import urllib.parse
from collections.abc import Sequence
from typing import Any, Optional

import torch.distributed as dist

from muster._errors import MusterError
from muster._rendezvous import Round
from muster._store import Store
from muster._wait import aside

#: The default port of an endpoint.
_PORT = 29400

#: How long to look for a server.
_PREPARE_S = 1.0

#: The exception of torch's own stores.
_StoreError: Any = getattr(dist, "DistStoreError", RuntimeError)


class BridgeStore(dist.Store):  # type: ignore[misc]
    """torch's interface on top of our store, for etcd, where torch has no client of its own."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def _call(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._store, name)(*arguments)
        except MusterError as error:
            raise _StoreError(str(error)) from error

    def set(self, key: str, value: Any) -> None:
        self._call("set", key, value)

    def get(self, key: str) -> Any:
        return self._call("get", key)

    def add(self, key: str, amount: int) -> Any:
        return self._call("add", key, amount)

    def compare_set(self, key: str, expected: Any, desired: Any) -> Any:
        return self._call("compare_set", key, expected, desired)

    def delete_key(self, key: str) -> Any:
        return self._call("delete_key", key)

    def append(self, key: str, value: Any) -> None:
        self._call("append", key, value)

    def check(self, keys: Sequence[str]) -> Any:
        return self._call("check", keys)

    def wait(self, keys: Sequence[str], timeout: Optional[datetime.timedelta] = None) -> None:
        self._call("wait", keys, timeout)

    def multi_get(self, keys: Sequence[str]) -> Any:
        return self._call("multi_get", keys)

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        self._call("multi_set", keys, values)

    def num_keys(self) -> Any:
        return self._call("num_keys")

    def has_extended_api(self) -> bool:
        return True

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._store.timeout = timeout

    @property
    def timeout(self) -> datetime.timedelta:
        return datetime.timedelta(seconds=self._store.timeout)


class _Chosen:
    """For agents of torch before 2.4. That of rank 0 chooses an address for the workers' store
    and writes it. The rendezvous has agreed on one already, and others may have read it: the
    write is ignored."""

    def set(self, key: str, value: Any) -> None:
        if key not in ("MASTER_ADDR", "MASTER_PORT"):
            super().set(key, value)  # type: ignore[misc]

    def publish(self, addr: str, port: int) -> None:
        """Write the agreed address."""
        super().set("MASTER_ADDR", addr)  # type: ignore[misc]
        super().set("MASTER_PORT", str(port))  # type: ignore[misc]


class ChosenPrefixStore(_Chosen, dist.PrefixStore):  # type: ignore[misc]
    """torch's own client."""


class ChosenBridgeStore(_Chosen, BridgeStore):
    """Our store."""


def as_torch(store: Store) -> Any:
    """See muster.torch.store()."""
    url = urllib.parse.urlsplit(store.url)
    if url.scheme != "tcp":
        return BridgeStore(store)
    client = aside(lambda: _connect(url, datetime.timedelta(seconds=store.timeout)))
    prefix = store.key_prefix
    return client if prefix is None else dist.PrefixStore(prefix.decode(), client)


def _connect(url: urllib.parse.SplitResult, timeout: datetime.timedelta) -> Any:
    return dist.TCPStore(url.hostname or "", url.port or _PORT, is_master=False, timeout=timeout,
                         wait_for_workers=False)


class Client:
    """torch's own client of the server, for all rounds: process groups need a store in C++.
    Creating one looks up names, which can be slow if many nodes do so at once, so it is created
    before the first round if possible.

    torch's client never reconnects. The keys are lost with the server, and an agent that waits
    for them must fail."""

    def __init__(self, timeout: datetime.timedelta) -> None:
        self._timeout = timeout
        self._store: Any = None
        #: When it last began a request that was answered, as time.monotonic().
        self._worked = 0.0

    def prepare(self, endpoint: str) -> None:
        """Connect to the server at the endpoint, if there is one now."""
        try:
            url = urllib.parse.urlsplit(f"//{endpoint.strip() or 'localhost'}")
            where = url.hostname or "", url.port or _PORT
            socket.create_connection(where, _PREPARE_S).close()
            self._connect(url)
        except (OSError, RuntimeError, ValueError):
            pass

    def _connect(self, url: urllib.parse.SplitResult) -> None:
        began = time.monotonic()
        self._store = _connect(url, self._timeout)
        self._worked = began

    def _check(self, url: urllib.parse.SplitResult) -> None:
        """Make a request; if that fails, the server has ended since, and there is another."""
        began = time.monotonic()
        try:
            if self._store is not None:
                self._store.num_keys()
                self._worked = began
                return
        except RuntimeError:
            pass
        self._connect(url)

    def store(self, found: Round, is_chosen: bool) -> Any:
        """The keys of a round, for torch. @is_chosen: the agent would choose the address of the
        workers' store, and its choice is ignored."""
        url = urllib.parse.urlsplit(found.store.url)
        if url.scheme != "tcp":
            found.store.timeout = self._timeout
            return ChosenBridgeStore(found.store) if is_chosen else BridgeStore(found.store)
        # If it has worked since the node met this server, it need not be checked now, when all
        # nodes of a large job would do so at once.
        if self._store is None or not 0 < found.connected < self._worked:
            aside(lambda: self._check(url))
        kind: Any = ChosenPrefixStore if is_chosen else dist.PrefixStore
        return kind((found.store.key_prefix or b"").decode(), self._store)
