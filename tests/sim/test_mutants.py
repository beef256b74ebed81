#!/usr/bin/env python3
"""Break each rule of sim/mutate in turn and see that the simulator finds it within 2,000 seeds."""

import os
import re
import subprocess
import sys

SIM = os.environ["MUSTER_SIM_MUTANTS"]
RUNS = 2000
MUTANTS_MIN = 72
# No mutant may make the machine itself go round in circles: that would hide what else it breaks.
RUN_S = 6 * float(os.environ.get("MUSTER_TEST_DEADLINE", 20))


def run(*arguments):
    return subprocess.run([SIM, *map(str, arguments)], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=RUN_S)


def verdict(name):
    """Whether the mutant was found, and how."""
    kind = name.partition("-")[0]
    machine = kind if kind in ("legacy", "authority", "agent") else "record"
    result = run("--mutant", name, "--machine", machine, "--runs", RUNS, "--first-seed", 1,
                 "--stop")
    found = re.search(r"^seed (\d+) breaks rule (\S+): (.*)$", result.stdout, re.M)
    if result.returncode == 1 and found:
        seed = int(found[1])
        replay = f"replay with: muster-sim --mutant {name} --machine {machine} --seed {seed}"
        if replay not in result.stdout:
            return False, "the command line for its replay is missing\n" + result.stdout
        again = run("--mutant", name, "--machine", machine, "--seed", seed)
        if again.returncode != 1 or f"breaks rule {found[2]}: {found[3]}" not in again.stdout:
            return False, f"its replay does not end the same way\n{again.stdout[-2000:]}"
        return True, f"after {seed} seeds, rule {found[2]}: {found[3]}"
    return False, f"not found in {RUNS} seeds\n{result.stdout[-2000:]}"


def main():
    passed = failed = 0
    rows = [line.split("\t") for line in run("--mutants").stdout.splitlines()]
    if len(rows) < MUTANTS_MIN:
        print(f"FAIL there are only {len(rows)} mutants")
        failed += 1
    unbroken = run("--runs", 50)
    if unbroken.returncode != 0:
        print(f"FAIL without a mutant a rule is broken\n{unbroken.stdout}")
        failed += 1
    for name, file, what in rows:
        is_found, how = (False, what) if what.startswith("NOT APPLIED") else verdict(name)
        print(f"{'found' if is_found else 'FAIL'} {name} ({file}: {what}): {how}")
        passed += is_found
        failed += not is_found
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
