"""Machines for tests: namespaces on a network of their own.

A test program that ends with `cluster.main(...)` runs itself again, as the first process of new
namespaces: network, processes, mounts, host name. Its machines are namespaces below these, with a
link each to a bridge. When the test program is gone, even by SIGKILL, the kernel ends all processes
in them, and with these go the networks and the mounts. Nothing is made in the namespaces of the
machine that the tests run on.

What the tests write at run time is on a file system in memory, RUN, of which all machines see the
same, but TMP, which each machine has for itself.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

import harness  # noqa: E402
from agents import Child  # noqa: E402

INSIDE = "MUSTER_TEST_CLUSTER"  # set in the environment of a program in its own namespaces
NAMESPACES = ("--net", "--uts", "--pid", "--mount", "--ipc")
NEEDS = ("unshare", "nsenter", "ip", "mount")

WIRE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wire.py")
RUN = "/run"
TMP = "/run/tmp"
HEAD = "10.77.0.254"  # where the test program is
BRIDGE = "02:00:00:00:00:fe"

PR_SET_PDEATHSIG = 1

# The first process of a machine. Tells that it runs, and reaps what is left to it.
INIT = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
print("up", flush=True)
while True:
    signal.sigwait([signal.SIGCHLD])
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""


def command(*args, timeout=None, env=None):
    """Run a command; fail with what it said if it fails. Returns its output."""
    told = subprocess.run([*map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False,
                          env={**os.environ, **(env or {})}, timeout=timeout or harness.DEADLINE_S)
    if told.returncode != 0:
        raise AssertionError(f"{' '.join(told.args)} ended with {told.returncode}: {told.stdout}")
    return told.stdout


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def unshare(*args):
    """The command that runs another in new namespaces, all of which end with it."""
    return ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", *args]


def is_below(pid):
    """The first process of the namespaces that `unshare` made."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


# --- machines --------------------------------------------------------------------------------


class Machine:
    """A host with an address: namespaces with an interface eth0."""

    def __init__(self, network, number):
        self.network = network
        self.name = f"n{number}"
        self.address = f"10.77.0.{number}"
        self.link = f"link{number}"  # the other end of eth0
        # Always the same, so that the others find a machine again that was turned off.
        self.mac = f"02:00:00:00:00:{number:02x}"
        self.turn_on()

    def turn_on(self):
        self.init = subprocess.Popen(
            unshare(sys.executable, "-c", INIT), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, preexec_fn=die_with_parent)
        if self.init.stdout.readline() != b"up\n":
            raise AssertionError(f"{self.name} does not start: {self.init.stderr.read()}")
        self.pid, = is_below(self.init.pid)
        command("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns",
                self.pid)
        command("ip", "link", "set", self.link, "master", "bridge", "up")
        self.run("sh", "-ec", f"""
            hostname {self.name}
            ip link set lo up
            ip link set eth0 address {self.mac}
            ip address add {self.address}/24 dev eth0
            ip link set eth0 up
            mkdir -p {TMP}
            mount -t tmpfs tmpfs {TMP}""")

    def power_off(self):
        """Off, as by its switch: no connection is closed, because the link is cut first."""
        command("ip", "link", "delete", self.link)
        os.kill(self.pid, signal.SIGKILL)
        self.init.wait(harness.DEADLINE_S)
        self.init.stdout.close()
        self.init.stderr.close()

    def is_on(self):
        return self.init.poll() is None

    def processes(self):
        """The numbers, here, of all processes on this machine."""
        mine = namespace(self.pid)
        return {pid for pid in pids() if namespace(pid) == mine}

    def pid_here(self, number):
        """The number here of the process that has this one on the machine."""
        return next(pid for pid in self.processes() if number_inside(pid) == number)

    def inside(self, *args):
        """The command that runs another on this machine."""
        return ["nsenter", "--target", str(self.pid), *NAMESPACES, "--", *map(str, args)]

    def run(self, *args, **keywords):
        return command(*self.inside(*args), **keywords)

    def start(self, *args, **keywords):
        """A command on this machine as a Child."""
        return Far(self, *args, **keywords)

    def cut(self, *others, ways=("in", "out")):
        """No packet passes between this machine and the others, or all machines; one way only with
        ways=("in",) or ("out",)."""
        for address in [other.address for other in others] or ["0.0.0.0/0"]:
            for way in ways:
                chain, side = {"in": ("INPUT", "-s"), "out": ("OUTPUT", "-d")}[way]
                self.run("iptables", "-w", "-A", chain, side, address, "!",
                         *{"in": ("-i", "lo"), "out": ("-o", "lo")}[way], "-j", "DROP")

    def slow(self, delay_s, loss):
        """From now on each packet from or to this machine takes so long, or is lost with this
        probability. Call it once."""
        near, far = f"near{self.link}", f"far{self.link}"
        command("ip", "link", "add", near, "type", "veth", "peer", "name", far)
        command(sys.executable, WIRE, "--plain", near)
        self.run(sys.executable, WIRE, "--plain", "eth0")
        self.wire = subprocess.Popen(
            [sys.executable, WIRE, str(delay_s), str(loss), self.link, far],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        command("ip", "link", "set", self.link, "nomaster")
        command("ip", "link", "set", far, "up")
        if self.wire.stdout.readline() != b"up\n":
            raise AssertionError(f"the wire of {self.name} does not start")
        command("ip", "link", "set", near, "master", "bridge", "up")

    def mend(self):
        """All packets pass again."""
        self.run("iptables", "-w", "-F")


class Far(Child):
    """A command on a machine. self.pid is its number here; signals go to it, not to nsenter."""

    def __init__(self, machine, *args, **keywords):
        super().__init__(*machine.inside(*args), **keywords)
        found = harness.wait_until(lambda: is_below(self.process.pid) or self.process.poll() is
                                   not None, "the command to start")
        self.pid = found[0] if isinstance(found, list) else None

    def signal(self, number):
        if self.pid is not None and self.process.poll() is None:
            os.kill(self.pid, number)

    def close(self):
        self.signal(signal.SIGKILL)
        super().close()


class Network:
    """Machines n1, n2, ... on one bridge. The test program is on it, too, as `head`."""

    def __init__(self, count):
        # Without an address of its own it takes the least of its links, and another one when that
        # machine is turned off: then nobody finds the head for seconds.
        command("ip", "link", "add", "bridge", "address", BRIDGE, "type", "bridge")
        command("ip", "address", "add", f"{HEAD}/24", "dev", "bridge")
        command("ip", "link", "set", "bridge", "up")
        names = [("127.0.0.1", "localhost"), (HEAD, "head")]
        names += [(f"10.77.0.{number}", f"n{number}") for number in range(1, count + 1)]
        with open("/etc/hosts", "w", encoding="ascii") as hosts:
            hosts.writelines(f"{address} {name}\n" for address, name in names)
        self.machines = [Machine(self, number) for number in range(1, count + 1)]

    def __getitem__(self, index):
        return self.machines[index]


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


# Of reading about a process that has just ended.
GONE = (FileNotFoundError, ProcessLookupError)


def namespace(pid):
    """What tells the machine of a process."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except GONE:
        return None


def number_inside(pid):
    """The number of the process on its machine."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return int(next(line for line in file if line.startswith("NSpid:")).split()[-1])
    except GONE:
        return None


def processes(needle):
    """The processes, of all machines, with this text in their environment or command line."""
    found = []
    for pid in pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                text = file.read()
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                text += file.read()
        except GONE:
            continue
        if needle.encode() in text and pid != os.getpid():
            found.append(pid)
    return found


# --- running ---------------------------------------------------------------------------------


def why_not(commands):
    """Why this machine cannot run the tests, in one sentence; or None."""
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    if os.geteuid() != 0:
        return "making namespaces needs root"
    for name in (*NEEDS, *commands):
        if shutil.which(name) is None:
            return f"there is no {name}: tools/deps cluster installs it"
    if INSIDE in os.environ:
        return None
    told = subprocess.run(unshare("sh", "-ec", """
        ip link add bridge type bridge
        ip link add one type veth peer name other"""), check=False, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return f"no namespaces here: {told.stdout.strip()}" if told.returncode != 0 else None


def enter():
    """Run this program again in namespaces of its own. Does not return."""
    os.environ[INSIDE] = "1"
    line = unshare(sys.executable, *sys.argv)
    os.execvp(line[0], line)


def prepare():
    """The first process of the namespaces: an empty /run, own names of hosts and machine."""
    die_with_parent()
    command("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", RUN)
    for name in ("hosts", "resolv.conf"):
        with open(f"{RUN}/{name}", "w", encoding="ascii"):
            pass
        command("mount", "--bind", f"{RUN}/{name}", f"/etc/{name}")
    os.mkdir(TMP)
    os.environ["TMPDIR"] = tempfile.tempdir = TMP
    command("hostname", "head")
    command("ip", "link", "set", "lo", "up")


def main(*commands):
    """As harness.main(), in namespaces of its own. Every test is skipped if this machine cannot
    make them, or lacks one of the commands."""
    if not any(arg.startswith("--list") for arg in sys.argv):
        reason = why_not(commands)
        if reason:
            for item in vars(sys.modules["__main__"]).values():
                if isinstance(item, type) and issubclass(item, unittest.TestCase):
                    unittest.skip(reason)(item)
        elif INSIDE not in os.environ:
            enter()
        else:
            prepare()
    harness.main()
