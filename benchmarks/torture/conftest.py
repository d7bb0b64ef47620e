"""pytest's side of the torture bench: its options, a journal of each commit, progress, the table.

The journal has a line for each case that was run, and cases that passed on the commit are left out.
It is written by the process that was started, also where those of pytest-xdist run the cases.
"""

import collections
import contextlib
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from benchmarks import environments
from official.utils.progress import Progress

_HEAD = "| what | how many | what has to hold | how they ended | failed | time |"


def pytest_addoption(parser):
    """Adds the options of the bench."""
    group = parser.getgroup("torture")
    group.addoption("--whole", action="store_true", help="all cases, not a slice of each part")
    group.addoption("--share", type=float, default=1.0, help="of the cases (default: 1)")
    group.addoption("--seed", type=int, default=0, help="of the cases (default: 0)")
    group.addoption("--work", type=Path, help="where a run of the same commit goes on")


def pytest_configure(config):
    """Opens the journal; processes of pytest-xdist are told what it has."""
    if hasattr(config, "workerinput"):
        config.torture = config.workerinput["torture"]
        return
    # (A shell that starts a command in the background has it ignore SIGINT.)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    config.pluginmanager.register(Bench(config))


def pytest_collection_modifyitems(config, items):
    """Leaves out what passed on this commit."""
    done = set(config.torture["done"])
    items[:] = [item for item in items if _id(item.nodeid) not in done]


def _id(node: str) -> str:
    return re.search(r"\[(.*)\]", node)[1]


def _part(name: str) -> str:
    return name.rpartition("-")[0]


class Bench:
    """The journal of a run, and what is said of it."""

    def __init__(self, config: pytest.Config):
        words = ["git", "describe", "--always", "--dirty"]
        done = subprocess.run(words, cwd=environments.ROOT, capture_output=True, text=True)
        commit, option = done.stdout.strip() or "unknown", config.option
        self._about = f"commit {commit}, seed {option.seed}"
        self._scratch = tempfile.mkdtemp(prefix="torture-")
        os.environ["TMPDIR"] = self._scratch  # goes with what a stop leaves there
        tempfile.tempdir = None
        folder = (option.work or Path(self._scratch, "work")).resolve() / commit
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"journal-{option.seed}.jsonl"
        self._path.touch()
        self._outcomes = dict(map(json.loads, self._path.read_text().splitlines()))
        passed = [name for name, outcome in self._outcomes.items() if not outcome["failures"]]
        config.torture = {"folder": str(folder), "done": passed}
        self._left = collections.Counter[str]()  # cases by part
        self._progress: dict[str, Progress] = {}
        self._config = config

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node):
        """Tells a process of pytest-xdist what is done."""
        node.workerinput["torture"] = node.config.torture

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config, log):
        """Has the cases of a part run in one process, which keeps what they share."""
        from xdist.scheduler import LoadScopeScheduling

        class ByPart(LoadScopeScheduling):
            def _split_scope(self, nodeid: str) -> str:
                return _part(_id(nodeid))

            def remove_node(self, node):
                """A case that killed its process is not run again."""
                units = self.assigned_work[node].values()
                left = [(unit, case) for unit in units for case, done in unit.items() if not done]
                if left:
                    unit, case = left[0]
                    unit[case] = True
                super().remove_node(node)
                return left[0][1] if left else None

        return ByPart(config, log)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        """Counts what is left to do."""
        self._left = collections.Counter(_part(_id(node)) for node in ids)

    def pytest_collection_finish(self, session):
        """Counts it where pytest-xdist does not run the cases."""
        self.pytest_xdist_node_collection_finished([item.nodeid for item in session.items])

    def pytest_runtest_logreport(self, report):
        """Takes note of what came of a case, and says how far its part is."""
        if report.when != "call" and not report.failed:
            return
        broken = {"done": 1, "kinds": {"failed": 1}, "failures": ["it broke, or its process died"]}
        outcome = dict(report.user_properties).get("outcome", broken)
        name = _id(report.nodeid)
        self._outcomes[name] = {**outcome, "seconds": report.duration}
        with open(self._path, "a") as stream:
            stream.write(json.dumps([name, self._outcomes[name]]) + "\n")
        part = _part(name)
        if part not in self._progress:
            say = self._config.get_terminal_writer().line
            self._progress[part] = Progress(self._left[part], say, f"{part}: ", "cases")
        self._progress[part](1)

    def pytest_report_teststatus(self, report):
        """Says nothing of a case that passes."""
        return ("passed" if report.when == "call" else "", "", "") if report.passed else None

    def pytest_terminal_summary(self, terminalreporter):
        """Prints the table, as Markdown."""
        terminalreporter.section(self._about)
        terminalreporter.write_line(table(self._outcomes))

    def pytest_keyboard_interrupt(self):
        """Kills all processes of the run: a stop does not wait for a case."""
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # gone, or of another user
                if self._scratch.encode() in environ.read_bytes():
                    os.kill(int(environ.parent.name), signal.SIGKILL)

    def pytest_sessionfinish(self, session, exitstatus):
        """A run whose cases have all passed before is one that passes."""
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._outcomes:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_unconfigure(self):
        """Removes the scratch."""
        shutil.rmtree(self._scratch, ignore_errors=True)


def table(outcomes: dict[str, dict]) -> str:
    """The rows of the parts as Markdown."""
    lines, parts = [_HEAD, "|---|---:|---|---|---:|---:|"], collections.defaultdict(list)
    for name, outcome in outcomes.items():
        parts[_part(name)].append(outcome)
    for part, own in parts.items():
        kinds = sum((collections.Counter(o["kinds"]) for o in own), collections.Counter())
        failed = max(kinds.pop("failed", 0), sum(len(o["failures"]) for o in own))
        ended = ", ".join(f"{n:,} {kind}" for kind, n in kinds.most_common())
        things, promise = next((o["about"] for o in own if "about" in o), (part, ""))
        lines.append(
            f"| {things} | {sum(o['done'] for o in own):,} | {promise} | {ended} | {failed:,} "
            f"| {datetime.timedelta(seconds=round(sum(o['seconds'] for o in own)))} |"
        )
    return "\n".join(lines)
