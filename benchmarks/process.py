"""The sides of a benchmark: processes, each in its own environment, that answer when asked."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import environments

PEERS = Path(__file__).resolve().parent / "peers"


def run(*words: str, python: str = sys.executable, root: Path = environments.ROOT) -> None:
    """Runs a Python command on the CPU, in a folder; ends the program where it fails."""
    done = subprocess.run([python, *words], cwd=root, env=_variables(), capture_output=True)
    if done.returncode:
        said = done.stderr.decode(errors="replace")[-3000:]
        sys.exit(f"error: {' '.join(words)} ended early:\n{said}")


def _variables() -> dict[str, str]:
    """The environment of all sides: no GPU, and no packages but those of their Python."""
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return variables | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


class Process:
    """One process. It gets its settings as its first argument, and answers lines of JSON."""

    def __init__(self, name: str, environment: str | None, script: str, settings: dict):
        """Starts the process.

        Args:
          name: for messages.
          environment: whose Python runs it (see `environments`); None = ours, where it can import
            `official`.
          script: a file of `peers`.
          settings: what JSON can hold.
        """
        self.name = name
        variables = _variables()
        if environment is None:
            python = sys.executable
            variables["PYTHONPATH"] = str(environments.ROOT)
        else:
            python = environments.python(environment)
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [python, str(PEERS / script), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=variables,
        )

    def ask(self, question: object) -> dict:
        """Sends what JSON can hold, and gives the answer; exits where the process has ended."""
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            self._errors.seek(0)
            said = self._errors.read()[-3000:]
            sys.exit(f"error: {self.name}, ended early:\n{said}")

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()
