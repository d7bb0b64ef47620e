"""What an installation holds: every module, every config, and the console commands."""

import importlib
import subprocess
import sys
import tomllib
import zipfile

import pytest
import yaml
from packaging.requirements import Requirement

from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SCRIPTS = PROJECT["scripts"]
EXTRAS = "optional-dependencies"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_console_command_has_its_module(name):
    module, function = SCRIPTS[name].split(":")
    command = module.removesuffix(".__main__").split(".")[-1]
    assert name == ("garden" if command == "garden" else "garden-" + command.replace("_", "-"))
    assert callable(getattr(importlib.import_module(module), function))


def test_every_command_is_a_console_command():
    commands = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for package in ("official", "tfrecords_tools")
        for path in (ROOT / package).rglob("*.py")
        if '__name__ == "__main__"' in path.read_text()
    }
    assert commands == {script.split(":")[0] for script in SCRIPTS.values()}


def test_what_the_tests_run_with_is_in_the_ranges_of_the_distribution():
    lines = "".join(path.read_text() for path in ROOT.glob("requirements*.txt")).splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    versions: dict[str, list[str]] = {}
    for pin in pins:
        versions.setdefault(pin.name, []).append(next(iter(pin.specifier)).version)
    extras = (r for extra, listed in PROJECT[EXTRAS].items() for r in listed)
    ranges = [Requirement(text) for text in (*PROJECT["dependencies"], *extras)]
    assert len(ranges) > 15
    for wanted in ranges:
        assert any(version in wanted.specifier for version in versions[wanted.name]), wanted
    for wanted in map(Requirement, PROJECT["dependencies"]):
        assert all(version in wanted.specifier for version in versions[wanted.name]), wanted
    runs_on = {Requirement(x).name for x in (ROOT / "requirements.txt").read_text().splitlines()
               if x and x[0] != "#"}  # fmt: skip
    assert runs_on <= {wanted.name for wanted in ranges}


# What is imported of an extra, and the extra.
OPTIONAL = {
    "ir_measures": "eval", "matplotlib": "plots", "rouge_score": "eval", "sacrebleu": "eval",
    "nltk": "eval", "scipy": "eval", "seqeval": "eval", "sklearn": "eval",
}  # fmt: skip


@pytest.mark.slow
def test_without_extras_the_package_can_be_imported_and_names_what_is_missing(tmp_path):
    """In another process, in which the packages of the extras cannot be imported."""
    qrels, run = tmp_path / "qrels", tmp_path / "run"
    qrels.write_text("1 0 a 1\n")
    run.write_text("1 Q0 a 1 2.0 x\n")
    program = f"""
import sys
for name in {list(OPTIONAL)}:
    sys.modules[name] = None
from official import main, training, serving, evaluation, export
from official.evaluation import evaluator, rows, run, tags
from tfrecords_tools import build_shards, build_task_shards
import official.commands.score_run as command
sys.argv = ["score_run", "--qrels={qrels}", "--run={run}", "--metrics=mrr"]
command.run()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    wanted = "error: ir_measures is not installed: pip install 'encoder-garden[eval]'\n"
    assert (done.returncode, done.stderr[-len(wanted) :]) == (2, wanted), done.stderr


@pytest.mark.slow
def test_a_wheel_holds_every_module_and_config(tmp_path):
    copied = [ROOT / name for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE")]
    for path in copied:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    expected = set()
    for folder, pattern in (
        ("official", "*.py"), ("tfrecords_tools", "*.py"), ("configs", "*.yaml"),
        ("official", "py.typed"), ("tfrecords_tools", "py.typed"), ("official/web", "*.html"),
        ("official/web", "*.css"),
    ):  # fmt: skip
        for path in (ROOT / folder).rglob(pattern):
            name = path.relative_to(ROOT)
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(path.read_bytes())
            if "studies" in path.parts:
                continue  # pages of `experiments`, which is not installed
            expected.add(("official/" if folder == "configs" else "") + name.as_posix())
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir=.", "."],
        cwd=tmp_path, check=True,
    )  # fmt: skip
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = wheel.read(next(n for n in wheel.namelist() if n.endswith("/METADATA"))).decode()
    assert held == expected
    assert {"official/py.typed", "tfrecords_tools/py.typed"} <= held  # a checker reads our types
    assert "License-Expression: Apache-2.0" in metadata and "License-File: LICENSE" in metadata
    assert all(f"Provides-Extra: {extra}\n" in metadata for extra in PROJECT[EXTRAS])


def test_the_version_is_one():
    """CITATION.cff, the newest release of CHANGELOG.md and pyproject.toml have the same version."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    changes = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert [line.split()[1] for line in changes if line.startswith("## ")][:2] == [
        "Unreleased",
        PROJECT["version"],
    ]


def test_hooks_and_workflow_run_what_exists():
    """The hooks call programs of requirements-dev.txt, and the workflow what CI is judged by."""
    pinned = (ROOT / "requirements-dev.txt").read_text()
    packages = {"ruff": "ruff", "lint-imports": "import-linter", "mypy": "mypy"}
    [local] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in local["hooks"]:
        program = hook["entry"].split()[0]
        assert f"\n{packages[program.removeprefix('.venv/bin/')]}==" in pinned
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    commands = {name: [s["run"] for s in job["steps"] if "run" in s] for name, job in jobs.items()}
    assert commands == {"ci": [".ci/run"], "coverage": ["make coverage"]}
    assert (ROOT / ".ci/run").stat().st_mode & 0o100
    makefile = (ROOT / "Makefile").read_text()
    assert "\nlint: .venv/.ready imports types\n" in makefile
    assert "\ncoverage: .venv/.ready\n" in makefile
    for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        kinds = [part["type"] for part in yaml.safe_load(form.read_text())["body"]]
        assert set(kinds) <= {"textarea", "input"} and kinds
