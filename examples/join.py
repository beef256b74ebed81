#!/usr/bin/env python3
"""Join a job from Python with ctypes alone. Ctrl-C ends the waiting at once; then it joins again.

Usage: join.py LIBRARY ENDPOINT RUN_ID MIN MAX
"""

import ctypes
import sys
import threading
import time


class Err(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("sys", ctypes.c_int), ("domain", ctypes.c_int),
                ("msg", ctypes.c_char * 200)]


class Round(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("round", ctypes.c_int64), ("rank", ctypes.c_int64),
                ("world_size", ctypes.c_int64), ("store", ctypes.c_void_p),
                ("master_addr", ctypes.c_char * 256), ("master_port", ctypes.c_int),
                ("epoch", ctypes.c_uint64)]


lib = ctypes.CDLL(sys.argv[1])


def call(function, *args):
    """Call a function whose last argument is the error."""
    err = Err()
    if function(*args, ctypes.byref(err)) != 0:
        raise OSError(err.code, err.msg.decode())


def handler_of(endpoint, run_id, nodes_min, nodes_max):
    params, handler = ctypes.c_void_p(), ctypes.c_void_p()
    call(lib.mst_params_new, b"muster", run_id.encode(), ctypes.byref(params))
    call(lib.mst_params_set_endpoint, params, endpoint.encode())
    call(lib.mst_params_set_nodes, params, ctypes.c_int64(nodes_min), ctypes.c_int64(nodes_max))
    call(lib.mst_handler_new, params, ctypes.byref(handler))
    lib.mst_params_free(params)
    return handler


def join(handler):
    """The next round. It is waited for in a thread, so that the main one hears of Ctrl-C."""
    got, failed = Round(), []
    lib.mst_rendezvous_init(ctypes.byref(got), ctypes.c_size_t(ctypes.sizeof(got)))

    def wait():
        try:
            call(lib.mst_handler_next, handler, ctypes.byref(got))
        except OSError as error:
            failed.append(error)
    thread = threading.Thread(target=wait)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        start = time.monotonic()
        lib.mst_handler_cancel(handler)
        thread.join()
        print(f"interrupted within {(time.monotonic() - start) * 1000:.0f} ms", flush=True)
        raise
    if failed:
        raise failed[0]
    return got


def main():
    place = (*sys.argv[2:4], *map(int, sys.argv[4:6]))
    handler = handler_of(*place)
    print("waiting", flush=True)
    try:
        got = join(handler)
    except KeyboardInterrupt:
        lib.mst_handler_free(handler)  # a cancelled handler joins no more
        handler = handler_of(*place)
        got = join(handler)
    print(f"round {got.round}: rank {got.rank} of {got.world_size}", flush=True)
    lib.mst_store_close(ctypes.c_void_p(got.store))
    call(lib.mst_handler_shutdown, handler)
    lib.mst_handler_free(handler)


main()
