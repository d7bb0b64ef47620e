"""Tokenizers inside SavedModels, used where only tensorflow and tensorflow_text are imported."""

import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from official import tokenizers
from tests import ROOT

GOLDEN = json.loads((ROOT / "tests" / "golden" / "tokenizer.json").read_text())
BYTE_BPE = json.loads((ROOT / "tests" / "golden" / "byte_bpe.json").read_text())
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
