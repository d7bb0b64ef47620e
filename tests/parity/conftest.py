"""Reference implementations, each in an environment of its own that `make parity` makes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def python_of(name: str) -> Path:
    """The Python of one of `make parity-environments`, or `mteb`; `jax`: that of the tests.

    `GARDEN_<NAME>_PYTHON` names another one than `.parity/<name>`. Where there is none the test
    is skipped, or fails under `GARDEN_PARITY=required`, which `make parity` sets. That of `mteb`,
    which is as large as all others together, is made by `make parity-mteb` alone.
    """
    named = os.environ.get(f"GARDEN_{name.upper()}_PYTHON")
    python = Path(named) if named else ROOT / ".parity" / name / "bin" / "python"
    if name == "jax" and not named:
        python = Path(sys.executable if importlib.util.find_spec("jax") else "jax")
    if not python.exists():
        target = "parity-mteb" if name == "mteb" else "parity"
        message = f"no reference environment {name} ({python}): `make {target}` makes it"
        if name != "mteb" and os.environ.get("GARDEN_PARITY") == "required":
            pytest.fail(message)
        pytest.skip(message)
    return python


class Reference:
    """A reference environment in which scripts run."""

    def __init__(self, name: str):
        self.name = name
        self.python = python_of(name)

    def run(self, script: str | os.PathLike, *args, timeout: float = 600) -> str:
        """Runs `script` with the environment's Python and gives what it printed.

        `script` is a file of this folder, or a path; this folder is where it runs.
        """
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        environment.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
        done = subprocess.run(
            [str(self.python), str(HERE / script), *map(str, args)],
            cwd=HERE,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            pytest.fail(f"{script} under {self.name} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout


@pytest.fixture(scope="session")
def hf() -> Reference:
    """PyTorch and transformers 4."""
    return Reference("hf")


@pytest.fixture(scope="session")
def hf5() -> Reference:
    """PyTorch and transformers 5."""
    return Reference("hf5")


@pytest.fixture(scope="session")
def jax() -> Reference:
    """JAX beside TensorFlow, in the environment of the tests."""
    return Reference("jax")


@pytest.fixture(scope="session")
def tfm() -> Reference:
    """tf-models-official."""
    return Reference("tfm")


@pytest.fixture(scope="session")
def tfa() -> Reference:
    """tensorflow-addons."""
    return Reference("tfa")


@pytest.fixture(scope="session")
def m2v() -> Reference:
    """model2vec."""
    return Reference("model2vec")


@pytest.fixture(scope="session")
def pylate() -> Reference:
    """PyLate."""
    return Reference("pylate")


@pytest.fixture(scope="session")
def mediapipe() -> Reference:
    """MediaPipe's text tasks."""
    return Reference("mediapipe")


@pytest.fixture(scope="session")
def fastembed() -> Reference:
    """fastembed, beside what `benchmarks.encoding` times."""
    return Reference("encoding")


@pytest.fixture(scope="session")
def mteb() -> Reference:
    """MTEB and the project."""
    return Reference("mteb")


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.parity)
