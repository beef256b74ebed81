"""Jobs seen from outside."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Callable, Optional, TypeVar

from muster._binding import ffi, lib
from muster._errors import check, shown, text_of
from muster._handle import Timeout, milliseconds
from muster._params import Option, new_params
from muster._store import taken
from muster._wait import aside

ResultType = TypeVar("ResultType")

#: Default timeout of a look.
LOOK_MS = 10_000


@dataclasses.dataclass(frozen=True)
class Member:
    """A node of a round."""

    rank: int
    name: str
    address: str
    labels: dict[str, str]
    is_gone: bool  #: it was lost or left


def _as_json(function: Callable[..., int], what: Any) -> Any:
    err = ffi.new("struct mst_err *")
    ret = ffi.new("struct mst_buffer *")
    check(function(what, ret, err), err)
    return json.loads(taken(ret))


def expected_nodes(names: str) -> Any:
    """A struct mst_expected of names like ``node[1-20],master``."""
    err = ffi.new("struct mst_err *")
    ret = ffi.new("struct mst_expected **")
    check(lib.mst_expected_new(names.encode(), ret, err), err)
    return ffi.gc(ret[0], lib.mst_expected_free)


def _look(params: Any, timeout_ms: int, expect: Optional[str],
          use: Callable[[Any], ResultType]) -> ResultType:
    """Take a snapshot of a job, compare it with the names of the expected nodes, and return what
    the function makes of it."""
    expected = None if expect is None else expected_nodes(expect)

    def call() -> ResultType:
        err = ffi.new("struct mst_err *")
        ret = ffi.new("struct mst_status **")
        check(lib.mst_status_job(params, timeout_ms, ret, err), err)
        try:
            if expected is not None:
                check(lib.mst_status_expect(ret[0], expected, err), err)
            return use(ret[0])
        finally:
            lib.mst_status_free(ret[0])

    return aside(call)


def status(endpoint: str = "", run_id: str = "", *, backend: str = "muster",
           timeout: Timeout = None, expect: Optional[str] = None,
           options: Optional[Mapping[str, Option]] = None, **more: Option) -> dict[str, Any]:
    """A snapshot of one job, as printed by ``muster status --json``, see muster-status(1).
    ``exists`` is False if there is no such job. The default timeout is 10 seconds. With
    ``expect="node[1-20],master"``, ``missing`` has the names of the nodes that are not there."""
    params = new_params(backend, endpoint, run_id, {**(options or {}), **more})
    found: dict[str, Any] = _look(params, milliseconds(timeout, LOOK_MS), expect,
                                  lambda status: _as_json(lib.mst_status_json, status))
    return found


def summary_of(params: Any, timeout_ms: int, expect: Optional[str]) -> str:
    """What a job does or waits for, in a sentence or two, to be printed."""
    return _look(params, timeout_ms, expect, lambda status: shown(text_of(status.summary)))


def jobs(endpoint: str = "", *, timeout: Timeout = None) -> list[dict[str, Any]]:
    """A short list of the jobs of a ``muster serve``, oldest first. The default endpoint is
    localhost:29400, the default timeout 10 seconds."""
    timeout_ms = milliseconds(timeout, LOOK_MS)

    def call() -> list[dict[str, Any]]:
        err = ffi.new("struct mst_err *")
        ret = ffi.new("struct mst_status_list **")
        check(lib.mst_status_jobs(endpoint.encode(), timeout_ms, ret, err), err)
        try:
            found: list[dict[str, Any]] = _as_json(lib.mst_status_list_json, ret[0])["jobs"]
            return found
        finally:
            lib.mst_status_list_free(ret[0])

    return aside(call)


def members_of(found: Any) -> list[Member]:
    """The nodes in a struct mst_status."""
    nodes = [found.nodes[i] for i in range(found.node_count)]
    return [Member(node.rank, text_of(node.name), text_of(node.address),
                   {text_of(node.labels[i].key): text_of(node.labels[i].value)
                    for i in range(node.label_count)},
                   node.standing == lib.MST_STATUS_NODE_GONE) for node in nodes]
