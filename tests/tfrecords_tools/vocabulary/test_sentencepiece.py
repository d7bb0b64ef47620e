"""The sample of lines, and what the trainer says put into words of ours."""

import numpy as np
import pytest
import sentencepiece

from official.utils.errors import UserError
from tfrecords_tools.vocabulary import sentencepiece as sentencepiece_trainer
from tfrecords_tools.vocabulary.sentencepiece import Sample, learn

LINES = ["The cat sat on the mat.", "A dog ran in the park, twice.", "Café cats nap"] * 20


def test_sample_holds_everything_while_it_can():
    sample = Sample(4)
    sample.add(["a", "b"])
    sample.add(["c"])
    assert sample.lines == ["a", "b", "c"] and sample.seen == 3


def test_sample_is_even():
    picked = np.zeros(40)
    for offset in range(200):
        sample = Sample(10, seed=offset)
        sample.add(str(i) for i in range(40))
        assert len(set(sample.lines)) == 10 and sample.seen == 40
        picked[[int(line) for line in sample.lines]] += 1
    # Each line is picked 50 times on average, with a standard deviation of 6.1.
    assert abs(picked - 50).max() < 4 * 6.1
    assert abs(picked[:10].mean() - 50) < 4 * 6.1 / 10**0.5


def test_sample_is_the_same_each_time():
    samples = [Sample(10), Sample(10)]
    for sample in samples:
        sample.add(str(i) for i in range(1000))
    assert samples[0].lines == samples[1].lines


def test_samples_of_chunks_make_the_sample_of_all():
    """The lines with the smallest keys, whatever the samples of the chunks leave out."""
    samples = []
    for size in (10, 15, 1000):
        merged = Sample(10)
        for chunk in range(20):
            part = Sample(size, chunk=(chunk, 0))
            part.add(f"{chunk} {i}" for i in range(30))
            merged.merge(part.state())
        assert merged.seen == 600 and len(merged.lines) == 10
        samples.append(merged.lines)
    assert samples[0] == samples[1] == samples[2]
    places = [tuple(map(int, line.split())) for line in samples[0]]
    assert places == sorted(places) and len({chunk for chunk, _ in places}) > 4


def test_sample_is_even_over_chunks():
    picked = np.zeros(40)
    for offset in range(200):
        merged = Sample(10, seed=offset)
        for chunk in range(8):
            part = Sample(10, offset, (chunk, 0))
            part.add(str(5 * chunk + i) for i in range(5))
            merged.merge(part.state())
        picked[[int(line) for line in merged.lines]] += 1
    assert abs(picked - 50).max() < 4 * 6.1
    assert abs(picked[:10].mean() - 50) < 4 * 6.1 / 10**0.5


def test_long_lines_are_cut_and_nothing_is_lost(monkeypatch):
    monkeypatch.setattr(sentencepiece_trainer, "MAX_LINE_CHARACTERS", 10)
    sample = Sample(100)
    line = "one two three four " + "x" * 25 + " five"
    sample.add([line])
    assert "".join(sample.lines) == line
    assert sample.lines[:2] == ["one two", " three"]
    assert max(map(len, sample.lines)) == 10


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_model(kind):
    data = learn(LINES, kind, 33, 1.0, lower_case=False)
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=data)
    pieces = [tokenizer.id_to_piece(i) for i in range(len(tokenizer))]
    assert pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(pieces) == 33 and "T" in "".join(pieces[5:])
    assert not set(tokenizer.encode("a [MASK] [PAD]")) & {0, 2, 3, 4}
    assert learn(LINES, kind, 33, 1.0, lower_case=False) == data
    folded = sentencepiece.SentencePieceProcessor(model_proto=learn(LINES, kind, 30, 1.0, True))
    assert folded.encode("THE CAT") == folded.encode("the cat")
    assert 1 not in folded.encode("THE CAT")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_model_of_text_to_text(kind):
    data = learn(LINES, kind, 30, 1.0, lower_case=False, text_to_text=True)
    model = sentencepiece.SentencePieceProcessor(model_proto=data)
    assert [model.id_to_piece(i) for i in range(3)] == ["<pad>", "</s>", "<unk>"]
    assert (model.pad_id(), model.eos_id(), model.unk_id(), model.bos_id()) == (0, 1, 2, -1)
    assert len(model) == 30 and not set(model.encode("a cat </s> <pad>")) & {0, 1}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_vocabulary_too_small_for_the_alphabet(kind):
    with pytest.raises(UserError, match=r"--vocab_size=9 is too small: the alphabet .* take 2\d "):
        learn(LINES, kind, 9, 1.0, lower_case=False)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_vocabulary_larger_than_the_text_supports(kind):
    with pytest.raises(UserError) as raised:
        learn(LINES, kind, 5000, 1.0, lower_case=False)
    message = str(raised.value)
    assert "--vocab_size=5000 is more than the text supports: lower it to " in message
    most = int(message.split("lower it to ")[1].split(",")[0])
    model = learn(LINES, kind, most, 1.0, lower_case=False)
    assert len(sentencepiece.SentencePieceProcessor(model_proto=model)) == most


def test_what_the_trainer_says_else():
    with pytest.raises(
        UserError, match="the SentencePiece trainer cannot use this text with these"
    ):
        learn(["", " "], "unigram", 50, 1.0, lower_case=False)
