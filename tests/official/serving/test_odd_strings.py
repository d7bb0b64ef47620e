"""A SavedModel answers what `--mode=predict` writes, whatever the texts, with every kind of head.

The SavedModel is asked in a process that has only tensorflow and tensorflow_text.
"""

import dataclasses
import json
import os
import random

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official import tasks, tokenizers
from official.conversion import converted_model, huggingface
from official.data import ShardDataset
from official.evaluation.evaluator import Evaluator
from official.evaluation.run import write_predictions
from official.saving import checkpoints, model_folder, named_arrays, task_file
from official.serving.compute import length_groups
from official.serving.export import saved_model
from official.tasks import text_to_text, trec
from tests import ROOT, squads
from tests.official.commands.test_export import GOLDEN, ask
from tfrecords_tools.tasks import builder as task_builder

# How many strings for each head.
STRINGS = int(os.environ.get("GARDEN_STRINGS", "40"))
WORDS = "the a cat dog sat ran on under mat tree and quickly , . ! ? cafe".split()
ODD = [
    "", " ", "\t \u3000\u2028", "\u00ad\u200b", "\0", "\x07\x1b[31m", "\x85", "\ufeff", "\ufffd",
    "😀", "👩‍👩‍👧‍👦", "🇬🇧", "\U0010ffff", "\ue000", "\u0378", "e\u0301\u0323", "\u0301" * 30,
    "שלום", "مرحبا \u202eabc\u202c", "\u200f", "한글", "漢字かな", "ﬃ½㍿", "İSTANBUL ß ς",
    "[MASK] [SEP]", "[CLS]", "x" * 300, "ünïcødé" * 40, "_", "__", "-" * 99, "a\u00ad\u200bb\x00c",
    "\n", "\r\n", '"\\', "<mask>",
    b"\xff", b"\xc3", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"cat\x80\xbfdog",
]  # fmt: skip
ENCODER = {
    "type": "transformer", "vocab_size": 35, "hidden_size": 12, "num_layers": 2, "num_heads": 3,
    "intermediate_size": 20, "max_positions": 24, "initializer_range": 0.5,
}  # fmt: skip
CLASSES = {"type": "classification", "labels": ["no", "perhaps", "yes"]}
HEADS = {
    "classification": [CLASSES],
    "pair": [CLASSES],
    "regression": [{"type": "regression"}],
    "several": [{**CLASSES, "task": "classification"}, {"type": "regression", "task": "other"}],
    "ranking": [{"type": "ranking"}],
    "kernel_ranking": [{"type": "kernel_ranking"}],
    "span": [{"type": "span_answer"}],
    "conditional_span": [{"type": "span_answer", "form": "conditional"}],
    "choice": [{"type": "multiple_choice"}],
}
LENGTH = 20
QUIET = {"report": lambda line: None}


@pytest.fixture(autouse=True)
def groups(monkeypatch):
    """Models this small would read all rows at once."""
    monkeypatch.setattr(length_groups, "STARTING", 0)


def strings(count, seed, blank=True):
    """Bytes; where `blank` is false there is more than white space in each."""
    draw = random.Random(seed)

    def one():
        kind = draw.random()
        if kind < 0.01:
            return [" ".join(draw.choices(WORDS, k=draw.randrange(2000, 6000)))]
        if kind < 0.3:
            return [draw.choice(ODD)]
        return draw.choices(ODD + 3 * WORDS, k=draw.randrange(1, 25))

    result = []
    while len(result) < count:
        between = draw.choice(["", " ", "\t"]).encode()
        result.append(between.join(p if isinstance(p, bytes) else p.encode() for p in one()))
        if not blank and not text(result[-1]).strip():
            result.pop()
    return result


def text(raw):
    """What a file can hold of a string, and what a server reads of it."""
    return raw.decode("utf-8", "replace")


def random_model(folder, objectives, task):
    """Random weights, those of the heads large, so that answers differ.

    A span's score is a sum of several, and their differences: smaller ones will do.
    """
    raw = {"name": "odd", "encoder": ENCODER, "objectives": objectives, "recipe": {"steps": 1}}
    config = configs.from_dict(raw)
    recipe = dataclasses.replace(config.recipe, batch_size=16, bucket_lengths=(8, 14, LENGTH))
    config = dataclasses.replace(config, recipe=recipe)
    configs.save(config, folder / "config.yaml")
    tokenizers.load(GOLDEN).save(folder / "tokenizer")
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    draw = np.random.default_rng(0)
    spread = 0.2 if objectives[0]["type"] == "span_answer" else 0.7
    for path, value in variables.items():
        if not path.startswith("encoder/"):
            variables[path] = draw.normal(0, spread, value.shape).astype(value.dtype)
    checkpoints.save(folder, 1, variables, {})
    (folder / "task.json").write_text(json.dumps(task))
    return config


def predicted(folder, shards, objectives, output, split="test", sizes=None):
    """Writes the predictions of a new model folder, and exports it."""
    task = json.loads((shards / "manifest.json").read_text())["task"]
    # As `setup.save_task` has it.
    config = random_model(folder / "model", objectives, {})
    source = ShardDataset(shards, config, split)
    task_file.save(source.manifest, folder / "model")
    source.check(config, predicting=True)
    model = model_folder.restore(folder / "model")[2]
    write_predictions(Evaluator(config, model, tf.distribute.get_strategy()), source, output)
    name = "classification" if "task" in objectives[0] else None
    saved_model.export(folder / "model", folder / "saved", task=name)
    return task


def batches(columns):
    """Requests of 1 string and of 30, by the names of their inputs."""
    count = len(next(iter(columns.values())))
    cuts = [*range(min(8, count)), *range(min(8, count), count, 30), count]
    return [
        ("serving_default", {name: values[a:b] for name, values in columns.items()})
        for a, b in zip(cuts, cuts[1:], strict=False)
    ]


def served(folder, columns):
    """{output: the answers to all strings}."""
    answers = ask(folder / "saved", batches(columns), folder)
    return {name: np.concatenate([a[name] for a in answers]) for name in answers[0]}


def same(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
    assert len(expected) < 9 or np.ptp(np.array(expected), axis=0).min() > 1e-3  # they differ


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", ["pair", "regression", "several"])
def test_texts(tmp_path, kind):
    """Of `several` heads the one of classification is served, for single texts."""
    first, second = strings(STRINGS, seed=1), strings(STRINGS, seed=2)
    rows = [{"a": text(a), "b": text(b)} for a, b in zip(first, second, strict=True)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = tasks.generic(
        "regression" if kind == "regression" else "classification", "a",
        "b" if kind == "pair" else None, labels=() if kind == "regression" else CLASSES["labels"],
    )  # fmt: skip
    task_builder.build(
        task, {"test": tmp_path / "rows.jsonl"}, tokenizers.load(GOLDEN), tmp_path / "shards",
        LENGTH, **QUIET,
    )  # fmt: skip
    predicted(tmp_path, tmp_path / "shards", HEADS[kind], tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").open()]
    served_answers = served(
        tmp_path, {"text": first, **({"text_b": second} if kind == "pair" else {})}
    )
    if kind == "regression":
        return same(served_answers["score"], [line["score"] for line in lines])
    same(
        served_answers["probabilities"],
        [[line["probabilities"][name] for name in CLASSES["labels"]] for line in lines],
    )
    clear = np.diff(np.sort(served_answers["probabilities"], axis=1)[:, -2:])[:, 0] > 1e-5
    assert clear.mean() > 0.9
    for i in np.flatnonzero(clear):
        assert served_answers["label"][i].decode() == lines[i]["label"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ranking", "kernel_ranking"])
def test_documents(tmp_path, kind):
    documents = strings(STRINGS, seed=3, blank=False)
    queries = strings(max(2, STRINGS // 10), seed=4, blank=False)
    both = {"q": queries, "d": documents}
    for name, result in both.items():
        lines = [json.dumps({"id": f"{name}{i}", "text": text(t)}) for i, t in enumerate(result)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    asked = [(i % len(queries), i) for i in range(len(documents))]
    run = {f"q{q}": {} for q in range(len(queries))}
    for q, d in asked:
        run[f"q{q}"][f"d{d}"] = 1.0 / (d + 1)
    with open(tmp_path / "first.run", "w") as stream:
        trec.write_run(stream, run, "first")
    task_builder.build(
        tasks.ranking(), {"test": tmp_path / "first.run"}, tokenizers.load(GOLDEN),
        tmp_path / "shards", LENGTH, queries=tmp_path / "q.jsonl", documents=tmp_path / "d.jsonl",
        **QUIET,
    )  # fmt: skip
    predicted(tmp_path, tmp_path / "shards", HEADS[kind], tmp_path / "new.run")
    new = trec.read_run(tmp_path / "new.run")
    columns = {
        "query": [queries[q] for q, _ in asked],
        "documents": [documents[d] for _, d in asked],
    }
    served_answers = served(tmp_path, columns)
    same(served_answers["scores"], [new[f"q{q}"][f"d{d}"] for q, d in asked])


@pytest.mark.slow
def test_choices(tmp_path):
    fields = {
        "context": strings(STRINGS, seed=5, blank=False),
        "question": strings(STRINGS, seed=6),
        "choices": [strings(3, seed=100 + i, blank=False) for i in range(STRINGS)],
    }
    # A question and a choice that fill the row are refused by the shards: short ones here.
    short = lambda raw: raw if len(text(raw)) <= 4 else text(raw)[:4].encode()  # noqa: E731
    fields["question"] = [short(raw) for raw in fields["question"]]
    fields["choices"] = [
        [short(raw) if text(short(raw)).strip() else b"cat \xff" for raw in row]
        for row in fields["choices"]
    ]
    lines = [
        json.dumps({"context": text(c), "question": text(q), "choices": list(map(text, row))})
        for c, q, row in zip(*fields.values(), strict=True)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    task_builder.build(
        tasks.choice(), {"test": tmp_path / "rows.jsonl"}, tokenizers.load(GOLDEN),
        tmp_path / "shards", LENGTH, **QUIET,
    )  # fmt: skip
    predicted(tmp_path, tmp_path / "shards", HEADS["choice"], tmp_path / "out.jsonl")
    wanted = [json.loads(line) for line in (tmp_path / "out.jsonl").open()]
    served_answers = served(tmp_path, fields)
    expected = np.array([[w["probabilities"][n] for n in "ABC"] for w in wanted])
    same(served_answers["probabilities"], expected)
    clear = np.diff(np.sort(expected, axis=1)[:, 1:])[:, 0] > 1e-5  # [UNK] is as good as [UNK]
    assert clear.mean() > 0.5
    for i in np.flatnonzero(clear):
        best = "ABC".index(wanted[i]["label"])
        assert served_answers["index"][i] == best
        # NumPy's strings lose zeros at their ends.
        assert served_answers["choice"][i].decode() == text(fields["choices"][i][best]).rstrip("\0")


def answers(tmp_path, kind, questions, contexts, sizes):
    """Compares served answers with the files of predictions."""
    asked = [
        (text(context), [(str(i), text(question), [])])
        for i, (question, context) in enumerate(zip(questions, contexts, strict=True))
    ]
    (tmp_path / "asked.json").write_text(json.dumps(squads.document(*asked)))
    task_builder.build(
        tasks.TASKS["squad2"], {"test": tmp_path / "asked.json"}, tokenizers.load(GOLDEN),
        tmp_path / "shards", LENGTH, **sizes, **QUIET,
    )  # fmt: skip
    out = tmp_path / "answers"
    predicted(tmp_path, tmp_path / "shards", HEADS[kind], out)
    names = "nbest", "null_odds", "predictions"
    best, odds, said = (json.loads((out / f"{name}.json").read_text()) for name in names)
    served_answers = served(tmp_path, {"question": questions, "context": contexts})
    odds = np.array([odds[str(i)] for i in range(len(questions))])
    some = odds < 1e29  # elsewhere the context has no token
    same(served_answers["null_odds"][some], odds[some])
    assert (served_answers["null_odds"][~some] > 1e29).all()
    clear = 0
    for i, context in enumerate(map(text, contexts)):
        spans = [span for span in best[str(i)] if span["text"]]
        answer, start, end = (served_answers[name][i] for name in ("answer", "start", "end"))
        assert answer.decode() == context[start:end].rstrip("\0")
        if spans:
            assert served_answers["score"][i] == pytest.approx(spans[0]["score"], abs=1e-5)
        # Windows of the same words are as good as one another.
        if len(spans) > 1 and spans[0]["score"] - spans[1]["score"] > 1e-4:
            clear += 1
            assert answer.decode() == said[str(i)].rstrip("\0")
    return clear


@pytest.mark.slow
@pytest.mark.long
def test_questions(tmp_path):
    """The conditional form; a long text below is asked with the other one."""
    questions = strings(STRINGS, seed=7, blank=False)
    contexts = strings(STRINGS, seed=8, blank=False)
    sizes = {"doc_stride": 6, "max_query_length": 6}
    assert answers(tmp_path, "conditional_span", questions, contexts, sizes) > STRINGS / 3


@pytest.mark.slow
@pytest.mark.long
def test_a_text_of_100000_words_is_cut_or_read_in_windows(tmp_path):
    draw = random.Random(0)
    book = " ".join(draw.choices(WORDS, k=100_000)).encode()
    rows = [{"a": book.decode()}, {"a": book[:400].decode()}, {"a": "a cat"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = tasks.generic("classification", "a", labels=CLASSES["labels"])
    (tmp_path / "cut").mkdir()
    task_builder.build(
        task, {"test": tmp_path / "rows.jsonl"}, tokenizers.load(GOLDEN),
        tmp_path / "cut" / "shards", LENGTH, **QUIET,
    )  # fmt: skip
    shards, output = tmp_path / "cut" / "shards", tmp_path / "cut" / "out.jsonl"
    predicted(tmp_path / "cut", shards, HEADS["classification"], output)
    lines = [json.loads(line) for line in output.open()]
    served_answers = served(tmp_path / "cut", {"text": [row["a"] for row in rows]})
    expected = [[line["probabilities"][n] for n in CLASSES["labels"]] for line in lines]
    same(served_answers["probabilities"], expected)
    # Nothing behind the first tokens matters,
    same(served_answers["probabilities"][:1], served_answers["probabilities"][1:2])
    # while an answer may be anywhere.
    (tmp_path / "read").mkdir()
    sizes = {"doc_stride": 12, "max_query_length": 4}
    answers(tmp_path / "read", "span", [b"the dog"], [book], sizes)


SENTINELS = ["<extra_id_0>", "a <extra_id_99> b", "<extra_id_100><extra_id_7>", "</s> <pad> <unk>"]
NEW_TOKENS = 8


def text_model(folder):
    """A T5 of large random weights, whose vocabulary is of SentencePiece with 100 sentinels."""
    converted_model.write(huggingface.read(ROOT / "tests" / "golden" / "t5" / "v1_1"), folder)
    config = configs.load(folder)
    recipe = dataclasses.replace(config.recipe, batch_size=100, bucket_lengths=())
    configs.save(dataclasses.replace(config, recipe=recipe), folder / "config.yaml")
    variables = checkpoints.load_variables(folder, "best")
    draw = np.random.default_rng(0)
    for path, value in variables.items():
        if not path.endswith("scale"):
            variables[path] = draw.normal(0, 0.7, value.shape).astype(value.dtype)
    checkpoints.save(folder, 1, variables, {})


def generated(answers):
    return [said.decode() for said in answers["text"]]


@pytest.mark.slow
@pytest.mark.long
def test_generated_texts(tmp_path):
    folder, count = tmp_path / "model", max(STRINGS, 200)
    text_model(folder)
    inputs = strings(count - len(SENTINELS), seed=9) + [each.encode() for each in SENTINELS]
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"x": text(raw)}) + "\n" for raw in inputs)
    )
    task_builder.build(
        text_to_text.generation("x", None), {"test": tmp_path / "rows.jsonl"},
        tokenizers.load(folder / "tokenizer"), tmp_path / "shards", LENGTH,
        max_target_length=NEW_TOKENS, **QUIET,
    )  # fmt: skip
    config, _, model = model_folder.restore(folder)
    source = ShardDataset(tmp_path / "shards", config, "test")
    task_file.save(source.manifest, folder)
    evaluator = Evaluator(config, model, tf.distribute.get_strategy())
    write_predictions(evaluator, source, tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").open()]
    written = [line["text"] for line in lines]
    assert len(written) == count and len(set(written)) > count / 4

    loaded = official.load(folder)
    read = [text(raw) for raw in inputs]
    assert loaded.generate(read, batch_size=100, max_new_tokens=NEW_TOKENS) == written
    saved_model.export(folder, tmp_path / "saved", max_new_tokens=NEW_TOKENS)
    cuts = [0, 1, 2, *range(30, count, 97), count]
    groups = [inputs[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]
    asked = [("generate", {"text": group}) for group in groups]
    answers = ask(tmp_path / "saved", asked, tmp_path)
    assert [said for each in answers for said in generated(each)] == written

    beams = {"num_beams": 3, "length_penalty": 0.6}
    saved_model.export(folder, tmp_path / "beams", max_new_tokens=NEW_TOKENS, **beams)
    searched = loaded.generate(read[-60:], 60, max_new_tokens=NEW_TOKENS, **beams)
    assert searched != written[-60:]
    (answers,) = ask(tmp_path / "beams", [("generate", {"text": inputs[-60:]})], tmp_path)
    assert generated(answers) == searched
