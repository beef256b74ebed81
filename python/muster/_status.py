"""Jobs as one sees them from outside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Callable, Optional

from muster._binding import ffi, lib
from muster._errors import check
from muster._handle import Seconds, milliseconds
from muster._rendezvous import Option, _option
from muster._store import _taken


def _as_json(function: Callable[..., int], what: Any) -> Any:
    err = ffi.new("struct mst_err *")
    ret = ffi.new("struct mst_buffer *")
    check(function(what, ret, err), err)
    return json.loads(_taken(ret[0]))


def status(endpoint: str, run_id: str, *, backend: str = "muster", timeout: Seconds = 10.0,
           options: Optional[Mapping[str, Option]] = None) -> dict[str, Any]:
    """A snapshot of one job: what ``muster status --json`` prints, see muster-status(1)."""
    err = ffi.new("struct mst_err *")
    ret_params = ffi.new("struct mst_params **")
    check(lib.mst_params_new(backend.encode(), run_id.encode(), ret_params, err), err)
    params = ret_params[0]
    try:
        check(lib.mst_params_set_endpoint(params, endpoint.encode(), err), err)
        for key, value in (options or {}).items():
            check(lib.mst_params_set(params, key.encode(), _option(value), err), err)
        ret = ffi.new("struct mst_status **")
        check(lib.mst_status_job(params, milliseconds(timeout), ret, err), err)
    finally:
        lib.mst_params_free(params)
    try:
        found: dict[str, Any] = _as_json(lib.mst_status_json, ret[0])
        return found
    finally:
        lib.mst_status_free(ret[0])


def jobs(endpoint: str = "", *, timeout: Seconds = 10.0) -> list[dict[str, Any]]:
    """The jobs of a ``muster serve``, the oldest first."""
    err = ffi.new("struct mst_err *")
    ret = ffi.new("struct mst_status_list **")
    check(lib.mst_status_jobs(endpoint.encode(), milliseconds(timeout), ret, err), err)
    try:
        found: list[dict[str, Any]] = _as_json(lib.mst_status_list_json, ret[0])["jobs"]
        return found
    finally:
        lib.mst_status_list_free(ret[0])
