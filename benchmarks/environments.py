"""The sides of benchmarks: commands and processes, each in its own Python environment.

The sides are functions in the files of `peers`. Each runs in a separate process and answers
requests by `peers/server.py`.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEERS = Path(__file__).resolve().parent / "peers"


@contextlib.contextmanager
def folder(given: Path | None) -> Iterator[Path]:
    """Yields the given folder or, without one, a new folder that is removed at the end."""
    with contextlib.ExitStack() as stack:
        if given is None:
            given = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield given.resolve()


def python(name: str) -> str:
    """Returns the Python of a reference environment, and creates the environment if needed.

    Args:
      name: `hf` (PyTorch and transformers), `hf5` (PyTorch, transformers 5 and
        sentence-transformers), `tfm` (tf-models-official), `tfa` (tensorflow-addons), `tokenizers`
        (tokenizers, nanotoken and gigatoken), `encoding` (sentence-transformers with ONNX Runtime,
        and fastembed), `vectors` (faiss, usearch and hnswlib), `setfit` or `model2vec`.
        `GARDEN_<NAME>_PYTHON` names another Python that has them.
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


def run(*words: str) -> None:
    """Runs a command of the project on the CPU, `python -m WORDS`; exits if it fails."""
    _run([sys.executable, "-m", *words], ROOT)


def run_peer(side: str, environment: str, settings: dict, folder: Path = ROOT) -> None:
    """Runs a side of `peers` that answers no requests, in a folder; exits if it fails."""
    _run(command(side, environment, settings), folder)


def command(side: str, environment: str, settings: dict) -> list[str]:
    """Returns the arguments of the command that runs a side of `peers`."""
    return [python(environment), *_peer(side, settings)]


def _run(words: list[str], folder: Path) -> None:
    done = subprocess.run(words, cwd=folder, env=variables(), capture_output=True)
    if done.returncode:
        output = done.stderr.decode(errors="replace")[-3000:]
        sys.exit(f"error: {' '.join(words[1:])} ended early:\n{output}")


def _peer(side: str, settings: dict) -> list[str]:
    file, _, function = side.partition(".")
    return [str(PEERS / f"{file}.py"), function, json.dumps(settings)]


class Process:
    """A process of a side, which answers lines of JSON."""

    def __init__(self, name: str, environment: str | None, side: str, settings: dict):
        """Starts the process.

        Args:
          name: the name for messages.
          environment: the environment of its Python (see `python`); None = this one, in which it
            can import `official`.
          side: a file of `peers` and its function, such as `lstm.ours`.
          settings: the argument of the function, a JSON object.
        """
        self.name = name
        environ = variables()
        if environment is None:
            environ["PYTHONPATH"] = str(ROOT)
        executable = sys.executable if environment is None else python(environment)
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [executable, *_peer(side, settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environ,
        )

    def ask(self, question: object) -> dict:
        """Sends a JSON value and returns the answer; exits if the process has ended."""
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            self._errors.seek(0)
            output = self._errors.read()[-3000:]
            sys.exit(f"error: {self.name}, ended early:\n{output}")

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()
