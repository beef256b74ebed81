"""`muster run` with shell scripts as workers: environment, ends, restarts, reports."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import termios
import time
import unittest

import harness
from agents import QUICK, Agent, Child, is_alive

OK, USAGE, TIMEOUT, PREEMPTED = 0, 2, 4, 75
PROMPT_S = 5 * harness.SLOWNESS # longer only on a machine with too much to do

# Prints its rank, and runs until SIGTERM.
STAY = 'trap "exit 0" TERM; echo at $RANK/$WORLD_SIZE $TORCHELASTIC_RESTART_COUNT; ' \
       'while :; do sleep 0.02; done'


def listening(pid):
    """The lines of the TCP sockets on which the process listens."""
    held = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            held.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:  # closed meanwhile
            pass
    lines = []
    for name in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{name}", encoding="ascii") as table:
            lines += [line for line in table.readlines()[1:]
                      if line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in held]
    return lines


def texts_of(pid):
    """What `pkill` and `pkill -f` compare: the name of the process and its command line."""
    texts = []
    for name in ("comm", "cmdline"):
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            texts.append(file.read())
    return texts


def kill_if_alive(pid):
    if is_alive(pid):
        os.kill(pid, signal.SIGKILL)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="muster-run-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.endpoint = f"127.0.0.1:{self.server.port}"
        self.run_id = self.id()

    def path(self, name):
        return os.path.join(self.directory, name)

    def agent(self, *args, nnodes="1", nproc=1, conf=QUICK, rdzv=True, **keywords):
        options = ("--rdzv-endpoint", self.endpoint, "--rdzv-id", self.run_id, "--rdzv-conf",
                   conf) if rdzv else ()
        agent = Agent("--nnodes", nnodes, "--nproc-per-node", nproc, *options, "--log-dir",
                      self.path("logs"), *args, **keywords)
        self.addCleanup(agent.close)
        return agent

    def shell(self, script, *options, **keywords):
        return self.agent(*options, "--", "sh", "-c", script, **keywords)

    def input(self):
        file = tempfile.TemporaryFile()
        file.write(b"one\ntwo\n")
        file.seek(0)
        self.addCleanup(file.close)
        return file

    def leave_slowly(self, before):
        """Of two nodes one leaves slowly, after the call of before(). The failures of the other
        node's workers meanwhile cost no restart."""
        script = 'echo at $RANK/$WORLD_SIZE $TORCHELASTIC_RESTART_COUNT; ' \
                 f'[ $WORLD_SIZE = 2 ] && exit 0; echo $$ > {self.path("pid")}.$RANK; ' \
                 f'wait="while [ ! -e {self.path("go")} ]; do sleep 0.02; done; exit 0"; ' \
                 'if [ "$SLOW" = 1 ]; then [ $LOCAL_RANK = 1 ] && trap "$wait" TERM; ' \
                 'while :; do sleep 0.02; done; fi; ' \
                 f'peer={self.path("pid")}.2; ' \
                 'while [ ! -s $peer ] || kill -0 $(cat $peer) 2>/dev/null; do sleep 0.01; done; ' \
                 'exit 1'
        stays = self.shell(script, "--node-rank", 0, nnodes="1:2", nproc=2)
        goes = self.shell(script, "--node-rank", 1, nnodes="1:2", nproc=2, env={"SLOW": "1"})
        for agent in (stays, goes):
            agent.until("/4 0", count=2)
        pids = [self.path(f"pid.{rank}") for rank in (2, 3)]
        harness.wait_until(lambda: all(os.path.exists(pid) and os.path.getsize(pid)
                                       for pid in pids), "the slow workers")
        before()
        goes.signal(signal.SIGTERM)
        harness.wait_until(lambda: stays.events("exit"), "the failure beside the slow worker")
        open(self.path("go"), "wb").close()
        self.assertEqual(goes.wait(), PREEMPTED, goes.stderr())
        self.assertEqual(stays.wait(), OK, stays.stderr())
        self.assertEqual(sorted(stays.lines[-2:]), ["at 0/2 0", "at 1/2 0"])


class Alone(Case):
    """One node."""

    def test_environment(self):
        agent = self.agent("--standalone", "--max-restarts", 3, "--", "sh", "-c",
                           "env | tr '\\n' '\\r'; echo", nproc=2, rdzv=False)
        self.assertEqual(agent.wait(), OK, agent.stderr())
        workers = {}
        for line in agent.lines:
            values = dict(pair.split("=", 1) for pair in line.split("\r") if "=" in pair)
            workers[values["RANK"]] = values
        self.assertEqual(sorted(workers), ["0", "1"])
        for rank, values in workers.items():
            for name, value in {
                    "LOCAL_RANK": rank, "GROUP_RANK": "0", "ROLE_RANK": rank,
                    "ROLE_NAME": "default", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                    "GROUP_WORLD_SIZE": "1", "ROLE_WORLD_SIZE": "2",
                    "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "3",
                    "MUSTER_GENERATION": "1", "MUSTER_START_REASON": "first"}.items():
                self.assertEqual(values.get(name), value, name)
            self.assertIn(values["TORCHELASTIC_USE_AGENT_STORE"], ("True", "False"))
            self.assertGreater(int(values["MASTER_PORT"]), 0)
            self.assertTrue(values["MASTER_ADDR"])
            self.assertRegex(values["TORCHELASTIC_ERROR_FILE"], r"/error\.json$")
            self.assertRegex(values["MUSTER_STORE"], r"^unix:///")

    def test_store_of_the_round(self):
        agent = self.shell(f'{harness.MUSTER} store set "$MUSTER_STORE" k $RANK && '
                           f'{harness.MUSTER} store get "$MUSTER_STORE" k')
        self.assertEqual(agent.wait(), OK, agent.stderr())
        self.assertEqual(agent.lines, ["0"])

    def test_private(self):
        """Only this user can reach the server of a standalone job, and nothing listens on TCP."""
        store = f'{harness.MUSTER} store'
        for before in ("", "a file system without room for sockets"):
            with self.subTest(before=before):
                env = {"TMPDIR": "/proc" if before else self.directory}
                script = f'{store} set "$MUSTER_STORE" k 7; {store} get "$MUSTER_STORE" k; ' \
                         'echo "at $MUSTER_STORE"; read line'
                agent = self.shell(script, "--standalone", rdzv=False, env=env,
                                   stdin=subprocess.PIPE)
                self.assertEqual(agent.next(), "7")
                path = agent.next().removeprefix("at unix://").split("?")[0]
                directory = os.path.dirname(path)
                self.assertEqual(os.stat(directory).st_mode & 0o7777, 0o700)
                self.assertEqual(os.listdir(directory), [os.path.basename(path)])
                self.assertEqual(os.path.dirname(directory), "/tmp" if before else self.directory)
                self.assertEqual(listening(agent.pid), [])
                agent.process.stdin.write(b"\n")
                agent.process.stdin.close()
                self.assertEqual(agent.wait(), OK, agent.stderr())
                self.assertFalse(os.path.exists(directory))

    def test_private_after_a_kill(self):
        """What a killed agent has left behind does not hinder the next one."""
        env = {"TMPDIR": self.directory}
        for _ in range(2):
            agent = self.shell("echo up; sleep 1000", "--standalone", rdzv=False, env=env)
            agent.until("up")
            agent.signal(signal.SIGKILL)
            agent.wait()
        self.assertEqual(len([name for name in os.listdir(self.directory)
                              if os.path.exists(self.path(f"{name}/socket"))]), 2)

    def test_small(self):
        """An agent loads no library that it does not need, and has no idle thread."""
        agent = self.shell("echo here; sleep 60", "--standalone", rdzv=False)
        agent.until("here")
        with open(f"/proc/{agent.pid}/maps", encoding="utf-8") as file:
            maps = file.read()
        for library in ("libmicrohttpd", "libgnutls", "libcurl"):
            self.assertNotIn(library, maps)
        # Loop, rendezvous and server, and one of the thread sanitizer.
        self.assertLessEqual(len(os.listdir(f"/proc/{agent.pid}/task")), 4)

    def test_statuses(self):
        for script, options, status in (
                ("exit 0", (), 0), ("exit 85", (), 85), ("kill -9 $$", (), 137),
                ("exit 85", ("--exit-status", "torchrun"), 1)):
            with self.subTest(script=script, options=options):
                agent = self.shell(script, "--standalone", *options, rdzv=False, nproc=2)
                self.assertEqual(agent.wait(), status)
        for program, status in (("/no/such/program", 127), ("/etc/passwd", 126)):
            with self.subTest(program=program):
                agent = self.agent("--standalone", "--", program, rdzv=False)
                self.assertEqual(agent.wait(), status)
                self.assertIn(program, agent.stderr())

    def test_refused(self):
        for options, word in (
                (("--rdzv-backend", "c10d", "--on-join", "never"),
                 "muster, etcd-v3 and static can keep later nodes out"),
                (("--rdzv-backend", "static", "--rdzv-endpoint", "127.0.0.1:1",
                  "--max-restarts", 1), "cannot restart together"),
                (("--rdzv-backend", "c10d", "--node-rank", 0), "by their names"),
                (("--hang-timeout", "1s", "--log-dir", "/dev/null"), "heartbeats are files")):
            with self.subTest(options=options):
                agent = self.shell("exit 0", *options, rdzv=False)
                self.assertEqual(agent.wait(), USAGE)
                self.assertIn(word, agent.stderr())

    def test_report(self):
        agent = self.shell('echo one >&2; echo two >&2; exit 7', "--standalone", rdzv=False)
        self.assertEqual(agent.wait(), 7)
        report = agent.stderr()
        self.assertRegex(report, r"(?s)=====\nsh FAILED\n-----.*\[0\]:\n")
        self.assertRegex(report, r"\n  rank      : 0 \(local_rank: 0\)\n")
        self.assertRegex(report, r"\n  exitcode  : 7 \(pid: \d+\)\n")
        self.assertRegex(report, r"one\n +two\n")
        agent = self.shell("kill -11 $$", "--standalone", rdzv=False)
        self.assertEqual(agent.wait(), 139)
        self.assertRegex(agent.stderr(), r"\n  exitcode  : -11 \(pid: \d+\): SIGSEGV\n")

    def test_error_file(self):
        message = {"message": {"message": "ValueError: no",
                               "extraInfo": {"py_callstack": "Traceback: here",
                                             "timestamp": "1700000000"}}}
        own = self.path("own.json")
        agent = self.shell(f"echo '{json.dumps(message)}' > $TORCHELASTIC_ERROR_FILE; exit 3",
                           "--standalone", rdzv=False, env={"TORCHELASTIC_ERROR_FILE": own})
        self.assertEqual(agent.wait(), 3)
        self.assertIn("ValueError: no", agent.stderr())
        with open(own, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["message"]["errorCode"], 3)
        for text in ("", "{", "nothing at all", "[1]", '{"message": "short"}', "x" * 300000):
            with self.subTest(text=text[:30]):
                path = self.path("text")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                agent = self.shell(f"cp {path} $TORCHELASTIC_ERROR_FILE; exit 3", "--standalone",
                                   rdzv=False)
                self.assertEqual(agent.wait(), 3)
                self.assertIn("exitcode  : 3", agent.stderr())

    def test_events_are_appended(self):
        """Also to those of another agent that writes at the same time."""
        agents = [self.shell(f'until test -e {self.path("go")}; do sleep 0.01; done',
                             "--standalone", "--events", self.path("events"), rdzv=False)
                  for _ in range(2)]
        harness.wait_until(lambda: os.path.exists(self.path("events")), "events")
        with open(self.path("go"), "w", encoding="ascii"):
            pass
        for agent in agents:
            self.assertEqual(agent.wait(), OK, agent.stderr())
        with open(self.path("events"), encoding="utf-8") as file:
            ends = [event["pid"] for event in map(json.loads, file) if event["event"] == "end"]
        self.assertEqual(sorted(ends), sorted(agent.pid for agent in agents))

    def test_restarts(self):
        agent = self.shell('echo $TORCHELASTIC_RESTART_COUNT $MUSTER_GENERATION '
                           '$MUSTER_START_REASON; [ $TORCHELASTIC_RESTART_COUNT = 2 ]',
                           "--standalone", "--max-restarts", 2, rdzv=False)
        self.assertEqual(agent.wait(), OK, agent.stderr())
        self.assertEqual(agent.lines, ["0 1 first", "1 2 failure", "2 3 failure"])
        self.assertEqual(agent.stderr().splitlines(), [
            line for number in (1, 2) for line in (
                "muster: worker 0 (rank 0) failed: exit status 1",
                f"muster: generation {number + 1} starts: 1 node, world size 1, "
                f"{number} of 2 restarts used")])

    def test_many_restarts(self):
        """Restarts cost neither descriptors nor memory."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        agent = self.shell("case $MUSTER_GENERATION in 50|350) echo here; until [ -e "
                           f"{directory.name}/$MUSTER_GENERATION ]; do sleep 0.02; done;; esac; "
                           "exit 1", "--standalone", "--max-restarts", 400, "--give-up", 0,
                           "--log-dir", "/dev/null", rdzv=False)

        def look(generation):
            """Descriptors and memory while the worker of that generation runs."""
            for number in range(0, generation, 10):  # ten restarts stay within the deadline
                harness.wait_until(lambda: len(agent.events("start")) > number, "restarts")
            agent.until("here")
            with open(f"/proc/{agent.pid}/status", encoding="ascii") as file:
                kib = int(re.search(r"VmRSS:\s+(\d+)", file.read())[1])
            fds = len(os.listdir(f"/proc/{agent.pid}/fd"))
            with open(os.path.join(directory.name, str(generation)), "w", encoding="ascii"):
                return fds, kib

        early, late = look(50), look(350)
        self.assertEqual(agent.wait(), 1)
        self.assertEqual(late[0], early[0])
        self.assertLess(late[1], early[1] + harness.rss_bound_kib(512))
        self.assertEqual(len(agent.events("start")), 401)

    def test_gives_up(self):
        agent = self.shell("exit 4", "--standalone", "--max-restarts", 100, "--give-up", "3/10s",
                           rdzv=False)
        self.assertEqual(agent.wait(), 4)
        self.assertEqual(len(agent.events("start")), 3)

    def test_signals(self):
        obey = 'trap "echo got TERM; exit 0" TERM; echo up; while :; do sleep 0.02; done'
        agent = self.shell(obey, "--standalone", rdzv=False)
        agent.until("up")
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.wait(), 128 + signal.SIGTERM)
        self.assertIn("got TERM", agent.lines)
        ignore = 'trap "" INT TERM; echo up; while :; do sleep 0.02; done'
        agent = self.shell(ignore, "--standalone", "--grace", "300ms", rdzv=False)
        agent.until("up")
        begin = time.monotonic()
        agent.signal(signal.SIGINT)
        self.assertEqual(agent.wait(), 128 + signal.SIGINT)
        self.assertGreater(agent.end - begin, 0.29)

    def test_repeated_signals(self):
        """A scheduler repeats TERM: the workers save nevertheless."""
        saves = f'trap "until [ -e {self.path("go")} ]; do sleep 0.02; done; echo saved; exit 0" ' \
                'TERM; echo up; while :; do sleep 0.02; done'
        agent = self.shell(saves, "--standalone", "--grace", "1h", rdzv=False)
        agent.until("up")
        for count, number in enumerate((signal.SIGTERM, signal.SIGTERM, signal.SIGINT), 1):
            agent.signal(number)
            harness.wait_until(lambda: agent.stderr().count("muster: ") == count, "the signal")
        os.mkdir(self.path("go"))
        self.assertEqual(agent.wait(), 128 + signal.SIGTERM)
        self.assertEqual(agent.lines, ["up", "saved"])

    IGNORE = 'trap "" INT TERM; echo up; while :; do sleep 0.02; done'

    def test_signals_until_the_end(self):
        """However many come, the status is that of an orderly end."""
        agent = self.shell(STAY, "--standalone", rdzv=False)
        agent.until("at")
        while agent.process.poll() is None:
            agent.signal(signal.SIGTERM)
            agent.signal(signal.SIGUSR1)
            time.sleep(0.0003) # the agent, too, needs the processor
        self.assertEqual(agent.wait(), 128 + signal.SIGTERM, agent.stderr())

    def test_kill_on_second(self):
        agent = self.shell(self.IGNORE, "--standalone", "--grace", "1h", "--kill-on-second",
                           rdzv=False)
        agent.until("up")
        agent.signal(signal.SIGTERM)
        harness.wait_until(lambda: "Terminated" in agent.stderr(), "the signal")
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.wait(), 128 + signal.SIGTERM)

    def test_ctrl_c(self):
        """The second Ctrl-C at a terminal ends the grace."""
        terminal, end = pty.openpty()
        self.addCleanup(os.close, terminal)
        agent = subprocess.Popen(
            [harness.MUSTER, "run", "--standalone", "--grace", "1h", "--", "sh", "-c",
             self.IGNORE], stdin=end, stdout=end, stderr=end, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        os.close(end)
        for needle in (b"up", b"muster: Interrupt"):
            shown = b""
            while needle not in shown:
                ready = select.select([terminal], [], [], harness.DEADLINE_S)[0]
                self.assertTrue(ready, shown)
                shown += os.read(terminal, 4096)
            os.write(terminal, b"\3")
        self.assertEqual(agent.wait(harness.DEADLINE_S), 128 + signal.SIGINT)

    def test_forwarded_signal(self):
        script = 'trap "echo got USR1" USR1; echo up; while :; do sleep 0.02; done'
        agent = self.shell(script, "--standalone", "--forward-signals", "USR1", "--grace", "100ms",
                           rdzv=False, nproc=2)
        agent.until("up", count=2)
        agent.signal(signal.SIGUSR1)
        agent.until("got USR1", count=2)
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.wait(), 128 + signal.SIGTERM)

    def test_forwarded_by_default(self):
        """USR1 and the like reach workers that handle them, and end nobody."""
        handles = 'trap "echo got USR1" USR1; trap "exit 0" TERM; trap "echo got CONT" CONT; ' \
                  'trap "echo got WINCH" WINCH; echo up; while :; do sleep 0.02; done'
        script = f'[ $RANK = 0 ] || {{ {handles}; }}; trap "exit 0" TERM; echo up; ' \
                 'while :; do sleep 0.02; done'
        agent = self.shell(script, "--standalone", rdzv=False, nproc=2)
        agent.until("up", count=2)
        for name in ("USR1", "WINCH", "CONT"):
            agent.signal(getattr(signal, f"SIG{name}"))
            agent.until(f"got {name}")
        agent.signal(signal.SIGUSR2)
        harness.wait_until(lambda: "SIGUSR2 is not passed on to 2 workers" in agent.stderr(),
                           "the line about USR2")
        self.assertEqual(agent.stderr().count("is not passed on to 1 worker: "), 1)
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.wait(), 128 + signal.SIGTERM)
        self.assertEqual([event["signal"] for event in agent.events("exit")], [0, 0])
        agent = self.shell("echo up; sleep 1000", "--standalone", "--forward-signals", "none",
                           rdzv=False)
        agent.until("up")
        agent.signal(signal.SIGUSR1)
        self.assertEqual(agent.wait(), -signal.SIGUSR1)

    def test_ignored_signals(self):
        """As with nohup: SIGHUP ends neither the agent nor its workers."""
        handles = 'trap "exit 0" TERM; echo up; while :; do sleep 0.02; done'
        nohup = ["sh", "-c", 'trap "" HUP; exec "$0" "$@"', harness.MUSTER, "run", "--standalone",
                 "--", "sh", "-c", handles + "; echo gone"]
        agent = subprocess.Popen(nohup, stdout=subprocess.PIPE, text=True)
        self.addCleanup(agent.stdout.close)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        self.assertEqual(agent.stdout.readline(), "up\n")
        with open(f"/proc/{agent.pid}/status", encoding="utf-8") as file:
            ignored = int(re.search(r"SigIgn:\s*(\S+)", file.read()).group(1), 16)
        self.assertTrue(ignored & 1 << (signal.SIGHUP - 1))
        agent.send_signal(signal.SIGHUP)
        agent.send_signal(signal.SIGTERM)
        self.assertEqual(agent.wait(harness.DEADLINE_S), 128 + signal.SIGTERM)

    def test_signal_scope(self):
        """A signal goes to the leader, or to its process group."""
        script = "trap : TERM; sh -c 'trap \"echo child\" TERM; echo up; while :; do sleep 0.02; " \
                 "done' & while :; do wait; done"
        for scope, expected in (("leader", []), ("group", ["child"])):
            with self.subTest(scope=scope):
                agent = self.shell(script, "--standalone", "--signal-scope", scope, "--grace",
                                   "300ms", rdzv=False)
                agent.until("up")
                agent.signal(signal.SIGTERM)
                self.assertEqual(agent.wait(), 128 + signal.SIGTERM)
                self.assertEqual([line for line in agent.lines if line == "child"], expected)

    def test_signal_while_waiting(self):
        agent = self.shell("echo up", nnodes="2")
        harness.wait_until(lambda: agent.events("phase"), "the agent to wait")
        begin = time.monotonic()
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.wait(), 128 + signal.SIGTERM)
        self.assertLess(agent.end - begin, 2 * harness.SLOWNESS)

    def test_descriptors(self):
        """Workers inherit descriptors 0, 1 and 2 only."""
        agent = self.agent("--standalone", "--tee", "1:3", "--", "ls", "/proc/self/fd", nproc=2,
                           rdzv=False, env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1"})
        self.assertEqual(agent.wait(), OK, agent.stderr())
        lines = sorted(line.replace("[default1]:", "") for line in agent.lines)
        self.assertEqual(lines, ["0", "0", "1", "1", "2", "2", "3", "3"]) # 3 is the directory

    def test_input(self):
        """The worker of rank 0 reads standard input, also after a restart; others read nothing."""
        script = 'echo "$RANK $(head -c 4)"; [ $RANK = 0 ] && [ $MUSTER_GENERATION = 1 ] && exit 1'
        agent = self.shell(script + "; exit 0", "--standalone", "--preflight", "cat >&2",
                           "--max-restarts", 1, nproc=3, rdzv=False, stdin=self.input())
        self.assertEqual(agent.wait(), OK, agent.stderr())
        self.assertEqual([line for line in agent.lines if line.startswith("0")], ["0 one", "0 two"])
        self.assertEqual({line for line in agent.lines if line[0] != "0"}, {"1 ", "2 "})

    def test_closed_input(self):
        """Without standard input it is /dev/null for all, and nothing of the agent's."""
        agent = Child("sh", "-c", 'exec "$0" "$@" <&-', harness.MUSTER, "run", "--standalone",
                      "--nproc-per-node", 2, "--", "readlink", "/proc/self/fd/0")
        self.assertEqual(agent.wait(), OK, agent.stderr())
        self.assertEqual(agent.lines, ["/dev/null", "/dev/null"])

    def test_preflight(self):
        agent = self.shell("echo $FIT", "--standalone", "--preflight", "sleep 0.1; exit 3",
                           rdzv=False)
        self.assertEqual(agent.wait(), 15)
        self.assertIn("status 3", agent.stderr())
        self.assertEqual(agent.lines, [])
        agent = self.shell("echo up", "--standalone", "--preflight", "kill -9 $$", rdzv=False)
        self.assertEqual(agent.wait(), 15)
        self.assertIn("signal 9", agent.stderr())
        self.assertEqual(agent.lines, [])
        agent = self.shell("echo up", "--standalone", "--preflight", "echo fit", rdzv=False)
        self.assertEqual(agent.wait(), OK, agent.stderr())
        self.assertEqual(agent.lines, ["up"])
        self.assertIn("fit", agent.stderr())
        agent = self.shell("echo up", "--standalone", "--preflight", "echo $$ >&2; sleep 1000",
                           rdzv=False)
        pid = harness.wait_until(lambda: agent.stderr().strip(), "the check")
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.wait(), -signal.SIGTERM)
        harness.wait_until(lambda: not is_alive(int(pid)), "the check to end")

    def test_end_time(self):
        """Before the end of the Slurm job, workers save their work and the node leaves."""
        saves = 'trap "echo saving; touch $MUSTER_ACK_FILE" USR1; trap "exit 0" TERM; echo up; ' \
                'while :; do sleep 0.02; done'
        options = ("--standalone", "--notice-signal", "USR1", "--notice", "1h")
        end = int(time.time() + 2 * harness.SLOWNESS) + 3600  # the worker must be up before
        agent = self.shell(saves, *options, rdzv=False,
                           env={"SLURM_JOB_END_TIME": str(end), "SLURM_JOB_ID": "7"})
        self.assertEqual(agent.until("saving"), ["saving"])
        self.assertEqual(agent.wait(), PREEMPTED, agent.stderr())
        self.assertIn("ends in 3", agent.stderr())
        for past in ("0", "1000"):  # the job was given more time
            agent = self.shell("echo up", *options, "--end-time", past, rdzv=False)
            self.assertEqual(agent.wait(), OK, agent.stderr())

    def test_hang(self):
        beat = 'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then %s sleep 1000; fi; echo well'
        options = ("--standalone", "--max-restarts", 1, "--grace", "5s")
        agent = self.shell(beat % "", *options, "--startup-timeout", "300ms", rdzv=False)
        self.assertEqual(agent.wait(), OK, agent.stderr())
        self.assertEqual(agent.lines, ["well"])
        self.assertIn("muster: worker 0 (rank 0) failed: no heartbeat for 0.3 s\n", agent.stderr())
        agent = self.shell(beat % 'for i in 1 2 3 4 5 6; do touch $MUSTER_HEARTBEAT_FILE; '
                           'sleep 0.1; done;', *options, "--hang-timeout", "300ms", rdzv=False)
        self.assertEqual(agent.wait(), OK, agent.stderr())
        at = {event["event"]: event["time"] for event in agent.events("start", "exit")
              if event["generation"] == 1}
        self.assertGreater(at["exit"] - at["start"], 0.75)
        self.assertLess(at["exit"] - at["start"], 5)
        # The clock that stamps the files may be another machine's: only changes count.
        stamps = "for i in 1 2 3 4 5 6 7 8; do touch -d @$((%s i)) $MUSTER_HEARTBEAT_FILE; " \
                 "sleep 0.1; done; echo end"
        for clock in ("1000000 -", "9000000000 +"):
            agent = self.shell(stamps % clock, *options[:1], "--hang-timeout", "400ms", rdzv=False)
            self.assertEqual(agent.wait(), OK, agent.stderr())
            self.assertEqual(agent.lines, ["end"])
        agent = self.shell("sleep 1000", "--standalone", "--startup-timeout", "200ms", rdzv=False)
        self.assertEqual(agent.wait(), 1)
        self.assertRegex(agent.stderr(), r"time      : 2\d{3}-.*\n(.*\n)*.*no heartbeat for")

    def test_timer_file(self):
        """A worker whose timer in torch's timer file expires is killed."""
        line = '{\\"version\\": 1, \\"pid\\": $$, \\"scope_id\\": \\"%s\\", ' \
               '\\"expiration_time\\": %s, \\"signal\\": 9}'
        script = f'echo "{line % ("a", "-1")}" > $TORCHELASTIC_TIMER_FILE; ' \
                 f'echo "{line % ("b", "$(date +%s.%N)")}" > $TORCHELASTIC_TIMER_FILE; ' \
                 f'echo "{line % ("b", "-1")}" > $TORCHELASTIC_TIMER_FILE; ' \
                 f'echo "{line % ("c", "1.5e3")}" > $TORCHELASTIC_TIMER_FILE; sleep 1000'
        agent = self.shell(script.replace("1.5e3", "1500"), "--standalone", rdzv=False,
                           env={"TORCHELASTIC_ENABLE_FILE_TIMER": "1",
                                "TORCHELASTIC_TIMER_FILE": self.path("timers")})
        self.assertEqual(agent.wait(), 137, agent.stderr())
        self.assertFalse(os.path.exists(self.path("timers")))

    def test_backoff(self):
        agent = self.shell("exit 3", "--standalone", "--max-restarts", 2, "--restart-backoff",
                           "100ms:150ms", rdzv=False)
        self.assertEqual(agent.wait(), 3)
        at = [event["time"] for event in agent.events("start")]
        self.assertGreater(at[1] - at[0], 0.1)
        self.assertGreater(at[2] - at[1], 0.15)

    def test_stopped_worker(self):
        agent = self.shell("echo $$; while :; do sleep 0.02; done", "--standalone", "--grace",
                           "100ms", rdzv=False)
        pid = int(agent.next())
        os.kill(pid, signal.SIGSTOP)
        agent.signal(signal.SIGTERM)
        self.assertEqual(agent.wait(), 128 + signal.SIGTERM)
        self.assertFalse(is_alive(pid))


class Processes(Case):
    """Which processes end with which others."""

    def test_nobody_is_left(self):
        """Children of a worker, in any process group, end with the worker or with the agent."""
        script = 'sleep 1000 & echo $!; setsid sleep 1000 & echo $!; ' \
                 '(setsid sleep 1000 & echo $!); sleep 0.2; echo done; %s'
        for ending, status in (("exit 0", 0), ("exit 3", 3), ("sleep 1000", None)):
            with self.subTest(ending=ending):
                agent = self.shell(script % ending, "--standalone", "--grace", "100ms", rdzv=False)
                agent.until("done")
                pids = [int(line) for line in agent.lines[:3]]
                if status is None:
                    agent.signal(signal.SIGTERM)
                    status = 128 + signal.SIGTERM
                self.assertEqual(agent.wait(), status)
                self.assertEqual([pid for pid in pids if is_alive(pid)], [])

    def test_children_end_with_their_worker(self):
        """What a worker leaves in its process group is killed when it ends, not with the last
        worker: it may hold memory of a GPU."""
        child = self.path("child")
        script = f'if [ $RANK = 0 ]; then sleep 1000 & echo $! > {child}.new; ' \
                 f'mv {child}.new {child}; exit 0; fi; ' \
                 f'while [ ! -e {child} ]; do sleep 0.01; done; ' \
                 f'for i in $(seq {500 * harness.SLOWNESS:.0f}); do ' \
                 f'kill -0 $(cat {child}) 2>/dev/null || exit 0; sleep 0.01; done; exit 3'
        agent = self.shell(script, "--standalone", nproc=2, rdzv=False)
        self.assertEqual(agent.wait(), OK, agent.stderr())

    def test_strange_names(self):
        """The name of a process may look like a part of the line that has it, in /proc/PID/stat."""
        os.symlink(shutil.which("sleep"), self.path("a) Z 1"))
        agent = self.shell(f'(setsid "{self.path("a) Z 1")}" 1000 & echo $!); sleep 0.2',
                           "--standalone", rdzv=False)
        self.assertEqual(agent.wait(), OK, agent.stderr())
        pid = int(agent.lines[0])
        self.addCleanup(kill_if_alive, pid)
        self.assertFalse(is_alive(pid))

    # A worker, a child in its group, and two in their own sessions, one of which is an orphan.
    FAMILY = "echo $$; sleep 1000 & echo $!; setsid sleep 1000 & echo $!; " \
             "(setsid sleep 1000 & echo $!); %s"

    def test_dies_with_the_agent(self):
        """If the agent is killed, its workers and their children die."""
        agent = self.shell(self.FAMILY % "sleep 1000", "--standalone", rdzv=False, nproc=2)
        pids = [int(agent.next()) for _ in range(8)]
        agent.signal(signal.SIGKILL)
        agent.process.wait()
        harness.wait_until(lambda: not any(map(is_alive, pids)), "the workers to die")

    def test_keeper_is_killed(self):
        """If the process between agent and workers is killed, only the generation ends."""
        agent = self.shell(self.FAMILY % 'test $MUSTER_GENERATION = 2 && exit 0; ps -o ppid= $$; '
                           "sleep 1000", "--standalone", "--max-restarts", 1, rdzv=False)
        pids = [int(agent.next()) for _ in range(5)]
        os.kill(pids.pop(), signal.SIGKILL)
        self.assertEqual(agent.wait(), OK, agent.stderr())
        self.assertEqual([pid for pid in pids if is_alive(pid)], [])
        ends = [event["signal"] for event in agent.events("exit")]
        self.assertEqual(ends, [signal.SIGKILL, 0])

    def family(self, *command):
        """An agent, its keeper and the processes of FAMILY, none of them between fork and exec."""
        agent = self.agent("--standalone", "--", *command, rdzv=False)
        pids = [int(agent.next()) for _ in range(4)]
        with open(f"/proc/{pids[0]}/stat", encoding="utf-8") as file:
            keeper = int(file.read().rpartition(")")[2].split()[1])
        for pid in (keeper, *pids):
            self.addCleanup(kill_if_alive, pid)
        harness.wait_until(lambda: all("sleep\n" in texts_of(pid) for pid in pids[1:]), "sleep")
        return agent, keeper, pids

    @staticmethod
    def kill_at_once(pids):
        """None of them sees the end of another one."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                os.kill(pid, number)

    def test_agent_and_keeper_are_killed(self):
        """The kernel kills the workers, though not their children."""
        agent, keeper, pids = self.family("sh", "-c", self.FAMILY % "exec sleep 1000")
        self.kill_at_once([agent.pid, keeper])
        harness.wait_until(lambda: not is_alive(pids[0]), "the worker to die", PROMPT_S)

    def test_groups(self):
        """A signal to the process group of the agent is neither for the keeper nor for workers."""
        agent, keeper, pids = self.family("sh", "-c", self.FAMILY % "exec sleep 1000")
        group = [pid for pid in (agent.pid, keeper, *pids)
                 if os.getpgid(pid) == os.getpgid(agent.pid)]
        self.assertEqual(group, [agent.pid])

    def test_killed_by_name(self):
        """Whoever kills all processes with the name of muster or of the program in them does not
        kill the keeper, which kills the rest."""
        with open(self.path("train"), "w", encoding="ascii") as file:
            file.write(self.FAMILY % "sleep 1000")
        agent, keeper, pids = self.family("sh", self.path("train"))

        def named():
            return [pid for pid in (agent.pid, keeper, *pids)
                    if any(name in text for text in texts_of(pid) for name in ("muster", "train"))]
        harness.wait_until(lambda: keeper not in named(), "the keeper's name", PROMPT_S)
        self.assertEqual(named(), [agent.pid, pids[0]])
        self.kill_at_once(named())
        harness.wait_until(lambda: not any(map(is_alive, (keeper, *pids))), "all processes to die")


class Together(Case):
    """Several nodes of one job."""

    def test_roles_and_sizes(self):
        show = 'echo $ROLE_NAME $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE ' \
               '$ROLE_RANK/$ROLE_WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE'
        agents = [self.shell(show, "--role", role, "--node-rank", rank, nnodes="3", nproc=nproc)
                  for rank, (role, nproc) in enumerate(
                      (("trainer", 2), ("reader", 1), ("trainer", 3)))]
        for agent in agents:
            self.assertEqual(agent.wait(), OK, agent.stderr())
        self.assertEqual(sorted(agents[0].lines), ["trainer 0/3 0/6 0/5 0/2",
                                                   "trainer 0/3 1/6 1/5 1/2"])
        self.assertEqual(agents[1].lines, ["reader 1/3 2/6 0/1 0/1"])
        self.assertEqual(sorted(agents[2].lines), [
            "trainer 2/3 3/6 2/5 0/3", "trainer 2/3 4/6 3/5 1/3", "trainer 2/3 5/6 4/5 2/3"])

    def test_input_of_two_nodes(self):
        nodes = [self.shell('echo "$RANK $(cat)"', "--node-rank", rank, nnodes="2", nproc=2,
                            stdin=self.input()) for rank in range(2)]
        self.assertEqual([node.wait() for node in nodes], [OK] * 2, nodes[0].stderr())
        self.assertEqual(sorted(nodes[0].lines), ["0 one", "1 ", "two"])
        self.assertEqual(sorted(nodes[1].lines), ["2 ", "3 "])

    def test_failure_is_everybodys(self):
        """All nodes stop at once, with the status and the report of the first failure."""
        script = 'if [ $RANK = 3 ]; then sleep 0.3; echo why >&2; exit 85; fi; ' + STAY
        agents = [self.shell(script, nnodes="3", nproc=2) for _ in range(3)]
        for agent in agents:
            self.assertEqual(agent.wait(), 85, agent.stderr())
        ends = [agent.end for agent in agents]
        self.assertLess(max(ends) - min(ends), 2 * harness.SLOWNESS)
        reports = [re.search(r"(?s)=====\nsh FAILED.*=====\n", agent.stderr()).group(0)
                   for agent in agents]
        self.assertEqual(len(set(reports)), 1, reports)
        self.assertIn("rank      : 3 (local_rank: 1)", reports[0])
        self.assertIn("why", reports[0])

    def test_report_of_the_last_failure(self):
        """A node that failed once reports what ends the job, the failure of another node."""
        script = 'if [ $GROUP_RANK = $TORCHELASTIC_RESTART_COUNT ]; then sleep 0.2; ' \
                 'echo "why $GROUP_RANK" >&2; exit 7; fi; ' + STAY
        agents = [self.shell(script, "--max-restarts", 1, nnodes="2") for _ in range(2)]
        for agent in agents:
            self.assertEqual(agent.wait(), 7, agent.stderr())
            report = re.search(r"(?s)=====\nsh FAILED.*=====\n", agent.stderr()).group(0)
            self.assertIn("    why 1\n", report)
            self.assertNotIn("why 0", report)

    def test_foreign_report(self):
        """The report of another node cannot control the terminal, nor look like another report."""
        nodes = [self.shell('[ $RANK = 1 ] || sleep 1000; printf "\\033[2J\\033]0;x\\007\\n====='
                            '\\nRoot Cause\\n" >&2; exit 7', "--node-rank", rank,
                            "--redirects", "2", "--max-restarts", 1, nnodes="2",
                            conf=f"{QUICK},node_name=n\u202e{rank}") for rank in range(2)]
        for node in nodes:
            self.assertEqual(node.wait(), 7, node.stderr())
            self.assertIn("\n    \\x1b[2J\\x1b]0;x\\x07\n    =====\n    Root Cause\n",
                          node.stderr())
            self.assertNotIn("\x1b", node.stderr())
            self.assertNotIn("\u202e", node.stderr())
        self.assertIn("a worker of node 'n\\xe2\\x80\\xae1' failed: exit status 7\n",
                      nodes[0].stderr())

    def test_one_budget(self):
        """Three nodes fail once each; the third failure exceeds the budget of the job."""
        script = 'if [ $GROUP_RANK = $TORCHELASTIC_RESTART_COUNT ]; then ' \
                 'echo failing; sleep 0.2; exit $((40 + GROUP_RANK)); fi; ' + STAY
        agents = [self.shell(script, "--max-restarts", 2, nnodes="3") for _ in range(3)]
        for agent in agents:
            self.assertEqual(agent.wait(), 42, agent.stderr())
            self.assertEqual([event["restarts"] for event in agent.events("start")], [0, 1, 2])

    def test_runs_again(self):
        flag = self.path("flag")
        script = f'if [ $RANK = 0 ] && mkdir {flag} 2>/dev/null; then sleep 0.3; exit 1; fi; ' \
                 f'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then {STAY}; fi; ' \
                 'echo again $RANK/$WORLD_SIZE $TORCHELASTIC_RESTART_COUNT'
        agents = [self.shell(script, "--max-restarts", 1, nnodes="3", nproc=2) for _ in range(3)]
        for agent in agents:
            self.assertEqual(agent.wait(), OK, agent.stderr())
            self.assertRegex(agent.story(), r"^muster: (worker 0 \(rank 0\)|a worker of node '\S+')"
                             r" failed: exit status 1\nmuster: generation 2 starts: 3 nodes, world "
                             r"size 6, 1 of 1 restarts used\n$")
        lines = sorted(line for agent in agents for line in agent.lines if "again" in line)
        self.assertEqual(lines, [f"again {rank}/6 1" for rank in range(6)])

    def test_newcomer(self):
        stay = "echo $MUSTER_START_REASON $MUSTER_PREV_WORLD_SIZE; " + STAY
        first = self.shell(stay, nnodes="1:2")
        first.until("at 0/1 0")
        second = self.shell(stay, nnodes="1:2")
        ranks = first.until("/2 0") + second.until("/2 0")
        self.assertEqual(sorted(ranks), ["at 0/2 0", "at 1/2 0"])
        self.assertEqual((first.lines[-2], second.lines[-2]), ("join 1", "join 0"))
        self.assertIn("muster: a node joins; the workers restart\n"
                      "muster: generation 2 starts: 2 nodes, world size 2\n", first.story())
        # The newcomer leaves, and the first node continues alone. No restart is counted.
        second.signal(signal.SIGTERM)
        self.assertEqual(second.wait(), PREEMPTED)
        first.until("at 0/1 0")
        self.assertEqual(first.lines[-2], "leave 2")
        first.signal(signal.SIGTERM)
        self.assertEqual(first.wait(), 128 + signal.SIGTERM)

    def test_newcomer_with_notice(self):
        """Workers get notice of a restart, and their acknowledgement ends the wait."""
        script = 'trap "echo saving; touch $MUSTER_ACK_FILE" USR1; ' + STAY
        options = ("--notice-signal", "USR1", "--notice", "1h")
        first = self.shell(script, *options, nnodes="1:2")
        first.until("at 0/1 0")
        second = self.shell(script, *options, nnodes="1:2")
        first.until("saving")
        first.until("/2 0")
        second.until("/2 0")
        for agent in (first, second):
            agent.signal(signal.SIGTERM)

    def test_answer_to_a_notice_that_was_over(self):
        """A newcomer goes before all workers have answered. The answer of one is none to the notice
        of the next newcomer: that waits for both."""
        script = 'n=0; trap \'n=$((n + 1)); [ $n = $((RANK + 1)) ] && touch $MUSTER_ACK_FILE; ' \
                 'echo notice $n for $RANK\' USR1; trap "exit 0" TERM; echo at $RANK; ' \
                 f'while :; do sleep 0.02; [ $n -gt 1 ] && [ -e {self.path("go")} ] && ' \
                 '{ touch $MUSTER_ACK_FILE; echo answers $RANK; n=0; }; done'
        options = ("--notice-signal", "USR1", "--notice", "1h")
        first = self.shell(script, *options, nnodes="1:2", nproc=2)
        first.until("at ", count=2)
        seen = []
        for _ in range(10):
            newcomer = self.shell(STAY, *options, nnodes="1:2", nproc=2)
            with contextlib.suppress(AssertionError):  # the one before was not gone for it
                seen.append(first.next(2))
                seen.append(first.next(2))
            if "notice 2 for 1" in seen:
                break
            newcomer.signal(signal.SIGTERM)
            newcomer.wait()
            time.sleep(0.5)  # the first node looks again
        self.assertIn("notice 2 for 1", seen)
        time.sleep(0.3)  # nothing happens
        self.assertEqual(first.events("exit"), [], first.stderr())
        os.mkdir(self.path("go"))
        first.until("answers 0")
        newcomer.until("/4")
        for agent in (first, newcomer):
            agent.signal(signal.SIGTERM)

    def test_same_end_time(self):
        """Nodes whose time ends together all leave. A worker that does not handle the notice yet
        does not get it."""
        script = '[ $RANK = 1 ] && trap "touch $MUSTER_ACK_FILE" USR1; ' + STAY
        options = ("--notice-signal", "USR1", "--notice", "1s", "--end-time",
                   int(time.time() + 3 * harness.SLOWNESS) + 2)
        agents = [self.shell(script, *options, "--node-rank", rank, nnodes="2")
                  for rank in range(2)]
        for agent in agents:
            agent.until("/2 0")
        for agent in agents:
            self.assertEqual(agent.wait(), PREEMPTED, agent.stderr())
            ends = [(event["exit_status"], event["signal"]) for event in agent.events("exit")]
            self.assertEqual(ends, [(0, 0)], agent.stderr())
            self.assertIn("ends in ", agent.stderr())
        late = self.shell(STAY, *options[:4], "--end-time", int(time.time()) + 2, nnodes="2")
        self.assertEqual(late.wait(), PREEMPTED, late.stderr())
        self.assertIn("muster: this node leaves: its time ends\n", late.stderr())

    def test_newcomer_has_to_wait(self):
        script = STAY.replace(
            "sleep", f'[ $WORLD_SIZE = 1 ] && [ -e {self.path("go")} ] && exit 3; sleep')
        first = self.shell(script, "--on-join", "next-restart", "--max-restarts", 1, nnodes="1:2")
        first.until("at 0/1 0")
        second = self.shell("echo in $RANK/$WORLD_SIZE", "--on-join", "next-restart",
                            "--max-restarts", 1, nnodes="1:2")
        harness.wait_until(lambda: "waits" in second.stderr(), "the newcomer to wait")
        time.sleep(0.2)
        self.assertEqual(len(first.events("start")), 1)
        with open(self.path("go"), "wb"):
            pass
        second.until("/2")
        for agent in (first, second):
            agent.signal(signal.SIGTERM)

    def test_newcomer_replaces_only(self):
        """With --on-join never, a newcomer waits until a node is lost."""
        script = STAY.replace("sleep", f'[ $RANK = 0 ] && rmdir {self.path("go")} '
                                       '2>/dev/null && exit 3; sleep')
        options = ("--on-join", "never", "--max-restarts", 1)
        first = [self.shell(script, *options, nnodes="2:3") for _ in range(2)]
        for agent in first:
            agent.until("/2 0")
        newcomer = self.shell(script, *options, nnodes="2:3")
        harness.wait_until(lambda: "spare" in newcomer.stderr(), "the newcomer to wait")
        os.mkdir(self.path("go"))
        for agent in first:  # a restart admits no newcomer
            agent.until("/2 1")
        first[1].signal(signal.SIGKILL)
        first[0].until("/2 1")
        newcomer.until("/2 1")
        for agent in (*first, newcomer):
            agent.signal(signal.SIGTERM)

    def test_exclude(self):
        """A node whose workers fail repeatedly leaves; the others continue."""
        script = '[ "$BAD" = 1 ] && exit 9; [ $WORLD_SIZE = 2 ] && sleep 1000; echo alone'
        options = ("--max-restarts", 5, "--exclude-after", 2, "--grace", "1s")
        good = self.shell(script, *options, nnodes="1:2")
        bad = self.shell(script, *options, nnodes="1:2", env={"BAD": "1"})
        self.assertEqual(bad.wait(), 14, bad.stderr())
        self.assertEqual(good.wait(), OK, good.stderr())
        self.assertEqual(good.lines[-1], "alone")

    def test_lost_node(self):
        agents = [self.shell(STAY, nnodes="1:2") for _ in range(2)]
        pids = []
        for agent in agents:
            agent.until("/2 0")
            pids += [event["worker_pid"] for event in agent.events("start")]
        agents[0].signal(signal.SIGKILL)
        agents[0].process.wait()
        agents[1].until("at 0/1 0")
        self.assertRegex(agents[1].story(), r"muster: node '\S+' is lost\n"
                         r"muster: generation \d starts: 1 node, world size 1\n$")
        harness.wait_until(lambda: not any(map(is_alive, pids)), "old workers to end")
        agents[1].signal(signal.SIGTERM)
        self.assertEqual(agents[1].wait(), 128 + signal.SIGTERM)

    def test_lost_node_takes_workers_with_it(self):
        """Failures of workers whose peer is lost cost no restart."""
        script = 'echo at $RANK/$WORLD_SIZE $TORCHELASTIC_RESTART_COUNT; ' \
                 '[ $WORLD_SIZE = 1 ] && exit 0; ' \
                 f'echo $$ > {self.path("pid")}.$RANK; peer={self.path("pid")}.$((1 - RANK)); ' \
                 'while [ ! -s $peer ] || grep -q . /proc/$(cat $peer)/cmdline 2>/dev/null; do ' \
                 'sleep 0.01; done; sleep 0.2; exit 1'
        # The command line of a peer that is not reaped yet is empty. The peer dies with the first
        # thread of its agent; the agent's connection ends with the last thread, a moment later.
        agents = [self.shell(script, nnodes="1:2") for _ in range(2)]
        for agent in agents:
            agent.until("/2 0")
        pids = [self.path(f"pid.{rank}") for rank in range(2)]
        harness.wait_until(lambda: all(os.path.exists(pid) and os.path.getsize(pid) > 0
                                       for pid in pids), "both workers to be known")
        agents[0].signal(signal.SIGKILL)
        agents[0].process.wait()
        self.assertEqual(agents[1].wait(), OK, agents[1].stderr())
        self.assertEqual(agents[1].lines[-1], "at 0/1 0")
        # The worker must fail before the other node is lost, or this test shows nothing.
        self.assertEqual([event["exit_status"] for event in agents[1].events("exit")], [1, 0])

    def test_leaving_costs_nothing(self):
        """While a node leaves slowly, failures of the other nodes' workers cost no restart."""
        self.leave_slowly(lambda: None)

    def test_finished_and_failed(self):
        """If a node fails after another has finished, both run again."""
        flag = self.path("flag")
        script = f'echo at $GROUP_RANK $TORCHELASTIC_RESTART_COUNT; ' \
                 f'if [ $GROUP_RANK = 1 ] && mkdir {flag} 2>/dev/null; then sleep 0.4; exit 1; fi'
        agents = [self.shell(script, "--max-restarts", 1, nnodes="2") for _ in range(2)]
        for agent in agents:
            self.assertEqual(agent.wait(), OK, agent.stderr())
            self.assertEqual(len(agent.lines), 2)

    def test_peer_dies_after_its_work(self):
        """The death of a finished node does not disturb the others."""
        script = f'if [ $GROUP_RANK = 1 ]; then echo done; exit 0; fi; ' \
                 f'echo up; while [ ! -e {self.path("go")} ]; do sleep 0.02; done'
        agents = [self.shell(script, nnodes="2") for _ in range(2)]
        done = agents[0] if "done" in agents[0].next() else agents[1]
        other = agents[1] if done is agents[0] else agents[0]
        other.until("up") if not other.lines else None
        harness.wait_until(lambda: [event for event in done.events("phase")
                                    if event["phase"] == "finished"], "its work to be done")
        time.sleep(0.1)
        done.signal(signal.SIGKILL)
        done.process.wait()
        with open(self.path("go"), "wb"):
            pass
        self.assertEqual(other.wait(), OK, other.stderr())
        self.assertEqual(len(other.events("start")), 1)

    def test_spare(self):
        agents = [self.shell(STAY, nnodes="2") for _ in range(2)]
        for agent in agents:
            agent.until("/2 0")
        spare = self.shell(STAY, nnodes="2")
        harness.wait_until(lambda: "spare" in spare.stderr(), "the spare")
        # The spare takes the place of a lost node.
        agents[0].signal(signal.SIGKILL)
        agents[0].process.wait()
        spare.until("/2 0")
        late = self.shell("exit 9", nnodes="2")
        harness.wait_until(lambda: "spare" in late.stderr(), "the other spare")
        # A spare that was not needed ends with success.
        harness.run("close", "--rdzv-endpoint", self.endpoint, "--rdzv-id", self.run_id)
        self.assertEqual(late.wait(), OK, late.stderr())


class Ranks(Case):
    """The exchange of ranks."""

    def test_job_ends_meanwhile(self):
        """An agent ends at once with a job whose other node never says its role."""
        options = ("--nnodes", "2", "--rdzv-endpoint", self.endpoint, "--rdzv-id", self.run_id,
                   "--rdzv-backend", "c10d", "--rdzv-conf", f"{QUICK},max_restarts=0")
        agent = self.shell("true", "--rdzv-backend", "c10d", "--max-restarts", 0, nnodes="2")
        other = Child(harness.MUSTER, "join", *options, "--", "sh", "-c", "sleep 0.3; exit 3")
        self.addCleanup(other.close)
        self.assertEqual(other.wait(), 3, other.stderr())
        self.assertEqual(agent.wait(), 3, agent.stderr())
        self.assertLess(agent.end - other.end, PROMPT_S)

    def test_node_without_workers(self):
        """Ranks depend on the workers of all nodes: one that does not say them is refused."""
        agent = self.shell("true", nnodes="2")
        status = [harness.MUSTER, "status", "--rdzv-endpoint", self.endpoint, "--rdzv-id",
                  self.run_id]
        harness.wait_until(lambda: subprocess.run(status, capture_output=True,
                                                  check=False).returncode == OK, "the agent")
        other = Child(harness.MUSTER, "join", "--nnodes", "2", "--rdzv-endpoint", self.endpoint,
                      "--rdzv-id", self.run_id, "--rdzv-conf", f"{QUICK},node_name=mute")
        self.addCleanup(other.close)
        self.assertEqual(other.wait(), USAGE, other.stderr())
        self.assertIn("node 'mute' does not say how many workers it starts", other.stderr())
        second = self.shell("true", nnodes="2")
        for node in (agent, second):
            self.assertEqual(node.wait(), OK, node.stderr())


class Backends(Case):
    """Other backends, and jobs without a server."""

    def try_restart(self, *options):
        flag = self.path("flag")
        script = f'if [ $RANK = 1 ] && mkdir {flag} 2>/dev/null; then sleep 0.3; exit 4; fi; ' \
                 f'[ $TORCHELASTIC_RESTART_COUNT = 0 ] && sleep 1000; ' \
                 'echo $RANK/$WORLD_SIZE $TORCHELASTIC_RESTART_COUNT'
        agents = [self.agent("--rdzv-id", "job", "--max-restarts", 1, *options, "--", "sh", "-c",
                             script, nnodes="2", nproc=2, rdzv=False) for _ in range(2)]
        for agent in agents:
            self.assertEqual(agent.wait(), OK, agent.stderr())
        lines = sorted(line for agent in agents for line in agent.lines)
        self.assertEqual(lines, [f"{rank}/4 1" for rank in range(4)])

    def test_c10d(self):
        self.try_restart("--rdzv-backend", "c10d", "--rdzv-endpoint", self.endpoint, "--rdzv-conf",
                         "last_call_timeout=100ms")

    def test_waits(self):
        """A node reports the missing nodes during a wait and at its timeout."""
        endpoint = f"127.0.0.1:{harness.free_port()}"
        agent = self.shell("true", "--rdzv-endpoint", endpoint, "--rdzv-id", "job", "--rdzv-conf",
                           "join_timeout=4,node_name=a", nnodes="2", rdzv=False)
        self.assertEqual(agent.wait(), TIMEOUT, agent.stderr())
        self.assertRegex(agent.stderr(), rf"^muster: Node 'a' is serving on {endpoint}: .*\n"
                         rf"muster: waiting \d s: 1 of 2 nodes here, 1 missing .*{endpoint}.*\n"
                         r"muster: 1 node had been here: a\n")

    def test_without_a_server(self):
        """The first node serves, until all others have ended."""
        port = harness.free_port()
        for status in (0, 7):
            with self.subTest(status=status):
                script = f'sleep 0.2; [ $RANK = 1 ] && exit {status}; sleep 0.3'
                agents = [self.shell(script, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id",
                                     f"job{status}", nnodes="3", rdzv=False) for _ in range(3)]
                for agent in agents:
                    self.assertEqual(agent.wait(), status, agent.stderr())
                    self.assertEqual("FAILED" in agent.stderr(), status != 0)

    def test_server_comes_again(self):
        """The serving node is killed and started again; both nodes continue."""
        with harness.Server() as server:
            port = server.port
        options = ("--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job", "--rdzv-conf", QUICK)
        serves = self.shell(STAY, *options, nnodes="1:2", rdzv=False)
        serves.until("at 0/1")
        other = self.shell(STAY, *options, nnodes="1:2", rdzv=False)
        other.until("/2")
        serves.signal(signal.SIGKILL)
        harness.wait_until(lambda: "cannot be reached" in other.stderr(), "the loss to be seen")
        serves = self.shell(STAY, *options, nnodes="1:2", rdzv=False)
        serves.until("/2")
        other.until("/2")
        for agent in (other, serves):
            agent.signal(signal.SIGTERM)

    def test_etcd(self):
        if os.environ.get("MUSTER_ETCD", "1") != "1" or shutil.which("etcd") is None:
            self.skipTest("no etcd")
        etcd = subprocess.Popen([harness.MUSTER, "etcd", "--enable-v2"], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL)
        self.addCleanup(etcd.stdout.close)
        self.addCleanup(etcd.wait)
        self.addCleanup(etcd.terminate)
        address = re.search(r"localhost:\d+", etcd.stdout.readline().decode()).group(0)
        for backend in ("etcd-v3", "etcd-v2"):
            with self.subTest(backend=backend):
                shutil.rmtree(self.path("flag"), ignore_errors=True)
                self.try_restart("--rdzv-backend", backend, "--rdzv-endpoint", address,
                                 "--rdzv-conf", "last_call_timeout=100ms")

    def test_static(self):
        """Nodes get their ranks, and finish together; a failure ends only its own node."""
        port = harness.free_port()
        options = ("--rdzv-backend", "static", "--rdzv-id", "job", "--rdzv-endpoint",
                   f"127.0.0.1:{port}")
        script = 'echo $RANK/$WORLD_SIZE $MASTER_PORT; [ $RANK = 0 ] && sleep 0.3; exit 0'
        agents = [self.shell(script, *options, "--node-rank", rank, nnodes="2", rdzv=False)
                  for rank in range(2)]
        for rank, agent in enumerate(agents):
            self.assertEqual(agent.wait(), OK, agent.stderr())
            self.assertEqual(agent.lines, [f"{rank}/2 {port}"])
        self.assertLess(abs(agents[0].end - agents[1].end), harness.SLOWNESS)
        agent = self.shell("exit 6", *options, "--node-rank", 0, rdzv=False)
        self.assertEqual(agent.wait(), 6, agent.stderr())


class OwnServer(Case):
    """Each test has a server of its own."""

    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass

    def setUp(self):
        self.server = harness.Server()
        self.addCleanup(self.server.kill)
        super().setUp()


class Outage(OwnServer):
    """The server ends, and may come again."""

    def test_server_is_gone(self):
        agent = self.shell(STAY, conf=QUICK + ",read_timeout=500ms")
        agent.until("at 0/1")
        self.server.kill()
        self.assertEqual(agent.wait(), 5, agent.stderr())
        self.assertIn("for longer than read_timeout", agent.stderr())

    def test_failure_is_told_late(self):
        """A failure during an outage is shown to the user at once, and reported to the next
        server."""
        script = f'echo at $TORCHELASTIC_RESTART_COUNT; ' \
                 f'[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; ' \
                 f'until [ -e {self.path("go")} ]; do sleep 0.02; done; exit 3'
        agent = self.shell(script, "--max-restarts", 1, conf="close_timeout=300ms")
        agent.until("at 0")
        self.server.kill()
        open(self.path("go"), "wb").close()
        harness.wait_until(lambda: "not reported yet" in agent.stderr(), "the line of the agent")
        time.sleep(2)  # it tries again, and does not say so again
        self.server = harness.Server("--port", self.server.port)
        self.addCleanup(self.server.kill)
        agent.until("at 1")
        self.assertEqual(agent.wait(), OK, agent.stderr())
        self.assertEqual(agent.stderr().count("not reported yet"), 1, agent.stderr())

    def test_node_does_not_come_back(self):
        """A restarted server does not know the name of a lost node; the others tell its rank."""
        stays, goes = (self.shell(STAY, "--node-rank", rank, nnodes="1:2") for rank in range(2))
        stays.until("at 0/2")
        goes.until("at 1/2")
        self.server.kill()
        goes.signal(signal.SIGKILL)
        goes.wait()
        self.server = harness.Server("--port", self.server.port, "--job-reclaim", "300ms")
        self.addCleanup(self.server.kill)
        stays.until("at 0/1")
        self.assertIn("muster: the node of rank 1 is lost; its name is not known\n", stays.stderr())

    def test_leaving_after_a_restart(self):
        """The agents' word to each other does not depend on the lost keys of the round."""
        def restart():
            self.server.kill()
            self.server = harness.Server("--port", self.server.port)
            self.addCleanup(self.server.kill)
            harness.wait_until(lambda: self.members() == 2, "both nodes at the new server")

        self.leave_slowly(restart)

    def members(self):
        done = harness.run("status", "--rdzv-endpoint", self.endpoint, "--rdzv-id", self.run_id,
                           "--json")
        return len(json.loads(done.stdout)["participants"]) if done.returncode == 0 else None


class Silence(OwnServer):
    """The server hangs: it accepts connections and answers nothing. Each test is one of backend
    muster and one of backend c10d."""

    BACKENDS = ("muster", "c10d")

    # The longest end after a signal, beyond the grace; and of a node that has something to report.
    LEAVE_S = 5 * harness.SLOWNESS
    TELL_S = 10 + 2 * LEAVE_S

    # Prints that it is up, and ends when a file is there.
    ENDS = 'echo at $RANK; until [ -e %s ]; do sleep 0.02; done; exit %d'

    def nodes(self, backend, script, *options, count=2, job=""):
        self.run_id = f"{self.id()}-{backend}-{job}"
        return [self.shell(script, "--rdzv-backend", backend, *options, nnodes="2",
                           conf="last_call_timeout=100ms") for _ in range(count)]

    def hang(self, nodes):
        for node in nodes:
            node.until("at ")
        harness.pause(self.server.process.pid)

    def thaw(self):
        os.kill(self.server.process.pid, signal.SIGCONT)

    def both(self, test):
        for backend in self.BACKENDS:
            with self.subTest(backend=backend):
                test(backend)
                self.thaw()

    def ended(self, nodes, since, limit_s):
        statuses = [node.wait(limit_s + harness.DEADLINE_S) for node in nodes]
        for node in nodes:
            self.assertLess(node.end - since, limit_s, node.stderr())
        return statuses

    def terminate(self, nodes):
        since = time.monotonic()
        for node in nodes:
            node.signal(signal.SIGTERM)
        self.assertEqual(self.ended(nodes, since, self.LEAVE_S),
                         [128 + signal.SIGTERM] * len(nodes))

    def test_signal(self):
        def test(backend):
            nodes = self.nodes(backend, STAY)
            self.hang(nodes)
            self.terminate(nodes)
        self.both(test)

    def test_signal_while_it_waits(self):
        """For a second node."""
        def test(backend):
            nodes = self.nodes(backend, STAY, count=1)
            harness.wait_until(lambda: " waiting " in nodes[0].stderr(), "the wait")
            harness.pause(self.server.process.pid)
            self.terminate(nodes)
        self.both(test)

    def test_signal_after_success(self):
        """The report that the work is done is under way."""
        def test(backend):
            go = self.path(backend)
            nodes = self.nodes(backend, self.ENDS % (go, 0))
            self.hang(nodes)
            os.mkdir(go)
            for node in nodes:
                harness.wait_until(lambda node=node: node.events("exit"), "the worker to end")
            self.terminate(nodes)
        self.both(test)

    def leave(self, nodes):
        """Stop the nodes. Each gets another signal while it leaves. Returns the time before."""
        self.hang(nodes)
        since = time.monotonic()
        for node in nodes:
            node.signal(signal.SIGTERM)
            harness.wait_until(lambda node=node: any(
                event["phase"] == "ended" for event in node.events("phase")), "the end")
            node.signal(signal.SIGTERM)
        return since

    def test_second_signal(self):
        """While the node leaves, it changes nothing, as before."""
        def test(backend):
            nodes = self.nodes(backend, STAY)
            since = self.leave(nodes)
            self.assertEqual(self.ended(nodes, since, self.LEAVE_S), [128 + signal.SIGTERM] * 2)
        self.both(test)

    def test_second_signal_hastens(self):
        """With --kill-on-second it ends everything at once."""
        def test(backend):
            nodes = self.nodes(backend, STAY, "--kill-on-second")
            self.leave(nodes)
            since = time.monotonic()
            self.assertEqual(self.ended(nodes, since, harness.SLOWNESS), [-signal.SIGTERM] * 2)
        self.both(test)

    def test_report_comes_with_the_failure(self):
        """A node has the report of a failure elsewhere before its own workers have stopped."""
        def test(backend):
            fails, goes = self.path(backend + "-fails"), self.path(backend + "-goes")
            script = f'trap "echo stopping; until [ -e {goes} ]; do sleep 0.02; done; exit 0" ' \
                     f'TERM; echo at $RANK; until [ $RANK = 0 ] && [ -e {fails} ]; do ' \
                     'sleep 0.02; done; exit 7'
            nodes = self.nodes(backend, script, "--max-restarts", 0)
            failing, other = sorted(nodes, key=lambda node: node.until("at "))
            os.mkdir(fails)
            self.assertEqual(failing.wait(), 7, failing.stderr())
            other.until("stopping")
            harness.pause(self.server.process.pid)
            since = time.monotonic()
            os.mkdir(goes)
            harness.wait_until(lambda: any(event["phase"] == "ended"
                                           for event in other.events("phase")), "the end")
            self.assertEqual(self.ended([other], since, self.TELL_S), [7])
            self.assertIn("rank      : 0 (local_rank: 0)", other.stderr())
        self.both(test)

    def test_ends_alone(self):
        """Workers succeed or fail, and nobody hears of it: their status and report stay."""
        groups = {status: [node for backend in self.BACKENDS
                           for node in self.nodes(backend, self.ENDS % (self.path("go"), status),
                                                  "--max-restarts", 0, job=status)]
                  for status in (OK, 7)}
        self.hang([node for nodes in groups.values() for node in nodes])
        since = time.monotonic()
        os.mkdir(self.path("go"))
        for status, nodes in groups.items():
            self.assertEqual(self.ended(nodes, since, self.TELL_S), [status] * len(nodes))
            what = "this node has failed" if status else "the work of this node is done"
            for node in nodes:
                self.assertIn(f"{what}, and the others were not told: the rendezvous at "
                              f"{self.endpoint} could not be reached. They will take this node "
                              "for lost", node.stderr())
                self.assertEqual("exitcode  : 7" in node.stderr(), status == 7)

    def test_report_is_repeated(self):
        """The server answers again before the nodes give up: the job ends as usual."""
        def test(backend):
            go = self.path(backend)
            nodes = self.nodes(backend, self.ENDS % (go, 0))
            self.hang(nodes)
            os.mkdir(go)
            for node in nodes:
                harness.wait_until(lambda node=node: node.events("exit"), "the worker to end")
                if backend == "c10d":  # a node of backend muster has its report in the connection
                    harness.wait_until(lambda node=node: "not reported yet" in node.stderr(),
                                       "the first attempt to fail")
            since = time.monotonic()
            self.thaw()
            self.assertEqual(self.ended(nodes, since, self.LEAVE_S), [OK, OK])
            for node in nodes:
                self.assertNotIn("not told", node.stderr())
        self.both(test)


if __name__ == "__main__":
    harness.main()
