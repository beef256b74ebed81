"""``python -m muster.torchrun``: torchrun with our handlers, also for torch before 2.5.
It takes torchrun's command line."""

from __future__ import annotations

from muster.torch import register


def main() -> None:
    """Register our handlers and run torchrun."""
    register()
    from torch.distributed.run import main as torchrun

    torchrun()


if __name__ == "__main__":
    main()
