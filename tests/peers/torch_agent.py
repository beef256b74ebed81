"""A torchrun agent; the arguments are torchrun's.

Releases that look for plugins find ours by themselves, so torch's own main runs. For the others
there is muster.torchrun.
"""

import sys
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed.run  # noqa: E402

if __name__ == "__main__":
    if torch.__version__.startswith("1."):
        # 1.13 reads its own defaults wrongly under Python 3.11.
        from torch.distributed.elastic.multiprocessing import Std
        torch.distributed.run.Std.from_str = staticmethod(lambda text: Std.NONE)
        import muster.torchrun
        muster.torchrun.main()
    else:
        sys.exit(torch.distributed.run.main())
