import json
import random

import numpy as np
import pytest

from official.tokenizers import pair_merges
from official.tokenizers.byte_vocabulary import ALPHABET
from official.tokenizers.pair_merges import PairMerges
from tests import ROOT
from tests.official.tokenizers.byte_bpe_reference import Reference

GOLDEN = json.loads((ROOT / "tests" / "golden" / "byte_bpe.json").read_text())
IDS = {piece: i for i, piece in enumerate(GOLDEN["vocab.json"])}
MERGES = [tuple(line.split(" ")) for line in GOLDEN["merges.txt"].splitlines()[1:]]


def join(words, ids, merges):
    return PairMerges(ids, merges).join(b"".join(words), np.array(list(map(len, words)), np.int64))


@pytest.mark.parametrize("block", [1 << 14, 7])
def test_ids_are_those_of_the_reference(block, monkeypatch):
    monkeypatch.setattr(pair_merges, "_BLOCK", block)
    rng = random.Random(0)
    words = [word.encode() for text in GOLDEN["texts"] for word in text.split()]
    words += [bytes(rng.choices(range(256), k=rng.randrange(1, 30))) for _ in range(500)]
    words += [b"a" * n for n in range(1, pair_merges.LONGEST + 1)]
    words = [word for word in words if len(word) <= pair_merges.LONGEST]
    reference = Reference(IDS, MERGES)
    ids, splits = join(words, IDS, MERGES)
    assert ids.dtype == np.int32 and len(splits) == len(words) + 1
    for word, first, end in zip(words, splits[:-1], splits[1:], strict=True):
        # The reference takes text: a byte of another text is a character here.
        parts = [reference.ids[reference.names[byte]] for byte in word]
        try:
            parts = reference.spell(word.decode())
        except UnicodeDecodeError:
            assert "".join(GOLDEN["vocab.json"][i] for i in ids[first:end]) == "".join(
                ALPHABET[byte] for byte in word
            )
            continue
        assert ids[first:end].tolist() == parts, word
    ids, splits = join([], IDS, MERGES)
    assert ids.tolist() == [] and splits.tolist() == [0]


def test_equal_pairs_are_joined_one_by_one():
    """A pair that a first one makes may come before the second one."""
    pieces = [*ALPHABET.values(), "ab", "abc", "abca", "bc"]
    ids = {piece: i for i, piece in enumerate(pieces)}
    merges = [("b", "c"), ("a", "b"), ("ab", "c"), ("abc", "a"), ("a", "bc")]
    found, _ = join([b"abcabc"], ids, merges)
    assert [pieces[i] for i in found] == ["abca", "bc"]
    assert found.tolist() == Reference(ids, merges).encode("abcabc")


def test_no_merges():
    ids, splits = join([b"ab", b"c"], IDS, [])
    assert [GOLDEN["vocab.json"][i] for i in ids] == ["a", "b", "c"]
    assert splits.tolist() == [0, 2, 3]
