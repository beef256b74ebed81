"""``python -m muster``: the binary that is installed with this package."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import sysconfig


def find_binary() -> str:
    """The path of the binary ``muster``: among the scripts of this
    package's environment, else on ``PATH``. Raises FileNotFoundError."""
    package = pathlib.Path(__file__).resolve().parent
    places = [pathlib.Path(sysconfig.get_path("scripts"))]
    if sys.version_info >= (3, 10):
        places.append(pathlib.Path(sysconfig.get_path(
            "scripts", sysconfig.get_preferred_scheme("user"))))
    else:
        places.append(pathlib.Path(sysconfig.get_path("scripts", "posix_user")))
    # `pip install --prefix DIR`: DIR/lib/python3.11/site-packages/muster and DIR/bin.
    places.extend(parent / "bin" for parent in list(package.parents)[3:4])
    # `pip install --target DIR`: DIR/muster and DIR/bin.
    places.append(package.parent / "bin")
    # `pip install --editable`, which installs no script: BUILD/python/muster and BUILD/muster.
    places.append(package.parent.parent)
    for place in places:
        if (place / "muster").is_file():
            return str(place / "muster")
    found = shutil.which("muster")
    if found is None:
        raise FileNotFoundError("the binary of muster is not in "
                                + ", ".join(str(place) for place in places) + " and not on PATH")
    return found


def main() -> None:
    """Become the binary."""
    binary = find_binary()
    os.execv(binary, [binary, *sys.argv[1:]])


if __name__ == "__main__":
    main()
