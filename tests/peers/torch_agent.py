"""A torchrun agent; the arguments are torchrun's.

Releases that look for plugins find ours by themselves, so torch's own main runs. For the others
there is muster.torchrun.
"""

import atexit
import os
import sys
import traceback
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed.run  # noqa: E402


def main():
    if not torch.__version__.startswith("1."):
        return torch.distributed.run.main()
    # 1.13 reads its own defaults wrongly under Python 3.11.
    from torch.distributed.elastic.multiprocessing import Std
    torch.distributed.run.Std.from_str = staticmethod(lambda text: Std.NONE)
    import muster.torchrun
    return muster.torchrun.main()


if __name__ == "__main__":
    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    # As the interpreter ends, but for torch, which takes itself apart for a second of processor
    # time.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
