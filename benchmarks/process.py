"""The sides of a benchmark: processes that answer requests, each in its own environment."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import environments

PEERS = Path(__file__).resolve().parent / "peers"


def run(*words: str, python: str = sys.executable, root: Path = environments.ROOT) -> None:
    """Runs a Python command on the CPU in a folder; exits if it fails."""
    done = subprocess.run(
        [python, *words], cwd=root, env=environments.variables(), capture_output=True
    )
    if done.returncode:
        output = done.stderr.decode(errors="replace")[-3000:]
        sys.exit(f"error: {' '.join(words)} ended early:\n{output}")


class Process:
    """A process that gets its settings as its first argument and answers lines of JSON."""

    def __init__(self, name: str, environment: str | None, script: str, settings: dict):
        """Starts the process.

        Args:
          name: the name for messages.
          environment: the environment of its Python (see `environments`); None = this one, in which
            it can import `official`.
          script: a file of `peers`.
          settings: a JSON object.
        """
        self.name = name
        variables = environments.variables()
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
