"""The file system `flaky://` of `flaky.cc`, for the commands of tests."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import tensorflow as tf

from official.utils import gfile

SOURCE = Path(__file__).with_name("flaky.cc")


_folder = tempfile.TemporaryDirectory(prefix="flaky-")  # until the process ends


@functools.cache
def _library() -> str:
    """Compiles the plugin and returns its path; skips the test if there is no compiler."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler: flaky:// is compiled for this test")
    library = Path(_folder.name, "flaky.so")
    options = ["-O1", "-std=c++17", "-shared", "-fPIC", f"-I{tf.sysconfig.get_include()}"]
    command = [compiler, *options, SOURCE, "-o", library, *tf.sysconfig.get_link_flags()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(library)


def environment(root: Path, every: int = 0, late: float = 0.0) -> dict[str, str]:
    """Returns the environment of a process that knows `flaky://`.

    Args:
      root: the folder of its files.
      every: every so many calls of a process fail; 0 = none.
      late: the seconds until a file is in listings.
    """
    return {
        gfile.VARIABLE: _library(),
        "FLAKY_ROOT": str(root),
        "FLAKY_EVERY": str(every),
        "FLAKY_LATE": str(late),
    }


def use_here(root: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Makes this process know `flaky://`, whose every so many calls fail; nothing waits."""
    variables = environment(root, every)
    library = variables.pop(gfile.VARIABLE)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if "flaky" not in tf.io.gfile.get_registered_schemes():
        tf.experimental.register_filesystem_plugin(library)
    monkeypatch.setattr(gfile.time, "sleep", lambda seconds: None)
