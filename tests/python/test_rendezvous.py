"""muster.Rendezvous, muster.status and muster.jobs: nodes that meet, and what they are told."""

import asyncio
import logging
import os
import select
import signal
import subprocess
import sys
import time

from package import Case, Thread, endpoint, harness, muster

if muster is not None:
    from muster._status import summary_of

# Quick to notice, and no time for latecomers.
QUICK = {"last_call_timeout": 0.1}


class Meeting(Case):
    def setUp(self):
        self.where = endpoint(self.server(job_grace=0.1))

    def nodes(self, count, run_id="job", **options):
        return [self.rendezvous(self.where, run_id, node_name=f"n{i}", rank_by="name",
                                **{"nodes": count, **QUICK, **options}) for i in range(count)]

    def meet(self, nodes):
        threads = [Thread(node.next, harness.DEADLINE_S) for node in nodes]
        return [thread.end() for thread in threads]

    def test_ranks_and_a_store(self):
        nodes = self.nodes(3)
        rounds = self.meet(nodes)
        self.assertEqual([(here.rank, here.world_size) for here in rounds],
                         [(0, 3), (1, 3), (2, 3)])
        self.assertEqual([node.node for node in nodes], ["n0", "n1", "n2"])
        rounds[0].store.set("k", "v")
        self.assertEqual(rounds[2].store.get("k"), b"v")
        self.assertGreater(rounds[0].epoch, 0)
        self.assertEqual((rounds[0].restarts, rounds[0].start), (0, muster.Start.FIRST))
        self.assertTrue(rounds[0].master_addr)
        again = nodes[0].round()
        self.assertEqual((again.rank, again.round), (rounds[0].rank, rounds[0].round))
        # A store outlives its rendezvous.
        nodes[2].close()
        self.assertEqual(rounds[2].store.get("k"), b"v")

    def test_members(self):
        nodes = self.nodes(2, labels="rack=r1")
        self.meet(nodes)
        members = nodes[0].members()
        self.assertEqual([(member.rank, member.name, member.labels, member.is_gone)
                          for member in members],
                         [(0, "n0", {"rack": "r1"}, False), (1, "n1", {"rack": "r1"}, False)])
        nodes[1].leave()
        harness.wait_until(lambda: nodes[0].members()[1].is_gone, "the departure")

    def test_finish(self):
        nodes = self.nodes(2)
        self.meet(nodes)
        self.assertFalse(nodes[0].is_closed())
        for node in nodes:
            node.finish()
        changes = self.until(nodes[0], lambda changes: changes.closed)
        self.assertEqual(changes.outcome, muster.Outcome.FINISHED)
        with self.assertRaises(muster.FinishedError):
            nodes[0].next()

    def until(self, node, condition):
        return harness.wait_until(
            lambda: next(filter(condition, [node.poll(0.1)]), None), "a change")

    def test_restart(self):
        nodes = self.nodes(2, max_restarts=1)
        first = self.meet(nodes)[0].round
        nodes[1].restart(worker=3, exit_status=7, text="out of luck", time=1000.5,
                         report="line 1\nline 2")
        changes = self.until(nodes[0], lambda changes: changes.reopened)
        self.assertTrue(changes.should_return)
        self.assertEqual(changes.cause, muster.Cause(
            rank=1, worker=3, exit_status=7, signal=0, time=1000.5, node="n1", text="out of luck",
            report="line 1\nline 2"))
        here = self.meet(nodes)[0]
        self.assertEqual((here.round, here.restarts, here.start),
                         (first + 1, 1, muster.Start.FAILED))
        nodes[0].restart(signal=9)
        self.assertEqual(self.until(nodes[1], lambda changes: changes.closed).outcome,
                         muster.Outcome.FAILED)
        with self.assertRaises(muster.ClosedError):
            nodes[1].next()

    def test_leaving(self):
        nodes = self.nodes(2, max_restarts=0)
        self.meet(nodes)
        nodes[0].leaving(60)
        nodes[1].restart(exit_status=7)
        self.assertEqual([node.restarts for node in self.meet(nodes)], [0, 0])

    def test_notices(self):
        nodes = self.nodes(2, nodes=(1, 2))
        nodes[0].begin()
        readable, _, _ = select.select([nodes[0]], [], [], harness.DEADLINE_S)
        self.assertEqual(readable, [nodes[0]])
        self.assertEqual(nodes[0].take().kind, muster.Kind.COMPLETE)
        self.assertIsNone(nodes[0].take())
        self.assertEqual(nodes[0].round().world_size, 1)
        newcomer = Thread(nodes[1].next)
        notice = nodes[0].take(None)
        self.assertEqual((notice.kind, notice.nodes_waiting), (muster.Kind.WAITING, 1))
        self.assertEqual(nodes[0].nodes_waiting(), 1)
        self.assertEqual(nodes[0].next().world_size, 2)
        newcomer.end()
        nodes[1].close()
        notice = nodes[0].take(None)
        self.assertEqual(notice.kind, muster.Kind.LOST)
        self.assertEqual(notice.nodes, (muster.LostNode("n1", 1, True),))

    def test_closed(self):
        nodes = self.nodes(2)
        self.meet(nodes)
        nodes[0].set_closed()
        notice = nodes[1].take(None)
        self.assertEqual((notice.kind, notice.outcome),
                         (muster.Kind.CLOSED, muster.Outcome.CLOSED))
        with self.assertRaises(muster.ClosedError):
            nodes[1].next()

    def test_cancel_and_abandon(self):
        node = self.rendezvous(self.where, nodes=2)
        thread = Thread(node.next)
        harness.wait_until(lambda: muster.jobs(self.where), "the node")
        node.cancel()
        with self.assertRaises(muster.CanceledError):
            thread.end()
        node.begin()
        node.abandon()
        with self.assertRaises(muster.TimedOutError):
            node.next(0.05)

    def test_a_forked_child_has_to_make_its_own(self):
        node, = self.nodes(1)
        here = node.next()
        child = os.fork()
        if child == 0:
            wrong = 0
            for call in (node.next, node.poll, node.leave, node.fileno,
                         lambda: here.store.get("k"), node.members):
                try:
                    call()
                    wrong += 1
                except muster.InvalidError as error:
                    wrong += "forked child" not in str(error)
            node.close()
            os._exit(wrong)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertFalse(node.poll().expelled)
        self.assertEqual(muster.status(self.where, "job")["phase"], "running")

    def test_a_forked_child_does_not_hide_a_death(self):
        # As a DataLoader's: made by multiprocessing, busy, and alive when its parent is not. The
        # nodes are silent, so only the end of the connection tells.
        script = (
            "import multiprocessing, sys, time, muster\n"
            "node = muster.Rendezvous(sys.argv[1], 'job', nodes=2, node_name='n1',"
            " rank_by='name', last_call_timeout=0.1, keep_alive_interval=60)\n"
            "node.next().store.set('k', 'v')\n"
            "child = multiprocessing.get_context('fork').Process(target=time.sleep, args=(600,))\n"
            "child.start()\n"
            "print(child.pid, flush=True)\n"
            "time.sleep(600)\n")
        node, = self.nodes(1, keep_alive_interval=60, nodes=2)
        thread = Thread(node.next, harness.DEADLINE_S)
        with subprocess.Popen([sys.executable, "-c", script, self.where], text=True,
                              stdout=subprocess.PIPE) as other:
            try:
                thread.end()
                child = int(other.stdout.readline())
                self.addCleanup(os.kill, child, signal.SIGKILL)
            finally:
                other.kill()
            notice = node.take(20)
            self.assertEqual(notice.kind, muster.Kind.LOST)
            self.assertEqual(notice.nodes, (muster.LostNode("n1", 1, False),))
            os.kill(child, 0)  # it still lives

    def test_status_and_jobs(self):
        self.assertEqual(muster.jobs(self.where), [])
        self.assertFalse(muster.status(self.where, "job")["exists"])
        nodes = self.nodes(2)
        self.meet(nodes)
        job, = muster.jobs(self.where)
        self.assertEqual((job["run_id"], job["phase"]), ("job", "running"))
        found = muster.status(self.where, "job")
        self.assertTrue(found["exists"])
        self.assertEqual([node["node"] for node in found["participants"]], ["n0", "n1"])
        found = muster.status(self.where, "job", expect="n[1-2],x")
        self.assertEqual(sorted(found["missing"]), ["n2", "x"])
        self.assertIn("missing: n2, x", found["summary"])
        with self.assertRaisesRegex(muster.InvalidError, r"n\[1"):
            muster.status(self.where, "job", expect="n[1")

    def test_wrong_settings(self):
        for arguments, text in (({"last_cal_timeout": 1}, "last_call_timeout"),
                                ({"nodes": (3, 2)}, "nodes"), ({"backend": "none"}, "none"),
                                ({"options": {"join_timeout": "x"}}, "join_timeout")):
            with self.subTest(**arguments), self.assertRaisesRegex(muster.InvalidError, text):
                muster.Rendezvous(self.where, "job", **arguments)
        with self.assertLogs("muster", "WARNING") as logs:
            self.rendezvous(self.where, unknown=1, ignore_unknown=True)
        self.assertIn("unknown", logs.output[0])

    def test_events_and_lines(self):
        events = []
        logger = logging.getLogger("of the test")
        with self.assertLogs(logger, "DEBUG") as logs:
            node = self.rendezvous(self.where, on_event=events.append, logger=logger)
            node.next()
            node.close()
        self.assertTrue(all(line.split(":")[2].startswith("ev=") for line in logs.output))
        self.assertIn("job", {event.run_id for event in events})
        self.assertAlmostEqual(events[0].time, time.time(), delta=60)

    def test_foreign_text(self):
        """Texts to be printed show the control characters that anybody may have sent; data has
        them."""
        events = []
        evil = "\x1b[2J\u202e\nx"
        node, other = (self.rendezvous(self.where, last_call_timeout=0.1, node_name=name, nodes=1,
                                       on_event=events.append) for name in ("a\u202e", "b"))
        node.next()
        told = harness.run("close", "--rdzv-endpoint", self.where, "--rdzv-id", "job",
                           "--reason", evil)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(node.take(harness.DEADLINE_S).reason, evil)
        with self.assertRaises(muster.ClosedError) as caught:
            other.next()
        summary = summary_of(node._params, 10_000, None)
        self.assertEqual(muster.status(self.where, "job")["reason"], evil)
        for text in (str(caught.exception), summary, *(event.message for event in events)):
            self.assertTrue(text.isprintable(), repr(text))
        self.assertIn(r"\x1b[2J", str(caught.exception))
        self.assertIn(r"\x1b[2J", summary)
        self.assertTrue(any(r"\x1b[2J" in event.message for event in events))

    def test_failures_alone(self):
        failures = []
        node = self.rendezvous(self.where, nodes=2, on_failure=failures.append)
        with self.assertRaises(muster.TimedOutError):
            node.next(0.1)
        self.assertEqual([(event.name, event.state) for event in failures],
                         [("next_rendezvous", "FAILED")])

    def test_connected_early(self):
        """The round is on the connection that was made before it, if that is still there."""
        server = self.server()
        port = server.port
        node = self.rendezvous(endpoint(server))
        node.connect()
        began = time.monotonic()
        node.connect()  # no effect
        self.assertTrue(0 < node.next().connected < began)
        node.leave()
        node.connect()
        server.close()
        again = self.server(port=port)
        began = time.monotonic()
        self.assertGreater(node.next().connected, began)
        node.leave()
        again.close()
        with self.assertRaises(muster.ConnectionFailedError):
            node.connect()
        self.assertEqual(self.rendezvous("", backend="c10d").next().connected, 0)


class Async(Case):
    def setUp(self):
        self.where = endpoint(self.server())

    def test_nodes_in_one_loop(self):
        async def node(i):
            async with muster.Rendezvous(self.where, "job", nodes=3, node_name=f"n{i}") as me:
                here = await me.next_async()
                members = await me.members_async()
                await me.finish_async()
                notice = await me.take_async()
                return here.rank, len(members), notice.outcome

        async def all_nodes():
            return await asyncio.gather(*(node(i) for i in range(3)))

        self.assertEqual(sorted(asyncio.run(all_nodes()), key=lambda item: item[0]),
                         [(i, 3, muster.Outcome.FINISHED) for i in range(3)])

    def test_a_task_that_is_cancelled_withdraws(self):
        async def work():
            async with muster.Rendezvous(self.where, "job", nodes=2) as me:
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(me.next_async(), 0.05)
                self.assertIsNone(await me.take_async(0.01))
                with self.assertRaises(muster.TimedOutError):
                    await me.next_async(0.05)
                await me.leave_async()

        asyncio.run(work())
        self.assertEqual(muster.jobs(self.where), [])


class Flat(Case):
    """1,000 rounds cost neither memory nor descriptors."""

    ROUNDS = 1000
    SLACK_KIB = 512

    def cost(self):
        with open("/proc/self/status", encoding="utf-8") as file:
            rss_kib = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
        return rss_kib, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def test_rounds(self):
        with harness.Server() as server:
            node = self.rendezvous(f"127.0.0.1:{server.port}")
            costs = []
            for i in range(self.ROUNDS):
                here = node.next()
                here.store.set("k", "v" * 100)
                self.assertEqual(here.store.get("k"), b"v" * 100)
                node.poll()
                if i >= self.ROUNDS // 4:
                    costs.append(self.cost())
        self.assertLess(costs[-1][0] - costs[0][0], harness.rss_bound_kib(self.SLACK_KIB))
        for which in (1, 2):
            self.assertLessEqual(costs[-1][which], max(cost[which] for cost in costs[:10]))


if __name__ == "__main__":
    harness.main()
