"""The journal of a server, and what `muster replay` makes of it."""

import json
import os
import resource
import signal
import tempfile
import unittest

import harness
from test_job_frames import (HEARTBEAT, LEAVE, LOST, PONG, REOPENED, WELCOME, Node, receive,
                             receive_sealed, send)

SIZE_MIN = 64 << 10
VECTORS = os.path.join(harness.ROOT, "tests", "vectors", "wire")


def replay(path, *args, code=0):
    """The lines of the story, as objects."""
    done = harness.run("replay", path, "--json", *args)
    if done.returncode != code:
        raise AssertionError(f"exit {done.returncode}, not {code}: {done.stderr!r}")
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


def events(story):
    """Their names; at the end, of each job how it stands."""
    return [line.get("ev", "status") for line in story]


def holds(now, before):
    """Whether `now` has every value of `before`; objects may have more members."""
    if isinstance(before, dict):
        return isinstance(now, dict) and all(
            name in now and holds(now[name], value) for name, value in before.items())
    if isinstance(before, list):
        return (isinstance(now, list) and len(now) == len(before) and
                all(map(holds, now, before)))
    return now == before


class Releases(unittest.TestCase):
    def test_journal_of_0_2_0(self):
        """A journal of that release tells what it told there."""
        with open(os.path.join(VECTORS, "journal-0.2.0.story"), encoding="utf-8") as file:
            before = [json.loads(line) for line in file]
        now, _ = replay(os.path.join(VECTORS, "journal-0.2.0.bin"))
        self.assertEqual(len(now), len(before))
        for line, wanted in zip(now, before):
            self.assertTrue(holds(line, wanted), f"{line} is not {wanted}")


class Journal(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="muster-test-")
        self.path = os.path.join(self.folder.name, "journal")

    def tearDown(self):
        self.folder.cleanup()

    def serve(self, *args, **kwargs):
        return harness.Server("--journal", self.path, "--job-grace", "0", *args, **kwargs)

    def join(self, server, name="a", nodes=(1, 1), run_id="job"):
        node = Node(server, name, run_id=run_id)
        wire = node.connect()
        node.announce(wire, nodes)
        receive(wire, WELCOME)
        if nodes == (1, 1):
            receive_sealed(wire)
        return wire

    def beat(self, wire, count=1):
        """Heartbeats, the last of which is answered."""
        for _ in range(count - 1):
            send(wire, HEARTBEAT, b"\x00")
        send(wire, HEARTBEAT, b"\x01")
        receive(wire, PONG)

    def wait_size(self, size, path=None):
        harness.wait_until(lambda: os.path.exists(path or self.path) and
                           os.path.getsize(path or self.path) >= size, f"{size} bytes of journal")

    def test_tells_what_happened(self):
        with self.serve() as server:
            wires = [self.join(server, name, (2, 2)) for name in "ab"]
            for wire in wires:
                receive_sealed(wire)
            self.join(server, "c", (1, 1), "other")
            wires[1].socket.close()
            receive(wires[0], LOST)
            receive(wires[0], REOPENED)
            send(wires[0], LEAVE)
            wires[0].socket.close()
            server.wait_log("ev=node.left")
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        story, _ = replay(self.path, "--job", "job")
        self.assertEqual(events(story), [
            "journal.begun", "job.state", "node.announced", "node.announced", "job.complete",
            "told.sealed", "node.disconnected", "node.lost", "job.reopened", "told.lost",
            "told.reopened", "node.left", "node.disconnected", "status"])
        lost = next(line for line in story if line["ev"] == "node.lost")
        self.assertEqual((lost["node"], lost["cause"], lost["rank"]), ("b", "disconnected", 1))
        self.assertEqual([node["node"] for node in story[-1]["gone"]], ["a", "b"])
        stamps = [line["time"] for line in story[:-1]]
        self.assertEqual(len(stamps[0]), len("2026-01-31T12:00:00.123456Z"))
        # The same, up to the moment before the loss; and of all jobs, for people.
        story, _ = replay(self.path, "--job", "job", "--until", stamps[5])
        self.assertEqual(events(story)[-2:], ["told.sealed", "status"])
        self.assertEqual(story[-1]["phase"], "running")
        self.assertEqual(len(story[-1]["participants"]), 2)
        done = harness.run("replay", self.path)
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"run=other node=c", done.stdout)
        self.assertIn(b"\nrendezvous job: round 1 of epoch", done.stdout)
        self.assertIn(b"\nround 2 is open: nobody is here", done.stdout)
        self.assertNotIn(b"node.heard", done.stdout)
        _, errors = replay(self.path, "--job", "none", code=3)
        self.assertIn("there is no job 'none'", errors)

    def test_rotates(self):
        """Each of the two files can be replayed alone; there is no third one."""
        with self.serve("--journal-size", SIZE_MIN) as server:
            wire = self.join(server)
            for _ in range(5):
                self.beat(wire, 1500)
            self.wait_size(1, self.path + ".1")
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["journal", "journal.1"])
        for path in (self.path, self.path + ".1"):
            self.assertLess(os.path.getsize(path), 2 * SIZE_MIN)
            story, _ = replay(path)
            self.assertEqual(events(story)[:2], ["journal.begun", "job.state"])
            self.assertEqual(story[-1]["round"], 1)
        story, _ = replay(self.path)
        self.assertEqual(story[1]["state"], "round 1 runs with 1 node")
        story, _ = replay(self.path + ".1", "--all")
        self.assertGreater(events(story).count("node.heard"), 1000)

    def test_hangup_opens_it_again(self):
        with self.serve() as server:
            wire = self.join(server)
            self.beat(wire)
            self.wait_size(1)
            os.rename(self.path, self.path + ".moved")
            server.process.send_signal(signal.SIGHUP)
            harness.wait_until(lambda: os.path.exists(self.path), "another journal")
            self.beat(wire)
        self.assertIn("node.announced", events(replay(self.path + ".moved")[0]))
        self.assertEqual(events(replay(self.path)[0])[:2], ["journal.begun", "job.state"])

    def test_hangup_with_a_file_in_its_place(self):
        """As with logrotate's `create`: the new file is written to, and its size counts alone."""
        with self.serve("--journal-size", SIZE_MIN) as server:
            wire = self.join(server)
            for time in range(2):
                self.wait_size(0)
                while (size := os.path.getsize(self.path)) < SIZE_MIN * 3 // 4:
                    self.beat(wire, 100)
                    self.wait_size(size + 1)  # so that little is on its way
                if time == 0:
                    os.rename(self.path, self.path + ".moved")
                    with open(self.path, "wb"):
                        pass
                    server.process.send_signal(signal.SIGHUP)
                    server.wait_log("ev=journal.reopened")
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["journal", "journal.moved"])
        self.assertEqual(events(replay(self.path)[0])[:2], ["journal.begun", "job.state"])

    def test_damage(self):
        """The readable part is printed, then the position of the damage; a server does not
        append to such a file."""
        with self.serve() as server:
            self.beat(self.join(server))
        with open(self.path, "rb") as file:
            whole = file.read()
        with open(self.path, "wb") as file:
            file.write(whole[:-1])
        story, errors = replay(self.path, code=10)
        self.assertIn("job.complete", events(story))
        self.assertEqual(events(story)[-1], "status")
        self.assertRegex(errors, r"ends within the record at offset \d+: \d+ bytes are left over")
        broken = os.path.join(self.folder.name, "broken")
        with open(broken, "wb") as file:
            file.write(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        story, errors = replay(broken, code=10)
        self.assertRegex(errors, r"damaged at offset \d+")
        with self.serve() as server:
            self.beat(self.join(server, "b"))
        replay(self.path + ".1", code=10)
        story, _ = replay(self.path)
        self.assertEqual(story[2]["node"], "b")
        # An intact journal is appended to, and replayed from its beginning.
        with self.serve() as server:
            self.beat(self.join(server, "c"))
        story, _ = replay(self.path)
        self.assertEqual(events(story).count("journal.begun"), 2)
        self.assertEqual([line["node"] for line in story if line.get("ev") == "node.announced"],
                         ["b", "c"])

    def test_full_disk(self):
        """The server goes on; the journal does when there is room, and says what is missing."""
        limit = 4 << 10
        with self.serve(preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))) as server:
            wire = self.join(server)
            self.wait_size(1)
            self.beat(wire, 400)
            server.wait_log("ev=journal.failed", "File too large")
            self.beat(wire, 100)
            replay(self.path)
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE,
                             (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

            def goes_on():
                self.beat(wire)
                return events(replay(self.path)[0]).count("journal.begun") == 2
            harness.wait_until(goes_on, "the journal to go on")
            # Nothing is missing of a job that begins now, nor of this one in the next file.
            self.join(server, "b", run_id="late")
            os.rename(self.path, self.path + ".moved")
            server.process.send_signal(signal.SIGHUP)
            server.wait_log("ev=journal.reopened")
            self.beat(wire)
        late = events(replay(self.path + ".moved", "--job", "late")[0])
        self.assertIn("node.announced", late)
        self.assertNotIn("journal.gap", late)
        again = events(replay(self.path, "--job", "job")[0])
        self.assertIn("job.state", again)
        self.assertNotIn("journal.gap", again)
        story, _ = replay(self.path + ".moved", "--job", "job")
        again = events(story).index("journal.begun", 1)
        self.assertEqual(events(story)[again + 1:again + 3], ["job.state", "journal.gap"])
        self.assertEqual(story[again + 1]["state"], "round 1 runs with 1 node")
        self.assertEqual((story[-1]["run_id"], story[-1]["round"]), ("job", 1))

    def test_refuses_other_files(self):
        other = os.path.join(self.folder.name, "other")
        os.mkfifo(other)
        for path, why in ((other, "not a regular file"), ("/dev/null", "not a regular file"),
                          (__file__, "not a journal"), (self.folder.name, "Is a directory")):
            done = harness.run("serve", "--port", "0", "--journal", path, timeout=10)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(why, done.stderr.decode())
        done = harness.run("replay", __file__)
        self.assertEqual(done.returncode, 10)
        self.assertIn(b"not a journal", done.stderr)
        self.assertEqual(harness.run("replay", "/nowhere").returncode, 3)
        self.assertEqual(harness.run("replay", __file__, "--until", "soon").returncode, 2)


if __name__ == "__main__":
    harness.main()
