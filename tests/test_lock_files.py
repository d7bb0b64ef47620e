"""The lock files have all that the requirements lead to, with hashes, and suit them."""

import re
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import ROOT

FILES = {
    "requirements.lock": ["requirements.txt"],
    "requirements-dev.lock": [
        "requirements.txt",
        "requirements-dev.txt",
        "requirements-beam.txt",
        "requirements-ray.txt",
        "requirements-buckets.txt",
    ],
    "requirements-tpu.lock": ["requirements-tpu.txt"],
}
INSTALLED = ("requirements.lock", "requirements-dev.lock")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def requirements(names):
    """The requirements of files."""
    lines = "".join((ROOT / name).read_text(encoding="utf-8") for name in names).splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def locked(name):
    """The requirements of a lock file that hold here, by name, and the lines of all."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    heads = [line for line in lines if line and line[0] not in " #"]
    assert all(head.endswith(" \\") for head in heads)  # hashes follow
    found = [Requirement(head.removesuffix(" \\")) for head in heads]
    here = [each for each in found if each.marker is None or each.marker.evaluate()]
    return {canonicalize_name(each.name): each for each in here}, lines


@pytest.mark.parametrize("name", FILES)
def test_each_package_has_one_version_and_hashes(name):
    here, lines = locked(name)
    for before, line in zip(lines, lines[1:], strict=False):
        if before and before[0] not in " #":
            assert HASH.fullmatch(line), before
    for line in lines:
        assert "://" not in line and "index" not in line, line  # of whatever mirror it was made at
        assert line[:1] != " " or line.lstrip()[0] == "#" or HASH.fullmatch(line), line
    for package in here.values():
        [pin] = package.specifier
        assert pin.operator == "==", package


@pytest.mark.parametrize("name", FILES)
def test_the_pins_of_the_requirements_are_those_of_the_lock(name):
    """`make lock` was run when they changed."""
    here, _ = locked(name)
    for pinned in requirements(FILES[name]):
        assert here[canonicalize_name(pinned.name)].specifier == pinned.specifier, pinned


@pytest.mark.parametrize("name", INSTALLED)
def test_all_that_the_requirements_lead_to_is_locked(name):
    """As the packages that are installed say what they need: no package comes without a hash."""
    here, _ = locked(name)
    seen, waiting = set(), [(each, "") for each in requirements(FILES[name])]
    while waiting:
        wanted, extra = waiting.pop()
        package = canonicalize_name(wanted.name)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        assert package in here, f"{wanted} is not in {name}: make lock"
        [pin] = here[package].specifier
        assert pin.version in wanted.specifier, f"{wanted} and {here[package]}: make lock"
        for more in ("", *wanted.extras):
            if (package, more) not in seen:
                seen.add((package, more))
                needs = metadata.distribution(package).requires or ()
                waiting += [(Requirement(need), more) for need in needs]
    assert len(seen) > len(FILES[name]) * 20


def test_both_lock_files_have_the_same_versions():
    runs, _ = locked("requirements.lock")
    develops, _ = locked("requirements-dev.lock")
    for name, package in runs.items():
        assert develops[name].specifier == package.specifier if name in develops else True


def test_the_commands_of_setting_up_install_from_lock_files():
    """Those of `make`, and those of the README and of the first page of the docs."""
    assert "pip install $(PIP) --require-hashes -r $<\n" in (ROOT / "Makefile").read_text()
    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        [command] = re.findall(r"^```\n(python3? -m venv .*?)```", text, re.MULTILINE | re.DOTALL)
        assert "pip install --require-hashes -r requirements.lock\n" in command
        assert command.endswith("pip install --no-deps --no-build-isolation .\n")


def test_the_image_of_beam_has_the_version_of_the_requirements():
    """And the version of Python that the lock files are made for."""
    lines = (ROOT / "tfrecords_tools" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    (beam,) = requirements(["requirements-beam.txt"])
    (image,) = [line for line in lines if line.startswith("FROM ")]
    assert image == f"FROM apache/beam_python3.11_sdk:{str(beam.specifier).removeprefix('==')}"
