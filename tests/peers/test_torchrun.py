"""Real torchrun agents with muster's plugin: start, failures, deaths, growth, spares, the end.

Workers do not communicate, so that no failed collective shows a death; except in Training.
"""

import contextlib
import os
import signal
import socket
import time
import unittest

import torchruns
import etcd_cluster  # from the integration tests, as harness is
from peer import harness
from torchruns import Agent, OurC10d, Run

# Time to notice a loss. A node is lost a second after its connection; agents before 2.4 notice
# changes later than others.
NOTICED_S = 30

# Three keep-alive intervals of torch's own handler. In 1.13 they cannot be set.
EXPIRY_S = 15


def is_served(job):
    """Whether a server listens at the endpoint."""
    host, _, port = job.endpoint.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


class Agents(unittest.TestCase):
    which = None

    def job(self, server, *args, **options):
        return torchruns.Job(self.which, *args, endpoint=f"127.0.0.1:{server.port}", **options)

    def check_round(self, job, world):
        """Check the round in `muster status`."""
        shown = job.status()
        self.assertEqual((shown["phase"], shown["world_size"]), ("running", world))
        self.assertEqual(len(shown["participants"]), world)

    def check_end(self, job):
        shown = job.status()
        self.assertEqual((shown["phase"], shown["reason"]), ("closed", "the job is over"))

    def test_failure_and_restart(self):
        """A worker fails; all agents start new workers, with the same ranks."""
        with harness.Server() as server, self.job(server, "3") as job:
            nodes = job.start(3, "--max_restarts", 1)
            lines = job.settle(nodes)
            ranks = [line["rank"] for line in lines]
            job.do("fail-1")
            lines = job.settle(nodes, after=torchruns.workers(lines))
            self.assertEqual([line["rank"] for line in lines], ranks)
            # Each agent of torch counts its own restarts.
            self.assertEqual([line["restarts"] for line in lines],
                             [1 if rank == 1 else 0 for rank in ranks])
            self.check_round(job, 3)
            job.end(nodes)
            self.check_end(job)

    def test_death_growth_and_leave(self):
        """An agent is killed and replaced, another is stopped; one is not enough for a round."""
        with harness.Server() as server, self.job(server, "2:3") as job:
            nodes = job.start(3)
            lines = job.settle(nodes)
            killed = nodes.pop(1)
            killed.process.kill()
            began = time.monotonic()
            lines = job.settle(nodes, after=torchruns.workers(lines))
            self.assertLess(torchruns.since(began), NOTICED_S)
            self.check_round(job, 2)
            server.wait_log("ev=node.lost", f"_{killed.pid}_", "standing=member")
            nodes += job.start()
            lines = job.settle(nodes, after=torchruns.workers(lines))
            self.check_round(job, 3)
            stopped = nodes.pop(0)
            stopped.signal(signal.SIGTERM)
            lines = job.settle(nodes, after=torchruns.workers(lines))
            self.assertEqual(stopped.ended(), 1)
            self.check_round(job, 2)
            server.wait_log("ev=node.left", f"_{stopped.pid}_", "standing=member")
            # One node is not enough: it waits for others, without workers.
            nodes.pop(0).process.kill()
            harness.wait_until(lambda: job.status()["phase"] == "open", "an open round", NOTICED_S)
            nodes += job.start()
            lines = job.settle(nodes, after=torchruns.workers(lines))
            self.assertEqual([line["restarts"] for line in lines], [0, 0])
            job.end(nodes)
            self.check_end(job)

    def test_spare(self):
        """A spare takes the place of a lost node, and another one is not needed."""
        with harness.Server() as server, self.job(server, "2") as job:
            nodes = job.start(2)
            lines = job.settle(nodes)
            spare = job.start(1, conf="join_timeout=2")[0]
            harness.wait_until(lambda: job.status()["spares"], "the spare", torchruns.PATIENCE_S)
            time.sleep(3)
            self.assertEqual([node.last()["worker"] for node in nodes],
                             [line["worker"] for line in lines])
            nodes.pop(0).process.kill()
            nodes.append(spare)
            lines = job.settle(nodes, after=torchruns.workers(lines))
            unneeded = job.start(1)[0]
            harness.wait_until(lambda: job.status()["spares"], "the spare", torchruns.PATIENCE_S)
            job.end(nodes)
            self.assertEqual(unneeded.ended(), 0)
            self.assertNotIn("Traceback", unneeded.stderr())
            self.assertEqual(unneeded.of("started"), [])
            self.check_end(job)

    def test_server_restarts(self):
        """A restart of the server disturbs neither agents nor workers."""
        with harness.Server() as server, self.job(server, "2:3") as job:
            nodes = job.start(3, "--max_restarts", 1)
            lines = job.settle(nodes)
            server.kill()
            time.sleep(1)
            with harness.Server("--port", server.port):
                harness.wait_until(lambda: self.is_running(job, 3), "the round to be known again",
                                   torchruns.PATIENCE_S)
                self.assertEqual([node.last()["worker"] for node in nodes],
                                 [line["worker"] for line in lines])
                job.do("fail-0")
                lines = job.settle(nodes, after=torchruns.workers(lines))
                nodes.pop().process.kill()
                job.settle(nodes, after=torchruns.workers(lines))
                job.end(nodes)
                self.check_end(job)

    @staticmethod
    def is_running(job, world):
        shown = job.status()
        return shown["phase"] == "running" and len(shown["participants"]) == world

    def start_hosted(self, job, *args):
        """Start three agents, of which the first serves."""
        nodes = job.start(1, *args)
        harness.wait_until(lambda: is_served(job), "the first to serve", torchruns.PATIENCE_S)
        return nodes + job.start(2, *args)

    def test_host_is_stopped(self):
        """The serving agent is stopped, and a new one serves. The new one finishes first, and stays
        until all have finished."""
        with torchruns.Job(self.which, "2:3", endpoint=f"127.0.0.1:{harness.free_port()}") as job:
            nodes = self.start_hosted(job)
            lines = job.settle(nodes)
            host = nodes.pop(0)
            host.signal(signal.SIGTERM)
            self.assertEqual(host.ended(), 1)
            nodes += job.start(1)
            lines = job.settle(nodes, after=torchruns.workers(lines))
            job.do(f"end-{lines[-1]['rank']}")
            time.sleep(1)
            job.end(nodes)

    def test_host_fails(self):
        """The work of the serving agent fails for good. The others finish theirs."""
        with torchruns.Job(self.which, "2:3", endpoint=f"127.0.0.1:{harness.free_port()}") as job:
            host, *others = self.start_hosted(job, "--max_restarts", 0)
            lines = job.settle([host, *others])
            job.do(f"fail-{lines[0]['rank']}")
            harness.wait_until(lambda: not job.is_there(f"fail-{lines[0]['rank']}"), "the failure",
                               torchruns.PATIENCE_S)
            if self.which == "new":  # an old agent waits for the others
                self.assertEqual(host.ended(), 1)
            job.end(others)
            self.assertEqual(host.ended(), 1)
            self.assertEqual([other.last()["worker"] for other in others],
                             [line["worker"] for line in lines[1:]])

    def test_wrong_settings(self):
        """An agent with wrong options prints an error and ends; the others continue."""
        with harness.Server() as server, self.job(server, "2") as job:
            nodes = job.start(2)
            lines = job.settle(nodes)
            wrong = job.start(1, nnodes="1:5")[0]
            typo = job.start(1, conf="last_cal_timeout=3")[0]
            self.assertEqual([wrong.ended(), typo.ended()], [1, 1])
            self.assertIn("nodes", wrong.stderr())
            self.assertIn("did you mean 'last_call_timeout'?", typo.stderr())
            self.assertEqual([node.last()["worker"] for node in nodes],
                             [line["worker"] for line in lines])
            self.check_round(job, 2)
            job.end(nodes)
            self.check_end(job)


class Etcd(unittest.TestCase):
    """Agents that meet at an etcd. A node is lost when its lease ends."""

    def run_job(self, which):
        with etcd_cluster.Etcd() as etcd, \
                torchruns.Job(which, "2:3", backend="muster-etcd", endpoint=etcd.endpoint,
                           conf=f"last_call_timeout={torchruns.LAST_CALL_S},keep_alive_interval=1,"
                                "keep_alive_max_attempt=5") as job:
            nodes = job.start(3, "--max_restarts", 1)
            lines = job.settle(nodes)
            job.do("fail-1")
            lines = job.settle(nodes, after=torchruns.workers(lines))
            nodes.pop(0).process.kill()
            lines = job.settle(nodes, after=torchruns.workers(lines))
            nodes += job.start(1)
            job.settle(nodes, after=torchruns.workers(lines))
            self.assertEqual(len(job.status()["participants"]), 3)
            job.end(nodes)
            self.assertTrue(job.status()["closed"])

    def test_old(self):
        self.run_job("old")

    def test_new(self):
        self.run_job("new")


class Unmodified(unittest.TestCase):
    """Agents with torch's own c10d at a muster server, alone and with `muster run`."""

    which = None

    @contextlib.contextmanager
    def job(self, nnodes):
        # Agents that share a store with their workers do not admit a newcomer.
        env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        with harness.Server() as self.server, \
                torchruns.Job(self.which, nnodes, backend="c10d", env=env,
                              endpoint=f"127.0.0.1:{self.server.port}") as job:
            yield job

    @staticmethod
    def start(job, *kinds):
        nodes = [job.start(1, "--max_restarts", 2, kind=kind)[0] for kind in kinds]
        return nodes, job.settle(nodes)

    def check_undisturbed(self, nodes, lines, seconds):
        """Check that the workers of these agents stay the same for a while."""
        time.sleep(seconds)
        for node in nodes:
            self.assertIn(node.last()["worker"], torchruns.workers(lines))

    def test_growth_failure_and_death(self):
        with self.job("2:3") as job:
            nodes, lines = self.start(job, Agent, Agent)
            nodes += job.start(1, "--max_restarts", 2)
            lines = job.settle(nodes, after=torchruns.workers(lines))
            job.do("fail-1")
            lines = job.settle(nodes, after=torchruns.workers(lines))
            shown = job.status()
            self.assertEqual((shown["complete"], len(shown["participants"])), (True, 3))
            # torch's agents are not told of a death: a worker must fail.
            nodes.pop().process.kill()
            job.do(f"fail-{lines[0]['rank']}")
            job.settle(nodes, after=torchruns.workers(lines))
            job.end(nodes)
            self.assertTrue(job.status()["closed"])

    def stop_one(self, first, patience_s):
        """One of three gets SIGTERM. torch's agents are not told: a worker must fail."""
        with self.job("2:3") as job:
            (stopped, *nodes), lines = self.start(job, first, Agent, Agent)
            stopped.signal(signal.SIGTERM)
            self.assertEqual(stopped.ended(), stopped.stopped)
            self.check_undisturbed(nodes, lines, patience_s)
            job.do(f"fail-{nodes[0].last()['rank']}")
            job.settle(nodes, after=torchruns.workers(lines))
            job.end(nodes)

    def test_stop(self):
        """torch's agent does not leave. It is lost when its keep-alive has expired."""
        self.stop_one(Agent, EXPIRY_S + 2)

    def test_stop_ours(self):
        """`muster run` leaves at once."""
        self.stop_one(Run, 3)

    def test_stop_beside_ours(self):
        """`muster run` sees that a keep-alive has expired and comes back; torch's agents follow."""
        with self.job("2:3") as job:
            (stopped, *nodes), lines = self.start(job, Agent, Run, Agent)
            stopped.signal(signal.SIGTERM)
            self.assertEqual(stopped.ended(), stopped.stopped)
            lines = job.settle(nodes, after=torchruns.workers(lines))
            self.assertEqual([line["restarts"] for line in lines], [0, 0])
            job.end(nodes)

    def test_beside_our_handler(self):
        """An agent with muster's c10d sees that a member has died, and the others follow it."""
        with self.job("2:3") as job:
            nodes, lines = self.start(job, Agent, Agent, OurC10d)
            ranks = [line["rank"] for line in lines]
            job.do(f"fail-{ranks[1]}")
            lines = job.settle(nodes, after=torchruns.workers(lines))
            nodes.pop(0).process.kill()
            lines = job.settle(nodes, after=torchruns.workers(lines))
            nodes += job.start()
            lines = job.settle(nodes, after=torchruns.workers(lines))
            self.assertEqual(sum(line["restarts"] for line in lines), 1)
            job.end(nodes)

    def test_hosted(self):
        """Without a server, the first agent serves, with torch's handler and with muster's."""
        for kinds in ((Agent, OurC10d), (OurC10d, Agent)):
            endpoint = f"127.0.0.1:{harness.free_port()}"
            with self.subTest(kinds=kinds), \
                    torchruns.Job(self.which, "2", backend="c10d", endpoint=endpoint) as job:
                host = job.start(kind=kinds[0])
                harness.wait_until(lambda: is_served(job), "the first to serve",
                                   torchruns.PATIENCE_S)
                nodes = host + job.start(kind=kinds[1])
                job.settle(nodes)
                job.end(nodes)

    def spare(self, first, second):
        """A spare replaces a dead node although no worker fails: it notices the death itself."""
        with self.job("2") as job:
            nodes, lines = self.start(job, first, second)
            spare = job.start(1, conf="join_timeout=600")[0]
            self.wait_spare(job, spare)
            self.check_undisturbed(nodes, lines, 2)
            nodes.pop(0).process.kill()
            nodes.append(spare)
            job.settle(nodes, after=torchruns.workers(lines))
            unneeded = [job.start(1)[0], job.start(1, kind=Run)[0]]
            for node in unneeded:
                self.wait_spare(job, node)
            job.end(nodes)
            self.check_unneeded(*unneeded)

    def wait_spare(self, job, node):
        """Wait until the node is a spare. Before 2.3, torch's record has no list of spares."""
        if self.which == "old":
            time.sleep(5)
        else:
            harness.wait_until(lambda: f"_{node.pid}_" in str(job.status()["spares"]), "the spare",
                               torchruns.PATIENCE_S)

    def check_unneeded(self, theirs, ours):
        """Check the ends of two spares. torchrun fails even after the graceful exit of torch's own
        handler. In earlier releases, the record does not distinguish spares from late nodes."""
        self.assertEqual((theirs.ended(), ours.ended()), (1, 8 if self.which == "old" else 0))
        self.assertIn("RendezvousClosedError" if self.which == "old" else
                      "'NoneType' object has no attribute 'is_failed'", theirs.stderr())

    def test_spare(self):
        self.spare(Agent, Agent)

    def test_spare_beside_ours(self):
        self.spare(Agent, Run)

    def restart_server(self, *kinds):
        """torch's client does not reconnect, so its agents end. `muster run` returns and waits."""
        with self.job("2:3") as job:
            nodes, lines = self.start(job, *kinds)
            self.server.kill()
            time.sleep(1)
            with harness.Server("--port", self.server.port):
                theirs = [node for node in nodes if not isinstance(node, Run)]
                for node in theirs:
                    self.assertEqual(node.ended(), 1)
                    self.assertIn("RendezvousConnectionError", node.stderr())
                nodes = [node for node in nodes if isinstance(node, Run)] + job.start(len(theirs))
                job.settle(nodes, after=torchruns.workers(lines))
                job.end(nodes)

    def test_server_restarts(self):
        self.restart_server(Agent, Agent, Agent)

    def test_server_restarts_beside_ours(self):
        self.restart_server(Agent, Run, Agent)


class Training(unittest.TestCase):
    """DDP with gloo and checkpoints."""

    STEPS = 100

    def train(self, which):
        with harness.Server() as server, \
                torchruns.Job(which, "2:3", endpoint=f"127.0.0.1:{server.port}") as job:
            nodes = job.start(3, "--max_restarts", 3, steps=self.STEPS)
            lines = job.settle(nodes)
            path = os.path.join(job.directory, "checkpoint")
            harness.wait_until(lambda: os.path.exists(path), "a checkpoint", torchruns.PATIENCE_S)
            lost = nodes.pop(0)
            os.kill(lost.last()["worker"], signal.SIGKILL)
            lost.process.kill()
            job.settle(nodes, after=torchruns.workers(lines))
            self.assertEqual([node.ended() for node in nodes], [0, 0],
                             "\n".join(node.story() for node in nodes))
            for node in nodes:
                resumed, trained = node.of("resumed"), node.of("trained")[-1]
                self.assertEqual((resumed[0]["step"], resumed[0]["world"]), (0, 3))
                self.assertEqual(resumed[-1]["world"], 2)
                self.assertGreater(resumed[-1]["step"], 0)
                self.assertEqual((trained["step"], trained["slope"]), (self.STEPS, 2.0))

    def test_old(self):
        self.train("old")

    def test_new(self):
        self.train("new")


class Old(Agents):
    which = "old"


class New(Agents):
    which = "new"


class OldUnmodified(Unmodified):
    which = "old"


class NewUnmodified(Unmodified):
    which = "new"


del Agents, Unmodified

if __name__ == "__main__":
    # Ranks on one machine must not use a proxy.
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        os.environ.pop(name, None)
    harness.main()
