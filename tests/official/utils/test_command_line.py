"""How every command ends: its exit status, and what it says."""

import os
import subprocess
import sys

import pytest

from tests import ROOT, commands


@pytest.mark.parametrize("flag", ["--help", "-h", "--helpfull", "--helpshort"])
def test_a_help_text_is_no_error(flag):
    done = commands.run("official.commands.score_tags", flag, status=0)
    assert "--gold" in done.stdout and not done.stderr


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_a_reader_that_closes_its_pipe_is_no_error(flag):
    """Such as `head` and `less`."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "official.commands.students", flag]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_versions_are_those_of_what_decides_the_numbers():
    done = commands.run("tfrecords_tools.build_shards", "--version", status=0)
    assert done.stdout.startswith("encoder-garden ") and "tensorflow 2." in done.stdout


@pytest.mark.parametrize(
    "options, message",
    [
        (["--gould=x"], "Unknown command line flag 'gould'"),
        (["--gold"], "Missing value for flag --gold"),
        (["gold"], "unexpected argument 'gold': options are given as --name=value"),
        ([], "--gold is missing; --help says what it is"),
    ],
)
def test_errors_of_the_user_have_one_exit_status(options, message):
    done = commands.run("official.commands.score_tags", *options, status=2)
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_is_not_utf_8_is_refused(tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff.conll"
    with open(name, "wb") as file:
        file.write(b"a O\n")
    done = subprocess.run(
        [
            sys.executable, "-m", "official.commands.score_tags",
            b"--gold=" + name, b"--predicted=" + name,
        ],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and "the name is not UTF-8: rename the file" in done.stderr


def test_a_diverged_run_has_its_own_exit_status():
    """As a program of many runs needs it, which lowers the learning rate."""
    code = (
        "from official.utils import command_line, errors\n"
        "def main(argv):\n    raise errors.Diverged('step 7: the loss is not finite')\n"
        "command_line.run(main)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr.endswith("error: step 7: the loss is not finite\n")
