"""The compiler of TPUs is called as its interface says, and what it says is understood.

The tests that compile need libtpu, and are skipped without it.
"""

import re
import signal
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
import tensorflow as tf

from official.utils import tpu_compiler
from official.utils.errors import UserError
from tests import xla

HEADER = "tensorflow/compiler/xla/pjrt/c/pjrt_c_api.h"
# What libtpu 0.0.52 has said of programs that do not fit.
LARGE = (
    "E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
    "temporaries (2.50T) exceeds available HBM (15.75G). HLO module: main."
)


def test_the_places_of_functions_are_those_of_the_interface():
    """TensorFlow has a copy of its declaration."""
    header = Path(tf.sysconfig.get_include(), HEADER).read_text(encoding="utf-8")
    table = header.partition("typedef struct PJRT_Api {")[2]
    names = re.findall(r"_PJRT_API_STRUCT_FIELD\((\w+)\);", table)
    places = {name: names.index(name) for name in tpu_compiler.FUNCTIONS}
    assert places == tpu_compiler.FUNCTIONS


def test_sizes_in_messages():
    assert tpu_compiler.needed_by(LARGE) == 2.5 * 2**40
    assert tpu_compiler.limit_of(LARGE) == 15.75 * 2**30
    assert tpu_compiler.needed_by("INTERNAL: something else") is None


def test_without_libtpu(monkeypatch, tmp_path):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(UserError, match=r"libtpu, is not installed: pip install .*\[tpu\]"):
        tpu_compiler.describe("v5e:2x2", str(tmp_path / "log"))


def test_a_compiler_that_is_killed(monkeypatch, tmp_path):
    def run(command, stdout, **options):
        stdout.write(b"noise of libtpu\n")
        return subprocess.CompletedProcess(command, -signal.SIGKILL)

    monkeypatch.setattr(metadata, "version", lambda name: "0.0")
    monkeypatch.setattr(subprocess, "run", run)
    log = tmp_path / "log"
    with pytest.raises(UserError, match=rf"signal 9 ended the compiler, .* \(libtpu 0.0; {log} "):
        tpu_compiler.describe("v5e:2x2", str(log))
    assert "noise of libtpu" in log.read_text()


@xla.NEEDS_LIBTPU
@pytest.mark.slow
@pytest.mark.long
def test_slices(tmp_path, capfd):
    log = tmp_path / "log"
    four = tpu_compiler.describe("v5e:2x2", str(log))
    assert four.cores == 4 and 15 < four.limit / 2**30 < 16
    assert tpu_compiler.describe("v4:2x2x1", str(log)).cores == 8  # two a chip
    assert not log.exists()
    for name, words in (("v9:2x2", "TPU v9"), ("v5e", "does not match")):
        with pytest.raises(UserError, match=f"--topology={name}: .*{words}.*{log} has all"):
            tpu_compiler.describe(name, str(log))
    assert capfd.readouterr() == ("", "")


@xla.NEEDS_LIBTPU
@pytest.mark.slow
@pytest.mark.long
def test_programs(tmp_path):
    """A product of [R, 1024] and a variable [1024, 1024], which is written anew."""
    kernel = tf.Variable(tf.zeros([1024, 1024]))

    @tf.function(jit_compile=True, autograph=False)
    def step(x):
        kernel.assign(kernel + tf.matmul(x, tf.tanh(x @ kernel), transpose_a=True))
        return tf.reduce_sum(kernel)

    one = tpu_compiler.describe("v5e:1x1", str(tmp_path / "log"))

    def compiled(rows):
        program = tmp_path / "program"
        ir = step.experimental_get_compiler_ir(tf.TensorSpec([rows, 1024]))
        program.write_bytes(ir(stage="hlo_serialized"))
        return tpu_compiler.compile_program(str(program), one, str(tmp_path / "log"))

    small, large = compiled(8192), compiled(1 << 23)
    assert small.refused is None and small.arguments == (8192 * 1024 + 1024**2) * 4
    assert 0 < small.code < 1 << 24 and 0 <= small.outputs < 1 << 16
    assert large.refused > one.limit
    (tmp_path / "other").write_text("no program")
    with pytest.raises(UserError, match="HloModuleProto"):
        tpu_compiler.compile_program(str(tmp_path / "other"), one, str(tmp_path / "log"))
