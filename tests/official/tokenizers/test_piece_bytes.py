"""The bytes that pieces stand for add up to those of the text."""

import json

import numpy as np
import pytest

from official import tokenizers
from tests import ROOT

GOLDEN = json.loads((ROOT / "tests" / "golden" / "tokenizer.json").read_text())
BYTE_BPE = json.loads((ROOT / "tests" / "golden" / "byte_bpe.json").read_text())


def total(tokenizer, text):
    return int(tokenizer.piece_bytes[tokenizer.encode([text])[0]].sum())


@pytest.mark.parametrize("text", ["", "The  cat,\n17 dogs ", "naïve 猫 😀", " a", "\x00é\t"])
def test_byte_bpe_counts_every_byte(text):
    merges = [tuple(line.split(" ")) for line in BYTE_BPE["merges.txt"].splitlines()[1:]]
    tokenizer = tokenizers.ByteBPE(BYTE_BPE["vocab.json"], merges)
    assert total(tokenizer, text) == len(text.encode())


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("text", ["The cat, 17 dogs", "a  b ", "don't"])
def test_sentencepiece_counts_the_normalized_text_and_the_first_blank(kind, text, spiece_model):
    """The text is spelled with bytes where the model has no piece."""
    model = spiece_model(kind, vocab_size=480, byte_fallback=True)
    tokenizer = tokenizers.SentencePiece(model)
    assert total(tokenizer, text) == len(" ".join(text.split()).encode()) + 1
    assert total(tokenizer, "猫") == 1 + len("猫".encode())
    (ids,) = tokenizer.encode(["猫"])
    assert [tokenizer.pieces[i] for i in ids[-3:]] == ["<0xE7>", "<0x8C>", "<0xAB>"]


def test_wordpiece_counts_a_blank_before_each_word_and_mark():
    tokenizer = tokenizers.WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "##s", "."])
    assert tokenizer.piece_bytes.tolist() == [0, 0, 0, 0, 4, 4, 1, 2]
    assert total(tokenizer, "The cats.") == len(" the cats .")
    assert total(tokenizer, "the dog") == len(" the")  # a word that cannot be spelled


def test_special_tokens_and_sentinels_have_no_bytes(spiece_model):
    tokenizer = tokenizers.SentencePiece(spiece_model("unigram"))
    assert not tokenizer.piece_bytes[list(tokenizer.special_ids)].any()
    assert tokenizer.piece_bytes.dtype == np.int32
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "<extra_id_1>", "<extra_id_0>"]
    assert tokenizers.WordPiece(pieces).piece_bytes.tolist() == [0, 0, 0, 0, 2, 0, 0]
