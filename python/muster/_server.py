"""A server inside this process: PyTorch's TCPStore protocol and the authority of jobs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Optional

from muster._binding import ffi, lib
from muster._errors import Error, check, error_of, text_of
from muster._handle import Handle, Seconds, milliseconds


class Server(Handle):
    """What ``muster serve`` is, in a thread of this process. It serves from the start to close().

    ``hosts`` are names or addresses, ``*`` for all; none means the loopback addresses. Port 0 is a
    free one; ``port`` says which.
    """

    def __init__(self, hosts: Sequence[str] = (), port: int = 0, *, http: Optional[str] = None,
                 run_id: Optional[str] = None, max_memory: Optional[int] = None,
                 job_grace: Optional[Seconds] = None, job_expiry: Optional[Seconds] = None) -> None:
        memory = [ffi.new("char[]", host.encode()) for host in hosts]
        names = ffi.new("const char *[]", memory)
        http_memory = ffi.NULL if http is None else ffi.new("char[]", http.encode())
        run_memory = ffi.NULL if run_id is None else ffi.new("char[]", run_id.encode())
        options = ffi.new("struct mst_server_options *")
        lib.mst_server_options_init(options, ffi.sizeof("struct mst_server_options"))
        options.hosts, options.hosts_count = names, len(memory)
        options.port = port
        options.http_address, options.run_id = http_memory, run_memory
        if max_memory is not None:
            options.memory_max = max_memory
        if job_grace is not None:
            options.job_grace_ms = milliseconds(job_grace)
        if job_expiry is not None:
            options.job_expiry_ms = milliseconds(job_expiry)
        err = ffi.new("struct mst_err *")
        ret = ffi.new("struct mst_server **")
        check(lib.mst_server_new(options, ret, err), err)
        super().__init__(ret[0])
        self._failure: Optional[Error] = None
        self._thread = threading.Thread(target=self._run, args=(ret[0],), name="muster-server",
                                        daemon=True)
        self._thread.start()

    def _run(self, pointer: Any) -> None:
        err = ffi.new("struct mst_err *")
        code = lib.mst_server_run(pointer, err)
        if code != 0:
            self._failure = error_of(code, err)

    def _free(self, pointer: Any) -> None:
        lib.mst_server_stop(pointer)
        self._thread.join()
        lib.mst_server_free(pointer)
        if self._failure is not None:
            raise self._failure

    @property
    def port(self) -> int:
        """The TCP port."""
        return int(lib.mst_server_port(self._open))

    @property
    def addresses(self) -> list[str]:
        """Where it listens: ``127.0.0.1:29400``."""
        count = lib.mst_server_addresses_count(self._open)
        return [text_of(lib.mst_server_address(self._open, i)) for i in range(count)]

    @property
    def http_address(self) -> str:
        """Where the page of metrics and jobs is; empty = there is none."""
        return text_of(lib.mst_server_http_address(self._open))

    def __repr__(self) -> str:
        return f"<muster.Server {'closed' if self.closed else ' '.join(self.addresses)}>"
