"""The Python environments of the references, and the environment variables of all sides."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python(name: str) -> str:
    """Returns the Python of a reference environment, and creates the environment if needed.

    Args:
      name: `hf` (PyTorch and transformers), `tfm` (tf-models-official) or `tfa`
        (tensorflow-addons). `GARDEN_<NAME>_PYTHON` names another Python that has them.
    """
    if named := os.environ.get(f"GARDEN_{name.upper()}_PYTHON"):
        return named
    subprocess.run(["make", "--silent", f".parity/{name}/.ready"], cwd=ROOT, check=True)
    return str(ROOT / ".parity" / name / "bin" / "python")


def variables() -> dict[str, str]:
    """Returns the environment variables of all sides.

    They have no GPU and no PYTHONPATH. Python writes bytecode: without it, each process compiles
    TensorFlow again.
    """
    left_out = "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return kept | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
