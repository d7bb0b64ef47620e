"""The whole way, in small: what `make demo` runs, with less text and four steps of training."""

import subprocess
import sys

import pytest

from demo import run


@pytest.mark.slow
def test_the_demo_runs_from_text_to_answers(tmp_path):
    output = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-m", "demo.run", "--quick", f"--output={output}"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = done.stdout.partition("== What came of it")[2]
    rows = dict(
        line.split(maxsplit=1) for line in table.replace("masked-LM ", "").split("\n") if line
    )
    assert rows["SavedModel"] == str(output / "saved_model")
    assert (output / "saved_model" / "saved_model.pb").exists()
    before, after = (float(word) for word in rows["loss"].split()[0:3:2])
    assert 8 < before < 9 and after < before  # ln 4000 = 8.3
    answers = [line for line in table.splitlines() if line.startswith("answer ")]
    assert [answer.partition("): ")[2] for answer in answers] == run.QUESTIONS


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "precious").touch()
    with pytest.raises(SystemExit, match="holds something else than a demo"):
        run.empty(tmp_path)
    assert (tmp_path / "precious").exists()


def test_a_demo_is_made_anew(tmp_path):
    run.empty(tmp_path / "out")
    (tmp_path / "out" / "old").touch()
    run.empty(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [run.MARKER]
