"""Scripts with torch, each in a process of its own.

    torch_fork.py FD

Torch is imported once; then every message on the socket FD starts a script in a process that was
forked for it. So a script costs milliseconds and not the seconds of the import. A message is
{"args": [script, arguments...], "env": {...}}, with four descriptors: stdin, stdout, stderr, and a
pipe that gets the process's number as the first line and its status, as os.waitpid gives it, as the
second. The server ends with its socket.
"""

import atexit
import json
import os
import runpy
import socket
import sys
import threading
import traceback
import warnings

warnings.filterwarnings("ignore")

import torch.distributed  # noqa: E402, F401

MESSAGE_MAX = 65536


def watch(report):
    """Forks; the child returns, the parent tells what becomes of it and ends."""
    pid = os.fork()
    if pid == 0:
        os.close(report)
        return
    # No other process may keep the child's pipes open.
    os.closerange(0, report)
    os.write(report, f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    os.write(report, f"{status}\n".encode())
    os._exit(0)


def serve(control):
    """Returns, in a new process, the arguments of its script."""
    children = []
    while True:
        message, fds, _, _ = socket.recv_fds(control, MESSAGE_MAX, 4)
        if not message:
            # Their CPU time counts for the test only if it has waited for them.
            for child in children:
                os.waitpid(child, 0)
            sys.exit(0)
        child = os.fork()
        if child == 0:
            control.close()
            for number, fd in enumerate(fds[:3]):
                os.dup2(fd, number)
                os.close(fd)
            watch(fds[3])
            request = json.loads(message)
            os.environ.update(request["env"])
            return request["args"]
        children.append(child)
        for fd in fds:
            os.close(fd)


def run(script):
    """Its exit status, as the interpreter would tell it."""
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


sys.argv = serve(socket.socket(fileno=int(sys.argv[1])))
status = run(sys.argv[0])
# As the interpreter ends, but for torch, which takes itself apart for half a second of processor
# time.
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
