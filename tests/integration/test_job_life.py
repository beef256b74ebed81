"""What keeps a node of a job alive, and what strangers cost: byte by byte."""

import time
import unittest

import harness
from test_job_frames import (HEARTBEAT, PONG, STORE, STORE_REPLY, WELCOME, Node, receive,
                             receive_sealed, request, send)


class Life(unittest.TestCase):
    def test_any_bytes_are_a_sign_of_life(self):
        """A node that asks the store and sends no heartbeats is not silent."""
        with harness.Server() as server:
            node = Node(server, expiry_us=1_500_000)
            wire = node.connect()
            node.announce(wire)
            receive(wire, WELCOME)
            receive_sealed(wire)
            for _ in range(8):
                time.sleep(0.3)
                send(wire, STORE, request("num_keys"))
                receive(wire, STORE_REPLY)
            send(wire, HEARTBEAT, b"\x01")
            receive(wire, PONG)


if __name__ == "__main__":
    harness.main()
