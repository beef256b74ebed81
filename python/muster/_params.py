"""The parameters of a rendezvous: struct mst_params."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, Union

from muster._binding import ffi, lib
from muster._errors import check

#: The types of an option of a backend. Times are in seconds.
Option = Union[str, int, float, bool]


def _text(value: Option) -> bytes:
    return (str(int(value)) if isinstance(value, bool) else str(value)).encode()


def new_params(backend: str, endpoint: str, run_id: str, options: Mapping[str, Option],
               nodes: Optional[tuple[int, int]] = None, local_addr: Optional[str] = None) -> Any:
    """Parameters, released with their last reference."""
    err = ffi.new("struct mst_err *")
    ret = ffi.new("struct mst_params **")
    check(lib.mst_params_new(backend.encode(), run_id.encode(), ret, err), err)
    params = ffi.gc(ret[0], lib.mst_params_free)
    check(lib.mst_params_set_endpoint(params, endpoint.encode(), err), err)
    if nodes is not None:
        check(lib.mst_params_set_nodes(params, *nodes, err), err)
    if local_addr is not None:
        check(lib.mst_params_set_local_addr(params, local_addr.encode(), err), err)
    for key, value in options.items():
        check(lib.mst_params_set(params, key.encode(), _text(value), err), err)
    return params
