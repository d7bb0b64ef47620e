"""Shards of text to text: the tokens of inputs and targets, the answers, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset
from official.shards import manifest, parsing, side_texts
from official.tasks import text_to_text as forms
from official.utils.errors import UserError
from tests import small
from tfrecords_tools import build_task_shards, inspect_shards
from tfrecords_tools.tasks import builder as task_builder

WORDS = (
    "a good bad film is the was it not ##s positive negative sst2 stsb mnli sentence sentence1 "
    "sentence2 question context who : ? . 0 1 2 3 4 5 8 unanswerable copy choice choice1 choice2 "
    "hypothesis premise entailment"
).split()
PIECES = [*small.SPECIALS, *WORDS]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return tokenizers.load(small.tokenizer_folder(tmp_path_factory.mktemp("t") / "t", WORDS))


def _build(folder, task, tokenizer, suffix="tsv", max_length=32, options=None, **contents):
    files = {}
    for split, content in contents.items():
        files[split] = folder / f"{split}.{suffix}"
        files[split].write_text(content)
    quiet = lambda line: None  # noqa: E731
    output = folder / "out"
    return task_builder.build(
        task, files, tokenizer, output, max_length, report=quiet, **options or {}
    )


def _texts(folder, split="train"):
    """The pieces of each input and target; those of the train split by their rows."""
    content = manifest.read(folder / "out")
    lacking = {"target_ids"} if split in content.task.unlabelled else set()
    names = sorted(set(content.features) - lacking)
    found = []
    for shard in content.split(split):
        records = list(tf.data.TFRecordDataset(str(folder / "out" / shard.name)))
        parsed = parsing.parse(tf.stack(records), names)
        for i in range(len(records)):
            texts = tuple(
                " ".join(PIECES[number] for number in parsed[name][i].numpy())
                for name in ("token_ids", "target_ids")
                if name in parsed
            )
            found.append((int(parsed["row"][i]), texts))
    if split == "train":
        found.sort()
    return [texts for _, texts in found]


def test_labels(tmp_path, tokenizer):
    task = forms.from_task(tasks.find("sst2"))
    built = _build(
        tmp_path, task, tokenizer,
        train="sentence\tlabel\na good film\t1\nit was not good\t0\n",
        test="index\tsentence\n7\tthe film\n",
    )  # fmt: skip
    assert _texts(tmp_path) == [
        ("sst2 sentence : a good film [SEP]", "positive [SEP]"),
        ("sst2 sentence : it was not good [SEP]", "negative [SEP]"),
    ]
    assert _texts(tmp_path, "test") == [("sst2 sentence : the film [SEP]",)]
    assert (built.kind, built.task.kind, built.task.answers) == (
        "task", "text_to_text", "classification",
    )  # fmt: skip
    assert built.task.max_target_length == 2 and built.task.unlabelled == ("test",)
    assert built.totals.splits["train"].labels == {"negative": 1, "positive": 1}
    assert side_texts.read_references(tmp_path / "out", "train", built) == {
        0: side_texts.Reference(0, "", ("positive",)),
        1: side_texts.Reference(1, "", ("negative",)),
    }
    assert side_texts.read_references(tmp_path / "out", "test", built)[0].answers is None


def test_scores_keep_their_exact_value_beside_the_text(tmp_path, tokenizer):
    task = forms.from_task(tasks.find("stsb"))
    built = _build(
        tmp_path, task, tokenizer,
        train="sentence1\tsentence2\tscore\na film\tthe film\t3.75\ngood\tbad\t0.0\n",
    )  # fmt: skip
    assert _texts(tmp_path) == [
        ("stsb sentence1 : a film sentence2 : the film [SEP]", "3 . 8 [SEP]"),
        ("stsb sentence1 : good sentence2 : bad [SEP]", "0 . 0 [SEP]"),
    ]
    assert side_texts.read_references(tmp_path / "out", "train", built)[0].answers == ("3.75",)
    assert built.task.max_target_length == 4


def test_questions(tmp_path, tokenizer):
    context = "It was the (good) film."
    asked = [
        {"id": "q1", "question": "who?", "answers": [
            {"text": "(good) film", "answer_start": 11}, {"text": "film.", "answer_start": 18}]},
        {"id": "q2", "question": "not?", "answers": [], "is_impossible": True},
    ]  # fmt: skip
    content = {"data": [{"title": "t", "paragraphs": [{"context": context, "qas": asked}]}]}
    built = _build(
        tmp_path, forms.from_task(tasks.find("squad2")), tokenizer, "json",
        train=json.dumps(content),
    )  # fmt: skip
    end = "? context : it was the [UNK] good [UNK] film . [SEP]"
    assert _texts(tmp_path) == [
        (f"question : who {end}", "[UNK] good [UNK] film [SEP]"),
        (f"question : not {end}", "unanswerable [SEP]"),
    ]
    assert side_texts.read_references(tmp_path / "out", "train", built) == {
        0: side_texts.Reference(0, "q1", ("( good ) film", "film .")),
        1: side_texts.Reference(1, "q2", ()),
    }


def test_choices(tmp_path, tokenizer):
    row = {"context": "a film", "question": "good ?", "choices": ["it is", "not"], "answer": "B"}
    _build(tmp_path, forms.from_task(tasks.choice()), tokenizer, "jsonl", train=json.dumps(row))
    assert _texts(tmp_path) == [
        (
            "choice choice1 : it is choice2 : not context : a film question : good ? [SEP]",
            "choice2 [SEP]",
        )
    ]


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
def test_texts_and_targets_of_the_user(tmp_path, tokenizer, suffix):
    rows = [("a film", "film a"), ("good", "good")]
    if suffix == "jsonl":
        text = "\n".join(json.dumps({"x": a, "y": b}) for a, b in rows)
    else:
        mark = {"tsv": "\t", "csv": ","}[suffix]
        text = "\n".join(mark.join(row) for row in [("x", "y"), *rows])
    task = forms.generation("x", "y", "copy : ")
    built = _build(tmp_path, task, tokenizer, suffix, train=text)
    assert _texts(tmp_path) == [
        ("copy : a film [SEP]", "film a [SEP]"), ("copy : good [SEP]", "good [SEP]"),
    ]  # fmt: skip
    assert (built.task.answers, built.task.prefix) == ("generation", "copy : ")
    assert built.task.metrics == ("exact_match",)


def test_inspection_shows_inputs_and_targets(tmp_path, tokenizer):
    _build(tmp_path, forms.generation("x", "y"), tokenizer, train="x\ty\na film\tgood\n")
    (shown,) = inspect_shards.examples(tmp_path / "out", 1)
    assert shown == "example 0: 3 tokens, row 0\n  A: a film [SEP]\n  target: good [SEP]"


def test_long_inputs_are_cut_and_end_like_others(tmp_path, tokenizer):
    task = forms.generation("x", "y")
    built = _build(tmp_path, task, tokenizer, "tsv", 4, train="x\ty\na good bad film\tfilm\n")
    assert _texts(tmp_path) == [("a good bad [SEP]", "film [SEP]")]
    assert built.totals.truncated == 1 and built.max_length == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x\ty\na\tfilm\nb\t\n", "train.tsv, line 3: the target '' has no tokens: a decoder has"),
        ("x\ty\na\tfilm\n \tb\n", "train.tsv, line 3: the text ' ' has no tokens: there is"),
        ("x\ty\na\tthe good film\n", "line 2: the target has 4 tokens with the one that ends it, "
         "and --max_target_length=3: set it to at least 4"),
    ],
)  # fmt: skip
def test_targets_that_cannot_be_learned_are_refused(tmp_path, tokenizer, text, message):
    task = forms.generation("x", "y")
    options = {"max_target_length": 3}
    with pytest.raises(UserError, match=message):
        _build(tmp_path, task, tokenizer, "tsv", 32, options, train=text)
    assert not (tmp_path / "out").exists()
    text += "good\tgood\n"
    built = _build(
        tmp_path, task, tokenizer, "tsv", 32, {**options, "skip_bad_rows": True}, train=text
    )
    assert sum(built.totals.skipped.values()) == 1


def test_labels_that_a_vocabulary_cannot_tell_apart(tmp_path, tokenizer):
    task = tasks.generic("classification", "x", label="y", labels=["plus", "minus"])
    with pytest.raises(UserError, match="label 'minus' has the same tokens as 'plus' in this voca"):
        _build(tmp_path, forms.from_task(task), tokenizer, train="x\ty\na\tplus\n")
    task = forms.from_task(tasks.generic("classification", "x", label="y"))
    with pytest.raises(UserError, match="label 'bad' begins 'bads'"):
        _build(tmp_path, task, tokenizer, train="x\ty\na\tbad\nb\tbads\n")


def test_batches(tmp_path, tokenizer):
    task = forms.generation("x", "y")
    _build(
        tmp_path, task, tokenizer,
        train="x\ty\na good film\tfilm\nbad\tthe bad film\n", test="x\ngood\n",
    )  # fmt: skip
    objectives = [{"type": "seq2seq_lm"}]
    encoder = {"type": "encoder_decoder"}
    config = configs.from_dict(
        {"name": "x", "encoder": encoder, "objectives": objectives, "recipe": {"steps": 1}}
    )
    source = ShardDataset(tmp_path / "out", config, "train")
    (batch,) = source.dataset(3)
    order = np.argsort(batch["row"].numpy()[:2])
    ids = {piece: i for i, piece in enumerate(PIECES)}
    wanted = [["film", "[SEP]"], ["the", "bad", "film", "[SEP]"], []]
    wanted = [[ids[piece] for piece in row] for row in wanted]
    np.testing.assert_array_equal(
        batch["target_ids"].numpy()[order], [row + [0] * (4 - len(row)) for row in wanted[:2]]
    )
    np.testing.assert_array_equal(
        batch["target_mask"].numpy()[order],
        [[n < len(row) for n in range(4)] for row in wanted[:2]],
    )
    assert batch["target_ids"].shape == batch["target_mask"].shape == (3, 4)
    np.testing.assert_array_equal(batch["example_weights"], [1, 1, 0])
    source.check(config)
    test = ShardDataset(tmp_path / "out", config, "test")
    test.check(config, predicting=True)
    (batch,) = test.dataset(1)
    assert not batch["target_mask"].numpy().any()
    with pytest.raises(UserError, match="the test split does not give target_ids, target_mask"):
        test.check(config)


def _plan(*arguments):
    options = flags.FlagValues()
    build_task_shards.define_flags(options)
    options(["build_task_shards", *arguments])
    return build_task_shards.plan(options)


def test_command_line(tmp_path):
    Path(tmp_path, "train.tsv").write_text("x")
    file = f"--train_file={tmp_path / 'train.tsv'}"
    task, files = _plan("--task=rte", "--text_to_text", file)
    assert task == forms.from_task(tasks.find("rte")) and list(files) == ["train"]
    columns = "--text_column=s", "--label_column=t"
    task, _ = _plan("--task=generation", *columns, "--prefix=go: ", file)
    assert task == forms.generation("s", "t", "go: ")
    asked = "--task=squad1", "--text_to_text", file
    assert _plan(*asked)[0].description().punctuation == "ascii"
    assert _plan(*asked, "--punctuation=non_word")[0].description().punctuation == "non_word"
    task, _ = _plan("--task=classification", *columns, "--text_to_text", "--prefix=mine", file)
    assert (task.prefix, task.fields, task.answers) == ("mine", ("s",), "classification")
    for arguments, message in (
        (("--task=rte", "--prefix=x", file), "--prefix is for tasks of text to text: add --text_t"),
        (("--task=generation", *columns, "--labels=a,b", file), "--labels is not for --task=gener"),
        (
            ("--task=rte", "--text_to_text", "--punctuation=ascii", file),
            "--punctuation=ascii is for questions with a context .squad1, squad2., not for rte: re",
        ),
        (("--task=generation", file), "--task=generation needs --text_column"),
    ):
        with pytest.raises(UserError, match=message):
            _plan(*arguments)
