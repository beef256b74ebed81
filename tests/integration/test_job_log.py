"""A job's life as the server's log and its metrics page tell it."""

import json

import harness
import test_job_frames as frames
from test_http import Page, needs_http
from test_muster_backend import QUICK, Case


class Log(Case):
    serve = ("--log-format", "json", "--job-expiry", "200ms", "--job-grace", "100ms")

    def lines(self, *events):
        """Of the job's events; the first field is the name."""
        whole, _, _ = self.server.log().rpartition("\n")
        found = [json.loads(line) for line in whole.splitlines()]
        return [line for line in found if line["ev"] in events]

    def wait_for(self, event, count=1):
        return harness.wait_until(
            lambda: len(self.lines(event)) >= count and self.lines(event), event)[count - 1]

    def check(self, line, **fields):
        self.assertEqual({name: line.get(name) for name in fields}, fields, line)
        self.assertEqual(line["level"], "info")
        self.assertEqual(line["run"], "job")

    def test_life(self):
        first = self.named("2", "a", "--hold", "0", "--rejoin", conf=QUICK)
        self.check(self.wait_for("job.founded"), node="a", min=2, max=2)
        second = self.named("2", "b", "--hold", "0", "--rejoin", conf=QUICK)
        first.next("joined")
        second.next("joined")
        complete = self.wait_for("job.complete")
        self.check(complete, round=1, nodes=2, why="full")
        self.assertGreater(complete["seconds"], 0)
        second.process.kill()
        self.check(self.wait_for("node.lost"), node="b", cause="disconnected", standing="member",
                   round=1, rank=1)
        self.check(self.wait_for("job.reopened"), round=1, next=2, why="lost", node="b")
        third = self.named("2", "c", "--hold", "0", "--rejoin", conf=QUICK)
        third.next("joined")
        self.check(self.wait_for("job.complete", 2), round=2, nodes=2)
        third.process.terminate()
        third.wait()
        self.check(self.wait_for("node.left"), node="c", cause="left", round=2, rank=1)
        self.check(self.wait_for("job.reopened", 2), round=2, next=3, why="left", node="c")
        self.expect(self.close_rendezvous("--reason", "the budget is spent"), 0)
        self.check(self.wait_for("job.closed"), round=2, reason="the budget is spent")
        self.check(self.wait_for("job.forgotten"), round=2)
        first.wait()
        names = [line["ev"] for line in self.lines(
            "job.founded", "job.complete", "node.lost", "job.reopened", "job.closed",
            "job.forgotten")]
        self.assertEqual(names, ["job.founded", "job.complete", "node.lost", "job.reopened",
                                 "job.complete", "job.reopened", "job.closed", "job.forgotten"])

    def test_one_node(self):
        """Its round is complete with the announcement that founds the job."""
        self.named("1", "a", "--hold", "0").next("joined")
        self.wait_for("job.complete")
        self.assertEqual([line["ev"] for line in self.lines("job.founded", "job.complete")],
                         ["job.founded", "job.complete"])

    def test_server_comes_back(self):
        nodes = [self.named("2", name, "--hold", "0", conf=QUICK) for name in "ab"]
        for node in nodes:
            node.next("joined")
        self.server.kill()
        self.restart(*self.serve)
        self.check(self.wait_for("job.claimed"), round=1, nodes=2)
        self.check(self.wait_for("job.resumed"), round=1, nodes=2)
        self.assertEqual(self.lines("job.complete", "node.lost"), [])


@needs_http
class Metrics(Case):
    serve = ("--http", "127.0.0.1:0", "--job-grace", "100ms")

    def test_counters(self):
        page = Page(self.server)
        before = page.metrics()
        self.assertEqual(before["muster_rounds_total"], 0)
        self.assertEqual(before['muster_round_complete_seconds_bucket{le="+Inf"}'], 0)
        nodes = [self.named("2", name, "--hold", "0", conf=QUICK) for name in "ab"]
        for node in nodes:
            node.next("joined")
        spare = self.named("2", "c", "--hold", "0", conf=QUICK)
        spare.next("spare")
        other = self.start("3", run_id='a"b\\c\x1b')
        harness.wait_until(lambda: page.metrics()["muster_nodes"] == 4, "the other job")
        now = page.metrics()
        self.assertEqual(now["muster_rounds_total"], 1)
        self.assertEqual(now['muster_nodes_standing{standing="member"}'], 2)
        self.assertEqual(now['muster_nodes_standing{standing="spare"}'], 1)
        self.assertEqual(now['muster_nodes_standing{standing="gathered"}'], 1)
        self.assertEqual(now['muster_job_nodes{run="job",standing="member"}'], 2)
        self.assertEqual(now['muster_job_nodes{run="job",standing="spare"}'], 1)
        self.assertEqual(now['muster_job_rounds_total{run="job"}'], 1)
        strange = r'{run="a\"b\\\\c\\x1b"'
        self.assertEqual(now["muster_job_rounds_total" + strange + "}"], 0)
        self.assertEqual(now["muster_job_nodes" + strange + ',standing="gathered"}'], 1)
        self.assertEqual(now['muster_round_complete_seconds_bucket{le="+Inf"}'], 1)
        self.assertEqual(now["muster_round_complete_seconds_count"], 1)
        self.assertAlmostEqual(now["muster_round_complete_seconds_sum"],
                               now['muster_job_gathering_seconds_total{run="job"}'])
        self.assertGreater(now["muster_round_complete_seconds_sum"], 0)
        self.assertEqual(now["muster_jobs_unlisted"], 0)
        nodes[0].process.kill()
        other.process.terminate()
        other.wait()
        lost = 'muster_nodes_ended_total{cause="disconnected"}'
        harness.wait_until(lambda: page.metrics()[lost] == 1, "the loss")
        now = page.metrics()
        self.assertEqual(now['muster_job_nodes_ended_total{run="job",cause="disconnected"}'], 1)
        self.assertEqual(now['muster_nodes_ended_total{cause="left"}'], 1)
        # The other job has no nodes, and so no series; what it counted stays in the totals.
        self.assertNotIn("muster_job_rounds_total" + strange + "}", now)

    def test_many_jobs(self):
        """Each has series of its own."""
        page = Page(self.server)
        wires = [announced(self.server, f"run-{i}") for i in range(200)]
        now = page.metrics()
        self.assertEqual(now["muster_rendezvous"], 200)
        self.assertEqual(now["muster_jobs_unlisted"], 0)
        listed = {name for name in now if name.startswith("muster_job_rounds_total{")}
        self.assertEqual(listed, {f'muster_job_rounds_total{{run="run-{i}"}}'
                                  for i in range(200)})
        for wire in wires:
            wire.close()


def announced(server, run_id):
    """The connection of a node that is alone in its job."""
    node = frames.Node(server, run_id=run_id)
    wire = node.connect()
    node.announce(wire)
    frames.receive(wire, frames.WELCOME)
    frames.receive_sealed(wire)
    return wire


if __name__ == "__main__":
    harness.main()
