"""build_shards with rows of sentences: the same bytes for any workers; counts; errors."""

import pytest

from official.shards import manifest
from official.utils.errors import UserError
from tests import sentences, small
from tfrecords_tools import inspect_shards
from tfrecords_tools.pretraining import builder
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.writing.execution import Execution


def write(path, texts):
    path.write_text("\n\n".join("\n".join(text) for text in texts) + "\n")
    return str(path)


def build(tmp_path, name, config, texts, tokens=None, **options):
    tokens = tokens or sentences.tokenizer_folder(tmp_path / "tokens")
    settings = Settings.from_config(config, tokens)
    lines = []
    text = write(tmp_path / "text.txt", texts)
    built = builder.build(settings, text, tmp_path / name, report=lines.append, **options)
    return built, "\n".join(lines)


def test_counts_and_report(tmp_path):
    texts, config = sentences.documents(), sentences.config()
    built, report = build(tmp_path, "out", config, texts)
    words = [word for text in texts for sentence in text for word in sentence.split()]
    positions = len(words) + sum(map(len, texts))
    steps = positions // 8 // 4
    assert built.totals.tokens == len(words) and built.totals.sentences == sum(map(len, texts))
    assert built.totals.examples == 4 * steps
    assert built.totals.cut_tokens == positions - 32 * steps
    assert built.totals.longest_memory == (steps - 1) * 8
    assert built.totals.cut_words == sum(len(word.encode()) > 48 for word in words) > 2
    assert f"{built.totals.cut_words} words of over 48 bytes: their characters were cut" in report
    assert {"word_bytes", "word_lengths", "backward_word_bytes"} < set(built.features)
    shown = "\n".join(inspect_shards.examples(tmp_path / "out", 1))
    assert shown.startswith("example 0: 8 tokens, begins anew\n  A: <S> ")
    assert manifest.read(tmp_path / "out").segments.sentences


@pytest.mark.slow
def test_any_workers_write_the_same(tmp_path):
    config, texts = sentences.config(duplicates=2), sentences.documents(30)
    one, _ = build(tmp_path, "one", config, texts)
    two, _ = build(tmp_path, "two", config, texts, execution=Execution(2))
    assert one.shards == two.shards and one.totals == two.totals


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"format": "pairs", "rows": 0},
            "sentences: not supported for the format pairs",
        ),
        ({"backward": True}, "backward: True is not supported for rows of sentences"),
        ({"reuse_length": 2}, "reuse_length: 2 is not supported for rows of sentences"),
        ({"short_documents": "drop"}, "short_documents: drop is not supported for rows"),
        ({"packing": 2}, "packing: 2 is not supported for the format stream"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        sentences.config(**settings)


def test_text_that_is_too_short(tmp_path):
    with pytest.raises(UserError, match="8 words and marks give 1 rows of 8, but segments.rows: 4"):
        build(tmp_path, "out", sentences.config(), [["a b c"], ["d e f"]])


def test_a_tokenizer_of_pieces_is_refused(tmp_path):
    tokens = small.tokenizer_folder(tmp_path / "pieces")
    with pytest.raises(UserError, match="whole words, but vocab.txt splits words: make a vocab"):
        build(tmp_path, "out", sentences.config(), sentences.documents(), tokens)
