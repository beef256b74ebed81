#!/usr/bin/env python3
"""Break each rule of sim/mutate in turn and see that the simulator finds it within 2,000 seeds."""

import os
import re
import subprocess
import sys

SIM = os.environ["MUSTER_SIM_MUTANTS"]
RUNS = 2000
MUTANTS_MIN = 100
# Where to begin with some of them, in place of 1. From there they are found soon and in a small
# world; from 1, these take most of a minute.
FIRST_SEEDS = {
    "agent-join-stays": 1100, "agent-quick-for-ever": 400,
    "authority-dead-stay": 171, "authority-floor": 392, "authority-kept-budget": 536,
    "authority-kept-undecided": 97, "authority-late-return": 114,
    "authority-member-finishes-once": 166, "authority-missing-ignored": 684,
    "authority-old-process": 85, "authority-restarts": 464,
    "authority-twin": 179, "authority-waits-for-the-finished": 202, "authority-window": 357,
    "closed-ignored": 62, "dead-stay": 197, "flip-early": 197, "legacy-blind-drop": 805,
    "legacy-small": 360, "legacy-stays-waiting": 32562,
    "no-beat": 119, "peers-hurried": 154,
}
# No mutant may make the machine itself go round in circles: that would hide what else it breaks.
RUN_S = 6 * float(os.environ.get("MUSTER_TEST_DEADLINE", 20))


def run(*arguments):
    return subprocess.run([SIM, *map(str, arguments)], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=RUN_S)


def verdict(name):
    """Whether the mutant was found, and how."""
    kind = name.partition("-")[0]
    machine = kind if kind in ("legacy", "authority", "agent") else "record"
    first = FIRST_SEEDS.get(name, 1)
    result = run("--mutant", name, "--machine", machine, "--runs", RUNS, "--first-seed", first,
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
        return True, f"seed {seed}, rule {found[2]}: {found[3]}"
    return False, f"not found in {RUNS} seeds from {first}\n{result.stdout[-2000:]}"


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
    for name in FIRST_SEEDS.keys() - {row[0] for row in rows}:
        print(f"FAIL there is no mutant {name}")
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
