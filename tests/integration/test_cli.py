"""The common part of the commands: help, misspellings, names in errors; and the examples of the
manual."""

import glob
import os
import unittest

import harness

USAGE, CONNECT = 2, 5
COMMANDS = ("serve", "join", "status", "close", "store", "etcd", "demo")
MANUAL = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "man", "*.scd")


class Cli(unittest.TestCase):
    def expect(self, args, code, said):
        result = harness.run(*args)
        self.assertEqual(result.returncode, code, (args, result.stderr))
        self.assertIn(said, result.stderr.decode(), args)
        return result.stderr.decode()

    def test_help(self):
        for command in COMMANDS:
            with self.subTest(command=command):
                told = harness.run("help", command)
                self.assertEqual(told.returncode, 0, told.stderr)
                self.assertEqual(told.stdout, harness.run(command, "--help").stdout)
        # Other words are not run.
        self.assertEqual(harness.run("help", "join", "true").stdout,
                         harness.run("join", "--help").stdout)
        self.assertEqual(harness.run("help").stdout, harness.run("--help").stdout)
        self.expect(("help", "jion"), USAGE, "did you mean join?")

    def test_misspelt_commands(self):
        self.expect(("jion", "--rdzv-id", "x"), USAGE, "'jion'; did you mean join?")
        self.expect(("stat",), USAGE, "did you mean status?")
        for word in ("xyzzy", "bench"):  # the load generator is a program of its own
            self.assertNotIn("did you mean", self.expect((word,), USAGE, f"no command '{word}'"))

    def test_underscores(self):
        given = ("--rdzv_id", "job", "--rdzv_endpoint", "127.0.0.1:1", "--rdzv_backend=static")
        self.expect(("status", *given), 3, "has no record: rank and size of every node are given")
        self.expect(("status", *given, "--rdzv_cnf", "x"), USAGE, "did you mean --rdzv-conf?")

    def test_names_in_errors(self):
        """Errors name options as they were written."""
        given = ("join", "--rdzv-id", "job")
        for args, said in (
            (("--nnodes", "0"), "MIN of --nnodes is 0"),
            (("--nnodes", "3:2"), "MAX of --nnodes is 2, it must not be less than MIN of --nnodes"),
            (("--nnodes", "1:99999999"), "MAX of --nnodes is 99999999"),
            (("--nnodes", "1", "--rdzv-conf", "join_timeout=soon"),
             "--rdzv-conf option 'join_timeout': 'soon' is not a duration"),
            (("--nnodes", "1", "--rdzv-conf", "join_timeot=3"),
             "unknown --rdzv-conf option 'join_timeot'"),
        ):
            with self.subTest(args=args):
                said_all = self.expect((*given, *args), USAGE, said)
                self.assertNotIn("nodes_m", said_all)

    def test_variables(self):
        """Which job may come from the variables of `muster run`; options come before variables, and
        a URL is whole."""
        with harness.Server() as server:
            where = {"MUSTER_RDZV_ENDPOINT": f"127.0.0.1:{server.port}"}
            for variables in ({"MUSTER_RDZV_ID": "job"}, {"PET_RDZV_ID": "job"}):
                told = harness.run("join", "--nnodes", 1, env={**where, **variables})
                self.assertEqual(told.returncode, 0, told.stderr)
                told = harness.run("status", env={**where, **variables})
                self.assertIn(b"rendezvous job: round ", told.stdout, told.stderr)
            self.assertIn(b"job  ", harness.run("status", env=where).stdout)
            given = {**where, "MUSTER_RDZV_ID": "job"}
            told = harness.run("status", "--rdzv-id", "other", env=given)
            self.assertIn(b"rendezvous other\n", told.stdout)
            url = f"muster://127.0.0.1:{server.port}/other?min_workers=1"
            told = harness.run("status", "--rdzv-endpoint", url, env=given)
            self.assertIn(b"rendezvous other\n", told.stdout)
            self.assertEqual(harness.run("close", env=given).returncode, 0)
            told = harness.run("status", env={**given, "PET_RDZV_BACKEND": "static"})
            self.assertIn(b"has no record: rank and size of every node are given", told.stderr)

    def test_nobody_serves(self):
        """A node that finds no server is told how to start one."""
        port = harness.free_port()
        for command in (
            ("status", "--rdzv-id", "job", "--rdzv-endpoint", f"localhost:{port}"),
            ("close", "--rdzv-id", "job", "--rdzv-endpoint", f"localhost:{port}"),
            ("status", "--rdzv-backend", "c10d", "--rdzv-id", "job", "--timeout", "0.2",
             "--rdzv-endpoint", f"localhost:{port}"),
            ("store", "get", f"tcp://localhost:{port}", "key", "--timeout", "0.2"),
        ):
            with self.subTest(command=command):
                said = self.expect(command, CONNECT, "onnection refused")
                self.assertIn(f"start one with: muster serve --port {port}\n", said)
        # An etcd is not for us to start, nor a file.
        said = harness.run("store", "get", f"etcd3://localhost:{port}/x", "key",
                           "--timeout", "0.2").stderr
        self.assertNotIn(b"muster serve", said)

    def test_examples_keep_their_lines(self):
        """A command line of the manual is in a literal block: elsewhere lines are filled."""
        paths = glob.glob(MANUAL)
        self.assertGreaterEqual(len(paths), 9)
        blocks = 0
        for path in paths:
            section, literal = "", False
            with open(path, encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    if line.startswith("```"):
                        literal = not literal
                        blocks += literal
                    elif line.startswith("# "):
                        section = line.strip()
                    elif section == "# EXAMPLES" and not literal:
                        self.assertFalse(line.startswith("\t"), f"{path}:{number}: {line}")
                        self.assertNotIn("\\", line)
        self.assertGreater(blocks, 15)


if __name__ == "__main__":
    harness.main()
