"""`muster run --hosts`: agents on other hosts, with substitutes for ssh and srun."""

import contextlib
import fcntl
import hashlib
import os
import pty
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import termios
import threading
import time
import unittest

import harness
from agents import is_alive

CONNECT = 5

# No node is lost by silence: dozens of agents run at once, and each may get no processor for
# seconds. The last call is short.
CALM = (f"keep_alive_interval=1,keep_alive_max_attempt={int(harness.DEADLINE_S)},"
        f"last_call_timeout=100ms,join_timeout={int(harness.DEADLINE_S)}")

# ssh [-oOPTION]... HOST COMMAND. The beginning of a host's name tells what is wrong with it. Writes
# the processes of hosts that hang.
SSH = """#!/bin/sh
options=
while [ "${1#-o}" != "$1" ]; do options="$options $1"; shift; done
case $1 in
    bad*) echo "ssh: connect to host $1" >&2; exit 255 ;;
    asks*)
        [ "${options#*-oBatchMode=yes}" != "$options" ] || exec sleep 1000
        echo "$1: Permission denied (publickey,password)." >&2; exit 255 ;;
    shares*) echo "ssh$options" >&2 ;;
    hangs*) echo $$ >> "$SSH_LOG.pids"; exec sleep 1000 ;;
    script*) sleep 1000 & echo $! >> "$SSH_LOG.pids"; wait ;;
    chats*) echo $$ >> "$SSH_LOG.pids"; while :; do echo "still $1"; sleep 0.1; done ;;
    noisy*) echo "Welcome to $1"; printf "no end of line" ;;
    stops*) echo $$ >> "$SSH_LOG.pids" ;;
esac
FAKE_HOST=$1
export FAKE_HOST
echo "$1" >> "$SSH_LOG"
shift
cd / || exit
case $FAKE_HOST in
    far*) exec python3 -c "$FAR" "$SSH_LOG.far" "$*" ;;
    *) exec sh -c "$*" ;;
esac
"""

# Gives its command, with its own standard descriptors, to a process that is no relative of the
# launcher, as sshd is none.
FAR = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as far:
    far.connect(sys.argv[1])
    socket.send_fds(far, [sys.argv[2].encode()], [0, 1, 2])
    for fd in range(3):
        os.close(fd)
    far.recv(1)
"""

# Runs the tasks of a step, one per node, with Slurm's variables. Like srun, exits with the highest
# status of a task. Passes SIGTERM on.
SRUN = """#!/bin/sh
echo "$*" >> "$SRUN_LOG"
while :; do
    case $1 in
        --nodes=*) nodes=${1#--nodes=}; shift ;;
        --nodelist) list=$2; shift 2 ;;
        --*) shift ;;
        *) break ;;
    esac
done
export SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=$nodes SLURM_STEP_NUM_TASKS=$nodes
export SLURM_STEP_NODELIST=${list:-$SLURM_JOB_NODELIST} SLURM_JOB_NUM_NODES=$nodes
tasks=
for i in $(seq 0 $((nodes - 1))); do
    SLURM_NODEID=$i SLURM_PROCID=$i "$@" &
    tasks="$tasks $!"
done
trap 'kill -TERM $tasks' TERM
status=0
for task in $tasks; do
    wait $task; ended=$?
    while [ $ended -gt 128 ] && kill -0 $task 2>/dev/null; do wait $task; ended=$?; done
    [ $ended -le $status ] || status=$ended
done
exit $status
"""


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Hosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()
        cls.directory = tempfile.mkdtemp(prefix="muster-hosts-")
        cls.ssh = os.path.join(cls.directory, "ssh")
        with open(cls.ssh, "w", encoding="utf-8") as file:
            file.write(SSH)
        os.chmod(cls.ssh, stat.S_IRWXU)
        os.mkdir(os.path.join(cls.directory, "bin"))
        srun = os.path.join(cls.directory, "bin", "srun")
        with open(srun, "w", encoding="utf-8") as file:
            file.write(SRUN)
        os.chmod(srun, stat.S_IRWXU)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)
        shutil.rmtree(cls.directory, ignore_errors=True)

    def start(self, hosts, script, *options, env=None, wrapper=(), has_id=True, **more):
        self.log = os.path.join(self.directory, self.id())
        process = subprocess.Popen(
            [*wrapper, harness.MUSTER, "run", *hosts, "--ssh", self.ssh, "--rdzv-endpoint",
             f"127.0.0.1:{self.server.port}", *(("--rdzv-id", self.id()) if has_id else ()),
             "--rdzv-conf", CALM, *options, "--", "sh", "-c", script],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=self.directory, env={**os.environ, "SSH_LOG": self.log, **(env or {})},
            **{"stdin": subprocess.DEVNULL, **more})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_hosts(self, *args, **keywords):
        process = self.start(*args, **keywords)
        out, err = process.communicate(timeout=harness.DEADLINE_S)
        return process.returncode, out, err

    def test_sixty_four(self):
        """Each host runs one agent, with ranks in the order of the hosts. With 64 hosts, relays
        start relays."""
        script = 'echo "$FAKE_HOST $RANK $WORLD_SIZE $(pwd) $NCCL_X"; echo "err $RANK" >&2'
        status, out, err = self.run_hosts(["--hosts", "h[01-64]"], script, "--nproc-per-node", "1",
                                          env={"NCCL_X": "passed on", "MUSTER_HOSTS": "other"})
        self.assertEqual(status, 0, err)
        self.assertEqual(
            sorted(out.splitlines()),
            sorted(f"h{i + 1:02} {i} 64 {os.path.realpath(self.directory)} passed on"
                   for i in range(64)))
        # On a slow machine the first agent reports a wait.
        self.assertEqual(sorted(line for line in err.splitlines()
                                if not line.startswith("muster: waiting ")),
                         sorted(f"err {i}" for i in range(64)))
        with open(self.log, encoding="utf-8") as file:
            self.assertEqual(sorted(file.read().split()), [f"h{i:02}" for i in range(1, 65)])

    def test_master(self):
        """--master-addr and --master-port say where the nodes meet, or one of them does. What they
        leave open is the first host, and a random port."""
        port = self.server.port
        for hosts, options in (("a,b", ("--master-addr", "127.0.0.1", "--master-port", port)),
                               ("127.0.0.1,b", ("--master-port", port)),
                               ("a,b", ("--master-addr", "127.0.0.1"))):
            with self.subTest(options=options):
                result = harness.run("run", "--hosts", hosts, "--ssh", self.ssh, "--rdzv-conf",
                                     CALM, *options, "--", "sh", "-c", "echo $MUSTER_STORE",
                                     env={"SSH_LOG": os.path.join(self.directory, self.id())})
                self.assertEqual(result.returncode, 0, result.stderr)
                stores = result.stdout.decode().split()
                self.assertEqual(len(stores), 2)
                for store in stores:
                    self.assertRegex(store, rf"^tcp://127\.0\.0\.1:{port}\b"
                                     if "--master-port" in options else r"^tcp://127\.0\.0\.1:")

    def test_status_and_slots(self):
        hostfile = os.path.join(self.directory, "hostfile")
        with open(hostfile, "w", encoding="utf-8") as file:
            file.write("# two hosts\na slots=2\nb\n")
        status, out, err = self.run_hosts(
            ["--hostfile", hostfile],
            'echo "$FAKE_HOST $RANK"; : > said.$RANK; [ $RANK = 2 ] || exit 0; '
            'until [ -e said.0 ] && [ -e said.1 ]; do sleep 0.02; done; exit 85',
            "--nproc-per-node", "1")
        self.assertEqual(status, 85, err)
        self.assertEqual(err.count("Root Cause"), 1, err) # not by each of the agents
        self.assertEqual(sorted(out.splitlines()), ["a 0", "a 1", "b 2"])

    def test_host_out_of_reach(self):
        """If a host cannot be reached, a job that needs all hosts ends at once; another job
        continues without it."""
        status, out, err = self.run_hosts(["--hosts", "a,bad,b"], "echo no")
        self.assertEqual(status, CONNECT, err)
        self.assertEqual(out, "")
        self.assertIn("muster: host bad is lost: status 255", err)
        status, out, err = self.run_hosts(["--hosts", "a,bad2,b"], 'echo "of $WORLD_SIZE"',
                                          "--nnodes", "2:3")
        self.assertEqual(status, 0, err)
        self.assertEqual(out, "of 2\nof 2\n")
        status, out, err = self.run_hosts(["--hosts", "a,b"], "echo no", "--ssh", "./none",
                                          "--nnodes", "1:2")
        self.assertEqual(status, CONNECT, err)
        self.assertIn("muster: start './none' for host b: No such file", err)

    def test_signals(self):
        # TERM, too: the loss of the other node may come before the signal.
        script = ('trap "echo told $FAKE_HOST; exit 3" INT TERM; echo up $FAKE_HOST; '
                  'while :; do sleep 0.02; done')
        process = self.start(["--hosts", "a,b"], script)
        self.assertEqual(sorted(process.stdout.readline() for _ in range(2)), ["up a\n", "up b\n"])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(sorted(out.splitlines()), ["told a", "told b"], err)
        self.assertEqual(process.returncode, 128 + signal.SIGINT, err)

    def test_forwarded_signals(self):
        """A signal that stops nobody reaches the workers of all hosts, through relays, too."""
        script = ('trap "echo told $FAKE_HOST" USR1; trap "exit 0" TERM; echo up; '
                  'while :; do sleep 0.05; done')
        process = self.start(["--hosts", "f[01-34]"], script)
        for line in ["up\n"] * 34:
            self.assertEqual(process.stdout.readline(), line)
        process.send_signal(signal.SIGUSR1)
        told = sorted(process.stdout.readline() for _ in range(34))
        self.assertEqual(told, [f"told f{i:02}\n" for i in range(1, 35)])
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual((out, process.returncode), ("", 128 + signal.SIGTERM), err)

    def test_killed_root_leaves_nobody(self):
        process = self.start(["--hosts", "c[01-34]"], "echo $$; exec sleep 300")
        pids = [int(process.stdout.readline()) for _ in range(34)]
        process.kill()
        process.wait()
        deadline = time.monotonic() + harness.DEADLINE_S
        while any(os.path.exists(f"/proc/{pid}") for pid in pids):
            self.assertLess(time.monotonic(), deadline, "workers are left behind")
            time.sleep(0.02)

    def start_far(self, count, *args, **more):
        """As start(), with this many hosts that are far away. Returns their processes, too."""
        relays = []
        with socket.socket(socket.AF_UNIX) as listener:
            listener.settimeout(harness.DEADLINE_S)
            listener.bind(os.path.join(self.directory, self.id()) + ".far")
            listener.listen()
            process = self.start(*args, env={"FAR": FAR}, **more)
            for _ in range(count):
                conn = listener.accept()[0]
                command, fds, _, _ = socket.recv_fds(conn, 1 << 16, 3)
                relay = subprocess.Popen(["sh", "-c", command], stdin=fds[0], stdout=fds[1],
                                         stderr=fds[2], start_new_session=True)
                for fd in fds:
                    os.close(fd)
                # The end of the connection is that of ssh.
                threading.Thread(target=lambda r=relay, c=conn: (r.wait(), c.close())).start()
                self.addCleanup(relay.kill)
                relays.append(relay)
        return process, relays

    def test_killed_root_of_far_hosts(self):
        """Nobody kills a relay on another machine: it sees the end of its input."""
        process, relays = self.start_far(2, ["--hosts", "far[1-2]"], "echo $$; exec sleep 300")
        pids = [int(process.stdout.readline()) for _ in range(2)]
        for pid in pids:
            self.addCleanup(kill, pid)
        process.kill()
        process.wait()
        for relay in relays:
            relay.wait(harness.DEADLINE_S)
        for pid in pids:
            harness.wait_until(lambda pid=pid: not is_alive(pid), "the end of a worker")

    # --- hosts that hang ---

    def hung_pids(self, count):
        """The processes of @count hosts that hang, when they are there."""
        path = self.log + ".pids"

        def read():
            if not os.path.exists(path):
                return None
            with open(path, encoding="utf-8") as file:
                pids = file.read().splitlines()
            return [int(pid) for pid in pids] if len(pids) == count else None

        pids = harness.wait_until(read, "hosts that hang")
        for pid in pids:
            self.addCleanup(kill, pid)
        return pids

    def assert_gone(self, pids):
        harness.wait_until(lambda: not any(is_alive(pid) for pid in pids), "the end of ssh")

    def test_host_that_never_starts(self):
        """It is named, and then it is lost like one that cannot be reached."""
        status, out, err = self.run_hosts(["--hosts", "a,hangs,b", "--host-timeout", "5s"],
                                          'echo "of $WORLD_SIZE"', "--nnodes", "2:3")
        self.assertEqual(status, 0, err)
        self.assertEqual(out, "of 2\nof 2\n")
        self.assertIn("muster: waiting for 1 of 3 hosts to answer: hangs\n", err)
        self.assertIn("muster: host hangs is lost: muster has not started there for 5 s "
                      "(--host-timeout)\n", err)
        self.assert_gone(self.hung_pids(1))

    def test_script_that_never_starts(self):
        """What it has started in the place of ssh ends with it, while the job goes on."""
        go = os.path.join(self.directory, self.id() + ".go")
        process = self.start(["--hosts", "a,script", "--host-timeout", "1s"],
                             f"until [ -e {go} ]; do sleep 0.02; done", "--nnodes", "1:2")
        while "host script is lost" not in process.stderr.readline():
            self.assertIsNone(process.poll())
        self.assert_gone(self.hung_pids(1))
        os.mkdir(go)
        _, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(process.returncode, 0, err)

    def test_host_that_prints_but_never_starts(self):
        """Only muster's own word is a sign of it: a login that goes on for ever is none."""
        status, _, err = self.run_hosts(["--hosts", "chats", "--host-timeout", "1s"], "true")
        self.assertEqual(status, CONNECT, err)
        self.assertIn("still chats\n", err)
        self.assertIn("host chats is lost: muster has not started there for 1 s", err)
        self.assert_gone(self.hung_pids(1))

    def test_host_that_stops(self):
        """The loss of a host that falls silent ends the job, or the others go on."""
        for nodes, status in (("2", CONNECT), ("1:2", 0)):
            with self.subTest(nodes=nodes):
                go = os.path.join(self.directory, self.id() + nodes)
                process = self.start(
                    ["--hosts", "a,stops", "--host-timeout", "5s"],
                    f'echo at $FAKE_HOST; until [ -e {go} ]; do sleep 0.02; done', "--nnodes",
                    nodes, "--rdzv-id", go)
                while process.stdout.readline() != "at stops\n":
                    self.assertIsNone(process.poll())
                pids = self.hung_pids(1)
                os.kill(pids[0], signal.SIGSTOP)
                lines = []
                while "is lost" not in "".join(lines):
                    lines.append(process.stderr.readline())
                    self.assertTrue(lines[-1], lines)
                self.assertEqual(
                    [line for line in lines if "host stops" in line],
                    ["muster: host stops is lost: silent for 5 s (--host-timeout)\n"])
                self.assert_gone(pids)
                os.mkdir(go)
                _, err = process.communicate(timeout=harness.DEADLINE_S)
                self.assertEqual(process.returncode, status, err)
                os.remove(self.log + ".pids")

    def test_stopping_with_a_host_that_hangs(self):
        """A host that has no workers yet gets no grace; one that has them gets it."""
        process = self.start(["--hosts", "a,hangs,script"],
                             "trap 'sleep 1; echo saved; exit' TERM; echo up; "
                             "while :; do sleep 0.02; done", "--nnodes", "1:3", "--grace", "1h")
        self.assertEqual(process.stdout.readline(), "up\n")
        pids = self.hung_pids(2)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual((process.returncode, out), (128 + signal.SIGTERM, "saved\n"), err)
        self.assertIn("muster: host hangs: not stopped in 5 s, given up\n", err)
        self.assert_gone(pids)
        process = self.start(["--hosts", "hangs"], "true")
        self.hung_pids(3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(process.returncode, 128 + signal.SIGINT, err)

    def test_killed_launcher_leaves_no_ssh(self):
        """Nor what a script that calls ssh, or ssh itself, has started."""
        process = self.start(["--hosts", "hangs,script"], "true")
        pids = self.hung_pids(2)
        process.kill()
        process.wait()
        self.assert_gone(pids)

    def test_second_signal(self):
        """With --kill-on-second it ends the grace, and hosts that hang are killed at once."""
        process = self.start(["--hosts", "a,hangs"], 'trap "" TERM; echo up; '
                             "while :; do sleep 0.02; done", "--nnodes", "1:2", "--grace", "1h",
                             "--kill-on-second")
        self.assertEqual(process.stdout.readline(), "up\n")
        pids = self.hung_pids(1)
        process.send_signal(signal.SIGTERM)
        self.assertIn("Terminated", process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, err)
        self.assertNotIn("not stopped in", err)
        self.assert_gone(pids)

    def test_ctrl_c(self):
        """The second Ctrl-C at the launcher's terminal reaches the workers of all hosts, also of
        one that does not have this terminal."""
        terminal, end = pty.openpty()
        self.addCleanup(os.close, terminal)
        process, _ = self.start_far(1, ["--hosts", "a,far"], 'trap "" INT; echo up; '
                                    "while :; do sleep 0.02; done", "--grace", "1h", stdin=end,
                                    start_new_session=True,
                                    preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(end)
        for _ in range(2):
            self.assertEqual(process.stdout.readline(), "up\n")
        os.write(terminal, b"\3")
        for _ in range(2):
            self.assertIn("Interrupt", process.stderr.readline())
        os.write(terminal, b"\3")
        since = time.monotonic()
        _, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(process.returncode, 128 + signal.SIGINT, err)
        self.assertLess(time.monotonic() - since, 5)  # without it, a host has twice this time

    def test_signals_to_all_of_a_host(self):
        """Relay and agent both get the signal, as from pkill or when the host shuts down. The
        workers keep their grace."""
        go = os.path.join(self.directory, "go")
        process = self.start(["--hosts", "a"], f"trap 'until [ -e {go} ]; do sleep 0.02; done; "
                             "echo saved; exit' TERM; echo $PPID; while :; do sleep 0.02; done",
                             "--grace", "1h")
        agent = parent_of(int(process.stdout.readline()))
        for pid in (agent, parent_of(parent_of(agent))):
            os.kill(pid, signal.SIGTERM)
            self.assertEqual(process.stderr.readline(), "muster: Terminated\n")
        os.mkdir(go)
        out, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual((process.returncode, out), (128 + signal.SIGTERM, "saved\n"), err)

    def test_agent_that_hangs(self):
        """Its relay kills it, so that no host keeps the launcher."""
        process = self.start(["--hosts", "a"], 'echo $PPID; exec sleep 1000', "--grace", "0")
        keeper = int(process.stdout.readline())
        agent = parent_of(keeper)
        os.kill(agent, signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=2 * harness.DEADLINE_S)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, err)
        self.assertIn("muster: host a: not stopped in 10 s, given up\n", err)
        self.assert_gone([agent, keeper])

    def test_third_signal(self):
        """It does not wait for an agent that hangs, although its host answers."""
        process = self.start(["--hosts", "a"], "echo $PPID; exec sleep 1000", "--grace", "1h",
                             "--kill-on-second")
        keeper = int(process.stdout.readline())
        self.addCleanup(kill, keeper)
        agent = parent_of(keeper)
        self.addCleanup(kill, agent)
        os.kill(agent, signal.SIGSTOP)
        for _ in range(3):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        begin = time.monotonic()
        _, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, err)
        self.assertNotIn("not stopped in", err)
        self.assertLess(time.monotonic() - begin, 5 * harness.SLOWNESS)

    def test_slow_console(self):
        """A host that nobody hears, because nobody reads the launcher's output, is not silent."""
        process = self.start(["--hosts", "a"], "yes | head -c 4000000", "--host-timeout", "1s")
        time.sleep(3)
        out, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(len(out), 4000000)

    def test_password(self):
        """ssh is told to ask nothing, so that it fails with a sentence."""
        status, _, err = self.run_hosts(["--hosts", "asks"], "true")
        self.assertEqual(status, CONNECT, err)
        self.assertIn("asks: Permission denied (publickey,password).\n"
                      "muster: host asks is lost: status 255\n", err)

    def test_input(self):
        """The worker of rank 0 reads the launcher's standard input, however long it is; all others
        read nothing. So it is from a file, and from a pipe."""
        text = b"".join(b"line %d\n" % i for i in range(50000))
        script = 'echo "$RANK $(md5sum)"'
        wanted = [f"{rank} {hashlib.md5(part).hexdigest()}  -"
                  for rank, part in enumerate([text] + [b""] * 3)]
        path = os.path.join(self.directory, "input")
        with open(path, "wb") as file:
            file.write(text)
        with open(path, "rb") as file, subprocess.Popen(["cat", path],
                                                        stdout=subprocess.PIPE) as cat:
            for name, stdin in (("file", file), ("pipe", cat.stdout)):
                status, out, err = self.run_hosts(
                    ["--hosts", "a,b"], script, "--nproc-per-node", "2", "--rdzv-id", name,
                    stdin=stdin)
                self.assertEqual((status, sorted(out.splitlines())), (0, wanted), err)

    def test_input_that_nobody_reads(self):
        """It is left alone, but for what a pipe and the parts on their way hold. Signals pass."""
        with open("/dev/zero", "rb") as zero, subprocess.Popen(
                ["head", "-c", "4000000"], stdin=zero, stdout=subprocess.PIPE) as head:
            process = self.start(["--hosts", "a"], 'trap "echo told; exit" TERM; echo up; '
                                 "while :; do sleep 0.02; done", stdin=head.stdout)
            self.assertEqual(process.stdout.readline(), "up\n")
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=harness.DEADLINE_S)
            self.assertEqual((process.returncode, out), (128 + signal.SIGTERM, "told\n"), err)
            self.assertGreater(len(head.stdout.read()), 3000000)

    def test_input_of_a_terminal(self):
        """Lines at a terminal are for the processes in its foreground, and a read by another one
        stops it. The launcher reads when it is brought there."""
        go = os.path.join(self.directory, "foreground")
        terminal, end = pty.openpty()
        self.addCleanup(os.close, terminal)
        os.write(terminal, b"typed\n")
        process = self.start(
            ["--hosts", "a"], f'echo up; until [ -e {go} ]; do sleep 0.02; done; read line; '
            'echo "got $line"', stdin=end, start_new_session=True,
            wrapper=("sh", "-mc", f'"$@" & until [ -e {go} ]; do sleep 0.02; done; '
                     "jobs; fg >&2", "sh"),
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(end)
        self.assertEqual(process.stdout.readline(), "up\n")
        os.mkdir(go)
        out, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(process.returncode, 0, err)
        jobs, _, got = out.partition("\n")
        self.assertIn("Running", jobs)
        self.assertEqual(got, "got typed\n", err)

    def test_shared_connection(self):
        """ssh leaves no master for other ssh commands, which would end with the job."""
        status, _, err = self.run_hosts(["--hosts", "shares"], "true")
        self.assertEqual(status, 0, err)
        self.assertIn("ssh -oBatchMode=yes -oControlMaster=no\n", err)

    def test_noise(self):
        """What a host prints before muster starts there is not the job's output."""
        status, out, err = self.run_hosts(["--hosts", "noisy"], "echo from the worker")
        self.assertEqual((status, out), (0, "from the worker\n"), err)
        self.assertIn("Welcome to noisy\nno end of line\n", err)

    def slurm(self, **more):
        """The environment of a batch script in an allocation of three nodes."""
        self.srun_log = os.path.join(self.directory, self.id() + ".srun")
        path = os.path.join(self.directory, "bin") + os.pathsep + os.environ["PATH"]
        return {"PATH": path, "SRUN_LOG": self.srun_log, "SLURM_JOB_ID": "77",
                "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3", "SLURM_NNODES": "3",
                **more}

    def test_srun(self):
        """srun starts the agents, on all nodes or on the named ones."""
        script = 'echo "$SLURM_NODEID $RANK $WORLD_SIZE"'
        for hosts, nodes in (([], 3), (["--hosts", "n2,n3"], 2)):
            with self.subTest(hosts=hosts):
                status, out, err = self.run_hosts(
                    ["--launch", "srun", *hosts], script, "--nproc-per-node", "2",
                    "--rdzv-id", f"srun{nodes}", env=self.slurm())
                self.assertEqual(status, 0, err)
                self.assertEqual(sorted(out.splitlines()),
                                 sorted(f"{rank // 2} {rank} {2 * nodes}"
                                        for rank in range(2 * nodes)))
        with open(self.srun_log, encoding="utf-8") as file:
            everywhere, named = file.read().splitlines()
        self.assertRegex(everywhere, "^--nodes=3 --ntasks=3 --ntasks-per-node=1 "
                                      "--cpu-bind=none --kill-on-bad-exit=0 --input=0 /")
        self.assertIn("--nodelist n2,n3 ", named)
        for line in (everywhere, named):
            self.assertNotIn("--launch", line)
            self.assertNotIn("--hosts", line)

    def test_srun_place(self):
        """The agents follow from their step, so that two launches in one batch script do not meet.
        If they can do without a node, so can srun."""
        directory = tempfile.mkdtemp(dir=self.directory)
        path = os.path.join(directory, "srun")
        with open(path, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\necho "$*"\n')
        os.chmod(path, stat.S_IRWXU)

        def call(*options, **variables):
            result = harness.run("run", "--launch", "srun", *options, "--", "true", env={
                **self.slurm(SLURM_NODEID="0", **variables),
                "PATH": directory + os.pathsep + os.environ["PATH"]})
            self.assertEqual(result.returncode, 0, result.stderr)
            words = result.stdout.decode().split()
            return words[:words.index("run")], words[words.index("run") + 1:]

        one = {"SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1"}
        for variables in ({}, one):
            for_srun, for_agents = call(**variables)
            nodes = variables.get("SLURM_JOB_NUM_NODES", "3")
            self.assertEqual(for_agents, [f"--nnodes={nodes}", "--", "true"])
            self.assertNotIn("--no-kill", for_srun)
        for_srun, for_agents = call("--nnodes", "2:3", "--rdzv-id", "mine",
                                    MUSTER_RDZV_ENDPOINT="n2:1234")
        self.assertEqual(for_agents, ["--nnodes=2:3", "--rdzv-endpoint=n2:1234", "--rdzv-id=mine",
                                      "--", "true"])
        self.assertIn("--no-kill", for_srun)

    def test_id_within_a_job(self):
        """Launches in one job of a scheduler have ids of their own."""
        ids = [self.run_hosts(["--hosts", "a,b"], "echo $TORCHELASTIC_RUN_ID", has_id=False,
                              env=self.slurm())[1].split() for _ in range(2)]
        for first, second in ids:
            self.assertEqual(first, second)
            self.assertRegex(first, "^slurm-77-[0-9a-f]{8}$")
        self.assertNotEqual(ids[0], ids[1])

    def test_srun_status_and_signals(self):
        status, _, err = self.run_hosts(["--launch", "srun"], "[ $RANK != 1 ] || exit 85",
                                        env=self.slurm())
        self.assertEqual(status, 85, err)
        process = self.start(["--launch", "srun"], 'trap "echo got; exit 0" TERM; echo up; '
                             "while :; do sleep 0.02; done", "--rdzv-id", "srun-signal",
                             env=self.slurm())
        for _ in range(3):
            self.assertEqual(process.stdout.readline(), "up\n")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(out.split(), ["got"] * 3, err)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, err)

    def test_no_srun(self):
        status, _, err = self.run_hosts(["--launch", "srun"], "exit 0",
                                        env=self.slurm(PATH="/nowhere"))
        self.assertEqual(status, 1)
        self.assertIn("start srun (--launch ssh does without it): No such file", err)

    def test_refused(self):
        for hosts, options, text in ((["--hosts", "a,a"], (), "'a' is given twice"),
                                     (["--launch", "ssh"], (), "needs --hosts"),
                                     (["--hosts", "a"], ("--nnodes", "2"), "fewer than 2 nodes"),
                                     (["--hosts", "a"], ("--events", "fd:2"), "name a file")):
            with self.subTest(text):
                status, _, err = self.run_hosts(hosts, "true", *options)
                self.assertEqual(status, 2)
                self.assertIn(text, err)


if __name__ == "__main__":
    harness.main()
