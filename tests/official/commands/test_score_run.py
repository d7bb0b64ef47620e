import pytest

from official import tasks
from official.evaluation import rankings
from official.utils.errors import UserError
from tests import commands


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "qrels").write_text("1 0 a 1\n1 0 b 0\n2 0 a 1\n3 0 a 1\n")
    (tmp_path / "run").write_text("1 Q0 b 1 2.0 x\n1 Q0 a 2 1.0 x\n2 Q0 a 1 1 x\n9 Q0 a 1 1 x\n")
    return tmp_path


def test_figures_are_means_over_the_judged_queries_of_the_run(folder):
    figures, queries = rankings.score_run(folder / "qrels", folder / "run")
    assert queries == 2
    assert list(figures) == list(tasks.METRICS["ranking"])
    assert figures["mrr"] == figures["map"] == 0.75
    assert figures["err_20"] == pytest.approx((1 / 16 / 2 + 1 / 16) / 2)
    assert rankings.score_run(folder / "qrels", folder / "run", ("map",)) == (
        {"map": 0.75},
        2,
    )


def test_a_run_of_other_queries(folder):
    (folder / "run").write_text("9 Q0 a 1 1 x\n")
    with pytest.raises(UserError, match="run: .*qrels judges none of its 1 queries"):
        rankings.score_run(folder / "qrels", folder / "run")


@pytest.mark.slow
def test_the_command_line(folder):
    def run(*arguments):
        return commands.run("official.commands.score_run", *arguments)

    done = run(f"--qrels={folder / 'qrels'}", f"--run={folder / 'run'}", "--metrics=mrr")
    assert done.stdout.split() == ["queries", "2", "mrr", "0.750000"], done.stderr
    done = run(f"--qrels={folder / 'qrels'}")
    assert (done.returncode, done.stderr) == (
        2,
        "error: --run is missing; --help says what it is\n",
    )
