"""What a build would cost is what it costs."""

import tempfile

import pytest

from tests import commands, small
from tfrecords_tools.pretraining import builder, dry_run
from tfrecords_tools.pretraining.dry_run import Forecast
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import corpus
from tfrecords_tools.writing.execution import Execution

STREAM = {
    "corruption": None, "objectives": [],
    "segments": {"format": "stream", "rows": 4, "max_length": 16},
}  # fmt: skip


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """Two files, of some 16 groups, and a tokenizer; a folder for temporary files."""
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 512)
    for seed in range(2):
        documents = small.documents(400, seed)
        text = "\n\n".join("\n".join(lines) for lines in documents)
        (tmp_path / f"{seed}.txt").write_text(text + "\n\n")
    tokenizer = small.tokenizer_folder(tmp_path / "tokenizer")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return str(tmp_path / "*.txt"), tokenizer


@pytest.mark.parametrize("changes", [{}, STREAM])
def test_of_the_whole_text_it_is_the_build(tmp_path, inputs, changes):
    """Of a part of it, about that."""
    text, tokenizer = inputs
    settings = Settings.from_config(small.config(**changes), tokenizer)
    said = []
    found = dry_run.forecast(settings, text, 0, "error", "error", said.append)
    built = builder.build(settings, text, tmp_path / "out", Execution(), report=len)
    records = sum(shard.records for shard in built.shards)
    assert (found.examples, found.shards) == (records, len(built.shards))
    assert found.shard_bytes == sum(shard.bytes for shard in built.shards)
    assert (found.files, found.sampled, found.sampled_groups) == (2, found.text, found.groups)
    assert said[0] == f"building {found.groups} of {found.groups} group(s)"
    assert found.making > 0 and found.work_bytes > 0 and found.memory > 100e6
    part = dry_run.forecast(settings, text, 7, "error", "error", len, most=found.text // 2)
    assert 0.3 * found.text < part.sampled <= 0.5 * found.text
    assert part.examples == pytest.approx(found.examples, rel=0.15)
    assert part.shard_bytes == pytest.approx(found.shard_bytes, rel=0.15)
    assert part.work_bytes == pytest.approx(found.work_bytes, rel=0.15)
    assert not list((tmp_path / "temporary").iterdir())


def test_opening_grows_with_the_square_of_the_text(inputs, monkeypatch):
    """Each of 4 files of 3 groups is opened for each 2 of 9 shards."""
    text, tokenizer = inputs
    settings = Settings.from_config(small.config(), tokenizer)
    monkeypatch.setattr(dry_run.local, "neighbors", lambda number: 3 if number > 8 else 2)
    found = dry_run.forecast(settings, text, 9, "error", "error", len, most=1)
    assert found.shards == 9 and found.sampled_groups == 1
    assert found.opening == pytest.approx(-(-found.groups // 3) * 5 * dry_run._OPENING)


def test_what_is_said():
    found = Forecast(
        10**12, 20, 125_000, 32 * 10**6, 4, 9_031_000_000, 81_000, 2_700 * 10**9, 2_900 * 10**9,
        88_000.0, 63_000.0, 500 * 10**6,
    )  # fmt: skip
    assert found.lines(16) == [
        "text      1,000.0 GB in 20 file(s): 125,000 group(s)",
        "built     32.0 MB of it for this: 4 group(s)",
        "examples  about 9,031,000,000",
        "shards    about 81,000, 2,700.0 GB",
        "work      about 2,900.0 GB more on the same disk until the end",
        "time      about 151,000 CPU seconds on cores like this one, of which 63,000 open files: "
        "2.6 hours with --workers=16",
        "memory    about 500.0 MB for each worker",
    ]


def test_command(tmp_path, inputs):
    text, tokenizer = inputs
    options = [
        "--config=configs/smoke/bert.yaml", f"--input={text}", f"--tokenizer={tokenizer}",
        f"--output={tmp_path / 'out'}", "--dry_run",
    ]  # fmt: skip
    said = commands.run("tfrecords_tools.build_shards", *options, "--workers=2", status=0).stdout
    assert said.splitlines()[0].startswith("building ") and "--workers=2" in said
    assert not (tmp_path / "out").exists()
    refused = commands.run("tfrecords_tools.build_shards", *options, "--runner=beam", status=2)
    assert refused.stderr == (
        "error: --dry_run: is of a build on this machine: leave out --runner\n"
    )
