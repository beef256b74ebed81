#!/usr/bin/env python3
"""Does tools/testrun tell the truth? It runs little programs that pass, fail, crash, or fail only
once, and what it prints and returns is compared with what they did."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TESTRUN = ROOT / "tools/testrun"

# Each is a shell script in which $RUN is 1 in the first run, 2 in the second, and so on; $PART is
# its argument.
PASS = "echo '2 passed, 0 failed, 0 skipped'"
FAIL = "echo 'FAIL it is broken'; echo '1 passed, 1 failed, 0 skipped'; exit 1"


def first(script):
    """Does this in its first run and passes in the next."""
    return f"if [ $RUN -eq 1 ]; then {script}; fi; {PASS}"


class Project:
    """Programs as tests; the name of each is that of its keyword argument. They are listed as in
    a build directory of meson."""

    def __init__(self, parallel=True, suite="integration", split=(), **programs):
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        for name, script in programs.items():
            self.write(f"{name}.sh",
                       f"PART=${{1:-}}\necho run $PART >>{self.path}/{name}.runs\n"
                       f"RUN=$(wc -l <{self.path}/{name}.runs)\n{script}\n")
        (self.path / "meson-info").mkdir()
        self.write("ninja", f"echo $* >>{self.path}/ninja.runs; ! test -e {self.path}/broken")
        (self.path / "meson-info/intro-targets.json").write_text(json.dumps([
            {"id": f"{name}@exe", "filename": [str(self.path / f"{name}.sh")]}
            for name in programs]))
        (self.path / "meson-info/intro-tests.json").write_text(json.dumps([
            {"name": name, "cmd": [str(self.path / f"{name}.sh")], "workdir": None, "timeout": 20,
             "suite": [f"little:{suite}"], "is_parallel": parallel, "priority": 0,
             "depends": [f"{name}@exe"],
             "env": {"MUSTER_TEST_SPLIT": "class"} if name in split else {}}
            for name in programs]))

    def write(self, name, script):
        file = self.path / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def run(self, *arguments, **env):
        env = {**os.environ, **env, "PATH": f"{self.path}:{os.environ['PATH']}"}
        done = subprocess.run([sys.executable, TESTRUN, self.path, *arguments], env=env,
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
        self.status, self.output = done.returncode, done.stdout
        self.closing = done.stdout.splitlines()[-1]
        return self

    def runs(self, name):
        return (self.path / f"{name}.runs").read_text().splitlines()

    def block(self, word, name):
        """What the summary says of a test: its line, and the lines of output below."""
        found = re.search(rf"^{word} integration/{name}: .*\n(?:    \| .*\n)*", self.output, re.M)
        return found and found[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.directory.cleanup()


class Retry(unittest.TestCase):
    def expect(self, project, status, closing):
        self.assertEqual((project.status, project.closing), (status, closing), project.output)

    def test_pass(self):
        with Project(one=PASS, two=PASS) as project:
            project.run("--retry")
            self.expect(project, 0, "4 passed, 0 failed, 0 skipped")
            self.assertEqual(len(project.runs("one")), 1)
            self.assertNotIn("FLAKY", project.output)
            self.assertRegex(project.output, r"\d s for 2 programs, \d s of processor time")

    def test_most_processor_time(self):
        count = "n=0; while [ $n -lt 100000 ]; do n=$((n + 1)); done"
        with Project(asleep=f"sleep 1; {PASS}", busy=f"{count}; {PASS}") as project:
            project.run()
            self.assertRegex(project.output, r"(?m)^most processor time: \S*/busy \d+ s, ")

    def test_bytecode_is_kept(self):
        """Although whoever runs the tests wants none."""
        with Project(one=f'[ -z "${{PYTHONDONTWRITEBYTECODE:-}}" ] && {PASS}') as project:
            project.run(PYTHONDONTWRITEBYTECODE="1")
            self.expect(project, 0, "2 passed, 0 failed, 0 skipped")

    def test_flaky(self):
        """Green, named, and what it printed when it failed is in the summary."""
        for parallel in (True, False):
            with Project(parallel, good=PASS, moody=first(FAIL)) as project:
                project.run("--retry")
                self.expect(project, 0, "4 passed, 0 failed, 0 skipped")
                self.assertEqual(len(project.runs("moody")), 2)
                self.assertEqual(len(project.runs("good")), 1)
                block = project.block("FLAKY", "moody")
                self.assertIn("exit status 1", block)
                self.assertIn("| FAIL it is broken", block)
                self.assertIsNone(project.block("FAILED", "moody"))

    def test_fails_again(self):
        with Project(good=PASS, broken=FAIL) as project:
            project.run("--retry")
            self.expect(project, 1, "3 passed, 1 failed, 0 skipped")
            self.assertEqual(len(project.runs("broken")), 2)
            self.assertIn("when it ran alone: exit status 1", project.block("FAILED", "broken"))
            self.assertIsNone(project.block("FLAKY", "broken"))

    def test_not_asked_for(self):
        with Project(moody=first(FAIL)) as project:
            project.run()
            self.expect(project, 1, "1 passed, 1 failed, 0 skipped")
            self.assertEqual(len(project.runs("moody")), 1)
            self.assertIsNotNone(project.block("FAILED", "moody"))

    def test_crash_is_final(self):
        """A second run that passes does not take back what the first has shown."""
        scripts = {
            "signal": "kill -ABRT $$",
            "asan": "echo report >$TMPDIR/sanitizer.1; exit 1",
            "ubsan": "echo 'kv.c:1:2: runtime error: signed integer overflow'",
            "assertion": f"echo \"muster: assertion 'x' failed at kv.c:1 in f\"; {FAIL}",
            "server": f"echo 'AssertionError: the server had died with -6; log:'; {FAIL}",
        }
        with Project(**{name: first(script) for name, script in scripts.items()}) as project:
            project.run("--retry")
            self.expect(project, 1, "4 passed, 5 failed, 0 skipped")
            for name in scripts:
                self.assertEqual(len(project.runs(name)), 1, name)
                self.assertIsNotNone(project.block("FAILED", name), name)

    FINAL_LINES = (
        # A child has crashed, as unittest tells it.
        "AssertionError: -11 != 0", "AssertionError: 0 != -6 : the server's end",
        "AssertionError: 139 != 0", "AssertionError: 134 not found in (0, 4)",
        "AssertionError: Tuples differ: (0, -11) != (0, 0)",
        "AssertionError: Lists differ: [0, 139, 0] != [0, 0, 0]",
        "AssertionError: the node ended with -8", "AssertionError: exit -11: ''",
        "AssertionError: pickle-tool ended with 134: ''",
        "subprocess.CalledProcessError: Command 'x' died with <Signals.SIGSEGV: 11>.",
        "subprocess.CalledProcessError: Command 'x' returned non-zero exit status 139.",
        "the server ended with -11, see /tmp/log", "FAIL ended with -6",
        "[  ERROR   ] --- WIFEXITED(status)",
        # As a shell, libc and other runtimes tell it.
        "Segmentation fault (core dumped)", "Aborted", "sh: line 1: 7 Bus error    muster serve",
        "free(): double free detected in tcache 2", "double free or corruption (!prev)",
        "corrupted size vs. prev_size", "malloc(): invalid size (unsorted)",
        "malloc_consolidate(): unaligned fastbin chunk detected", "realloc(): invalid next size",
        "tcache_thread_shutdown(): unaligned tcache chunk detected",
        "muster: uv.c:7: uv_run: Assertion `loop' failed.",
        "munmap_chunk(): invalid pointer", "*** stack smashing detected ***: terminated",
        "Fatal Python error: Segmentation fault",
        # A store has lost a value or has another one; a seed is broken.
        "AssertionError: 119 != 120 : a value was lost", "AssertionError: lost values: {'a'}",
        "AssertionError: b'5' != b'6'", "AssertionError: None != b'6'",
        "    self.assertEqual(torch.call(\"get\", \"k\"), \"v\")\nAssertionError: 'w' != 'v'",
        "    self.assertEqual(store.add(\"n\", 1), 5)\n    ~~~~~^^^^^\nAssertionError: 4 != 5",
        "1 bytes of 0x7ffd0010 and 0x55d0 differ", "FAIL no order explains this history",
        "seed 12 breaks rule ranks: node 3 has the rank of node 4",
    )

    def test_final_lines(self):
        """Each is enough."""
        for begin in range(0, len(self.FINAL_LINES), 5):
            lines = self.FINAL_LINES[begin:begin + 5]
            scripts = {f"t{number}": f"cat <<'END'\n{line}\nEND\n{FAIL}"
                       for number, line in enumerate(lines)}
            with Project(**{name: first(script) for name, script in scripts.items()}) as project:
                project.run("--retry")
                for name, line in zip(scripts, lines):
                    self.assertEqual(len(project.runs(name)), 1, line)
                    self.assertIsNotNone(project.block("FAILED", name), line)
                    self.assertIsNone(project.block("FLAKY", name), line)

    def test_final_status(self):
        """A script whose child has crashed."""
        with Project(abort=first("exit 134"), segv=first("exit 139")) as project:
            project.run("--retry")
            self.expect(project, 1, "0 passed, 2 failed, 0 skipped")

    def test_time_is_not_final(self):
        """What a busy machine explains is run again, whatever numbers are in it."""
        lines = ("AssertionError: 5 != 0 : timed out after 139 s", "AssertionError: 1.39 > 1.0",
                 "AssertionError: 'ended by -6s' != 'ended'", "AssertionError: 1139 != 1140",
                 "    self.assertEqual(torch.call(\"get\", \"k\"), \"v\")\nTimeoutError: late")
        scripts = {f"t{number}": f"cat <<'END'\n{line}\nEND\n{FAIL}"
                   for number, line in enumerate(lines)}
        with Project(**{name: first(script) for name, script in scripts.items()}) as project:
            project.run("--retry")
            self.expect(project, 0, "10 passed, 0 failed, 0 skipped")

    def test_leaks(self):
        """Those of a unit test that has failed are no more than that; those of others are."""
        leak = ("echo '==7==ERROR: LeakSanitizer: detected memory leaks' >$TMPDIR/sanitizer.7;"
                " kill -ABRT $$")
        worse = leak.replace("LeakSanitizer: detected", "AddressSanitizer: heap-use-after-free")
        fails = "echo '[  FAILED  ] test_x'; "
        with Project(moody=first(fails + leak), leaks=first(leak),
                     worse=first(fails + worse)) as project:
            project.run("--retry")
            self.expect(project, 1, "2 passed, 2 failed, 0 skipped")
            self.assertIsNotNone(project.block("FLAKY", "moody"))
            self.assertIsNotNone(project.block("FAILED", "leaks"))
            self.assertIsNotNone(project.block("FAILED", "worse"))

    def test_too_many(self):
        scripts = {f"t{number}": first(FAIL) for number in range(6)}
        with Project(**scripts) as project:
            project.run("--retry")
            self.expect(project, 1, "6 passed, 6 failed, 0 skipped")
            self.assertEqual(len(project.runs("t0")), 1)

    def test_not_an_end(self):
        """No closing line, and skips that are not named, are failures."""
        with Project(silent="exit 0", vague="echo '1 passed, 0 failed, 1 skipped'") as project:
            project.run("--retry")
            self.expect(project, 1, "1 passed, 2 failed, 1 skipped")
            self.assertIn("no closing line", project.block("FAILED", "silent"))


    def test_all_skipped(self):
        skip = "echo 'SKIP it: why'; echo '0 passed, 0 failed, 1 skipped'; exit 77"
        with Project(absent=skip, liar="echo '1 passed, 0 failed, 0 skipped'; exit 77") as project:
            project.run()
            self.expect(project, 1, "1 passed, 1 failed, 1 skipped")
            self.assertIsNone(project.block("FAILED", "absent"))
            self.assertIsNotNone(project.block("FAILED", "liar"))


class Parts(unittest.TestCase):
    SCRIPT = f'if [ "$PART" = --list=class ]; then echo A B; exit; fi; {PASS}'

    def test_all(self):
        with Project(split=["long"], long=self.SCRIPT) as project:
            project.run()
            self.assertEqual(project.closing, "4 passed, 0 failed, 0 skipped", project.output)
            self.assertIn("integration/long:A: 2 passed", project.output)
            self.assertIn("integration/long:B: 2 passed", project.output)

    def test_named(self):
        with Project(split=["long"], long=self.SCRIPT, other=PASS) as project:
            self.assertEqual(project.run("long:B").closing, "2 passed, 0 failed, 0 skipped")
            self.assertEqual(project.run("long").closing, "4 passed, 0 failed, 0 skipped")
            self.assertEqual(project.run("long:C").status, 1)

    def test_one_again(self):
        """Only the part that has failed runs again."""
        script = (f'if [ "$PART" = --list=class ]; then echo A B; exit; fi\n'
                  f'if [ "$PART" = B ] && [ $(grep -c B $0.runs) -eq 1 ]; then {FAIL}; fi\n{PASS}')
        script = script.replace("$0.runs", '"${0%.sh}.runs"')
        with Project(split=["long"], long=script) as project:
            project.run("--retry")
            self.assertEqual((project.status, project.closing),
                             (0, "4 passed, 0 failed, 0 skipped"), project.output)
            self.assertEqual(sorted(project.runs("long")),
                             ["run --list=class", "run A", "run B", "run B"])

    def test_list_fails(self):
        """Then all of it runs, and fails."""
        with Project(split=["long"], long="echo 'no module'; exit 3") as project:
            project.run()
            self.assertEqual(project.status, 1)
            self.assertIsNotNone(project.block("FAILED", "long"))


class Build(unittest.TestCase):
    def test_what_is_needed(self):
        """And nothing else; before that, what says which tests there are."""
        with Project(one=PASS, two=PASS) as project:
            project.run("--build", "two")
            self.assertEqual((project.status, project.closing),
                             (0, "2 passed, 0 failed, 0 skipped"), project.output)
            self.assertEqual(project.runs("ninja"), [
                f"-C {project.path} --quiet build.ninja", f"-C {project.path} --quiet two.sh"])

    def test_does_not_compile(self):
        """Then no test runs, and that is a failure."""
        with Project(one=PASS) as project:
            project.write("broken", "")
            project.run("--build")
            self.assertEqual((project.status, project.closing),
                             (1, "0 passed, 1 failed, 0 skipped"), project.output)
            self.assertFalse((project.path / "one.runs").exists())

    def test_not_unless_asked(self):
        with Project(one=PASS) as project:
            project.run()
            self.assertFalse((project.path / "ninja.runs").exists())


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
