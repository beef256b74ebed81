"""The package as users install it: an sdist of the tree, the wheel that is made of it, and a fresh
virtual environment. PyPI has the build requirements; without it all of this is skipped."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import venv
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))

import harness  # noqa: E402

# A compiler on a machine that does other things as well.
BUILD_S = 1200

# What every Linux has, and what our own build needs. Anything else would have crept in.
NEEDED = re.compile(r"(ld-linux.*|libc|libm|libdl|librt|libpthread|libuv|libmicrohttpd|libjansson)"
                    r"\.so\.\d+")

USE = """
import muster
with muster.Server() as server:
    with muster.Store(f"tcp://127.0.0.1:{server.port}") as store:
        store.set("k", "v")
        print(store.get("k").decode(), muster.__version__)
"""


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=BUILD_S, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.path.exists(os.path.join(harness.ROOT, ".git")):
            raise unittest.SkipTest("an sdist is made of a git tree")
        cls.directory = tempfile.mkdtemp(prefix="muster-wheel-")
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        builder = cls.environment("builder", with_pip=True)
        cls.pip = builder, "-m", "pip", "--quiet"
        try:
            run(*cls.pip, "install", "--retries", "1", "--timeout", "20",
                "pip>=22.3", "build", "meson-python", "cffi", "ninja", "wheel")
        except AssertionError as error:
            last = str(error).strip().splitlines()[-1]
            raise unittest.SkipTest(f"PyPI cannot be reached: {last}") from None
        # What pyproject.toml requires is tried with the wheel.
        run(builder, "-m", "build", "--sdist", "--no-isolation", "--outdir", cls.directory,
            harness.ROOT, env=cls.path_of(builder))
        cls.sdist = cls.only(".tar.gz")
        run(*cls.pip, "wheel", "--no-deps", "--wheel-dir", cls.directory, cls.sdist)
        cls.wheel = cls.only(".whl")
        cls.python = cls.environment("user")
        run(*cls.pip, "--python", cls.python, "install", cls.wheel)

    @classmethod
    def environment(cls, name, with_pip=False):
        """To install pip takes seconds: one has it, and serves the others."""
        venv.create(os.path.join(cls.directory, name), with_pip=with_pip)
        return os.path.join(cls.directory, name, "bin", "python")

    @staticmethod
    def path_of(python):
        """The environment in which commands of this interpreter's packages are found."""
        return {**os.environ, "PATH": os.pathsep.join([os.path.dirname(python),
                                                       os.environ["PATH"]])}

    @classmethod
    def only(cls, suffix):
        name, = (name for name in os.listdir(cls.directory) if name.endswith(suffix))
        return os.path.join(cls.directory, name)

    def test_the_sdist_has_what_a_build_needs(self):
        with tarfile.open(self.sdist) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        self.assertLessEqual({"pyproject.toml", "LICENSE", "meson.build", "python/make_binding",
                              "include/muster/muster.h", "tools/wheel_backend.py"}, names)

    def test_one_wheel_serves_all_versions(self):
        self.assertRegex(os.path.basename(self.wheel), r"-cp39-abi3-linux_\w+\.whl$")
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
        self.assertIn("muster/_binding.abi3.so", names)
        self.assertIn("muster/py.typed", names)
        outside = [name for name in names
                   if not re.match(r"muster/|muster-[\d.]+\.(dist-info|data/scripts)/", name)]
        self.assertEqual(outside, [])

    def test_nothing_else_is_needed(self):
        binaries = [os.path.join(self.directory, "user", "bin", "muster"),
                    run(self.python, "-c", "import muster._binding as b; print(b.__file__)",
                        cwd=self.directory).strip()]
        for binary in binaries:
            with self.subTest(binary=os.path.basename(binary)):
                dynamic = run("readelf", "-d", binary)
                self.assertNotRegex(dynamic, "RPATH|RUNPATH")
                needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
                self.assertTrue(needed)
                self.assertEqual([name for name in needed if not NEEDED.fullmatch(name)], [])
                self.assertNotIn("not found", run("ldd", binary))

    def test_only_the_limited_api_is_used(self):
        binding = run(self.python, "-c", "import muster._binding as b; print(b.__file__)",
                      cwd=self.directory).strip()
        undefined = re.findall(r" U (_?Py\w+)", run("nm", "-D", binding))
        self.assertEqual([name for name in undefined if name.startswith("_Py")
                          and name not in ("_Py_NoneStruct", "_Py_Dealloc")], [])
        exported = re.findall(r" [TDBR] (\w+)", run("nm", "-D", "--defined-only", binding))
        self.assertEqual([name for name in exported if not name.startswith("PyInit_")], [])

    def test_it_works(self):
        self.assertRegex(run(self.python, "-c", USE, cwd=self.directory), r"^v \d+\.\d+\.\d+\n$")

    def test_the_binary_is_a_script(self):
        script = os.path.join(self.directory, "user", "bin", "muster")
        for command in ([script], [self.python, "-m", "muster"]):
            with self.subTest(command=command[-1]):
                self.assertRegex(run(*command, "--version", cwd=self.directory), r"^muster \d")

    def test_editable(self):
        """An import rebuilds changed files, and the binary is found."""
        tree = os.path.join(self.directory, "tree")
        run("git", "clone", "--quiet", harness.ROOT, tree)
        python = self.environment("editable")
        env = self.path_of(python)
        pip = *self.pip, "--python", python, "install"
        run(*pip, "meson-python", "cffi", "ninja", "wheel")
        # Not optimized: the wheel is, and that takes half of a build's time.
        run(*pip, "--no-build-isolation", "--config-settings=setup-args=-Doptimization=0",
            "--editable", ".", cwd=tree, env=env)
        self.assertRegex(run(python, "-m", "muster", "--version", cwd=self.directory, env=env),
                         r"^muster \d")
        with open(os.path.join(tree, "python", "muster", "__init__.py"), "a",
                  encoding="utf-8") as file:
            file.write("changed = True\n")
        self.assertEqual(run(python, "-c", "import muster; print(muster.changed)",
                             cwd=self.directory, env=env), "True\n")

    def test_torchrun_finds_its_handlers(self):
        code = ("from importlib.metadata import distribution as d; print(*sorted("
                "e.name for e in d('muster').entry_points if e.group == 'torchrun.handlers'))")
        names = run(self.python, "-c", code, cwd=self.directory)
        self.assertEqual(names, "muster muster-c10d muster-etcd\n")


if __name__ == "__main__":
    harness.main()
