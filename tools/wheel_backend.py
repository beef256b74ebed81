"""What pip calls to build the Python package: meson-python, and a tag.

The extension module uses the limited API of CPython 3.9, whatever CPython has built it. But
meson-python tags a wheel with the version that runs, and pip would not install that into an earlier
one.
"""

import pathlib
import subprocess
import sys

import mesonpy
from mesonpy import (build_editable, build_sdist, get_requires_for_build_editable,
                     get_requires_for_build_sdist, get_requires_for_build_wheel)

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable",
           "get_requires_for_build_sdist", "get_requires_for_build_wheel"]

OLDEST = "cp39"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    path = pathlib.Path(wheel_directory) / name
    tagged = subprocess.run(
        [sys.executable, "-m", "wheel", "tags", "--remove", "--python-tag", OLDEST, str(path)],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    return tagged.split()[-1]
