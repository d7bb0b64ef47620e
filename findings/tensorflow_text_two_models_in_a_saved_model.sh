#!/usr/bin/env bash
# Two tokenizers of SentencePiece in one SavedModel.
#
# Expected: after `tf.saved_model.load` each gives the ids that it gave before.
# What happens: both split text by one of the two models, without an error or a warning.
# Why: the model is a resource of the runtime. Unless tokenizers have different names
#   (`SentencepieceTokenizer(..., name="other")`), the functions that make the resources again have
#   operations of the same name, and the second function finds the resource of the first.
# Versions: tensorflow 2.21.0, tensorflow-text 2.21.1, sentencepiece 0.2.2, Python 3.11.
# Consequence: a SavedModel with the tokenizers of a source and a target language gives wrong ids.
#   Name them. Two SavedModels in one process do not disturb each other.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
  tensorflow==2.21.0 tensorflow-text==2.21.1 sentencepiece==0.2.2 protobuf==6.33.6
TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece import sentencepiece_model_pb2


def model_of(pieces):
    model = sentencepiece_model_pb2.ModelProto()
    for score, piece in enumerate(pieces):
        model.pieces.add(piece=piece, score=-score)
    model.pieces.add(piece="<unk>", score=-9, type=2)
    model.trainer_spec.model_type, model.trainer_spec.unk_id = 2, len(pieces)  # BPE
    model.normalizer_spec.add_dummy_prefix = False
    return model.SerializeToString()


def ids(folder, names):
    server = tf.Module()
    server.one, server.two = (
        tf_text.SentencepieceTokenizer(model_of(pieces), name=name)
        for pieces, name in zip((["a", "b", "ab"], ["b", "a", "ba"]), names)
    )
    spec = [tf.TensorSpec([None], tf.string)]
    server.split = tf.function(
        lambda texts: (server.one.tokenize(texts), server.two.tokenize(texts)), spec
    )
    tf.saved_model.save(server, folder)
    rows = tf.saved_model.load(folder).split(tf.constant(["ab", "ba"]))
    return [row.to_list() for row in rows]


unnamed, named = ids(sys.argv[1] + "/1", (None, None)), ids(sys.argv[1] + "/2", ("one", "two"))
right = [[[2], [1, 0]], [[1, 0], [2]]]
print(f"right {right}, without names {unnamed}, with names {named}")
if named != right or unnamed[0] != unnamed[1]:
    sys.exit("changed: expected the ids of one model twice without names, and right ones with them")
print("as described: without names both tokenizers have one model")
PYTHON
