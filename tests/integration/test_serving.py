"""Nodes that serve others: for whom, for how long, and who serves instead."""

import itertools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness
from agents import QUICK, Agent, Child

OK, UNREACHABLE, TERMINATED = 0, 5, 128 + signal.SIGTERM
JOBS_TOLD = 46

# Prints its rank, and runs until SIGTERM.
STAY = 'trap "exit 0" TERM; echo at $RANK/$WORLD_SIZE; while :; do sleep 0.02; done'

# Prints its rank, and runs until the file in $GO exists.
UNTIL = 'echo at $RANK/$WORLD_SIZE; while ! [ -e $GO ]; do sleep 0.02; done'


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="muster-serving-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.endpoint = f"127.0.0.1:{harness.free_port()}"

    def agent(self, run_id, script, *options, env=None):
        agent = Agent("--rdzv-endpoint", self.endpoint, "--rdzv-id", run_id, "--nnodes", "1:2",
                      "--rdzv-conf", QUICK, *options, "--", "sh", "-c", script, env=env)
        self.addCleanup(agent.close)
        return agent

    def go(self, name):
        """Variables for a worker of UNTIL, and what lets it end."""
        path = f"{self.directory}/{name}"

        def release():
            with open(path, "x", encoding="utf-8"):
                pass
        return {"GO": path}, release


class Lingering(Case):
    """Two jobs at one endpoint; the one whose node serves is over first."""

    def two_jobs(self, *options, other=()):
        first_env, end_first = self.go("first")
        second_env, end_second = self.go("second")
        serves = self.agent("first", UNTIL, *options, env=first_env)
        serves.until("at 0/1")
        other = self.agent("second", UNTIL, *other, env=second_env)
        other.until("at 0/1")
        end_first()
        return serves, other, end_second

    def test_other_job_goes_on(self):
        serves, other, end_second = self.two_jobs()
        harness.wait_until(lambda: "run 'second' (1 node)" in serves.stderr(), "the line")
        self.assertIsNone(other.process.poll())
        end_second()
        self.assertEqual(other.wait(), OK, other.stderr())
        self.assertEqual(serves.wait(), OK, serves.stderr())
        self.assertNotIn("cannot be reached", other.stderr())

    def test_end_of_a_hold(self):
        """The alarm that ends the hold of `muster join` does not end the stay."""
        serves = Child(harness.MUSTER, "join", "--rdzv-endpoint", self.endpoint, "--rdzv-id",
                       "first", "--nnodes", "1", "--rdzv-conf", QUICK, "--hold", "1h")
        self.addCleanup(serves.close)
        serves.until("joined")
        env, end = self.go("second")
        other = self.agent("second", UNTIL, env=env)
        other.until("at 0/1")
        serves.signal(signal.SIGALRM)
        harness.wait_until(lambda: "run 'second' (1 node)" in serves.stderr(), "the line")
        end()
        self.assertEqual(other.wait(), OK, other.stderr())
        self.assertEqual(serves.wait(), OK, serves.stderr())

    def test_signal_ends_it(self):
        """The exit status is that of its own job, however many signals come."""
        serves, other, _ = self.two_jobs("--forward-signals", "USR1")
        harness.wait_until(lambda: "run 'second' (1 node)" in serves.stderr(), "the line")
        serves.signal(signal.SIGUSR1)  # is for workers, and there are none
        while serves.process.poll() is None:
            serves.signal(signal.SIGTERM)
            time.sleep(0.0003) # it, too, needs the processor
        self.assertEqual(serves.wait(), OK, serves.stderr())
        self.assertIsNone(other.process.poll())

    def test_bounded(self):
        serves, other, _ = self.two_jobs("--linger", "50ms")
        self.assertEqual(serves.wait(), OK, serves.stderr())
        self.assertIn("no longer, although run 'second' (1 node)", serves.stderr())
        self.assertIsNone(other.process.poll())

    def test_bounded_with_records(self):
        serves, other, _ = self.two_jobs("--linger", "50ms", "--rdzv-backend", "c10d",
                                         other=("--rdzv-backend", "c10d"))
        self.assertEqual(serves.wait(), OK, serves.stderr())
        self.assertIn("no longer, although run 'second' (1 node)", serves.stderr())
        self.assertIsNone(other.process.poll())

    def test_stopped_node_does_not_stay(self):
        serves = self.agent("first", STAY)
        serves.until("at 0/1")
        other = self.agent("second", STAY)
        other.until("at 0/1")
        serves.signal(signal.SIGTERM)
        self.assertEqual(serves.wait(), TERMINATED, serves.stderr())
        self.assertNotIn("second", serves.stderr())


class Handover(Case):
    """A node has taken the port of a `muster serve` that was away; the next one gets it back."""

    def setUp(self):
        super().setUp()
        self.port = int(self.endpoint.rsplit(":", 1)[1])

    def serve(self, **more):
        server = harness.Server("--port", self.port, **more)
        self.addCleanup(server.__exit__, None, None, None)
        return server

    def runs(self):
        """The jobs that meet at the endpoint."""
        told = subprocess.run([harness.MUSTER, "status", "--json", "--rdzv-endpoint",
                               self.endpoint], capture_output=True, check=False)
        return {job["run_id"] for job in json.loads(told.stdout)["jobs"]} \
            if told.returncode == 0 else set()

    def job(self, *options, **more):
        """Two nodes of run 'old' that work until the call of the second result."""
        env, release = self.go("old")
        nodes = [self.agent("old", UNTIL, *options, env=env, **more) for _ in range(2)]
        for node in nodes:
            node.until("/2")
        return nodes, release

    def node_in_between(self, *options):
        env, release = self.go("new")
        node = self.agent("new", UNTIL, *options, env=env)
        node.until("at 0/1")
        self.assertIn(f"is serving on {self.endpoint}", node.stderr())
        return node, release

    def ends(self, *nodes):
        for node in nodes:
            self.assertEqual(node.wait(), OK, node.stderr())

    def test_server_gets_its_port_back(self):
        """All jobs go on: the rounds too, without another start of the workers."""
        first = self.serve()
        old, release_old = self.job()
        first.kill()
        new, release_new = self.node_in_between()
        harness.wait_until(lambda: self.runs() == {"old", "new"}, "both jobs at the node")
        second = self.serve()
        self.assertEqual(second.port, self.port)
        second.wait_log("ev=job.resumed", "run=old", "nodes=2")
        second.wait_log("ev=job.resumed", "run=new", "nodes=1")
        self.assertIn(f"ev=serve.claims address={self.endpoint} jobs=2", second.log())
        self.assertIn(f"ev=server.gives_way port={self.port} peer=127.0.0.1:", new.stderr())
        # The node serves nobody any more, and does not stay for the other job.
        self.assertIn(f"serves on {self.endpoint} no longer: a muster serve", new.stderr())
        release_new()
        self.ends(new)
        self.assertNotIn("still serves", new.stderr())
        release_old()
        self.ends(*old)
        for node in (*old, new):
            self.assertEqual(len(node.lines), 1, node.lines)

    def test_running_nodes_remain_clients(self):
        """The nodes of a job do not begin to serve when their server is away."""
        first = self.serve()
        nodes, release = self.job()
        first.kill()
        # Both of them call again, and again.
        with socket.create_server(("127.0.0.1", self.port)) as absent:
            absent.settimeout(harness.DEADLINE_S)
            for _ in range(6):
                absent.accept()[0].close()
        second = self.serve()
        second.wait_log("ev=job.resumed", "nodes=2")
        self.assertNotIn("ev=serve.port_taken", second.log())
        release()
        self.ends(*nodes)
        for node in nodes:
            self.assertNotIn("is serving", node.stderr())

    def test_record(self):
        """With c10d the store is lost with its server, and the nodes meet again."""
        env, release = self.go("record")
        nodes = [self.agent("record", UNTIL, "--rdzv-backend", "c10d", env=env) for _ in range(2)]
        for node in nodes:
            node.until("/2")
        server = self.serve()
        self.assertTrue(server.log_lines("ev=serve.claims"), server.log())
        for node in nodes:
            node.until("/2")
        release()
        self.ends(*nodes)

    def test_join(self):
        """`muster join` that has given way ends with its command, not with the job."""
        nodes = []
        for name in ("first", "second"):
            env, release = self.go(name)
            node = Child(harness.MUSTER, "join", "--rdzv-endpoint", self.endpoint, "--rdzv-id",
                         "job", "--nnodes", "2", "--rdzv-conf", QUICK, "--", "sh", "-c", UNTIL,
                         env=env)
            self.addCleanup(node.close)
            nodes.append((node, release))
            harness.wait_until(lambda: "is serving" in nodes[0][0].stderr(), "the server")
        (serves, end_first), (other, end_second) = nodes
        for node, _ in nodes:
            node.until("at ")
        server = self.serve()
        server.wait_log("ev=job.resumed", "nodes=2")
        harness.wait_until(lambda: "no longer: a muster serve" in serves.stderr(), "the event")
        end_first()
        self.ends(serves)
        self.assertIsNone(other.process.poll())
        end_second()
        self.ends(other)

    def test_node_that_must_serve(self):
        """--serve always is the user's word, and the server says what is in its way."""
        node, release = self.node_in_between("--serve", "always")
        server = harness.Server("--port", self.port, wait=False)
        self.addCleanup(shutil.rmtree, server.directory, ignore_errors=True)
        self.assertEqual(server.wait(), 1)
        server.ended()
        self.assertEqual(len(server.log_lines("ev=serve.port_taken")), 1, server.log())
        self.assertIn("which does not give way", server.log())
        release()
        self.ends(node)

    def test_node_that_never_gives_way(self):
        """One that promises it, each time that it is asked, is not waited for without end."""
        told = struct.pack("<I", 4) + b"0.00" + struct.pack("<IIIB", 0, 0, 0, True)
        told = struct.pack("<IB", len(told) + 1, JOBS_TOLD) + told

        def promise(listener):
            while True:
                try:
                    peer = listener.accept()[0]
                except OSError:
                    return  # the test is over
                with peer:
                    said = b""
                    while b"muster.job" not in said and (more := peer.recv(4096)):
                        said += more
                    peer.sendall(b"\1\0")  # it refuses nobody, and serves jobs
                    said = said.split(b"muster.job")[-1]
                    while len(said) < 6 and (more := peer.recv(4096)):
                        said += more
                    peer.sendall(told)
                    while peer.recv(4096):
                        pass

        with socket.create_server(("127.0.0.1", self.port)) as listener:
            thread = threading.Thread(target=promise, args=(listener,), daemon=True)
            thread.start()
            server = harness.Server("--port", self.port, wait=False)
            self.addCleanup(shutil.rmtree, server.directory, ignore_errors=True)
            self.addCleanup(server.process.kill)
            self.assertEqual(server.wait(), 1)
            server.ended()
            self.assertGreater(len(server.log_lines("ev=serve.claims")), 1, server.log())
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(harness.DEADLINE_S)

    def test_port_that_is_free_soon(self):
        """A server that is about to stop is waited for."""
        with socket.create_server(("127.0.0.1", self.port)):
            server = harness.Server("--port", self.port, wait=False)
            self.addCleanup(server.__exit__, None, None, None)
            server.wait_log("ev=serve.port_taken")
        self.assertEqual(server.wait_port(), self.port)


# Sends GIVE_WAY to the address in its arguments, and prints when the connection has ended.
STRANGER = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 20) as peer:
    peer.sendall(bytes.fromhex("00cef7853c" "42" "0100000009"))
    while peer.recv(4096):
        pass
print("ended")
"""


# Answers for late.test: from the third question for its address it is 127.0.0.1. The first two are
# those of a node that finds out whether it serves; the third is that of its first call.
NAME_SERVER = """
import socket
import struct
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
print("up", flush=True)
asked = 0
while True:
    question, peer = server.recvfrom(512)
    end = question.index(b"\\0", 12) + 1
    is_asked = question[12:end + 2] == b"\\4late\\4test\\0" b"\\0\\1"
    asked += is_asked
    is_known = asked > 2
    answer = bytes.fromhex("c00c00010001000000000004" "7f000001") if is_known and is_asked else b""
    flags = b"\\x81\\x80" if is_known else b"\\x81\\x83"
    counts = bytes([0, 1, 0, bool(answer), 0, 0, 0, 0])
    server.sendto(question[:2] + flags + counts + question[12:end + 4] + answer, peer)
"""


class Machines(Case):
    """Two machines, as network namespaces. The first has a second address."""

    HERE, ALSO_HERE, THERE = "10.77.0.1", "10.77.0.2", "10.77.0.3"

    def setUp(self):
        super().setUp()
        self.enter = ["nsenter", "--target", None, "--net"]
        # Root does not need a user namespace, and a container may not have them.
        if os.geteuid() != 0:
            self.enter[3:] = ["--user", "--preserve-credentials", "--net"]
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        self.here = self.machine(["unshare", *user])
        self.there = self.machine([*self.inside(self.here)[:-1], "unshare"])
        with open(f"{self.directory}/hosts", "w", encoding="utf-8") as file:
            file.write(f"127.0.0.1 localhost\n{self.HERE} head.test\n")
        self.port = harness.free_port()  # free here, and nothing else is there
        self.must(self.here, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0",
                  "netns", self.there)
        for pid, addresses in ((self.here, (self.HERE, self.ALSO_HERE)),
                               (self.there, (self.THERE,))):
            for address in addresses:
                self.must(pid, "ip", "address", "add", f"{address}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                self.must(pid, "ip", "link", "set", link, "up")

    def machine(self, unshare):
        try:
            child = subprocess.Popen([*unshare, "--net", "sh", "-c", "echo up; exec cat"],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL)
        except FileNotFoundError:
            self.skipTest("there is no unshare")
        self.addCleanup(child.communicate)  # its input ends, and so does it
        if child.stdout.readline() != b"up\n":
            self.skipTest("network namespaces are not allowed")
        return child.pid

    def inside(self, pid):
        return [*(str(pid) if word is None else word for word in self.enter), "--"]

    def must(self, pid, *command):
        done = subprocess.run([*self.inside(pid), *map(str, command)], capture_output=True,
                              check=False)
        if done.returncode != 0:
            self.skipTest(f"{command}: {done.stderr}")

    def node(self, host):
        """A node at the first machine that serves for the job."""
        env, release = self.go("job")
        self.endpoint = f"{host}:{self.port}"
        names = ["unshare", "--mount", "sh", "-c",
                 f'mount --bind {self.directory}/hosts /etc/hosts && exec "$@"', "sh"]
        node = Agent("--rdzv-endpoint", self.endpoint, "--rdzv-id", "job", "--nnodes", "1:2",
                     "--rdzv-conf", QUICK, "--", "sh", "-c", UNTIL, env=env,
                     wrapper=[*self.inside(self.here), *names])
        self.addCleanup(node.close)
        node.until("at 0/1")
        self.assertIn(f"is serving on {self.endpoint}", node.stderr())
        return node, release

    def serve(self, *hosts, **more):
        return harness.Server("--port", self.port, hosts=hosts, wrapper=self.inside(self.here),
                              **more)

    def ends(self, node, release):
        release()
        self.assertEqual(node.wait(), OK, node.stderr())
        self.assertEqual(len(node.lines), 1, node.lines)

    def test_name_that_is_known_late(self):
        """A node that learns its endpoint's name as a client remains one."""
        files = {"resolv.conf": "nameserver 127.0.0.1\n", "nsswitch.conf": "hosts: dns\n"}
        for name, text in files.items():
            with open(f"{self.directory}/{name}", "w", encoding="utf-8") as file:
                file.write(text)
        mounts = " && ".join(f"mount --bind {self.directory}/{name} /etc/{name}" for name in files)
        wrapper = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
        self.must(self.here, *wrapper, "true")
        names = Child(*self.inside(self.here), sys.executable, "-c", NAME_SERVER)
        self.addCleanup(names.close)
        names.until("up")
        env, release = self.go("job")
        with self.serve("127.0.0.1") as server:
            node = Agent("--rdzv-endpoint", f"late.test:{self.port}", "--rdzv-id", "job",
                         "--nnodes", "1:2", "--rdzv-conf", QUICK, "--local-addr", "127.0.0.1",
                         "--", "sh", "-c", UNTIL, env=env,
                         wrapper=[*self.inside(self.here), *wrapper])
            self.addCleanup(node.close)
            node.until("at 0/1")
            server.kill()
        harness.wait_until(lambda: "cannot be reached" in node.stderr() or
                           "is serving" in node.stderr(), "the node to notice")
        self.assertNotIn("is serving", node.stderr())
        with self.serve("127.0.0.1") as server:
            server.wait_log("ev=job.resumed", "nodes=1")
            self.ends(node, release)

    def test_not_to_another_machine(self):
        """A server on every address is for this machine, also at its second address."""
        node, release = self.node(self.ALSO_HERE)
        stranger = subprocess.run(
            [*self.inside(self.there), sys.executable, "-c", STRANGER, self.ALSO_HERE,
             str(self.port)], capture_output=True, check=False)
        self.assertEqual(stranger.stdout, b"ended\n", stranger.stderr)
        self.assertNotIn("server.gives_way", node.stderr())
        with self.serve("*") as server:
            server.wait_log("ev=job.resumed", "nodes=1")
            self.assertIn("server.gives_way", node.stderr())
            self.ends(node, release)

    def test_not_to_a_server_that_others_cannot_reach(self):
        """The node serves at every address, and the server would listen at loopback only."""
        node, release = self.node("head.test")
        server = self.serve(wait=False)
        self.addCleanup(shutil.rmtree, server.directory, ignore_errors=True)
        self.assertEqual(server.wait(), 1)
        server.ended()
        self.assertNotIn("server.gives_way", node.stderr())
        # At the address of the name it may, and the node finds it there.
        with self.serve(self.HERE) as server:
            server.wait_log("ev=job.resumed", "nodes=1")
            self.ends(node, release)


class Names(Case):
    """Host names that are known later or never: agents with a hosts file of their own."""

    def setUp(self):
        super().setUp()
        self.hosts = f"{self.directory}/hosts"
        self.write(self.hosts, "127.0.0.1 localhost\n")
        self.write(f"{self.directory}/nsswitch", "hosts: files\n")
        mount = f"mount --bind {self.hosts} /etc/hosts && " \
                f"mount --bind {self.directory}/nsswitch /etc/nsswitch.conf"
        # Root does not need a user namespace, and a container may not have them.
        user = [] if os.geteuid() == 0 else ["-r"]
        self.wrapper = ["unshare", *user, "--mount", "--uts", "sh", "-c",
                        f'hostname pod-0 && {mount} && exec "$@"', "sh"]
        if subprocess.run([*self.wrapper, "true"], capture_output=True, check=False).returncode:
            self.skipTest("mount namespaces are not allowed")
        self.endpoint = f"late.test:{harness.free_port()}"

    def write(self, path, text, mode="w"):
        with open(path, mode, encoding="utf-8") as file:
            file.write(text)

    def named(self, *options, join_timeout=harness.DEADLINE_S):
        agent = Agent("--rdzv-endpoint", self.endpoint, "--rdzv-id", "named", "--rdzv-conf",
                      f"{QUICK},join_timeout={join_timeout}", *options, "--", "sh", "-c",
                      "echo at $RANK/$WORLD_SIZE", wrapper=self.wrapper)
        self.addCleanup(agent.close)
        return agent

    def await_retry(self, agent):
        harness.wait_until(lambda: "resolve.again host=late.test" in agent.stderr(), "a retry")

    def test_name_is_known_later(self):
        """The name of this machine, too: then the first node serves."""
        for serve, backend in itertools.product(("never", "auto"), ("muster", "c10d")):
            with self.subTest(serve=serve, backend=backend):
                self.write(self.hosts, "127.0.0.1 localhost\n")
                if serve == "never":
                    server = harness.Server()
                    self.addCleanup(server.__exit__, None, None, None)
                    self.endpoint = f"late.test:{server.port}"
                else:
                    self.endpoint = f"late.test:{harness.free_port()}"
                agents = [self.named("--nnodes", "2", "--serve", serve, "--rdzv-backend", backend)
                          for _ in range(2)]
                for agent in agents:
                    self.await_retry(agent)
                    self.assertIsNone(agent.process.poll())
                self.write(self.hosts, "127.0.0.1 late.test\n", mode="a")
                self.assertEqual([agent.wait() for agent in agents], [OK, OK],
                                 agents[0].stderr() + agents[1].stderr())
                self.assertEqual(sorted(agent.lines[0] for agent in agents), ["at 0/2", "at 1/2"])

    def test_static_name_is_known_later(self):
        port = harness.free_port()

        def agent(rank, host, wrapper):
            agent = Agent("--rdzv-backend", "static", "--nnodes", "2", "--node-rank", rank,
                          "--rdzv-endpoint", f"{host}:{port}", "--rdzv-id", "named", "--", "sh",
                          "-c", "echo at $RANK/$WORLD_SIZE", wrapper=wrapper)
            self.addCleanup(agent.close)
            return agent
        late = agent(1, "late.test", self.wrapper)
        with self.assertRaises(subprocess.TimeoutExpired): # one attempt takes half a second
            late.process.wait(1)
        self.write(self.hosts, "127.0.0.1 late.test\n", mode="a")
        first = agent(0, "127.0.0.1", ())
        self.assertEqual([late.wait(), first.wait()], [OK, OK], late.stderr() + first.stderr())
        self.assertEqual([late.lines, first.lines], [["at 1/2"], ["at 0/2"]])

    def test_own_name_is_known_later(self):
        """A pod's hosts file has its full name; the name server learns the short one later."""
        self.write(self.hosts, "127.0.0.1 pod-0.sub.ns.svc pod-0\n", mode="a")
        self.endpoint = f"pod-0.sub:{harness.free_port()}"
        agent = self.named("--nnodes", "1", "--rdzv-backend", "c10d", "--log-level", "info")
        harness.wait_until(lambda: "is serving on pod-0.sub" in agent.stderr(), "the server")
        harness.wait_until(lambda: "resolve.again host=pod-0.sub" in agent.stderr(), "a retry")
        self.write(self.hosts, "127.0.0.1 pod-0.sub\n", mode="a")
        self.assertEqual(agent.wait(), OK, agent.stderr())

    def test_name_of_another_pod(self):
        """It is no name of this one, although this one's begins with it."""
        self.write(self.hosts, "127.0.0.1 pod-0.sub.ns.svc pod-0\n", mode="a")
        self.endpoint = f"pod-0.su:{harness.free_port()}"
        agent = self.named("--nnodes", "1", "--rdzv-backend", "c10d", join_timeout=1)
        self.assertEqual(agent.wait(), UNREACHABLE, agent.stderr())
        self.assertNotIn("is serving", agent.stderr())

    def test_wrong_name(self):
        """It is tried until join_timeout; the sentence has the name."""
        agent = self.named("--nnodes", "2", join_timeout=1)
        self.assertEqual(agent.wait(), UNREACHABLE, agent.stderr())
        self.assertGreater(agent.end - agent.start, 0.9)
        self.assertRegex(agent.stderr(), "muster: .*late.test.*for [1-9]+ s; is the name right")

    def test_signal_ends_it(self):
        agent = self.named("--nnodes", "2")
        self.await_retry(agent)
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.wait(), TERMINATED, agent.stderr())


if __name__ == "__main__":
    harness.main()
