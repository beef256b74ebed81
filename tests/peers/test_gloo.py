"""Gloo process groups of real torch that meet through our server."""

import json
import os
import unittest

import peer
from peer import harness

WORLD = 4


class Gloo(unittest.TestCase):
    def check_ranks(self, processes):
        seen = []
        for process in processes:
            code, lines, err = peer.finish(process)
            self.assertEqual(code, 0, err)
            self.assertEqual(len(lines), 1, err)
            seen.append(lines[0])
        for rank, line in enumerate(sorted(seen, key=lambda entry: entry["rank"])):
            with self.subTest(f"{self.id()} rank {rank}"):
                self.assertEqual(line, {
                    "rank": rank,
                    "world": WORLD,
                    "sum": [10.0, 1111.0],
                    "gathered": [0, 1, 2, 3],
                    "pair": 2.0 if rank in (0, WORLD - 1) else 1.0,
                }, json.dumps(line))

    def through_store(self, which):
        harness.torch_python(which)
        with harness.Server() as server:
            self.check_ranks([
                peer.start(which, "torch_gloo.py", "store", server.port, rank, WORLD)
                for rank in range(WORLD)
            ])
            # They did meet here.
            with server.connect("C") as wire:
                self.assertGreater(wire.num_keys(), WORLD)

    def through_environment(self, which):
        harness.torch_python(which)
        with harness.Server() as server:
            self.check_ranks([
                peer.start(which, "torch_gloo.py", "env", env={
                    "TORCHELASTIC_USE_AGENT_STORE": "True",
                    "TORCHELASTIC_RESTART_COUNT": "0",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(server.port),
                    "RANK": str(rank),
                    "WORLD_SIZE": str(WORLD),
                })
                for rank in range(WORLD)
            ])
            with server.connect("C") as wire:
                self.assertGreater(wire.num_keys(), WORLD)

    def test_old_store(self):
        self.through_store("old")

    def test_new_store(self):
        self.through_store("new")

    def test_old_environment(self):
        self.through_environment("old")

    def test_new_environment(self):
        self.through_environment("new")


if __name__ == "__main__":
    # A proxy for other machines has no business between ranks of one.
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        os.environ.pop(name, None)
    harness.main()
