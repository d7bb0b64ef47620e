"""Memory grows with the characters of a batch, not with its rows times the longest of them."""

import json
import subprocess
import sys

import pytest

from official import tokenizers
from tests import GOLDEN, small

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
        golden = json.loads((GOLDEN / "byte_bpe.json").read_text())
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
