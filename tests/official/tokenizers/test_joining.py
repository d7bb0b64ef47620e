"""Ids back to text in a graph: what `decode` gives."""

import json

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from tests import ROOT

GOLDEN = json.loads((ROOT / "tests" / "golden" / "tokenizer.json").read_text())
BYTE_BPE = json.loads((ROOT / "tests" / "golden" / "byte_bpe.json").read_text())


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "byte_bpe"])
def test_joined_ids_are_decoded_ids(kind, spiece_model):
    if kind == "wordpiece":
        tokenizer = tokenizers.WordPiece(GOLDEN["vocabulary"])
    elif kind == "unigram":
        tokenizer = tokenizers.SentencePiece(spiece_model("unigram"))
    else:
        merges = [tuple(line.split(" ")) for line in BYTE_BPE["merges.txt"].splitlines()[1:]]
        tokenizer = tokenizers.ByteBPE(BYTE_BPE["vocab.json"], merges)
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, tokenizer.vocab_size, length).tolist() for length in (30, 0, 1, 12)]
    rows += tokenizer.tokenize(tf.constant(["The cat, 17 dogs", "naïve 猫 😀"])).to_list()
    rows.append([tokenizer.cls_id, *rows[-1], tokenizer.sep_id])
    spec = tf.RaggedTensorSpec([None, None], tf.int32)
    join = tf.function(tokenizer.join, input_signature=[spec])
    actual = join(tf.ragged.constant(rows, tf.int32, ragged_rank=1)).numpy()
    assert [text.decode() for text in actual] == [tokenizer.decode(row) for row in rows]
