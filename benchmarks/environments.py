"""Where the references are installed: the environments of `make parity`."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python(name: str) -> str:
    """The Python of a reference environment, which is made when it is missing.

    Args:
      name: `hf` (PyTorch and transformers), `tfm` (tf-models-official) or `tfa`
        (tensorflow-addons). `GARDEN_<NAME>_PYTHON` names another Python that has them.
    """
    if named := os.environ.get(f"GARDEN_{name.upper()}_PYTHON"):
        return named
    subprocess.run(["make", "--silent", f".parity/{name}/.ready"], cwd=ROOT, check=True)
    return str(ROOT / ".parity" / name / "bin" / "python")
