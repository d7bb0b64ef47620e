"""Every builder writes to a file system that fails what it writes to a local disk, to the byte.

`flaky://` has no local paths, so a path that is used raw is not found there.
"""

import json
import tempfile

import pytest
from absl import flags

from official import tokenizers
from official.shards.text_filters import TextFilters
from official.tasks import kinds
from official.utils import paths
from official.utils.engines import Engine
from tests import choices, flaky, sentences, small, squads, systems
from tests.tfrecords_tools.test_build_ranking_data import WIKIQA
from tfrecords_tools import build_ranking_data, build_task_shards, inspect_shards
from tfrecords_tools.pretraining import builder
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.vocabulary import builder as vocabularies
from tfrecords_tools.vocabulary import phrases
from tfrecords_tools.writing.execution import Execution

# Each format of rows, and each file that a builder reads or writes.
FORMATS = {
    **{
        name: (systems.SYSTEMS[name], {})
        for name in ("roberta", "ernie", "electra", "gpt2", "t5", "xlnet_stream", "elmo")
    },
    "spanbert, static": (systems.SPANBERT | {"segments__static_masks": True}, {}),
    "bert, tf_models": ({}, {"format": "tf_models", "filters": TextFilters(min_words=9)}),
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """`flaky://`; the folder `there` of `tmp_path` has its files."""
    (tmp_path / "there").mkdir()
    flaky.use_here(tmp_path, monkeypatch, every=7)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return paths.path("flaky://there")


def contents(folder):
    found = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {str(name): data for name, data in found.items()}


def text(folder, documents):
    (folder / "text.txt").write_text("\n\n".join("\n".join(d) for d in documents) + "\n")


@pytest.mark.parametrize("name", FORMATS)
def test_pretraining_shards(root, tmp_path, name):
    changes, options = FORMATS[name]
    config = small.config(**changes)
    there = tmp_path / "there"
    if config.segments.sentences:
        sentences.tokenizer_folder(there / "tokenizer")
        text(there, sentences.documents(24))
    else:
        small.tokenizer_folder(there / "tokenizer", sentinels=8 * ("t5" == name))
        text(there, small.documents(24))
    (there / "phrases").write_text("badi bado\nfeku fela\n")
    for place in (there, root):
        lexicon = {"phrases": place / "phrases"} if name == "ernie" else {}
        settings = Settings.from_config(config, place / "tokenizer", **options, **lexicon)
        builder.build(settings, f"{place}/text.txt", place / f"out-{place == root}", num_shards=2)
    assert contents(there / "out-True") == contents(there / "out-False")
    assert inspect_shards.verify(root / "out-True") == []
    shown = [*inspect_shards.examples(root / "out-True", 3)]
    assert len(shown) == 3 and shown == [*inspect_shards.examples(there / "out-False", 3)]
    if "tf_models" not in name:
        entropies = [inspect_shards.unigram_entropy(p / "out-True") for p in (root, there)]
        assert entropies[0] == entropies[1]


@pytest.mark.parametrize("name", ["xlnet_stream", "elmo"])
def test_beam(root, tmp_path, name):
    pytest.importorskip("apache_beam")
    changes, _ = FORMATS[name]
    there, config = tmp_path / "there", small.config(**changes)
    made = sentences if config.segments.sentences else small
    made.tokenizer_folder(there / "tokenizer")
    text(there, made.documents(24))
    near = TextFilters(deduplicate="near")
    settings = Settings.from_config(config, there / "tokenizer", filters=near)
    with open(there / "text.txt", "a") as stream:
        stream.write("\n" + "\n".join(made.documents(1)[0]))
    for place, where in ((there, Execution()), (root, Execution(engine=Engine("beam")))):
        built = builder.build(settings, f"{there}/text.txt", place / f"out-{place == root}", where)
        assert built.totals.skipped == {"near-duplicate documents": 1}
    assert contents(there / "out-True") == contents(there / "out-False")


def test_vocabularies_and_phrases(root, tmp_path):
    there = tmp_path / "there"
    text(there, small.documents(60) * 5)
    for place in (there, root):
        for kind, size in (("wordpiece", 150), ("byte_bpe", 300), ("unigram", 70), ("words", 30)):
            vocabularies.build(f"{place}/text.txt", place / f"{kind}-{place == root}", kind, size)
        phrases.build(f"{place}/text.txt", place / f"phrases-{place == root}", 4, 0.0)
    for kind in ("wordpiece", "byte_bpe", "unigram", "words"):
        assert contents(there / f"{kind}-True") == contents(there / f"{kind}-False")
    assert (there / "phrases-True").read_text() == (there / "phrases-False").read_text()


PAIRS = [*zip(small.WORDS, reversed(small.WORDS), strict=True)]


def labeled(there):
    rows = "".join(f"{i % 2}\t{a} {b}\t{b}\n" for i, (a, b) in enumerate(PAIRS))
    (there / "train.tsv").write_text("label\ttext\tpair\n" + rows)


def questions(there):
    (there / "train.json").write_text(json.dumps(squads.make(6)))
    choices.write(there / "train.jsonl", choices.rows(6))


def tagged(there):
    rows = "".join(f"{a} B-X\n{b} O\n\n" for a, b in PAIRS)
    (there / "train.conll").write_text(rows)


def collection(there):
    for name, content in WIKIQA.items():
        (there / name).write_text(content)


TASKS = {
    "classification": (
        labeled,
        ["--text_column=text", "--label_column=label", "--train_file=train.tsv"],
    ),
    "squad2": (questions, ["--train_file=train.json", "--validation_file="]),
    "choice": (questions, ["--train_file=train.jsonl"]),
    "tagging": (tagged, ["--train_file=train.conll"]),
    "generation": (
        labeled,
        ["--text_column=text", "--label_column=pair", "--train_file=train.tsv"],
    ),
    "ranking": (
        collection,
        [
            "--queries=ranking/queries.tsv", "--documents=ranking/documents.tsv",
            "--qrels=ranking/qrels", "--train_file=ranking/train.run",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_shards_of_tasks(root, tmp_path, name):
    make, options = TASKS[name]
    there = tmp_path / "there"
    make(there)
    small.tokenizer_folder(there / "tokenizer", sentinels=8 * (name == "generation"))
    for place in (there, root):
        if name == "ranking":
            read = build_ranking_data.READERS["wikiqa"](place)
            build_ranking_data.write(read, place / f"ranking-{place == root}", 3)
            options = [o.replace("=ranking", f"=ranking-{place == root}") for o in TASKS[name][1]]
        values = flags.FlagValues()
        build_task_shards.define_flags(values)
        output = place / f"out-{place == root}"
        given = [f"--task={name}", f"--input={place}", f"--output={output}", *options]
        values(["build_task_shards", *given, f"--tokenizer={place}/tokenizer"])
        task, files = build_task_shards.plan(values)
        kind = kinds.KINDS[task.kind]
        build_task_shards.build(
            values, task, files, tokenizers.load(values.tokenizer), kind.max_length, Execution(),
            lambda line: None,
        )  # fmt: skip
    assert contents(there / "out-True") == contents(there / "out-False")
    assert contents(there / "ranking-True") == contents(there / "ranking-False")
