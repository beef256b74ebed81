"""``torchrun --rdzv-backend=muster``: the handlers that torch finds automatically.

torch 2.5 and later ask every installed package for handlers (entry points of the group
``torchrun.handlers``). For earlier releases use ``python -m muster.torchrun`` or :func:`register`.

torch asks during its own import, so this module does not import it.
"""

from __future__ import annotations

from typing import Any, Callable

from muster._store import Store

__all__ = ["create_c10d_handler", "create_etcd_handler", "create_handler", "register", "store"]

Creator = Callable[[Any], Any]


def _create(parameters: Any) -> Any:
    from muster._torch_handler import Handler

    return Handler(parameters, "muster")


def _create_etcd(parameters: Any) -> Any:
    from muster._torch_handler import Handler

    return Handler(parameters, "etcd-v3")


def _create_c10d(parameters: Any) -> Any:
    from muster._torch_handler import Handler

    return Handler(parameters, "c10d")


def create_handler() -> Creator:
    """Make the handler of ``--rdzv-backend=muster`` from torch's RendezvousParameters: nodes
    meet at a ``muster serve``, or at the first node."""
    return _create


def create_etcd_handler() -> Creator:
    """The same for ``--rdzv-backend=muster-etcd``: nodes meet at an etcd, through its v3 API."""
    return _create_etcd


def create_c10d_handler() -> Creator:
    """The same for ``--rdzv-backend=muster-c10d``: nodes of one job with agents that use torch's
    own ``c10d``, which need not have this package."""
    return _create_c10d


def register() -> None:
    """Register our handlers with a torch that does not find them automatically. Repeating it is
    harmless."""
    from torch.distributed.elastic.rendezvous import rendezvous_handler_registry as registry

    registry.register("muster", create_handler())
    registry.register("muster-etcd", create_etcd_handler())
    registry.register("muster-c10d", create_c10d_handler())


def store(keys: Store) -> Any:
    """The keys of a :class:`muster.Store` as a store of torch, for process groups: torch's own
    client of a server (``tcp:``), or our store with torch's interface. The timeout is the same. Not
    for a store with ``bare_keys``, because torch changes keys."""
    from muster._torch_store import as_torch

    return as_torch(keys)
