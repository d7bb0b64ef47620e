"""Rows that are compared: QNLI as a ranking, candidates for pronouns of WNLI, and their labels."""

import numpy as np
import pytest

from experiments import candidate_lm, compared_labels, compared_rows
from official import config as configs
from official import tasks, tokenizers
from official.modeling.model import Model
from official.saving import checkpoints, model_folder, named_arrays
from official.tasks import text_files, trec
from official.utils.errors import UserError
from tests import commands, small

YES, NO = "entailment", "not_entailment"
QNLI = {
    "train": [("ba be", "da", YES), ("bi", "de", YES), ("ba be", "di", NO), ("bo", "do", NO)],
    "validation": [
        ("bi", "de", NO), ("bo", "do", YES), ("bi", "di", YES), ("bu", "fa", NO), ("bi", "du", NO)
    ],
}  # fmt: skip
JUG = "i filled the cup from the jug until it was full ."
HAIR = "the drain is full of hair . it must go ."
DOG = "a dog saw a cat and it ran ."
WORDS = sorted({*f"{JUG} {HAIR} {DOG}".split()})
WNLI = {
    "train": [
        (JUG, "the cup was full .", 1), (JUG, "the jug was full .", 0), (HAIR, "hair must go .", 1),
        (JUG, "it is full .", 1), (JUG, "the drain was full .", 0), (DOG, "the cat ran .", 0),
    ],
    "validation": [
        (HAIR, "drain must go .", 0), (DOG, "dog ran .", 1), (DOG, "cat , dog .", 1),
        (DOG, "the cat ran .", 0), (JUG, "the jug was full .", 0),
    ],
}  # fmt: skip
MASKED = {
    "vocab_size": 5 + 2 * len(WORDS), "hidden_size": 8, "num_layers": 1, "num_heads": 2,
    "intermediate_size": 16, "max_positions": 24, "initializer_range": 0.5,
}  # fmt: skip


def glue(folder, names, files):
    """Files of GLUE; those of the test split are the rows of the validation file."""
    folder.mkdir(parents=True)
    for split, file in (("train", "train"), ("validation", "dev"), ("test", "test")):
        rows = files["validation" if split == "test" else split]
        header = ["index", *names, "label"][: 3 if split == "test" else 4]
        lines = [header, *([number, *row][: len(header)] for number, row in enumerate(rows))]
        text = "".join("\t".join(map(str, line)) + "\n" for line in lines)
        (folder / f"{file}.tsv").write_text(text)
    return folder


def compare(folder, task, names, files, *options):
    given = glue(folder / "glue", names, files)
    return commands.run(
        "experiments.compared_rows", f"--task={task}", f"--best={YES}", f"--input={given}",
        f"--output={folder / 'files'}", *options, status=0,
    ).stdout  # fmt: skip


def named(folder, split):
    """The texts of each query of a run, with those of its documents."""
    queries, documents, run, _ = candidate_lm.read(folder, split)
    return {queries[q]: {documents[d] for d in scores} for q, scores in run.items()}


def labels(folder, split, *options):
    command = "experiments.compared_labels", f"--input={folder / 'files'}", f"--split={split}"
    return commands.run(*command, *options, status=0).stdout


@pytest.mark.slow
@pytest.mark.long
def test_qnli_is_a_ranking_whose_scores_become_labels(tmp_path):
    compare(tmp_path, "qnli", ("question", "sentence"), QNLI)
    files = tmp_path / "files"
    assert named(files, "train") == {"ba be": {"da", "di"}, "bi": {"de"}, "bo": {"do"}}
    assert named(files, "test") == {"bi": {"de", "di", "du"}, "bo": {"do"}, "bu": {"fa"}}
    texts = {
        identity: text
        for name in ("queries", "documents")
        for identity, text in text_files.unique(files / f"{name}.tsv")
    }
    qrels = {
        (q.partition("-")[0], texts[q], texts[d]): grade
        for q, grades in trec.read_qrels(files / "qrels").items()
        for d, grade in grades.items()
    }
    assert qrels == {
        (split, a, b): int(label == YES) for split, rows in QNLI.items() for a, b, label in rows
    }
    scores = {"de": 0.5, "di": 2.5, "du": 1.0, "do": 0.3, "fa": 0.7}
    for split in ("validation", "test"):
        run = trec.read_run(files / f"{split}.run")
        scored = {q: {d: scores[texts[d]] for d in found} for q, found in run.items()}
        with open(tmp_path / f"{split}.run", "w") as stream:
            trec.write_run(stream, scored, "x")
    said = labels(
        tmp_path, "validation", f"--scores={tmp_path / 'validation.run'}", "--threshold=0.4",
        f"--output={tmp_path / 'labels.tsv'}",
    )  # fmt: skip
    assert said == "accuracy 0.6000 of 5 rows\naccuracy 1.0000 of 3 that are compared\n"
    assert (tmp_path / "labels.tsv").read_text().splitlines() == [
        "row\tlabel\tscore", f"0\t{NO}\t0.5", f"1\t{NO}\t0.3", f"2\t{YES}\t2.5", f"3\t{YES}\t0.7",
        f"4\t{NO}\t1.0",
    ]  # fmt: skip
    given = f"--scores={tmp_path / 'test.run'}", f"--submission={tmp_path / 'zip'}"
    assert labels(tmp_path, "test", *given) == ""
    lines = (tmp_path / "zip" / "QNLI.tsv").read_text().splitlines()
    assert lines[1:] == [f"{n}\t{each}" for n, each in enumerate((NO, YES, YES, YES, NO))]


def test_best_of_each_query_and_the_threshold_of_documents_alone():
    rows = [{"row": n, **each} for n, each in enumerate((
        {"query": "a", "document": "x"}, {}, {"query": "b", "document": "x"},
        {"query": "a", "document": "y"}, {"query": "c", "document": "z"},
        {"query": "a", "document": "y"},
    ))]  # fmt: skip
    run = {"a": {"x": -3.0, "y": 0.5}, "b": {"x": 0.25}, "c": {"z": -2.0, "w": -1.0}}
    expected = [False, False, False, True, False, False]  # `w` is the best of c, and has no row
    assert compared_labels.best_rows(rows, run, 0.4) == expected
    expected[2] = True
    assert compared_labels.best_rows(rows, run, 0.2) == expected
    with pytest.raises(UserError, match="row 2, the document x of b, has no score"):
        compared_labels.best_rows(rows, {name: run[name] for name in "ac"}, 0.0)
    for task, best, message in (
        ("qnli", "entails", "have two labels, of which this is one; those of qnli are"),
        ("mnli", YES, "have two labels"),
        ("sst2", "positive", "--task=sst2: rows of two texts and a label"),
        ("stsb", "1", "--task=stsb"),
    ):
        with pytest.raises(UserError, match=message):
            compared_rows.compared(tasks.find(task), best)


def masked_lm(folder):
    """A masked LM with values that depend on the paths of its variables alone."""
    encoder = {"type": "transformer", **MASKED}
    config = configs.from_dict(
        {"name": "x", "encoder": encoder, "objectives": [{"type": "masked_lm"}]}
    )
    model = Model(configs.ResolvedConfig.of(config))
    for number, (_, variable) in enumerate(sorted(model.variables_by_path().items())):
        variable.assign(np.random.default_rng(number).normal(0, 0.5, variable.shape))
    tokenizer = tokenizers.load(small.tokenizer_folder(folder / "words", WORDS))
    variables = named_arrays.values(model.variables_by_path())
    model_folder.write_new(configs.ResolvedConfig.of(config), tokenizer, variables, folder / "lm")
    return folder / "lm", model, tokenizer


def mean_log(model, tokenizer, sentence, candidate):
    """The mean log probability of the tokens of a candidate, of one text without padding."""
    (ids,), (hidden,) = tokenizer.encode([sentence]), tokenizer.encode([candidate])
    at = ids.tolist().index(tokenizer.pieces.index("[UNK]"))
    row = [2, *ids[:at], *[tokenizer.mask_id] * len(hidden), *ids[at + 1 :], 3]
    batch = {"token_ids": np.array([row], np.int32)}
    head, encoded = model.objectives[0], model.encode(batch)
    logits = np.array(head.logits(encoded["sequence_output"][0], model.encoder), np.float64)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return np.mean([logs[1 + at + i, token] for i, token in enumerate(hidden)])


@pytest.mark.slow
@pytest.mark.long
def test_a_masked_lm_compares_the_candidates_for_pronouns(tmp_path):
    said = compare(tmp_path, "wnli", ("sentence1", "sentence2"), WNLI, "--pronouns")
    assert "validation: 5 rows, 1 without a pronoun that is found" in said
    files = tmp_path / "files"
    jug, hair, dog = (text.replace(" it ", " _ ") for text in (JUG, HAIR, DOG))
    assert named(files, "train") == {
        jug: {"the cup", "the jug", "the drain"}, hair: {"Hair"}, dog: {"the cat"}
    }  # fmt: skip
    # Those that other files name come beside the rows.
    expected = {hair: {"Hair", "Drain"}, dog: {"dog", "the cat"}}
    expected[jug] = {"the cup", "the jug", "the drain"}
    assert named(files, "test") == expected

    folder, model, tokenizer = masked_lm(tmp_path)
    output = tmp_path / "new.run"
    commands.run(
        "experiments.candidate_lm", f"--input={files}", f"--init={folder}", f"--output={output}",
        status=0,
    )  # fmt: skip
    queries, documents, _, _ = candidate_lm.read(files, "validation")
    scores = {
        (queries[q], documents[d]): score
        for q, found in trec.read_run(output).items()
        for d, score in found.items()
    }
    assert scores.keys() == {(q, d) for q, found in expected.items() for d in found}
    for (sentence, candidate), score in scores.items():
        alone = mean_log(model, tokenizer, sentence, candidate)
        assert score == pytest.approx(alone, abs=1e-4)
    best = [
        scores[hair, "Drain"] > scores[hair, "Hair"], scores[dog, "dog"] > scores[dog, "the cat"],
        False, scores[dog, "dog"] < scores[dog, "the cat"],
        scores[jug, "the jug"] > max(scores[jug, "the cup"], scores[jug, "the drain"]),
    ]  # fmt: skip
    hits = [chosen == (row[2] == 1) for chosen, row in zip(best, WNLI["validation"], strict=True)]
    said = labels(tmp_path, "validation", f"--scores={output}")
    assert f"accuracy {np.mean(hits):.4f} of 5 rows" in said

    # Both pairs of the train split are learned: the right candidate becomes the best one.
    more = "recipe.steps=60", "recipe.batch_size=4", "recipe.optimizer.learning_rate=0.01"
    done = commands.run(
        "experiments.candidate_lm", f"--input={files}", f"--init={folder}",
        "--config=configs/finetune/wnli.yaml", *(f"--override={each}" for each in more),
        "--override=recipe.schedule.warmup_steps=5", f"--model_dir={tmp_path / 'new'}",
        "--split=train", f"--output={output}", status=0,
    )  # fmt: skip
    assert "train: 2 pairs of 1 pronouns, 2 left out" in done.stdout
    assert "step 60 of 60: loss " in done.stdout
    run = trec.read_run(output)["train-1"]
    assert documents[trec.ordered(run)[0][0]] == "the cup"
    learned = checkpoints.load_variables(tmp_path / "new", "last")
    assert learned.keys() == checkpoints.load_variables(folder, "last").keys()


@pytest.mark.parametrize(
    "settings, expected",
    [
        # 2 + 20 * max(0, -2.5 + 2 + 0.2), 3 + 20 * max(0, -2.9 + 3 + 0.2)
        ({}, [2, 9]),
        ({"margin_weight": 5.0, "margin": 0.4}, [2, 5.5]),
        # log(1 + exp(-0.5)), log(1 + exp(0.1))
        ({"loss": "softmax"}, [0.4740769842, 0.7443966600]),
    ],
)
def test_losses_are_the_worked_numbers(settings, expected):
    config = configs.from_dict(
        {
            "name": "x",
            "encoder": {"type": "transformer", **MASKED},
            "objectives": [{"type": "masked_lm"}],
        }
    )
    model = candidate_lm.CandidateModel(configs.ResolvedConfig.of(config))
    for name, value in settings.items():
        setattr(model, name, value)
    scores = np.array([[-2, -2.5], [-3, -2.9]], np.float32)
    np.testing.assert_allclose(model.pair_losses(scores), expected, rtol=1e-5)


def test_sentences_that_cannot_be_scored(tmp_path):
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path, WORDS))
    row = candidate_lm.row_of("the cat saw _ .", "a dog", tokenizer, 16)
    hidden = [tokenizer.pieces[i] for i in row["hidden"]]
    assert hidden == ["a", "dog"] and row["positions"].tolist() == [4, 5]
    for sentence, candidate, message in (
        ("it is here", "cat", "a sentence needs one blank"),
        ("_ is _", "cat", "a sentence needs one blank"),
        ("_ is full", "", "a candidate without tokens"),
        ("_ is full", "cat " * 13, "has 15 tokens with its candidate, and the model reads 14"),
    ):
        with pytest.raises(UserError, match=message):
            candidate_lm.row_of(sentence, candidate, tokenizer, 16)
