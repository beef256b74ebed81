"""`muster etcd` as a process, and the etcds and the proxy that other tests stand on."""

import base64
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import etcd_cluster
import harness
from etcd_cluster import (PASSWORD, USER, Cluster, Etcd, Leaks, Swallow, Tls, basic, call,
                          check_no_leaks, find_etcd, hold_port, processes_of)
from harness import run, wait_until


def b64(text):
    return base64.b64encode(text.encode()).decode()


def put3(etcd, key, value, headers=None):
    return etcd.call("POST", "/v3/kv/put", {"key": b64(key), "value": b64(value)}, headers)


def get3(etcd, key, headers=None):
    """The value of a key, None if there is none."""
    answer = etcd.call("POST", "/v3/kv/range", {"key": b64(key)}, headers)
    if answer.status != 200:
        raise AssertionError(str(answer))
    values = answer.json.get("kvs", [])
    return base64.b64decode(values[0]["value"]).decode() if values else None


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return False


class Case(unittest.TestCase):
    def setUp(self):
        find_etcd()
        leaks = Leaks()
        self.addCleanup(leaks.check)
        self.directory = tempfile.mkdtemp(prefix="muster-test-cli-")
        self.addCleanup(self.end)
        self.env = {"TMPDIR": self.directory}
        self.processes = []

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        try:
            check_no_leaks(self.directory)
        finally:
            shutil.rmtree(self.directory)

    def start(self, *args, env=None):
        """`muster etcd`, without waiting for anything."""
        process = subprocess.Popen(
            [harness.MUSTER, "etcd", *map(str, args)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **self.env,
                                                                 **(env or {})})
        self.processes.append(process)
        return process

    def script(self, text):
        """A program beside the data, gone at the end of the test."""
        directory = tempfile.mkdtemp(prefix="muster-test-script-")
        self.addCleanup(shutil.rmtree, directory)
        path = os.path.join(directory, "program")
        with open(path, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o700)
        return path

    def finish(self, process, timeout=None):
        """Its exit code and both outputs."""
        out, err = process.communicate(timeout=timeout or harness.DEADLINE_S)
        harness.check_report(err.decode(), "muster etcd")
        return process.returncode, out.decode(), err.decode()


# --- the command -----------------------------------------------------------------------------


class Runs(Case):
    def test_tells_where_it_is(self):
        with Etcd() as etcd:
            self.assertEqual(etcd.stdout(), f"listening on http://127.0.0.1:{etcd.port}\n")
            with open(etcd.port_file, encoding="ascii") as file:
                self.assertEqual(file.read(), f"{etcd.port}\n")
            self.assertEqual(etcd.call("GET", "/health").json["health"], "true")
            self.assertEqual(etcd.call("GET", "/v2/keys").status, 404)
            self.assertEqual(put3(etcd, "a", "1").status, 200)
            self.assertEqual(get3(etcd, "a"), "1")

    def test_default_host_and_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number.name):
                process = self.start()
                line = process.stdout.readline().decode()
                port = int(re.fullmatch(r"listening on http://localhost:(\d+)\n", line).group(1))
                self.assertEqual(call(("localhost", port), "GET", "/health").status, 200)
                self.assertEqual(len(os.listdir(self.directory)), 1)
                process.send_signal(number)
                self.assertEqual(self.finish(process), (0, "", ""))
                check_no_leaks(self.directory)

    def test_v2(self):
        with Etcd(enable_v2=True) as etcd:
            self.assertEqual(etcd.v2.put("/a", value="1")["value"], "1")
            self.assertEqual(etcd.v2.get("/a")["value"], "1")

    def test_more_arguments(self):
        with Etcd(arguments=["--max-request-bytes=4096"]) as etcd:
            self.assertEqual(put3(etcd, "a", "x" * 1000).status, 200)
            answer = put3(etcd, "a", "x" * 10000)
            self.assertIn("too large", answer.body.decode())

    def test_output(self):
        path = os.path.join(self.directory, "output")
        with Etcd(options=["--output", path]):
            with open(path, encoding="utf-8") as file:
                self.assertIn("etcd", file.read())
        os.unlink(path)
        with Etcd(options=["--output", "inherit"]) as etcd:
            self.assertIn("etcdserver", etcd.log())
        with Etcd() as etcd:
            self.assertNotIn("etcdserver", etcd.log())

    def test_data_dir_is_kept(self):
        with Etcd(keep=True) as etcd:
            port = etcd.port
            self.assertEqual(put3(etcd, "a", "kept").status, 200)
            etcd.stop_server(signal.SIGTERM)
            etcd.start_server()
            self.assertEqual(get3(etcd, "a"), "kept")
            etcd.stop_server()
            etcd.start_server()
            self.assertEqual(get3(etcd, "a"), "kept")
            self.assertEqual(etcd.port, port)

    def test_many_at_once(self):
        """A free port is never given to two, with any number of starts."""
        processes = [self.start() for _ in range(6)]
        lines = {process.stdout.readline() for process in processes}
        self.assertEqual(len(lines), 6, lines)
        for process in processes:
            process.terminate()
        for process in processes:
            # A second attempt would be told of on stderr.
            self.assertEqual(self.finish(process), (0, "", ""))

    def test_port(self):
        with hold_port() as held:
            port = held.getsockname()[1]
            process = self.start("--host", "127.0.0.1", "--port", port)
            line = process.stdout.readline().decode()
            self.assertEqual(line, f"listening on http://127.0.0.1:{port}\n")
            code, _, err = self.finish(self.start("--host", "127.0.0.1", "--port", port))
            self.assertEqual(code, 1)
            self.assertIn(f"port {port} of '127.0.0.1': Address already in use", err)
            process.terminate()
            self.assertEqual(self.finish(process)[0], 0)


class Ends(Case):
    def test_etcd_dies(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(number.name):
                etcd = Etcd()
                os.kill(etcd.etcd_pid, number)
                self.assertEqual(etcd.process.wait(harness.DEADLINE_S), 5)
                self.assertRegex(etcd.log(),
                                 rf"muster: etcd .* was killed by signal {number.value} "
                                 r"\(.*\); it printed: .")
                etcd.stop()

    def test_muster_is_killed(self):
        """etcd dies with it, and the directory goes, too."""
        process = self.start("--log-level", "info")
        process.stdout.readline()
        pids = processes_of(self.directory)
        self.assertEqual(len(pids), 2, pids)  # etcd, and the sweeper of the directory
        self.assertEqual(len(os.listdir(self.directory)), 1)
        process.kill()
        process.wait()
        check_no_leaks(self.directory)

    def test_etcd_does_not_obey(self):
        """It is stopped, so SIGTERM does not reach it; it is killed after five seconds."""
        etcd = Etcd()
        etcd.pause()
        began = time.monotonic()
        etcd.process.terminate()
        self.assertEqual(etcd.process.wait(5 + harness.DEADLINE_S), 0)
        self.assertGreater(time.monotonic() - began, 4.9)
        etcd.stop()

    def test_no_zombies(self):
        with Etcd() as etcd:
            with open(f"/proc/{etcd.process.pid}/task/{etcd.process.pid}/children",
                      encoding="ascii") as file:
                children = [int(pid) for pid in file.read().split()]
            self.assertEqual([pid for pid in children if is_zombie(pid)], [])

    def test_signal_before_it_is_healthy(self):
        program = self.script("[ \"$1\" = --version ] && echo 'etcd Version: 3.4.0' && exit 0\n"
                              f"touch {self.directory}/begun\nexec sleep 1000\n")
        process = self.start("--binary", program)
        wait_until(lambda: os.path.exists(f"{self.directory}/begun"), "the start")
        process.terminate()
        self.assertEqual(self.finish(process), (128 + signal.SIGTERM, "", ""))
        os.unlink(f"{self.directory}/begun")


class Fails(Case):
    def expect(self, wanted_code, part, *args, env=None):
        code, out, err = self.finish(self.start(*args, env=env))
        self.assertEqual((code, out), (wanted_code, ""), err)
        self.assertIn(part, err)
        return err

    def test_no_etcd(self):
        self.expect(127, "no program '/nonexistent/etcd'", "--binary", "/nonexistent/etcd")
        self.expect(127, "no etcd: not in $TORCHELASTIC_ETCD_BINARY_PATH",
                    env={"PATH": "/nonexistent", "TORCHELASTIC_ETCD_BINARY_PATH": ""})

    def test_binary_by_variable(self):
        program = self.script("echo it is I\n")
        self.expect(5, "it is I", env={"TORCHELASTIC_ETCD_BINARY_PATH": program})
        # A variable that names no program is reported, and the search goes on.
        err = self.expect(127, "no etcd", env={"TORCHELASTIC_ETCD_BINARY_PATH": "/nonexistent/x",
                                               "PATH": "/nonexistent"})
        self.assertIn("ev=etcd.variable name=TORCHELASTIC_ETCD_BINARY_PATH value=/nonexistent/x",
                      err)

    def test_binary_beside_muster(self):
        directory = tempfile.mkdtemp(prefix="muster-test-beside-")
        self.addCleanup(shutil.rmtree, directory)
        copy = shutil.copy(harness.MUSTER, directory)
        os.symlink(self.script("echo beside\n"), os.path.join(directory, "etcd"))
        done = subprocess.run([copy, "etcd"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env={**os.environ, **self.env},
                              timeout=harness.DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 5)
        self.assertIn(b"it printed: beside", done.stderr)

    def test_no_such_option_of_etcd(self):
        err = self.expect(5, "no-such-option", "--attempts", "2", "--", "--no-such-option")
        self.assertEqual(len(re.findall(r"warn ev=etcd\.start_failed attempt=1 of=2", err)), 1)

    def test_its_last_words(self):
        program = self.script("[ \"$1\" = --version ] && echo 'etcd Version: 3.4.0' && exit 0\n"
                              "echo one; echo two >&2; exit 9\n")
        err = self.expect(5, "ended with exit status 9 at its start; it printed: one | two",
                          "--binary", program, "--attempts", "1", "--log-level", "info")
        self.assertIn("ev=etcd.output line=two", err)

    def test_timeout(self):
        program = self.script("[ \"$1\" = --version ] && echo 'etcd Version: 3.4.0' && exit 0\n"
                              "exec sleep 1000\n")
        self.expect(4, "not healthy in time", "--binary", program, "--timeout", "500ms")

    def test_v2_refused(self):
        program = self.script("echo 'etcd Version: 3.6.0'\n")
        self.expect(1, "has no v2 API, which 3.6 has removed", "--binary", program, "--enable-v2")

    def test_usage(self):
        self.expect(2, "did you mean --port-file", "--prot-file", "x")
        self.expect(2, "not within", "--port", "65536")
        self.expect(2, "--output", "--output", "")
        self.expect(2, "a key without a certificate", "--key", "/dev/null")
        self.expect(2, "not an address of this machine", "--host", "192.0.2.1")
        self.expect(2, "--log-level", "--log-level", "loud")

    def test_port_file_cannot_be_written(self):
        code, _, err = self.finish(self.start("--port-file", "/nonexistent/port"))
        self.assertEqual(code, 1)
        self.assertIn("port file '/nonexistent/port", err)

    def test_help(self):
        done = run("etcd", "--help")
        self.assertEqual(done.returncode, 0)
        for word in (b"--enable-v2", b"--port-file", b"--data-dir", b"TORCHELASTIC_ETCD"):
            self.assertIn(word, done.stdout)
        self.assertIn(b"  etcd ", run("--help").stdout)


@unittest.skipUnless(os.environ.get("MUSTER_ETCD") == "0", "this muster was built with etcd")
class NotBuilt(unittest.TestCase):
    def test_refused(self):
        done = run("etcd")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"built without etcd", done.stderr)


# --- TLS and users ---------------------------------------------------------------------------


class Secure(Case):
    def test_tls(self):
        with Tls() as tls, Etcd(tls=tls) as etcd:
            self.assertEqual(etcd.stdout(), f"listening on https://127.0.0.1:{etcd.port}\n")
            self.assertEqual(put3(etcd, "a", "1").status, 200)
            self.assertEqual(get3(etcd, "a"), "1")
            # Also without a client certificate; plain HTTP fails.
            self.assertEqual(
                call(etcd.address, "GET", "/health", context=tls.context(False)).status, 200)
            with self.assertRaises((OSError, etcd_cluster.http.client.HTTPException)):
                call(etcd.address, "GET", "/health")
            with self.assertRaises(OSError):
                other = etcd_cluster.ssl.create_default_context(cafile=tls.other_ca)
                call(etcd.address, "GET", "/health", context=other)

    def test_client_certificates(self):
        with Tls() as tls, Etcd(tls=tls, client_auth=True, enable_v2=True) as etcd:
            self.assertEqual(put3(etcd, "a", "1").status, 200)
            self.assertEqual(etcd.v2.put("/a", value="1")["value"], "1")
            with self.assertRaises(OSError):
                call(etcd.address, "GET", "/health", context=tls.context(False))

    def test_one_file_with_both(self):
        with Tls() as tls:
            both = os.path.join(tls.directory, "both.pem")
            with open(both, "wb") as file:
                for path in (tls.server_cert, tls.server_key):
                    with open(path, "rb") as part:
                        file.write(part.read())
            with Etcd(options=["--cert", both]) as etcd:
                answer = call(etcd.address, "GET", "/health", context=tls.context())
                self.assertEqual(answer.status, 200)

    def test_certificate_for_somebody_else(self):
        with Tls() as tls:
            code, _, err = self.finish(
                self.start("--cert", tls.client_cert, "--key", tls.client_key))
            self.assertNotEqual(code, 0)
            self.assertIn("certificate", err)

    def test_auth_v2(self):
        with Etcd(enable_v2=True, auth="v2") as etcd:
            job = basic(USER, PASSWORD)
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            ours = {**form, **job}
            self.assertEqual(etcd.call("PUT", "/v2/keys/a", b"value=1", form).status, 401)
            self.assertEqual(etcd.call("GET", "/v2/keys/a").status, 401)
            self.assertEqual(etcd.call("PUT", "/v2/keys/a", b"value=1", ours).status, 201)
            wrong = basic(USER, "wrong")
            self.assertEqual(etcd.call("GET", "/v2/keys/a", headers=wrong).status, 401)
            self.assertEqual(etcd.call("GET", "/v2/keys/a", headers=job).status, 200)

    def test_auth_v3(self):
        with Etcd(auth="v3", keep=True) as etcd:
            self.assertEqual(put3(etcd, "a", "1").status, 400)
            job = {"Authorization": etcd.token()}
            self.assertEqual(put3(etcd, "a", "1", job).status, 200)
            self.assertEqual(get3(etcd, "a", job), "1")
            # Healthy without a user, so it can be started again.
            etcd.stop_server()
            etcd.start_server()
            self.assertEqual(put3(etcd, "a", "2", {"Authorization": "nonsense.1"}).status, 401)
            self.assertEqual(get3(etcd, "a", {"Authorization": etcd.token()}), "1")

    def test_both_and_tls(self):
        with Tls() as tls, Etcd(tls=tls, enable_v2=True, auth="v2 v3") as etcd:
            self.assertEqual(etcd.call("GET", "/v2/keys/").status, 401)
            self.assertEqual(put3(etcd, "a", "1").status, 400)


# --- what other tests stand on ---------------------------------------------------------------


class Stand(Case):
    def test_leaks_are_found(self):
        directory = etcd_cluster.make_directory("leak")
        leaks = Leaks()
        leaks.start -= 1
        sleeper = subprocess.Popen(["sh", "-c", "read line; exit", directory],
                                   stdin=subprocess.PIPE)
        # The kernel shows its words a moment after it has begun.
        wait_until(lambda: processes_of(directory), "the process to be seen")
        before, harness.DEADLINE_S = harness.DEADLINE_S, 0.05
        try:
            with self.assertRaisesRegex(AssertionError, str(sleeper.pid)):
                leaks.check()
            sleeper.kill()
            sleeper.wait()
            with self.assertRaisesRegex(AssertionError, "is left"):
                leaks.check()
            with open(os.path.join(directory, "file"), "wb"):
                pass
            with self.assertRaisesRegex(AssertionError, "'file'"):
                leaks.check()
        finally:
            harness.DEADLINE_S = before
            sleeper.kill()
            sleeper.wait()
            shutil.rmtree(directory)
        leaks.check()

    def test_pause(self):
        with Etcd() as etcd:
            etcd.pause()
            with self.assertRaises(OSError):
                etcd.call("GET", "/health", timeout=0.2)
            etcd.resume()
            self.assertEqual(etcd.call("GET", "/health").status, 200)

    def test_unexpected_end_is_found(self):
        etcd = Etcd()
        etcd.process.kill()
        etcd.process.wait()
        etcd.stop()  # its end has been seen by the test
        with self.assertRaisesRegex(AssertionError, "ended with 2 at its start"):
            Etcd(options=["--port", "none"])

    def test_cluster(self):
        with Cluster(enable_v2=True) as cluster:
            self.assertEqual(len(set(cluster.endpoints())), 3)
            self.assertEqual(cluster.endpoint.count(","), 2)
            leader = cluster.leader()
            self.assertEqual(put3(leader, "a", "1").status, 200)
            for member in cluster.followers():
                self.assertEqual(get3(member, "a"), "1")
            # One may go, with another leader or the same.
            cluster.kill(leader)
            second = cluster.leader()
            self.assertIsNot(second, leader)
            self.assertEqual(cluster.v2.put("/b", value="2")["value"], "2")
            cluster.restart(leader)
            self.assertEqual(get3(leader, "a"), "1")
            # Two may not.
            one, two = cluster.followers()
            one.terminate()
            cluster.pause(two)
            wait_until(lambda: not second.is_healthy(), "no majority")
            cluster.resume(two)
            cluster.wait_healthy(second)
            cluster.restart(one)

    def test_cluster_with_tls_and_users(self):
        with Tls() as tls, Cluster(tls=tls, client_auth=True, auth="v3") as cluster:
            self.assertEqual(put3(cluster.leader(), "a", "1").status, 403)
            follower = cluster.followers()[0]
            job = {"Authorization": follower.token()}
            self.assertEqual(put3(follower, "a", "1", job).status, 200)

    def test_nothing_outlives_us(self):
        """A test that is killed leaves no etcd."""
        script = ("import sys; sys.path.insert(0, sys.argv[1])\n"
                  "import etcd_cluster, time\n"
                  "etcd = etcd_cluster.Etcd()\n"
                  "cluster = etcd_cluster.Cluster(1)\n"
                  "print(etcd.directory, cluster.directory, flush=True)\n"
                  "time.sleep(1000)\n")
        process = subprocess.Popen(
            [etcd_cluster.sys.executable, "-c", script, os.path.dirname(os.path.abspath(__file__))],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        with process:
            directories = process.stdout.readline().decode().split()
            self.assertEqual(len(directories), 2)
            for directory in directories:
                self.addCleanup(shutil.rmtree, directory)
                self.assertNotEqual(processes_of(directory), {})
            process.kill()
        for directory in directories:
            wait_until(lambda path=directory: not processes_of(path), "the etcds to end")


class Proxy(Case):
    def setUp(self):
        super().setUp()
        self.etcd = Etcd(enable_v2=True)
        self.addCleanup(self.etcd.stop)
        self.proxy = Swallow(self.etcd.address)
        self.addCleanup(self.proxy.close)

    def put(self, value, timeout=None):
        return call(self.proxy.address, "PUT", "/v2/keys/a", f"value={value}".encode(),
                    {"Content-Type": "application/x-www-form-urlencoded"}, timeout=timeout)

    def value(self):
        return (self.etcd.v2.get("/a") or {}).get("value")

    def in_thread(self, work):
        """Run work() at the same time; returns what waits for its result."""
        result = []
        thread = threading.Thread(target=lambda: result.append(work()))
        thread.start()

        def end():
            thread.join(harness.DEADLINE_S)
            return result[0]
        return end

    def test_passes(self):
        self.assertEqual(self.put("1").status, 201)
        self.assertEqual(self.value(), "1")
        self.assertEqual(self.proxy.count(b"PUT /v2/keys/a"), 1)
        self.assertEqual(self.proxy.count(b"^GET"), 0)

    def test_answer_is_swallowed(self):
        self.put("1")
        fault = self.proxy.swallow_next(b"^PUT .*value=2")
        self.assertEqual(self.put("3").status, 200)  # not that one
        with self.assertRaises((OSError, etcd_cluster.http.client.HTTPException)):
            self.put("2")
        self.assertIn(b"value=2", fault.wait().request)
        self.assertIn(b'"value":"2"', fault.answer)
        self.assertEqual(self.value(), "2")  # executed all the same
        self.assertEqual(self.put("4").status, 200)  # and only once

    def test_answer_is_withheld(self):
        fault = self.proxy.withhold_next(b"^PUT")
        with self.assertRaises(OSError):
            self.put("1", timeout=0.3)
        fault.wait()
        self.assertEqual(self.value(), "1")
        fault.release()

    def test_request_is_cut(self):
        fault = self.proxy.cut_next(b"^PUT")
        with self.assertRaises((OSError, etcd_cluster.http.client.HTTPException)):
            self.put("1")
        fault.wait()
        self.assertIsNone(self.value())  # not executed

    def test_request_is_held_back(self):
        fault = self.proxy.hold_back_next(b"^PUT")
        end = self.in_thread(lambda: self.put("1"))
        fault.wait()
        self.assertIsNone(self.value())
        fault.release()
        self.assertEqual(end().status, 201)

    def test_delay(self):
        self.proxy.delay(0.3)
        began = time.monotonic()
        self.assertEqual(self.put("1").status, 201)
        self.assertGreaterEqual(time.monotonic() - began, 0.3)

    def test_silence(self):
        self.proxy.silence()
        with self.assertRaises(socket.timeout):
            self.put("1", timeout=0.2)
        self.assertIsNone(self.value())
        self.proxy.heal()
        self.assertEqual(self.put("2").status, 201)

    def test_refusal(self):
        with socket.create_connection(self.proxy.address, timeout=harness.DEADLINE_S) as idle:
            # Until it is through, it may not be there to be cut.
            wait_until(lambda: self.proxy._pairs, "the connection")
            self.proxy.refuse()
            self.assertEqual(idle.recv(1), b"")
        with self.assertRaises((OSError, etcd_cluster.http.client.HTTPException)):
            self.put("1")
        self.proxy.heal()
        self.assertEqual(self.put("1").status, 201)

    def test_opaque(self):
        with Swallow(self.etcd.address, opaque=True) as proxy:
            self.assertEqual(call(proxy.address, "GET", "/health").status, 200)
            proxy.silence()
            with self.assertRaises(socket.timeout):
                call(proxy.address, "GET", "/health", timeout=0.2)


if __name__ == "__main__":
    harness.main()
