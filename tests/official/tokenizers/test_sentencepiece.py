"""SentencePiece: the ids of the sentencepiece package, in and outside a graph; folders; errors."""

import json

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from official import tokenizers
from official.tokenizers import word_starts
from official.utils.errors import UserError
from tests import ROOT

GOLDEN = json.loads((ROOT / "tests" / "golden" / "tokenizer.json").read_text())
TEXTS = [row["text"] for row in GOLDEN["cased"]]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def trained(request, spiece_model):
    return spiece_model(request.param)


def test_ids_are_those_of_the_package(trained):
    # All but the long runs of one character, where several segmentations score the same.
    texts = [text for text in TEXTS if len(text) < 170]
    assert len(texts) >= len(TEXTS) - 3
    tokenizer = tokenizers.SentencePiece(trained)
    expected = sentencepiece.SentencePieceProcessor(model_proto=trained).encode(texts)
    assert [ids.tolist() for ids in tokenizer.encode(texts)] == expected
    assert tf.function(tokenizer.tokenize)(tf.constant(texts)).to_list() == expected
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(5).map(tokenizer.tokenize)
    assert [ids for batch in dataset for ids in batch.to_list()] == expected


def test_attributes(trained):
    tokenizer = tokenizers.SentencePiece(trained)
    package = sentencepiece.SentencePieceProcessor(model_proto=trained)
    assert tokenizer.pieces == [package.id_to_piece(i) for i in range(len(package))]
    assert tokenizer.vocab_size == 220
    assert (
        tokenizer.pad_id,
        tokenizer.unk_id,
        tokenizer.cls_id,
        tokenizer.sep_id,
        tokenizer.mask_id,
    ) == (0, 1, 2, 3, 4)
    for rule in word_starts.RULES:
        starts = np.flatnonzero(tokenizer.word_starts_by(rule)).tolist()
        text = tokenizer.pieces[5:]
        assert starts == [
            *range(5), *(i for i, p in enumerate(text, 5) if word_starts.of_piece(p, rule))
        ]  # fmt: skip
    np.testing.assert_array_equal(tokenizer.word_starts, tokenizer.word_starts_by("xlnet"))
    assert not tokenizer.word_ends.any()
    assert tokenizer.tokenize(tf.constant(["a"])).dtype == tf.int32


def test_decode_reads_as_text(trained):
    tokenizer = tokenizers.SentencePiece(trained)
    ids = np.concatenate([[2], tokenizer.encode(["It flows through Spain."])[0], [3]])
    assert tokenizer.decode(ids) == "[CLS] It flows through Spain. [SEP]"


def test_lower_case_is_what_the_settings_say_or_the_vocabulary_tells(spiece_model):
    cased, folded = spiece_model(), spiece_model(normalization_rule_name="nmt_nfkc_cf")
    assert tokenizers.SentencePiece(cased).lower_case is False
    assert tokenizers.SentencePiece(folded).lower_case is True
    tokenizer = tokenizers.SentencePiece(cased, lower_case=True)
    assert tokenizer.decode(tokenizer.encode(["It FLOWS"])[0]) == "it flows"
    package = sentencepiece.SentencePieceProcessor(model_proto=cased)
    assert tokenizer.encode(["It FLOWS"])[0].tolist() == package.encode("it flows")


def test_text_never_gives_special_tokens(spiece_model):
    data = spiece_model(controls=["[CLS]", "[SEP]"], user_defined_symbols=["[MASK]"])
    package = sentencepiece.SentencePieceProcessor(model_proto=data)
    mask = package.piece_to_id("[MASK]")
    assert mask in package.encode("a [MASK] a")
    tokenizer = tokenizers.SentencePiece(data)
    assert tokenizer.mask_id == mask
    expected = [1 if i == mask else i for i in package.encode("a [MASK] a")]
    assert tokenizer.encode(["a [MASK] a"])[0].tolist() == expected
    assert tf.function(tokenizer.tokenize)(tf.constant(["a [MASK] a"])).to_list() == [expected]


@pytest.mark.parametrize("text", [b"\xff\xfe It", b"a\x80 It", b"\xc3", b"\xed\xa0\x80 It", b"\0"])
def test_bytes_that_are_not_utf8(trained, text):
    tokenizer = tokenizers.SentencePiece(trained)
    ids = tokenizer.tokenize(tf.constant([text, b"It"])).to_list()
    assert ids[1] == tokenizer.encode(["It"])[0].tolist()
    assert tokenizer.decode(ids[0]).endswith("It" if text.endswith(b"It") else "")


def test_save_and_load(tmp_path, trained):
    tokenizer = tokenizers.SentencePiece(trained)
    tokenizer.save(tmp_path / "tok")
    assert (tmp_path / "tok" / "spiece.model").read_bytes() == trained
    again = tokenizers.load(tmp_path / "tok")
    assert isinstance(again, tokenizers.SentencePiece)
    assert again.files == tokenizer.files and again.fingerprint == tokenizer.fingerprint
    settings = json.loads((tmp_path / "tok" / "tokenizer_config.json").read_text())
    assert settings["mask_token"] == "[MASK]" and settings["do_lower_case"] is False
    other = tokenizers.SentencePiece(trained, lower_case=True)
    assert other.fingerprint != tokenizer.fingerprint


@pytest.mark.parametrize("data", [b"not a model", b"\0" * 64, b"garbage " * 100])
def test_files_that_are_no_model(tmp_path, data):
    (tmp_path / "spiece.model").write_bytes(data)
    with pytest.raises(UserError, match="spiece.model is not a SentencePiece model, or is damaged"):
        tokenizers.load(tmp_path)


def test_empty_model(tmp_path):
    (tmp_path / "spiece.model").write_bytes(b"")
    with pytest.raises(UserError, match="spiece.model is empty: expected a SentencePiece model"):
        tokenizers.load(tmp_path)


def test_model_without_special_tokens(tmp_path, spiece_model):
    (tmp_path / "spiece.model").write_bytes(spiece_model(controls=["[CLS]"]))
    message = r"spiece.model lacks special tokens: sep_token \(\[SEP\] or <sep>\): add them"
    with pytest.raises(UserError, match=message):
        tokenizers.load(tmp_path)
