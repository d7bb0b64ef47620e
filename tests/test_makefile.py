"""Environments of the references are made again when their requirements change, and only then."""

import os
import shutil
import subprocess

import pytest

from tests import ROOT

# Stands for Python: it says how it is called, and makes what `-m venv` makes of itself.
PYTHON = """#!/bin/sh
echo "$@" >> log
case "$*" in *venv*) shift 3; rm -rf "$1"/*; mkdir -p "$1/bin"; cp python "$1/bin/python";; esac
"""
READY = ".parity/hf/.ready"


@pytest.fixture
def checkout(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("no make")
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "tests" / "parity").mkdir(parents=True)
    (tmp_path / "tests" / "parity" / "requirements-hf.txt").write_text("torch==2\n")
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def make(checkout):
    """Returns how Python was called, and the status and errors of make."""
    (checkout / "log").write_text("")
    done = subprocess.run(
        ["make", "-s", READY, "PARITY_PYTHON=./python", "PYTHON=./python"],
        cwd=checkout, capture_output=True, text=True,
    )  # fmt: skip
    return (checkout / "log").read_text().splitlines(), done.returncode, done.stderr


def test_requirements_are_compared_by_content(checkout):
    requirements = checkout / "tests" / "parity" / "requirements-hf.txt"
    calls, status, _ = make(checkout)
    assert [call.split()[1] for call in calls] == ["venv", "pip"] and status == 0
    assert (checkout / READY).read_text() == "torch==2\n"
    os.utime(requirements)  # as a checkout of another branch and back does
    assert make(checkout)[0] == []
    requirements.write_text("torch==3\n")
    os.utime(requirements, (1, 1))
    assert len(make(checkout)[0]) == 2 and (checkout / READY).read_text() == "torch==3\n"
    (checkout / READY).write_text("")  # of an earlier version: its time counts
    assert make(checkout)[0] == [] and (checkout / READY).read_text() == "torch==3\n"


@pytest.mark.parametrize("link", [".parity", ".parity/hf"])
def test_what_a_link_leads_to_is_never_cleared(checkout, link):
    other = checkout / "other"
    ready = other / ("hf/.ready" if link == ".parity" else ".ready")
    ready.parent.mkdir(parents=True)
    ready.write_text("torch==2\n")
    (checkout / link).parent.mkdir(exist_ok=True)
    (checkout / link).symlink_to(other)
    assert make(checkout)[:2] == ([], 0)
    ready.write_text("torch==1\n")
    calls, status, errors = make(checkout)
    assert calls == [] and status and f"{link} is a link to an environment with other" in errors
    assert ready.read_text() == "torch==1\n"
