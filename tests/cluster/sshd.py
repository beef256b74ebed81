"""An OpenSSH server on each machine, with keys and accounts of the tests."""

import contextlib
import os
import shlex
import shutil

import cluster
import harness

NEEDS = ("sshd", "ssh", "ssh-keygen")

DIRECTORY = f"{cluster.RUN}/ssh"
CONFIG = f"{DIRECTORY}/config"
# The command for `muster run --ssh`, and for others that want one.
SSH = f"ssh -F {CONFIG}"
# What an account that talks prints when a command starts, the last line without an end.
NOISE = "Have you read the news?\nno end of line"
BANNER = "All use is recorded."

CLIENT = f"""
# For mpirun, which takes no account in a name; the first value of an option counts.
Host t2
Hostname n2
User talks
Host a2
Hostname n2
User asks
Host h2
Hostname n2
ConnectTimeout 2
Host *
IdentityFile {DIRECTORY}/id
IdentitiesOnly yes
UserKnownHostsFile {DIRECTORY}/known
GlobalKnownHostsFile /dev/null
User plain
# More names of the machines.
Host m*-n1
Hostname n1
Host m*-n2
Hostname n2
Host m*-n3
Hostname n3
Host m*-n4
Hostname n4
"""

SERVER = f"""
HostKey {DIRECTORY}/host
AuthorizedKeysFile {DIRECTORY}/id.pub
StrictModes no
PermitRootLogin yes
UsePAM no
PrintMotd no
MaxStartups 100
Match User talks
Banner {DIRECTORY}/banner
Match User asks
PubkeyAuthentication no
PasswordAuthentication yes
KbdInteractiveAuthentication no
"""


class Ssh(cluster.Network):
    def __init__(self, count=4):
        self.make_accounts()  # before the machines, which see what is mounted then
        super().__init__(count)
        os.mkdir(DIRECTORY)
        os.mkdir(f"{cluster.RUN}/sshd")  # sshd wants an empty directory
        for name in ("host", "id"):
            cluster.command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
                            f"{DIRECTORY}/{name}")
        with open(f"{DIRECTORY}/host.pub", encoding="ascii") as file:
            self.write("known", f"* {file.read()}")
        self.write("config", CLIENT)
        self.write("banner", BANNER + "\n")
        for machine in self.machines:
            self.start_sshd(machine)

    @staticmethod
    def write(name, text):
        with open(f"{DIRECTORY}/{name}", "w", encoding="ascii") as file:
            file.write(text)

    @staticmethod
    def make_accounts():
        """Accounts of root: `plain`, `talks` whose shell prints something whenever it starts, and
        `asks` that wants a password."""
        with open("/etc/passwd", encoding="utf-8") as file:
            accounts = file.read()
        for name in ("plain", "talks", "asks"):
            home = f"{cluster.RUN}/home-{name}"
            os.mkdir(home)
            accounts += f"{name}:*:0:0::{home}:/bin/bash\n"
        # bash reads this file when sshd starts it, also for a single command.
        with open(f"{cluster.RUN}/home-talks/.bashrc", "w", encoding="ascii") as file:
            file.write(f"printf %s {shlex.quote(NOISE)}\n")
        with open(f"{cluster.RUN}/passwd", "w", encoding="utf-8") as file:
            file.write(accounts)
        cluster.command("mount", "--bind", f"{cluster.RUN}/passwd", "/etc/passwd")

    def start_sshd(self, machine):
        path = f"{DIRECTORY}/sshd-{machine.name}"
        pid_path = f"{path}.pid"
        with contextlib.suppress(FileNotFoundError):
            os.remove(pid_path)  # of one that was killed
        with open(path, "w", encoding="ascii") as file:
            file.write(f"PidFile {pid_path}\n{SERVER}")
        machine.run(shutil.which("sshd"), "-f", path, "-E", f"{path}.log")

        def read_pid():
            """Its number on the machine; written when it listens."""
            try:
                with open(pid_path, encoding="ascii") as file:
                    text = file.read()
            except FileNotFoundError:
                return None
            return int(text) if text.endswith("\n") else None

        machine.sshd = machine.pid_here(harness.wait_until(read_pid, "sshd"))

    def check_nothing_left(self):
        """On each machine there is nothing but its sshd, or soon there is not."""
        def look():
            return all(machine.processes() == {machine.pid, machine.sshd}
                       for machine in self.machines if machine.is_on())

        harness.wait_until(look, "the end of all processes")
