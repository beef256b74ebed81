"""The build backend of the Python package: meson-python, with another tag.

The extension module uses the limited API of CPython 3.9 with any CPython. But meson-python tags a
wheel with the running version, and pip would not install it into an earlier one.
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
