"""What an installation holds: every module, every config, and the console commands."""

import importlib
import subprocess
import sys
import tomllib
import zipfile

import pytest

from tests import ROOT

SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_console_command_has_its_module(name):
    module, function = SCRIPTS[name].split(":")
    command = module.removesuffix(".__main__").split(".")[-1]
    assert name == "garden-" + command.replace("_", "-")
    assert callable(getattr(importlib.import_module(module), function))


def test_every_command_is_a_console_command():
    commands = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for package in ("official", "tfrecords_tools")
        for path in (ROOT / package).rglob("*.py")
        if '__name__ == "__main__"' in path.read_text()
    }
    assert commands == {script.split(":")[0] for script in SCRIPTS.values()}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_help_of_a_console_command_is_that_of_its_module(name):
    module, function = SCRIPTS[name].split(":")
    program = f"import sys; sys.argv[0] = {name!r}; from {module} import {function}; {function}()"
    module = module.removesuffix(".__main__")
    shown = []
    for command in (["-c", program], ["-m", module]):
        done = subprocess.run(
            [sys.executable, *command, "--help"], cwd=ROOT, capture_output=True, text=True
        )
        text, head, listed = done.stdout.partition("\nflags:\n")
        assert head
        flags = [line for line in listed.splitlines() if line.startswith("  -")]
        shown.append((text.strip(), flags))
    assert shown[0] == shown[1] and shown[0][1]


@pytest.mark.slow
def test_a_wheel_holds_every_module_and_config(tmp_path):
    copied = [
        ROOT / name for name in ("setup.py", "pyproject.toml", "README.md", "requirements.txt")
    ]
    for path in copied:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    expected = set()
    for folder, pattern in (
        ("official", "*.py"), ("tfrecords_tools", "*.py"), ("configs", "*.yaml"),
    ):  # fmt: skip
        for path in (ROOT / folder).rglob(pattern):
            name = path.relative_to(ROOT)
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(path.read_bytes())
            expected.add(("official/" if folder == "configs" else "") + name.as_posix())
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir=.", "."],
        cwd=tmp_path, check=True,
    )  # fmt: skip
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == expected
