"""Makes checkpoints of the Model Garden: PARENT, which gets a folder for each, with outputs.npz.

All weights are random. `bert_pretrainer`, `bert_encoder`, `bert_classifier`, `albert`, `electra`.
"""

import os
import sys
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tf_keras  # noqa: E402
from official.nlp.configs import encoders  # noqa: E402
from official.nlp.modeling import layers, models, networks  # noqa: E402

from official.modeling import tf_utils  # noqa: E402

SIZES = {
    "vocab_size": 61, "hidden_size": 12, "num_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 20, "max_position_embeddings": 13,
}  # fmt: skip


def bert(embedding_layer=None, **more):
    config = encoders.BertEncoderConfig(**{**SIZES, **more})
    config = encoders.EncoderConfig(type="bert", bert=config)
    return encoders.build_encoder(config, embedding_layer=embedding_layer)


def randomize(module, rng):
    for variable in module.weights:
        ones = 1.0 if "gamma" in variable.name else 0.0
        variable.assign(ones + 0.25 * rng.standard_normal(variable.shape))


def outputs_of(encoder, inputs):
    """The states and the pooled output of a network, which gives a list or a dictionary."""
    found = encoder(list(inputs.values()))
    if isinstance(found, dict):
        return {name: found[name] for name in ("sequence_output", "pooled_output")}
    states, pooled = sorted(found, key=lambda value: -len(value.shape))
    return {"sequence_output": states, "pooled_output": pooled}


def main(parent):
    rng = np.random.default_rng(0)
    gelu = tf_utils.get_activation("gelu")
    real = np.ones((3, 9), np.int32)
    real[0, 6:] = real[1, 7:] = 0
    inputs = {
        "input_word_ids": (rng.integers(5, 61, real.shape) * real).astype(np.int32),
        "input_mask": real,
        "input_type_ids": rng.integers(0, 2, real.shape).astype(np.int32),
    }
    places = np.tile(np.arange(9, dtype=np.int32), (3, 1))

    def write(name, outputs, **items):
        folder = Path(parent) / name
        tf.train.Checkpoint(**items).save(folder / "ckpt")
        found = {key: np.asarray(value) for key, value in outputs.items() if value is not None}
        np.savez(folder / "outputs.npz", **inputs, **found)

    head = layers.ClassificationHead(inner_dim=12, num_classes=2, name="next_sentence")
    model = models.BertPretrainerV2(bert(), mlm_activation=gelu, classification_heads=[head])
    model({**inputs, "masked_lm_positions": places})
    randomize(model, rng)
    found = model({**inputs, "masked_lm_positions": places})
    outputs = {name: found[name] for name in ("sequence_output", "mlm_logits", "next_sentence")}
    write("bert_pretrainer", outputs, model=model, **model.checkpoint_items)
    write("bert_pretrainer_items", outputs, **model.checkpoint_items)
    write("bert_pretrainer_alone", outputs, model=model)
    encoder = networks.BertEncoder(
        vocab_size=61, hidden_size=12, num_layers=2, num_attention_heads=3, intermediate_size=20,
        max_sequence_length=13, type_vocab_size=2,
    )  # fmt: skip
    randomize(encoder, rng)
    outputs = outputs_of(encoder, inputs)
    write("bert_encoder", outputs, model=encoder)
    write("bert_encoder_named", outputs, encoder=encoder)
    albert = networks.AlbertEncoder(
        vocab_size=61, embedding_width=8, hidden_size=12, num_layers=3, num_attention_heads=3,
        intermediate_size=20, max_sequence_length=13, type_vocab_size=2,
    )  # fmt: skip
    randomize(albert, rng)
    write("albert", outputs_of(albert, inputs), encoder=albert)
    small = bert(hidden_size=4, num_attention_heads=1, intermediate_size=7, embedding_size=12)
    electra = models.ElectraPretrainer(
        generator_network=small,
        discriminator_network=bert(small.get_embedding_layer()), vocab_size=61, num_classes=2,
        num_token_predictions=2, mlm_activation=gelu,
    )  # fmt: skip
    more = {"masked_lm_positions": places[:, :2], "masked_lm_ids": places[:, :2]}
    electra({**inputs, **more, "masked_lm_weights": np.ones((3, 2), np.float32)})
    randomize(electra, rng)
    small = electra.generator_network(inputs)["sequence_output"]
    large = electra.discriminator_network(inputs)["sequence_output"]
    outputs = {
        "sequence_output": large,
        "generator_output": small,
        "mlm_logits": electra.masked_lm(small, masked_positions=tf.constant(places)),
        "replaced": electra.discriminator_head(electra.discriminator_projection(large)),
    }
    write("electra", outputs, model=electra, **electra.checkpoint_items)


if __name__ == "__main__":
    assert tf_keras.__version__
    main(*sys.argv[1:])
