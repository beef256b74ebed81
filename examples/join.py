#!/usr/bin/env python3
"""Join a job from Python with ctypes alone. Ctrl-C ends the waiting at once; then it joins again.

Usage: join.py LIBRARY ENDPOINT RUN_ID MIN MAX
"""

import ctypes as c
import select
import sys

COMPLETE, FAILED = 0, 1  # kinds of notices


class Err(c.Structure):
    _fields_ = [("code", c.c_int), ("sys", c.c_int), ("domain", c.c_int), ("msg", c.c_char * 200)]


class Cause(c.Structure):
    _fields_ = [("rank", c.c_int64), ("worker", c.c_int64), ("exit_status", c.c_int),
                ("signal", c.c_int), ("time_us", c.c_int64), ("node", c.c_char * 256),
                ("text", c.c_char * 256)]


class Notice(c.Structure):
    _fields_ = [("size", c.c_size_t), ("kind", c.c_int), ("round", c.c_int64),
                ("nodes_waiting", c.c_int64), ("nodes_lost", c.c_int64), ("nodes", c.c_void_p),
                ("node_count", c.c_size_t), ("reason", c.c_char * 256), ("outcome", c.c_int),
                ("has_cause", c.c_bool), ("cause", Cause), ("err", Err)]


class Round(c.Structure):
    _fields_ = [("size", c.c_size_t), ("round", c.c_int64), ("rank", c.c_int64),
                ("world_size", c.c_int64), ("store", c.c_void_p), ("master_addr", c.c_char * 256),
                ("master_port", c.c_int), ("epoch", c.c_uint64)]


lib = c.CDLL(sys.argv[1])


def call(name, *args):
    """Call a function whose last argument is the error."""
    err = Err()
    if getattr(lib, name)(*args, c.byref(err)) != 0:
        raise OSError(err.code, err.msg.decode())


def join(handler):
    """The next round. select() is what waits, so that Python hears of Ctrl-C."""
    call("mst_handler_begin", handler, c.c_int64(-1))
    kind = None
    while kind != COMPLETE:
        select.select([lib.mst_handler_fd(handler)], [], [])
        notice = c.POINTER(Notice)()
        call("mst_handler_take", handler, c.c_int64(0), c.byref(notice))
        kind, err = notice.contents.kind, Err.from_buffer_copy(notice.contents.err)
        lib.mst_notice_free(notice)
        if kind == FAILED:
            raise OSError(err.code, err.msg.decode())
    got = Round()
    lib.mst_rendezvous_init(c.byref(got), c.c_size_t(c.sizeof(got)))
    call("mst_handler_round", handler, c.byref(got))
    return got


def main():
    endpoint, run_id, nodes_min, nodes_max = sys.argv[2:6]
    params, handler = c.c_void_p(), c.c_void_p()
    call("mst_params_new", b"muster", run_id.encode(), c.byref(params))
    call("mst_params_set_endpoint", params, endpoint.encode())
    call("mst_params_set_nodes", params, c.c_int64(int(nodes_min)), c.c_int64(int(nodes_max)))
    call("mst_handler_new", params, c.byref(handler))
    lib.mst_params_free(params)
    print("waiting", flush=True)
    try:
        got = join(handler)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        call("mst_handler_abandon", handler)
        print("waiting again", flush=True)
        got = join(handler)
    print(f"round {got.round}: rank {got.rank} of {got.world_size}", flush=True)
    lib.mst_store_close(c.c_void_p(got.store))
    call("mst_handler_shutdown", handler)
    lib.mst_handler_free(handler)


main()
