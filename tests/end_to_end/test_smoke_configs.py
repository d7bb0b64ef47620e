"""Each system's smoke config, by the commands that a user types: from text to a SavedModel."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the model)

from official import config
from tests import commands, small

# Kind and size of the vocabulary, and what else is made of the text first.
SYSTEMS = {
    "bert": ("wordpiece", 150, []),
    "roberta": ("byte_bpe", 350, []),
    "spanbert": ("wordpiece", 150, []),
    "ernie": ("wordpiece", 150, ["phrases"]),
    "albert": ("unigram", 100, []),
    "gpt2": ("byte_bpe", 350, []),
    "electra": ("wordpiece", 150, []),
    "xlnet": ("unigram", 100, []),
    "transformer_xl": ("wordpiece", 150, []),
    "t5": ("unigram --sentinels=20", 100, []),
    "elmo": ("words", 100, []),
}


def write_text(path):
    """Documents in which two words often go together."""
    documents = small.documents(300)
    for document in documents:
        document[0] += " tada kobu"
    path.write_text("\n\n".join("\n".join(document) for document in documents))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the text, and of the vocabularies by their kinds."""
    folder = tmp_path_factory.mktemp("text")
    write_text(folder / "text.txt")
    return folder


def build_vocabulary(folder, kind, size):
    """Builds a vocabulary of the text, unless a system before had the same.

    A kind may have an option after its name.
    """
    type_, *options = kind.split()
    if not (folder / kind).exists():
        commands.run(
            "tfrecords_tools.build_vocab", f"--input={folder}/text.txt",
            f"--output={folder}/{kind}", f"--type={type_}", f"--vocab_size={size}", *options,
            status=0,
        )  # fmt: skip
    return folder / kind


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_from_text_to_a_saved_model(folder, tmp_path, name):
    kind, size, more = SYSTEMS[name]
    settings, text = f"--config=configs/smoke/{name}.yaml", f"--input={folder}/text.txt"
    tokenizer = build_vocabulary(folder, kind, size)
    if "phrases" in more:
        commands.run(
            "tfrecords_tools.build_phrases", text, f"--output={tmp_path}/phrases", status=0
        )
    commands.run(
        "tfrecords_tools.build_shards", settings, text, f"--tokenizer={tokenizer}",
        f"--output={tmp_path}/shards", "--workers=1",
        *(f"--{name}={tmp_path}/{name}" for name in more), status=0,
    )  # fmt: skip
    commands.run(
        "official.main", "--mode=train_and_eval", settings, f"--data={tmp_path}/shards",
        f"--validation_data={tmp_path}/shards", f"--model_dir={tmp_path}/model", status=0,
    )  # fmt: skip
    commands.run(
        "official.export", f"--model_dir={tmp_path}/model", f"--output={tmp_path}/saved", status=0
    )
    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    answers = serve(text=tf.constant(["tada kobu", "ba be bi"]))
    # The encoder-decoder answers with texts too.
    numbers = [value for value in answers.values() if value.dtype != tf.string]
    assert numbers and all(np.isfinite(value).all() for value in numbers)
    assert config.load(tmp_path / "model").name == f"smoke_{name}"
