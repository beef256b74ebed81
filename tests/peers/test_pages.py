"""Run the torchrun commands of the documentation with PyTorch 2.x.

`torchrun` runs the command on every node that there is room for, which are all this machine. `pip`
has the package installed already.
"""

import os
import shutil
import tempfile
import unittest

import peer
from pages import blocks, run_shell, with_free_ports
from peer import harness

PAGES = ["README.md", "docs/quickstart.md", "docs/torchrun.md"]

PIP = """#!/bin/sh
[ "$*" = "install ." ]
"""

TORCHRUN = """#!/bin/bash
args=" $* "
nnodes=${{args##*--nnodes }}
most=${{nnodes%% *}}
most=${{most##*:}}
for ((i = 0; i < most; i++)); do
    {python} -m torch.distributed.run "$@" & pids+=($!)
done
for pid in "${{pids[@]}}"; do wait "$pid" || exit 1; done
"""

TRAIN = """
import os
os.write(1, b"rank %s of %s\\n" % (os.environb[b"RANK"], os.environb[b"WORLD_SIZE"]))
"""


class Pages(unittest.TestCase):
    def write(self, name, text, mode=0o644):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, mode)

    def setUp(self):
        python = peer.plugin_python("new")
        self.directory = tempfile.mkdtemp(prefix="muster-test-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.write("pip", PIP, 0o755)
        self.write("torchrun", TORCHRUN.format(python=python), 0o755)
        self.write("train.py", TRAIN)
        path = [self.directory, os.path.dirname(harness.MUSTER), os.environ["PATH"]]
        self.env = {**peer.QUIET, "PYTHONPATH": peer.installed(), "PATH": os.pathsep.join(path),
                    "TMPDIR": self.directory}

    def test_torchrun(self):
        # Those of one page belong together. Pages may say the same.
        pages = {"".join(text for kind, text in blocks(page, "sh") if kind == "torch"): page
                 for page in PAGES}
        self.assertNotIn("", pages)
        for text, page in pages.items():
            with self.subTest(page=page):
                text = with_free_ports(text).replace("node0", "127.0.0.1")
                printed = run_shell(self, "bash", text, self.directory, self.env,
                                    peer.DRIVER_TIMEOUT_S)
                lines = [line for line in printed.splitlines() if line.startswith("rank ")]
                world = int(lines[0].split()[-1])
                self.assertGreater(world, 1)
                self.assertEqual(sorted(lines), sorted(f"rank {rank} of {world}"
                                                       for rank in range(world)))


if __name__ == "__main__":
    harness.main()
