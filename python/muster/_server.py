"""A server inside this process: PyTorch's TCPStore protocol and the authority of jobs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Optional

from muster._binding import ffi, lib
from muster._errors import MusterError, check, error_of, text_of
from muster._handle import Handle, Timeout, milliseconds
from muster._log import Listener
from muster._wait import aside


class _Loop:
    """The thread of a server; it has no reference to the handle."""

    def __init__(self, pointer: Any, listener: Listener) -> None:
        self._pointer = pointer
        self._listener = listener
        self._failure: Optional[MusterError] = None
        self._may_free = threading.Event()
        self._thread = threading.Thread(target=self._run, name="muster-server", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        err = ffi.new("struct mst_err *")
        code = lib.mst_server_run(self._pointer, err)
        if code != 0:
            self._failure = error_of(code, err)
        self._may_free.wait()
        lib.mst_server_free(self._pointer)

    def end(self) -> None:
        """Stop serving and release the server."""
        lib.mst_server_stop(self._pointer)
        self._may_free.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure


class Server(Handle):
    """A ``muster serve`` in a thread of this process, from its construction to close().

    ``hosts`` are names or addresses, ``*`` for all; none means the loopback addresses. Port 0 is a
    free one, which ``port`` returns. ``http`` is the address of the metrics page. With a ``run_id``
    it serves only that job. ``memory_max``, ``job_grace`` and ``job_expiry`` (seconds) are options
    of muster-serve(1).
    """

    def __init__(self, hosts: Sequence[str] = (), port: int = 0, *, http: Optional[str] = None,
                 run_id: Optional[str] = None, memory_max: Optional[int] = None,
                 job_grace: Timeout = None, job_expiry: Timeout = None,
                 logger: Optional[logging.Logger] = None) -> None:
        listener = Listener(logger)
        options = ffi.new("struct mst_server_options *")
        lib.mst_server_options_init(options, ffi.sizeof("struct mst_server_options"))
        memory = [ffi.new("char[]", host.encode())
                  for host in ([hosts] if isinstance(hosts, str) else hosts)]
        names = ffi.new("const char *[]", memory)
        options.hosts, options.hosts_count, options.port = names, len(memory), port
        if http is not None:
            memory.append(ffi.new("char[]", http.encode()))
            options.http_address = memory[-1]
        if run_id is not None:
            memory.append(ffi.new("char[]", run_id.encode()))
            options.run_id = memory[-1]
        if memory_max is not None:
            options.memory_max = memory_max
        options.job_grace_ms = milliseconds(job_grace, options.job_grace_ms)
        options.job_expiry_ms = milliseconds(job_expiry, options.job_expiry_ms)
        listener.fill(options.log)

        def call() -> Any:
            kept = (listener, memory, names)
            err = ffi.new("struct mst_err *")
            ret = ffi.new("struct mst_server **")
            check(lib.mst_server_new(options, ret, err), err)
            del kept
            return ret[0]

        super().__init__(aside(call, discard=lib.mst_server_free))
        self._loop = _Loop(self._pointer, listener)

    def _free(self, pointer: Any) -> None:
        self._loop.end()

    def _free_in_child(self, pointer: Any) -> None:
        pass  # its thread and sockets belong to the parent

    @property
    def port(self) -> int:
        """The TCP port."""
        return self._plain(lambda pointer, _: int(lib.mst_server_port(pointer)))

    @property
    def addresses(self) -> list[str]:
        """The addresses that it listens on: ``127.0.0.1:29400``."""
        return self._plain(lambda pointer, _: [
            text_of(lib.mst_server_address(pointer, i))
            for i in range(lib.mst_server_addresses_count(pointer))])

    @property
    def http_address(self) -> str:
        """The address of the metrics page; empty = none."""
        return self._plain(lambda pointer, _: text_of(lib.mst_server_http_address(pointer)))

    def __repr__(self) -> str:
        return f"<muster.Server {'closed' if self.closed else ' '.join(self.addresses)}>"
