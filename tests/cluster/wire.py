#!/usr/bin/env python3
"""A slow wire: `wire.py DELAY_S LOSS ONE OTHER` passes frames between two interfaces, each after
the delay, but for a share that is lost. `wire.py --plain INTERFACE` prepares an interface whose
frames go over one. It does what tc's netem does, which not every kernel has."""

import collections
import ctypes
import fcntl
import random
import select
import signal
import socket
import struct
import sys
import time

ETH_P_ALL = 3
FRAME_SIZE = 1 << 16
SIOCETHTOOL = 0x8946
# What an interface leaves to the hardware, which is not there: checksums, and making segments.
OFFLOADS = {"checksums": 0x17, "TCP segments": 0x1F, "all segments": 0x24}


def make_plain(interface):
    """Have the kernel send whole frames over the interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in OFFLOADS.values():
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            fcntl.ioctl(any_socket, SIOCETHTOOL,
                        struct.pack("16sP", interface.encode(), ctypes.addressof(value)))


class Way:
    """One direction of the wire."""

    def __init__(self, source, target, delay_s, loss):
        self.source, self.target = source, target
        self.delay_s, self.loss = delay_s, loss
        self.frames = collections.deque()  # (when to send it, frame)

    def take(self):
        frame, (_, _, kind, *_) = self.source.recvfrom(FRAME_SIZE)
        # The socket sees the frames that are sent over its interface, too.
        if kind != socket.PACKET_OUTGOING and random.random() >= self.loss:
            self.frames.append((time.monotonic() + self.delay_s, frame))

    def send_due(self):
        while self.frames and self.frames[0][0] <= time.monotonic():
            self.target.send(self.frames.popleft()[1])


def open_interface(name):
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.bind((name, 0))
    return opened


def run(delay_s, loss, names):
    one, other = map(open_interface, names)
    ways = {one: Way(one, other, delay_s, loss), other: Way(other, one, delay_s, loss)}
    print("up", flush=True)
    while True:
        due = [way.frames[0][0] for way in ways.values() if way.frames]
        timeout = max(0, min(due) - time.monotonic()) if due else None
        for ready in select.select(list(ways), [], [], timeout)[0]:
            ways[ready].take()
        for way in ways.values():
            way.send_due()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1] == "--plain":
        make_plain(sys.argv[2])
    else:
        run(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:5])
