import json

import pytest

from official.evaluation import squad_metrics
from official.shards import manifest, side_texts
from official.utils.errors import UserError
from tests import commands, squads


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    return {
        two: squads.shard_folder(folder / f"squad{1 + two}", bool(two), count=6) for two in (0, 1)
    }


def asked(folder):
    return list(side_texts.read_questions(folder, "validation", manifest.read(folder)).values())


def write(path, values):
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return path


def test_figures_of_files(shards, tmp_path):
    every = asked(shards[0])
    answers = {q.id: q.answers[0].upper() for q in every[::2]} | {"another": "x"}
    path = write(tmp_path / "a.json", answers)
    figures, count, rule = squad_metrics.score_file(shards[0], "validation", path)
    assert rule == "squad"
    share = len(every[::2]) / len(every)
    assert count == len(every) and figures == pytest.approx({"exact_match": share, "f1": share})
    every = asked(shards[1])
    answers = write(tmp_path / "a.json", {q.id: "ba" for q in every})
    odds = {q.id: i for i, q in enumerate(every)}
    right = {q.id: q.answers for q in every}
    figures, _, _ = squad_metrics.score_file(
        shards[1], "validation", answers, write(tmp_path / "odds.json", odds), 2.5
    )
    assert figures == squad_metrics.evaluate({key: "ba" for key in right}, right, True, odds, 2.5)
    assert figures["no_answer_f1"] > 0 and "best_f1_threshold" in figures


def test_errors(shards, tmp_path):
    path = tmp_path / "a.json"
    score = lambda two, *more: squad_metrics.score_file(shards[two], "validation", path, *more)  # noqa: E731
    with pytest.raises(UserError, match="there is no file .*a.json"):
        score(0)
    for text, words in {
        "{": "a.json is not JSON",
        "[]": "a.json holds a list, expected an object",
        '{"q": 3}': "a.json: 'q' is 3, expected a text",
    }.items():
        write(path, text)
        with pytest.raises(UserError, match=words):
            score(0)
    write(path, {})
    with pytest.raises(UserError, match="question '.*' has no answer, and"):
        score(1)
    odds = write(tmp_path / "odds.json", '{"q": NaN}')
    with pytest.raises(UserError, match="odds.json: 'q' is nan, expected a number"):
        score(1, odds)
    with pytest.raises(UserError, match="--null_odds=.*: not supported for squad1; remove it"):
        score(0, odds)


@pytest.mark.slow
def test_the_command_line(shards, tmp_path):
    path = write(tmp_path / "a.json", {q.id: q.answers[0] for q in asked(shards[0])})
    command = ["official.commands.score_answers", f"--data={shards[0]}"]
    done = commands.run(*command, f"--answers={path}")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "rule",
        "questions",
        "exact_match",
        "f1",
    ]
    assert done.stdout.splitlines()[2].split()[1] == "100.000000"
