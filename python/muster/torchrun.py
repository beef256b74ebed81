"""``python -m muster.torchrun``: torchrun, with our handlers in torch releases before 2.5 as well.
It takes torchrun's command line."""

from __future__ import annotations

from muster.torch import register


def main() -> None:
    """Make our handlers known and hand over to torchrun."""
    register()
    from torch.distributed.run import main as torchrun

    torchrun()


if __name__ == "__main__":
    main()
