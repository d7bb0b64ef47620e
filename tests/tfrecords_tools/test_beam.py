"""The shard builders on Apache Beam: the same bytes as in processes of this machine."""

import functools

import numpy as np
import pytest

from official import config as configs
from official.shards import manifest
from official.shards.text_filters import TextFilters
from official.utils.engines import Engine
from official.utils.errors import UserError
from tests import changed_files, commands, sentences, small, systems
from tfrecords_tools.pretraining import builder
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import corpus
from tfrecords_tools.vocabulary import builder as vocabulary
from tfrecords_tools.vocabulary import phrases
from tfrecords_tools.writing.execution import Execution

HERE, BEAM = Execution(), Execution(engine=Engine("beam"))
PROCESSES = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
SILENT = {"report": lambda line: None}
TEXTS = small.documents(120)
# Settings of the segments and of the whole config.
FORMATS = {
    "pairs": {"segments__duplicates": 2},
    "full_sentences": {"segments__format": "full_sentences", "objectives": []},
    "static_masks": {"segments__static_masks": True, "corruption__random_tokens": "unigram"},
    "spans": {
        "corruption__unit": "span", "corruption__max_span": 5,
        "segments__format": "doc_sentences", "objectives": [],
    },
    "sentinels": {**systems.T5, "segments": {"format": "joined", "max_length": 32}},
    "stream": {
        "segments": {
            "format": "stream", "max_length": 16, "rows": 4, "reuse_length": 5, "backward": True,
            "relation": "next_sentence",
        },
        "objectives": [],
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 500)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_text("\n\n".join("\n".join(each) for each in TEXTS))
    return path


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def shards(tmp_path, text, settings, where, name):
    builder.build(settings, str(text), tmp_path / name, where, num_shards=2, **SILENT)
    return contents(tmp_path / name)


@pytest.mark.parametrize(
    ("options", "expected"),
    [((), "FnApiRunner"), (PROCESSES, "FnApiRunner"), (("--runner=PrismRunner",), "PrismRunner")],
)
def test_the_engine_is_the_one_that_is_named(tmp_path, monkeypatch, options, expected):
    """Beam's default takes another one where it can fetch it."""
    from official.utils import beam

    monkeypatch.setattr(beam.beam.Pipeline, "__exit__", lambda self, *_: None)
    with beam.Runner(options, lambda: None, tmp_path).pipeline() as pipeline:
        assert type(pipeline.runner).__name__ == expected


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_pretraining_shards(tmp_path, text, format):
    tokenizer = small.tokenizer_folder(tmp_path / "tokenizer", sentinels=8)
    settings = Settings.from_config(small.config(**FORMATS[format]), tokenizer)
    build = functools.partial(shards, tmp_path, text, settings)
    expected = build(HERE, "here")
    assert build(BEAM, "beam") == expected and len(expected) == 6
    assert build(Execution(2), "processes") == expected
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"tokenizer", "here", "beam", "processes"}


@pytest.mark.slow
def test_filters(tmp_path):
    """The documents that pass are the same, and so are the shards and the vocabulary."""
    (tmp_path / "a.txt").write_text("\n\n".join("\n".join(each) for each in TEXTS + TEXTS[:40]))
    tokenizer = small.tokenizer_folder(tmp_path / "tokenizer")
    filters = TextFilters(9, 0.5, "near")
    settings = Settings.from_config(small.config(), tokenizer, filters=filters)
    left = tmp_path / ".runner-beam" / "filters" / "dropped-0123456789abcdef.npy"  # by a killed run
    left.parent.mkdir(parents=True)
    np.save(left, np.zeros((3, 1), np.int64))
    for name, where in (("here", HERE), ("beam", BEAM)):
        shards(tmp_path, tmp_path / "a.txt", settings, where, name)
        vocabulary.build(
            str(tmp_path / "a.txt"),
            tmp_path / f"{name}-words",
            "words",
            300,
            execution=where,
            text_filters=filters,
        )
    for name in ("", "-words"):
        assert contents(tmp_path / f"here{name}") == contents(tmp_path / f"beam{name}")
    skipped = manifest.read(tmp_path / "beam").totals.skipped
    assert skipped.keys() == {"documents of too few words", "near-duplicate documents"}


@pytest.mark.slow
def test_rows_of_sentences(tmp_path, text):
    tokenizer = sentences.tokenizer_folder(tmp_path / "tokenizer")
    settings = Settings.from_config(sentences.config(), tokenizer)
    path = tmp_path / "b.txt"
    path.write_text("\n\n".join("\n".join(each) for each in sentences.documents(60)))
    build = functools.partial(shards, tmp_path, path, settings)
    assert build(BEAM, "beam") == build(HERE, "here")


@pytest.mark.slow
@pytest.mark.long
def test_several_processes_count_words(tmp_path, text):
    """The command, whose workers are processes that Beam starts."""
    command = (
        "tfrecords_tools.build_phrases",
        f"--input={text}",
        "--threshold=-1",
        "--min_count=2",
    )
    for name, more in (("beam", ["--runner=beam", "--", *PROCESSES]), ("here", [])):
        commands.run(*command, f"--output={tmp_path / name}", *more, status=0)
    assert (tmp_path / "here").read_text() == (tmp_path / "beam").read_text() != ""


@pytest.mark.slow
@pytest.mark.long
def test_several_processes(tmp_path, text):
    """The same of a build of shards."""
    tokenizer = small.tokenizer_folder(tmp_path / "tokenizer")
    config = tmp_path / "config.yaml"
    configs.save(small.config(), config)
    options = [f"--config={config}", f"--input={text}", f"--tokenizer={tokenizer}"]
    for name, more in (("beam", ["--runner=beam", "--", *PROCESSES]), ("here", ["--workers=1"])):
        output = f"--output={tmp_path / name}"
        commands.run("tfrecords_tools.build_shards", *options, output, *more, status=0)
    assert contents(tmp_path / "beam") == contents(tmp_path / "here")
    assert manifest.read(tmp_path / "beam").totals.documents == len(TEXTS)


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "words", "bpe"])
def test_vocabularies(tmp_path, text, kind):
    for name, where in (("here", HERE), ("beam", BEAM)):
        vocabulary.build(str(text), tmp_path / name, kind, 300, execution=where)
    assert contents(tmp_path / "here") == contents(tmp_path / "beam")


def test_phrases(tmp_path, text):
    for name, where in (("here", HERE), ("beam", BEAM)):
        phrases.build(str(text), tmp_path / name, 2, -1.0, execution=where)
    assert (tmp_path / "here").read_bytes() == (tmp_path / "beam").read_bytes()


def test_errors_are_those_of_one_machine(tmp_path, text):
    tokenizer = small.tokenizer_folder(tmp_path / "tokenizer")
    settings = Settings.from_config(small.config(), tokenizer)
    bad = tmp_path / "bad.txt"
    some = "\n\n".join("\n".join(each) for each in TEXTS[:5]).encode()
    for content, message in (
        (b"ba\n\xff\n", r"bad\.txt:2: not UTF-8 .*--on_bad_utf8=skip to leave such lines out$"),
        (b"ba be\nbi\n\nbo\n", r"^\d examples do not fill 9 shards: lower --num_shards$"),
        (some, r"^shard \d of 9 would have no examples: lower --num_shards$"),
        (b"\n\n", r"^no text in the input \(.*bad\.txt\): no examples$"),
    ):
        bad.write_bytes(content)
        for where in (HERE, BEAM):
            with pytest.raises(UserError, match=message):
                builder.build(settings, str(bad), tmp_path / "out", where, num_shards=9, **SILENT)
        assert {path.name for path in tmp_path.iterdir()} == {"tokenizer", "bad.txt"}


def test_text_with_more_parts_than_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(builder, "_PART_BYTES", 40)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join("\n".join(each) for each in TEXTS[:5]))
    tokenizer = small.tokenizer_folder(tmp_path / "tokenizer")
    settings = Settings.from_config(small.config(**FORMATS["stream"]), tokenizer)
    here = shards(tmp_path, text, settings, HERE, "here")
    assert shards(tmp_path, text, settings, BEAM, "beam") == here


def test_options_that_do_not_go_together(tmp_path):
    run = functools.partial(
        commands.run, "tfrecords_tools.build_phrases", "--input=x", "--output=y"
    )
    done = run("--runner=beam", "--workers=2")
    assert (
        done.returncode == 2 and "--workers: is for --runner=local; Apache Beam has" in done.stderr
    )
    done = run("--", "--direct_num_workers=2")
    assert done.returncode == 2 and "unexpected argument '--direct_num_workers=2'" in done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_a_corpus_that_changes_is_refused(tmp_path, text, monkeypatch):
    """By a worker, which says so in words."""
    path = tmp_path / "a.txt"
    path.write_bytes(text.read_bytes())
    openings = changed_files.Openings(monkeypatch, path)
    openings.change(4, changed_files.CHANGES["truncated"])
    with pytest.raises(UserError, match=f"{path} has changed while it was read: it had .* now: "):
        phrases.build(str(path), tmp_path / "phrases.txt", 2, -1, execution=BEAM, **SILENT)
    assert not (tmp_path / "phrases.txt").exists()
