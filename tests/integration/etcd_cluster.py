"""etcds for the tests, and a proxy that goes wrong on command.

Etcd     one member, started by `muster etcd`
Cluster  three members or more, started directly, on loopback; each can be killed, paused, resumed
         and started again where it was
Tls      certificates, made by the openssl command
Swallow  a TCP proxy that forwards a request and swallows its answer, cuts, delays, or goes silent
Leaks    sees that nothing of all that is left

All but the last are context managers. Leaving the block, or stop(), ends what was started, and
fails the test if a process or a directory is left. Ports are chosen by the kernel and held as long
as the object lives, so that a member can come back where it was. No process outlives this program,
even if that is killed.
"""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import etcd_v2
import harness
from harness import wait_until

ROOT_PASSWORD = "root-secret"
USER = "job"
PASSWORD = "job-secret"

# Until etcd is healthy, or a cluster has a leader: sanitizers and busy machines are slow.
START_S = max(60.0, 2 * harness.DEADLINE_S)

# The kernel ends a process with the *thread* that has made it; this one lives as long as we do.
_starter = concurrent.futures.ThreadPoolExecutor(1)


def start_process(command, **options):
    """As subprocess.Popen, and it is killed when this program ends."""
    if shutil.which("setpriv"):
        command = ["setpriv", "--pdeathsig", "KILL", "--", *command]
    return _starter.submit(subprocess.Popen, command, stdin=subprocess.DEVNULL, **options).result()


def find_etcd():
    """The etcd to run; skips the test when there is none, or muster was built without etcd."""
    if os.environ.get("MUSTER_ETCD") == "0":
        raise unittest.SkipTest("this muster was built without etcd")
    path = os.environ.get("TORCHELASTIC_ETCD_BINARY_PATH") or shutil.which("etcd")
    if not path:
        raise unittest.SkipTest("there is no etcd in PATH (install etcd-server)")
    return path


def hold_port(host="127.0.0.1"):
    """A socket that is bound and does not listen: the kernel gives its port to no other program,
    and a program that may share addresses can still listen there."""
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((host, 0))
    return held


# --- leaks -----------------------------------------------------------------------------------


def processes_of(directory):
    """Processes that have the directory in their command line: {pid: command line}."""
    found = {}
    needle = directory.encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                command = file.read()
        except OSError:
            continue
        if needle in command:
            found[int(name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def check_no_leaks(directory):
    """No process uses the directory, and it is empty or gone."""
    left = {}

    def is_clean():
        left.clear()
        left.update(processes_of(directory))
        if os.path.isdir(directory):
            left.update({path: "a file" for path in os.listdir(directory)})
        return not left

    try:
        wait_until(is_clean, "everything to be gone")
    except AssertionError:
        raise AssertionError(f"left behind in {directory}: {left}") from None


_directories = []  # all that were made here


def make_directory(kind):
    directory = tempfile.mkdtemp(prefix=f"muster-test-{kind}-")
    _directories.append(directory)
    return directory


class Leaks:
    """check() fails if anything is left of what was made here since this object was."""

    def __init__(self):
        self.start = len(_directories)

    def check(self):
        for directory in _directories[self.start:]:
            check_no_leaks(directory)
            if os.path.exists(directory):
                raise AssertionError(f"{directory} is left")


# --- certificates ----------------------------------------------------------------------------


class Tls:
    """An authority, a certificate for localhost, 127.0.0.1 and ::1, one for a client, and
    another authority that must not be trusted. Attributes are paths."""

    def __init__(self):
        if shutil.which("openssl") is None:
            raise unittest.SkipTest("there is no openssl command")
        self.directory = make_directory("tls")
        self.ca, self.ca_key = self._authority("ca")
        self.other_ca, self.other_ca_key = self._authority("other-ca")
        self.server_cert, self.server_key = self._certificate(
            "server", "DNS:localhost,IP:127.0.0.1,IP:::1")
        self.client_cert, self.client_key = self._certificate("client", "DNS:client")
        # One PEM with both, as some options want it.
        self.client_both = self._path("client-both.pem")
        with open(self.client_both, "wb") as both:
            for path in (self.client_cert, self.client_key):
                with open(path, "rb") as part:
                    both.write(part.read())

    def _path(self, name):
        return os.path.join(self.directory, name)

    def _openssl(self, *args):
        subprocess.run(["openssl", *args], check=True, timeout=harness.DEADLINE_S,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def _key(self, name):
        path = self._path(f"{name}.key")
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
        return path

    def _authority(self, name):
        key = self._key(name)
        cert = self._path(f"{name}.pem")
        self._openssl("req", "-x509", "-new", "-key", key, "-days", "2", "-out", cert,
                      "-subj", f"/CN=muster test {name}",
                      "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        return cert, key

    def _certificate(self, name, alternatives):
        key = self._key(name)
        request, cert = self._path(f"{name}.csr"), self._path(f"{name}.pem")
        extensions = self._path(f"{name}.ext")
        with open(extensions, "w", encoding="ascii") as file:
            # For a client, too: etcd calls itself with the server's certificate.
            file.write(f"subjectAltName={alternatives}\n"
                       "extendedKeyUsage=serverAuth,clientAuth\n")
        # No common name: where clients show certificates, etcd takes that for a user of v3, and it
        # calls itself with the server's certificate.
        self._openssl("req", "-new", "-key", key, "-out", request, "-subj", f"/O=muster/OU={name}")
        self._openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.ca_key,
                      "-CAcreateserial", "-days", "2", "-out", cert, "-extfile", extensions)
        return cert, key

    def context(self, with_client=True):
        """What a Python client needs."""
        context = ssl.create_default_context(cafile=self.ca)
        if with_client:
            context.load_cert_chain(self.client_cert, self.client_key)
        return context

    def close(self):
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# --- HTTP ------------------------------------------------------------------------------------


class Answer:
    """Of one call: status, headers, body as bytes, and as JSON if it is that."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


def call(address, method, path, body=None, headers=None, context=None, timeout=None):
    """One HTTP request. body: bytes, or an object that is sent as JSON."""
    headers = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        headers.setdefault("Content-Type", "application/json")
    timeout = harness.DEADLINE_S if timeout is None else timeout
    if context is None:
        connection = http.client.HTTPConnection(*address, timeout=timeout)
    else:
        connection = http.client.HTTPSConnection(*address, timeout=timeout, context=context)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        return Answer(connection.getresponse())


def basic(user, password):
    """The header that v2 knows a user by."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


class _Callable:
    """The common part of Etcd and the members of a Cluster: address, tls, and calls."""

    address = None
    tls = None

    def call(self, method, path, body=None, headers=None, timeout=None):
        context = None if self.tls is None else self.tls.context()
        return call(self.address, method, path, body, headers, context, timeout)

    def ok(self, method, path, body=None, headers=None):
        answer = self.call(method, path, body, headers)
        if answer.status not in (200, 201):
            raise AssertionError(f"{method} {path}: {answer}")
        return answer

    @property
    def endpoint(self):
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def port(self):
        return self.address[1]

    @property
    def v2(self):
        """Its v2 API, without a user."""
        return etcd_v2.V2(self)

    @property
    def url(self):
        return f"{'http' if self.tls is None else 'https'}://{self.endpoint}"

    def is_healthy(self):
        try:
            return self.call("GET", "/health", timeout=2).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def token(self, user=USER, password=PASSWORD):
        """Of v3, for an Authorization header."""
        return self.ok("POST", "/v3/auth/authenticate",
                       {"name": user, "password": password}).json["token"]

    def enable_auth_v2(self):
        """Only root and the user `job` may use v2 keys."""
        root = basic("root", ROOT_PASSWORD)
        self.ok("PUT", "/v2/auth/users/root", {"user": "root", "password": ROOT_PASSWORD})
        self.ok("PUT", "/v2/auth/enable")
        rights = {"kv": {"read": ["/*"], "write": ["/*"]}}
        self.ok("PUT", f"/v2/auth/roles/{USER}", {"role": USER, "permissions": rights}, root)
        self.ok("PUT", f"/v2/auth/users/{USER}",
                {"user": USER, "password": PASSWORD, "roles": [USER]}, root)
        self.ok("DELETE", "/v2/auth/roles/guest", headers=root)

    def enable_auth_v3(self):
        """Only root and the user `job` may use v3 keys."""
        everything = base64.b64encode(b"\0").decode()
        for name, password in (("root", ROOT_PASSWORD), (USER, PASSWORD)):
            self.ok("POST", "/v3/auth/user/add", {"name": name, "password": password})
            self.ok("POST", "/v3/auth/role/add", {"name": name})
            self.ok("POST", "/v3/auth/user/grant", {"user": name, "role": name})
        self.ok("POST", "/v3/auth/role/grant", {"name": USER, "perm": {
            "permType": "READWRITE", "key": everything, "range_end": everything}})
        self.ok("POST", "/v3/auth/enable", {})

    def enable_auth(self, which):
        if "v2" in which:
            self.enable_auth_v2()
        if "v3" in which:
            self.enable_auth_v3()


# --- one member ------------------------------------------------------------------------------


class Etcd(_Callable):
    """One etcd, run by `muster etcd`.

    enable_v2    with the v2 API
    tls          a Tls: clients talk TLS
    client_auth  with tls: clients have to show a certificate
    auth         "v2", "v3" or "v2 v3": user `job`, see USER and PASSWORD, and root
    keep         port and data stay, so that stop_server() and start_server() can be used
    options      more for muster, arguments: more for etcd
    """

    def __init__(self, enable_v2=False, tls=None, client_auth=False, auth="", keep=False,
                 host="127.0.0.1", options=(), arguments=(), env=None):
        find_etcd()
        self.tls = tls
        self.host = host
        self.directory = make_directory("etcd")
        self.temporary = os.path.join(self.directory, "tmp")  # of etcd's data, unless kept
        os.mkdir(self.temporary)
        self.port_file = os.path.join(self.directory, "port")
        self.log_path = os.path.join(self.directory, "stderr")
        self.out_path = os.path.join(self.directory, "stdout")
        self.env = {**os.environ, "TMPDIR": self.temporary, **(env or {})}
        self.process = None
        self.is_stopped = False
        self.held = hold_port(host) if keep else None
        command = [harness.MUSTER, "etcd", "--host", host, "--port-file", self.port_file,
                   "--log-level", "info", "--timeout", f"{int(START_S)}s"]
        if enable_v2:
            command.append("--enable-v2")
        if keep:
            command += ["--port", str(self.held.getsockname()[1]),
                        "--data-dir", os.path.join(self.directory, "data")]
        if tls is not None:
            command += ["--cert", tls.server_cert, "--key", tls.server_key]
            if client_auth:
                command += ["--client-ca", tls.ca]
        self.command = [*command, *map(str, options), "--", *map(str, arguments)]
        try:
            self.start_server()
            if auth:
                self.enable_auth(auth)
        except BaseException:
            sys.stderr.write(f"--- log of muster etcd ---\n{self.log()[-4000:]}\n")
            self._discard()
            raise

    def start_server(self):
        """After stop_server(), with keep=True: the same port and the same data."""
        if self.process is not None and self.held is None:
            raise AssertionError("only an etcd with keep=True can be started again")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.port_file)
        with open(self.log_path, "ab") as log, open(self.out_path, "ab") as out:
            log_from = os.path.getsize(self.log_path)
            self.process = start_process(self.command, stdout=out, stderr=log, env=self.env)
        wait_until(self._is_ready, "the port file of muster etcd", START_S)
        with open(self.port_file, encoding="ascii") as file:
            self.address = (self.host, int(file.read()))
        # The log may come after the port file.
        started = wait_until(
            lambda: re.findall(r"ev=etcd\.started .*\bpid=(\d+)\b.*\n", self.log()[log_from:]),
            "the log of muster etcd", START_S)
        self.etcd_pid = int(started[-1])

    def _is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"muster etcd ended with {self.process.returncode} at its start: "
                                 f"{self.log()}")
        return os.path.exists(self.port_file)

    def log(self):
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def stdout(self):
        with open(self.out_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def pause(self):
        """The etcd stands still; its connections stay open and silent."""
        harness.pause(self.etcd_pid)

    def resume(self):
        os.kill(self.etcd_pid, signal.SIGCONT)

    def stop_server(self, number=signal.SIGKILL):
        """End the etcd, by SIGKILL or with SIGTERM in an orderly way; muster ends with it."""
        os.kill(self.etcd_pid, number)
        code = self.process.wait(harness.DEADLINE_S)
        if code != 5:
            raise AssertionError(f"muster etcd ended with {code}: {self.log()}")

    def _discard(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.held is not None:
            self.held.close()
        try:
            check_no_leaks(self.temporary)
            if processes_of(self.directory):
                wait_until(lambda: not processes_of(self.directory), "etcd to end")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def stop(self):
        """End it with SIGTERM, and see that it ends well and leaves nothing."""
        if self.is_stopped:
            return
        self.is_stopped = True
        code = 0
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.resume()  # it may be paused
            self.process.terminate()
            try:
                code = self.process.wait(harness.DEADLINE_S)
            except subprocess.TimeoutExpired:
                code = "no end"
        log = self.log()
        self._discard()
        harness.check_report(log, "muster etcd")
        if code != 0:
            raise AssertionError(f"muster etcd ended with {code}: {log}")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.stop()
        elif not self.is_stopped:
            self.is_stopped = True
            sys.stderr.write(f"--- log of muster etcd ---\n{self.log()[-4000:]}\n")
            self._discard()


# --- a cluster -------------------------------------------------------------------------------


class Member(_Callable):
    """One of a cluster."""

    def __init__(self, name, directory, tls):
        self.name = name
        self.tls = tls
        self.data = os.path.join(directory, name)
        self.log_path = os.path.join(directory, f"{name}.log")
        self.client = hold_port()
        self.peer = hold_port()
        self.address = self.client.getsockname()
        self.peer_url = "http://{}:{}".format(*self.peer.getsockname())
        self.command = None
        self.process = None

    def start(self):
        """Also again, after its end: the same ports, the same data."""
        if self.is_running():
            raise AssertionError(f"{self.name} is running")
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("ETCD_") or name == "ETCD_UNSUPPORTED_ARCH"}
        with open(self.log_path, "ab") as log:
            self.process = start_process(self.command, stdout=log, stderr=log, env=environment)

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def end(self, number):
        if self.is_running():
            self.process.send_signal(number)
            self.process.send_signal(signal.SIGCONT)  # it may be paused
            self.process.wait(harness.DEADLINE_S)

    def kill(self):
        self.end(signal.SIGKILL)

    def terminate(self):
        """An orderly end; a leader hands its office over."""
        self.end(signal.SIGTERM)

    def pause(self):
        """It stands still; its connections stay open and silent."""
        harness.pause(self.process.pid)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def status(self):
        """(its id, the id of its leader or 0), or None when it does not answer."""
        try:
            answer = self.call("POST", "/v3/maintenance/status", {}, timeout=2)
        except (OSError, http.client.HTTPException):
            return None
        if answer.status != 200:
            return None
        fields = answer.json
        return fields["header"]["member_id"], fields.get("leader", "0")


class Cluster:
    """Members of one etcd cluster; options as those of Etcd.

    with Cluster(enable_v2=True) as cluster:
        member = cluster.leader()
        member.kill()
        cluster.restart(member)
    """

    def __init__(self, size=3, enable_v2=False, tls=None, client_auth=False, auth="", arguments=()):
        binary = find_etcd()
        self.directory = make_directory("cluster")
        self.members = [Member(f"m{i}", self.directory, tls) for i in range(size)]
        initial = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
        for member in self.members:
            member.command = [
                binary, "--name", member.name, "--data-dir", member.data,
                "--listen-client-urls", member.url, "--advertise-client-urls", member.url,
                "--listen-peer-urls", member.peer_url,
                "--initial-advertise-peer-urls", member.peer_url,
                "--initial-cluster", initial, "--initial-cluster-state", "new",
                "--initial-cluster-token", os.path.basename(self.directory),
            ]
            if enable_v2:
                member.command.append("--enable-v2=true")
            if tls is not None:
                member.command += ["--cert-file", tls.server_cert, "--key-file", tls.server_key]
                if client_auth:
                    member.command += ["--client-cert-auth", "--trusted-ca-file", tls.ca]
            member.command += map(str, arguments)
        try:
            for member in self.members:
                member.start()
            self.wait_healthy()
            if auth:
                self.leader().enable_auth(auth)
        except BaseException:
            self._report()
            self._discard()
            raise

    def endpoints(self):
        """host:port of every member."""
        return [member.endpoint for member in self.members]

    @property
    def endpoint(self):
        """All of them, as options take them."""
        return ",".join(self.endpoints())

    @property
    def v2(self):
        """The v2 API of a member that runs."""
        return next(member for member in self.members if member.is_running()).v2

    def wait_healthy(self, *members):
        """Wait until the members, all that run or those given, are healthy."""
        for member in members or [member for member in self.members if member.is_running()]:
            wait_until(member.is_healthy, f"{member.name} to be healthy", START_S)

    def leader(self, timeout=START_S):
        """The leader: a running member that knows it, and that a majority follows."""
        return wait_until(self._find_leader, "a leader", timeout)

    def _find_leader(self):
        known = [member.status() if member.is_running() else None for member in self.members]
        for member, status in zip(self.members, known):
            if status is not None and status[0] == status[1]:
                followers = [s for s in known if s is not None and s[1] == status[0]]
                if 2 * len(followers) > len(self.members):
                    return member
        return None

    def followers(self):
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def kill(self, member):
        member.kill()

    def pause(self, member):
        member.pause()

    def resume(self, member):
        member.resume()

    def restart(self, member):
        """Start one that has ended, where it was, and wait until it is healthy; which takes a
        majority, so that member.start() is for the first of two."""
        member.start()
        self.wait_healthy(member)

    def _report(self):
        for member in self.members:
            if os.path.exists(member.log_path):
                sys.stderr.write(f"--- log of {member.name} ---\n{member.log()[-2000:]}\n")

    def _discard(self):
        for member in self.members:
            member.end(signal.SIGKILL)
            member.client.close()
            member.peer.close()
        try:
            left = processes_of(self.directory)
            if left:
                raise AssertionError(f"left behind: {left}")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def stop(self):
        """End all members; repeating it is harmless."""
        self._discard()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self._report()
        self._discard()


# --- a proxy that goes wrong -----------------------------------------------------------------


class Fault:
    """One thing that is to go wrong, once."""

    def __init__(self, kind, pattern, change=None):
        self.kind = kind
        self.change = change  # of a request, to its bytes
        self.fits = pattern if callable(pattern) else re.compile(pattern, re.S).search
        self.request = None  # what it met
        self.answer = None  # what was swallowed
        self.happened = threading.Event()
        self.released = threading.Event()

    def release(self):
        """Of a request that is held back: it goes on."""
        self.released.set()

    def wait(self, timeout=None):
        if not self.happened.wait(harness.DEADLINE_S if timeout is None else timeout):
            raise AssertionError(f"no request to {self.kind} came")
        return self


class _Pair:
    """A client's connection, and ours to the server."""

    def __init__(self, proxy, client):
        self.proxy = proxy
        self.client = client
        self.server = socket.create_connection(proxy.target, timeout=harness.DEADLINE_S)
        self.server.settimeout(None)
        self.fault = None  # whose answer is to be swallowed
        self.has_lost = False  # bytes, so it cannot be healed
        for end in (client, self.server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.threads = [threading.Thread(target=self._guarded, args=(run,), daemon=True)
                        for run in (self._forward, self._return)]
        for thread in self.threads:
            thread.start()

    def _guarded(self, run):
        try:
            run()
        except OSError:
            pass  # one of the two has closed, which ends the other
        finally:
            self.cut()

    def _forward(self):
        if self.proxy.is_opaque:
            while data := self.client.recv(65536):
                self._send(self.server, data)
            return
        reader = self.client.makefile("rb")
        while request := _read_request(reader):
            fault = self.proxy._meet(request)
            if fault is not None:
                fault.request = request
                if fault.kind == "cut":
                    self.cut()
                    fault.happened.set()
                    return
                if fault.kind == "hold back":
                    fault.happened.set()
                    fault.released.wait()
                elif fault.kind == "alter":
                    request = fault.change(request)
                    fault.happened.set()
                else:
                    self.fault = fault
            self._send(self.server, request)

    def _return(self):
        swallowed = b""
        while data := self.server.recv(65536):
            if self.fault is None:
                if self.proxy.delay_s:
                    time.sleep(self.proxy.delay_s)
                self.proxy._note_answer(data)
                self._send(self.client, data)
                continue
            swallowed += data
            if _is_whole_answer(swallowed):
                break
        if self.fault is not None:
            self.fault.answer = swallowed
            if self.fault.kind == "withhold":
                self.fault.happened.set()
                self.fault.released.wait()
            self.cut()
            self.fault.happened.set()

    def _send(self, to, data):
        if self.proxy.is_silent:
            self.has_lost = True
        else:
            to.sendall(data)

    def cut(self):
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.proxy._forget(self)

    def close(self):
        self.cut()
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(harness.DEADLINE_S)
        self.client.close()
        self.server.close()


def _read_request(reader):
    """The next whole HTTP request; nothing at the end of the connection."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = reader.readline()
        if not line:
            return b""
        head += line
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.I)
    body = reader.read(int(length.group(1))) if length else b""
    return head + body


def _is_whole_answer(data):
    head, separator, body = data.partition(b"\r\n\r\n")
    if not separator:
        return False
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.I)
    if length:
        return len(body) >= int(length.group(1))
    return body.endswith(b"0\r\n\r\n")  # chunked


class Swallow:
    """A TCP proxy before one server; `address` and `endpoint` are what clients are given.

    swallow_next(pattern)  the next request that has the pattern is executed, its answer is lost and
                           the connection closed; returns a Fault to wait for
    withhold_next(pattern) the next such request is executed, its answer does not come, and the
                           connection stays open until release() of the Fault that is returned
    cut_next(pattern)      the next such request is not forwarded, the connection is closed
    hold_back_next(pattern) the next such request is forwarded after release() of the Fault
    alter_next(pattern, change) the next such request is forwarded as change(its bytes)
    delay(seconds)         every answer comes so much later
    silence() / heal()     connections stay open and carry nothing, also new ones; heal() ends those
                           that have lost something
    refuse() / heal()      connections are cut, and new ones at once
    requests               all requests so far, as bytes (head and body)
    answers                all bytes that were returned so far

    Patterns are regular expressions over the bytes of a request, head and body, or functions of
    these that say whether it is the one. opaque=True is for TLS: nothing is understood, so nothing
    can be swallowed or counted.
    """

    def __init__(self, target, opaque=False):
        self.target = target
        self.is_opaque = opaque
        self.is_silent = False
        self.is_refusing = False
        self.delay_s = 0.0
        self.requests = []
        self.answers = b""
        self._faults = []
        self._given = []
        self._pairs = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def endpoint(self):
        return f"{self.address[0]}:{self.address[1]}"

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_refusing:
                client.close()
                continue
            try:
                pair = _Pair(self, client)
            except OSError:
                client.close()  # as if it had been refused
                continue
            with self._lock:
                self._pairs.add(pair)

    def _meet(self, request):
        with self._lock:
            self.requests.append(request)
            for fault in self._faults:
                if fault.fits(request):
                    self._faults.remove(fault)
                    return fault
        return None

    def _note_answer(self, data):
        with self._lock:
            self.answers += data

    def _forget(self, pair):
        with self._lock:
            self._pairs.discard(pair)

    def _add_fault(self, kind, pattern, change=None):
        fault = Fault(kind, pattern, change)
        with self._lock:
            self._faults.append(fault)
            self._given.append(fault)
        return fault

    def swallow_next(self, pattern=b""):
        return self._add_fault("swallow", pattern)

    def withhold_next(self, pattern=b""):
        return self._add_fault("withhold", pattern)

    def cut_next(self, pattern=b""):
        return self._add_fault("cut", pattern)

    def hold_back_next(self, pattern=b""):
        return self._add_fault("hold back", pattern)

    def alter_next(self, pattern, change):
        return self._add_fault("alter", pattern, change)

    def delay(self, seconds):
        self.delay_s = seconds

    def silence(self):
        self.is_silent = True

    def refuse(self):
        self.is_refusing = True
        self.cut()

    def cut(self):
        """End all connections that there are."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.close()

    def heal(self):
        self.is_refusing = False
        self.is_silent = False
        with self._lock:
            pairs = [pair for pair in self._pairs if pair.has_lost]
        for pair in pairs:
            pair.close()

    def count(self, pattern=b""):
        """How many requests with the pattern there were."""
        with self._lock:
            return sum(1 for request in self.requests if re.search(pattern, request, re.S))

    def close(self):
        self.is_refusing = True
        for fault in self._given:
            fault.release()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(harness.DEADLINE_S)
        self.cut()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
