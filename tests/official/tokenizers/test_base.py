"""What all tokenizers do: ids back to text, memory, bytes of pieces, splitters in SavedModels."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from tests import ROOT, small

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


ROWS, REPEATS = 2000, 100_000  # one row of 200,000 tokens: [ROWS, longest] of 4 bytes is 1.6 GB
MOST = 400  # MB
# (The peak of a process never falls, so each step is looked at in a process of its own.)
PROGRAM = f"""
import json, resource, sys
import tensorflow as tf
from official import tokenizers

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

tokenizer = tokenizers.load(sys.argv[1])
texts = ["a b"] * {ROWS} + [" ".join(["a b"] * {REPEATS})]
ids = tokenizer.tokenize(tf.constant(texts[:2]))
tokenizer.tokenize_with_offsets(tf.constant(texts[:2])), tokenizer.join(ids)
before = peak()
ids, starts, ends = tokenizer.tokenize_with_offsets(tf.constant(texts))
same = tokenizer.tokenize(tf.constant(texts))
whole = tokenizer.join(same)
print(json.dumps({{
    "grown": peak() - before,
    "tokens": ids.row_lengths().numpy()[[0, -1]].tolist(),
    "same": bool(tf.reduce_all(ids.values == same.values)),
    "last": [int(starts.values[-1]), int(ends.values[-1])],
    "text": whole[-1].numpy().decode()[:8],
}}))
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
def test_one_long_text_among_many_short_ones(kind, tmp_path, spiece_model):
    if kind == "wordpiece":
        tokenizer = tokenizers.WordPiece([*small.SPECIALS, "a", "b"])
    elif kind == "byte_bpe":
        golden = json.loads((ROOT / "tests" / "golden" / "byte_bpe.json").read_text())
        merges = [tuple(line.split(" ")) for line in golden["merges.txt"].splitlines()[1:]]
        tokenizer = tokenizers.ByteBPE(golden["vocab.json"], merges)
    else:
        tokenizer = tokenizers.SentencePiece(spiece_model())
    tokenizer.save(tmp_path / "tokenizer")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "tokenizer")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said.pop("grown") < MOST
    assert said["same"] and said["tokens"][1] >= 2 * REPEATS
    assert said["last"] == [4 * REPEATS - 2, 4 * REPEATS - 1]
    assert said["text"] == "a b a b "


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


# A byte that is not UTF-8 travels as a surrogate.
TEXTS = [row["text"] for row in GOLDEN["uncased"]] + ["caf\udce9 the"]
RAW = [text.encode("utf-8", "surrogateescape") for text in TEXTS]
SERVER = """
import json, sys
import tensorflow as tf
import tensorflow_text
texts = [text.encode("utf-8", "surrogateescape") for text in json.load(sys.stdin)]
for folder in sys.argv[1:]:
    out = tf.saved_model.load(folder).signatures["serving_default"](text=tf.constant(texts))
    rows = zip(out["ids"].numpy().tolist(), out["lengths"].numpy())
    print(json.dumps([ids[:length] for ids, length in rows]))
assert not any(name.startswith(("official", "sentencepiece")) for name in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.long
def test_fresh_process(tmp_path, spiece_model):
    pieces = GOLDEN["vocabulary"]
    merges = [tuple(line.split(" ")) for line in BYTE_BPE["merges.txt"].splitlines()[1:]]
    result = {
        "wordpiece": tokenizers.WordPiece(pieces),
        "forbidding": tokenizers.WordPiece(pieces, settings={"mask_token": "of"}),
        "unigram": tokenizers.SentencePiece(spiece_model("unigram")),
        "bpe": tokenizers.SentencePiece(spiece_model("bpe")),
        "byte_bpe": tokenizers.ByteBPE(BYTE_BPE["vocab.json"], merges),
    }
    expected = {}
    for name, tokenizer in result.items():
        server = tf.Module()
        server.tokenizer = tokenizer.module()

        def serve(text, tokenizer=tokenizer):
            ids = tokenizer.tokenize(text)
            return {"ids": ids.to_tensor(), "lengths": ids.row_lengths()}

        signature = tf.function(serve, input_signature=[tf.TensorSpec([None], tf.string, "text")])
        tf.saved_model.save(server, str(tmp_path / name), signatures=signature)
        expected[name] = tokenizer.tokenize(tf.constant(RAW)).to_list()
    assert pieces.index("of") in sum(expected["wordpiece"], [])
    assert pieces.index("of") not in sum(expected["forbidding"], [])
    done = subprocess.run(
        [sys.executable, "-c", SERVER, *(str(tmp_path / name) for name in result)],
        input=json.dumps(TEXTS),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    served = dict(zip(result, map(json.loads, done.stdout.splitlines()), strict=True))
    assert served == expected
