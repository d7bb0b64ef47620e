"""The Python environments of the references, which `make parity` creates."""

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
