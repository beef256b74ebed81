#!/usr/bin/env python3
"""Run the simulator: seeds that the commit chooses, of all machines in turn, the seeds that once
found something, and whether a seed replays exactly."""

import itertools
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIM = os.environ["MUSTER_SIM"]
# Slow builds may want fewer.
RUNS = int(os.environ.get("MUSTER_SIM_RUNS", "2000"))
# Where there is no repository.
FIRST_SEED_DEFAULT = 20_000_000

# Seeds that have found a defect are kept in found.txt: a machine, a seed and what it had found.
FOUND = pathlib.Path(__file__).with_name("found.txt")


def first_seed():
    """Other seeds for every commit, and the same ones for the same commit."""
    result = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    commit = result.stdout.strip()
    if result.returncode != 0 or not re.fullmatch(r"[0-9a-f]{40,}", commit):
        return FIRST_SEED_DEFAULT
    return int(commit[:12], 16)


def run(*arguments):
    return subprocess.run([SIM, *map(str, arguments)], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, name, is_fine, output=""):
        if is_fine:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAIL {name}\n{output}")


def check_seeds(tally):
    first = first_seed()
    result = run("--runs", RUNS, "--first-seed", first)
    print(result.stdout)
    closing = f"{RUNS} passed, 0 failed, 0 skipped"
    tally.check(f"{RUNS} seeds from {first}", result.returncode == 0 and closing in result.stdout,
                f"replay with muster-sim --runs {RUNS} --first-seed {first}")


def check_found(tally):
    for line in FOUND.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            machine, seed, what = line.split(None, 2)
            result = run("--machine", machine, "--runs", 1, "--first-seed", seed)
            tally.check(f"seed {seed} of {machine}, {what}", result.returncode == 0, result.stdout)


def check_replay(tally):
    for machine, seed in itertools.product(("record", "legacy", "authority", "agent"), (1, 2, 3)):
        arguments = ("--machine", machine, "--seed", seed)
        once, again = run(*arguments), run(*arguments)
        lines = once.stdout.splitlines()
        times = [float(time) for time in re.findall(r"^\[ *(\d+\.\d{6})\] ", once.stdout, re.M)]
        tally.check(f"seed {seed} of {machine} replays exactly", once.stdout == again.stdout, "")
        tally.check(f"the history of seed {seed} of {machine} is in order",
                    len(times) > 50 and times == sorted(times), "\n".join(lines[:20]))


def check_usage(tally):
    for arguments in (["--seed"], ["--seed", "x"], ["--seed", "-1"], ["--runs", "1", "--what"],
                      ["--machine", "both", "--runs", "1"],
                      ["--mutant", "blind-write", "--runs", "1"]):
        result = run(*arguments)
        is_refused = result.returncode == 2 and "usage:" in result.stdout
        tally.check(f"wrong usage {arguments}", is_refused, result.stdout)


def main():
    tally = Tally()
    check_seeds(tally)
    check_found(tally)
    check_replay(tally)
    check_usage(tally)
    print(f"{tally.passed} passed, {tally.failed} failed, 0 skipped")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
