"""Layers and encoders inside Keras' own models, training and files."""

import dataclasses
import json

import keras
import numpy as np
import pytest

import official.keras_layers as garden
from official.config import blocks
from official.config.heads import ClassificationConfig
from official.modeling import masks
from official.modeling.encoders.base import Encoder
from official.modeling.layers import (
    attention,
    base,
    block,
    embeddings,
    linear,
    low_rank,
    relative_attention,
)
from official.modeling.layers.block import FeedForward, RelativeBlock
from official.modeling.layers.character_cnn import CharacterCNN, Convolution, Highway
from official.modeling.layers.convolution import TokenConvolution
from official.modeling.layers.disentangled import DistanceTable
from official.modeling.layers.grouped_attention import GroupedAttention
from official.modeling.layers.layer_mix import LayerMix
from official.modeling.layers.linear_chain import LinearChain
from official.modeling.layers.lstm import BiLSTM, ProjectedLSTM
from official.modeling.layers.norm import LayerNorm, RMSNorm
from official.modeling.layers.positions import Sinusoids
from official.modeling.layers.random import Draws, Initializers, RandomWeights
from official.modeling.layers.relative_bias import RelativeBias
from official.modeling.layers.stack import Stack
from official.utils.errors import UserError
from tests.official.modeling.test_model import make as make_model

SIZES = {"vocab_size": 29, "hidden_size": 12, "num_layers": 2, "num_heads": 3}
SIZES |= {"intermediate_size": 20}
BERT = garden.TransformerConfig(**SIZES, max_positions=9)
T5 = garden.EncoderDecoderConfig(**SIZES, decoder_layers=1)
ELMO = garden.BilmConfig(
    vocab_size=29, cell_size=5, projection_size=6, filters=((1, 3), (2, 4)), character_size=3
)
STATIC = garden.StaticConfig(vocab_size=29, hidden_size=12, dropout=0.1)
ENCODERS = {
    "BERT": (garden.TransformerEncoder, BERT),
    "XLNet": (garden.TransformerXLEncoder, garden.TransformerXLConfig(**SIZES, memory_length=3)),
    "T5": (garden.EncoderDecoder, T5),
    "ELMo": (garden.BilmEncoder, ELMO),
    "static": (garden.StaticEncoder, STATIC),
}
_rng = np.random.default_rng(0)
# Rows of different lengths.
PADDING = np.arange(8) < np.array([[8], [5], [3], [6]])
FIELDS = {
    "token_ids": _rng.integers(0, 29, (4, 8)).astype("int32"),
    "padding_mask": PADDING,
    "decoder_ids": _rng.integers(0, 29, (4, 7)).astype("int32"),
    "character_ids": _rng.integers(0, 262, (4, 8, 6)).astype("int32"),
}
LABELS = np.array([0, 1, 1, 0])


def batch_of(name):
    """What an encoder reads."""
    more = {"T5": ["decoder_ids"], "ELMo": ["character_ids"]}.get(name, [])
    return {field: FIELDS[field] for field in ["token_ids", "padding_mask", *more]}


def classifier(encoders, batch):
    """A functional model for rows of any length, which reads the means of all encoders."""
    inputs = {
        name: keras.Input((None, *x.shape[2:]), dtype=str(x.dtype), name=name)
        for name, x in batch.items()
    }
    means = []
    for encoder in encoders:
        fields = [
            "token_ids",
            "padding_mask",
            *(f for f in inputs if f in encoder.config.batch_fields),
        ]
        outputs = encoder(**{name: inputs[name] for name in fields})
        states = outputs.get("decoder_output", outputs["sequence_output"])
        assert states.shape == (None, None, 12)
        means.append(keras.layers.GlobalAveragePooling1D()(states))
    return keras.Model(inputs, keras.layers.Dense(2)(sum(means)))


def bert(**options):
    return garden.TransformerEncoder(BERT, **options)


@pytest.mark.parametrize("name", ENCODERS)
def test_dropout_is_drawn_where_keras_trains(name):
    kind, config = ENCODERS[name]
    encoder, batch = kind(config, seed=5), batch_of(name)
    key = "decoder_output" if name == "T5" else "sequence_output"
    first, second = (encoder(**batch, training=True)[key] for _ in range(2))
    # The seeds of these calls are (5, 0) and (5, 1).
    by_hand = encoder(**batch, rng=Draws((5, 1)).shared(), training=True)[key]
    np.testing.assert_array_equal(second, by_hand)
    assert np.abs(first - second).max() > 0.01
    inference = encoder(**batch)[key]
    np.testing.assert_array_equal(encoder(**batch, training=False)[key], inference)
    assert np.abs(first - inference).max() > 0.01


@pytest.mark.slow
def test_a_layer_around_the_encoder_says_whether_keras_trains():
    class Outer(keras.Layer):
        def __init__(self):
            super().__init__()
            self.encoder = bert()

        def call(self, ids):
            return self.encoder(ids)["pooled_output"]

    outer, ids = Outer(), FIELDS["token_ids"]
    inference = outer(ids)
    assert np.abs(outer(ids, training=True) - inference).max() > 0.01
    np.testing.assert_array_equal(outer(ids), inference)


def test_the_trainers_model_has_no_seeds():
    model = make_model(ClassificationConfig(num_labels=3))
    inside = [model.encoder, *base.keras_private.sublayers(model.encoder)]
    assert not [layer for layer in inside if getattr(layer, "seeds", None)]
    assert {id(v) for v in model.variables} == {id(v) for v in model.weights}
    with pytest.raises(UserError, match="a part of another layer has no seeds"):
        model.encoder.blocks[0](np.ones((1, 2, 12), "float32"), training=True)
    assert len(bert().variables) == 1


def test_masks_of_padding():
    encoder, ids = bert(), FIELDS["token_ids"]
    expected = encoder(ids, attention_mask=masks.padding(PADDING), output_all=True)
    given = encoder(ids, padding_mask=PADDING, output_all=True)
    kept = keras.ops.convert_to_tensor(ids)
    base.keras_private.set_mask(kept, keras.ops.convert_to_tensor(PADDING))
    for outputs in (given, encoder(kept, output_all=True)):
        for ours, theirs in zip(outputs["hidden_states"], expected["hidden_states"], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        # Keras' layers after the encoder leave the padding out.
        mean = keras.layers.GlobalAveragePooling1D()(outputs["sequence_output"])
        rows = [
            x[m].mean(0) for x, m in zip(expected["sequence_output"].numpy(), PADDING, strict=True)
        ]
        np.testing.assert_allclose(mean, rows, rtol=0, atol=1e-6)
    assert base.keras_private.mask_of(expected["sequence_output"]) is None


def test_layers_in_a_functional_model_read_the_mask_of_an_embedding():
    table = keras.layers.Embedding(29, 12, mask_zero=True)
    ids = keras.Input((None,), dtype="int32")
    pre_norm = dataclasses.replace(BLOCK, pre_norm=True)
    states = block.Block(pre_norm, GLOROT)(table(ids)).states
    states = BiLSTM(12, 5, seed=DRAWS)(attention.Attention(BLOCK, GLOROT)(states).output)
    model = keras.Model(ids, keras.layers.GlobalAveragePooling1D()(states))
    rows = np.where(PADDING, np.maximum(FIELDS["token_ids"], 1), 0)
    for row, real, expected in zip(rows, PADDING, model(rows), strict=True):
        np.testing.assert_allclose(model(row[None, real])[0], expected, rtol=0, atol=1e-5)


WEIGHTS = {"initializer": "glorot_uniform", "name": "layer"}
GLOROT = Initializers("glorot_uniform", adapter="normal")
MADE = {"initializers": GLOROT, "name": "layer"}
BLOCK = blocks.BlockParts(
    12,
    blocks.Heads(3, 4, dropout=0.1),
    blocks.FeedForwardParts(20, "gelu", dropout=0.1),
    blocks.Norm(1e-6),
    dropout=0.1,
)
DRAWS = Draws((3, 4))
X = _rng.standard_normal((4, 8, 12)).astype("float32")
KEYS = _rng.standard_normal((2, 4, 3, 8, 4)).astype("float32")
RELATIVE = dataclasses.replace(BLOCK, positions=(blocks.SinusoidalDistances(),))


def layers():
    """Each layer, and the arguments of a call; None = it has no `call`."""
    biases = relative_attention.RelativeBiases(RELATIVE, **WEIGHTS)
    t5_heads = dataclasses.replace(BLOCK, heads=blocks.Heads(3, 4, scale=False))
    grouped = dataclasses.replace(BLOCK, heads=blocks.Heads(3, 4, key_values=1))
    pre_norm = dataclasses.replace(BLOCK, pre_norm=True, adapter_size=3)
    distances = dataclasses.replace(BLOCK, positions=(blocks.Disentangled(4, 8, True),))
    return [
        (linear.Linear(12, 5, **WEIGHTS), [X]),
        (LayerNorm(12, epsilon=1e-6, name="layer"), [X]),
        (RMSNorm(12, epsilon=1e-6, name="layer"), [X]),
        (FeedForward(12, blocks.FeedForwardParts(20, "silu", dropout=0.5), **MADE), [X]),
        (attention.Attention(t5_heads, **MADE), [X]),
        (attention.CrossAttention(BLOCK, **MADE), [X, *KEYS]),
        (GroupedAttention(grouped, **MADE), [X]),
        (block.Block(BLOCK, **MADE), [X]),
        (block.Block(pre_norm, **MADE), [X]),
        (block.Block(distances, **MADE), [X]),
        (block.Adapter(12, blocks.FeedForwardParts(3, "gelu"), **MADE), [X]),
        (low_rank.LowRank(12, 5, 2, factor=3.0, **WEIGHTS), None),
        (embeddings.Table(29, 12, **WEIGHTS), [FIELDS["token_ids"]]),
        (
            embeddings.Embeddings(
                blocks.EmbeddingParts(
                    29,
                    7,
                    12,
                    segment_types=2,
                    norm=blocks.Norm(1e-6),
                    dropout=0.1,
                    positions=(blocks.Learned(9),),
                ),
                **MADE,
            ),
            [FIELDS["token_ids"]],
        ),
        (
            embeddings.StreamEmbeddings(
                29, 12, query_stream=True, initializer=RandomWeights("normal", 0.1, DRAWS), name="e"
            ),
            [FIELDS["token_ids"]],
        ),
        (LayerMix(2, norm="token"), [[X, X * X]]),
        (
            ProjectedLSTM(12, 5, 3, cell_clip=3.0, projection_clip=3.0, **WEIGHTS),
            [X, PADDING],
        ),
        (BiLSTM(12, 5, seed=DRAWS), [X, PADDING]),
        (CharacterCNN(ELMO, rng=DRAWS, name="layer"), [FIELDS["character_ids"]]),
        (Convolution(12, 2, 5, activation="tanh", rng=DRAWS, name="layer"), [X]),
        (Highway(12, rng=DRAWS, name="layer"), [X[0]]),
        (Stack(T5, Initializers("glorot_uniform", position="zeros"), name="s"), [X]),
        (relative_attention.RelativeAttention(RELATIVE, biases=biases, **MADE), [X]),
        (RelativeBlock(RELATIVE, **MADE), [X]),
        (biases, None),
        (LinearChain(3), None),
        (
            TokenConvolution(12, 3, activation="gelu", dropout=0.1, epsilon=1e-6, **WEIGHTS),
            [X, X],
        ),
        (
            DistanceTable(
                12,
                buckets=4,
                max_distance=8,
                norm=True,
                epsilon=1e-6,
                initializer="zeros",
                name="d",
            ),
            None,
        ),
        (Sinusoids(12, name="layer"), [FIELDS["token_ids"]]),
        (
            RelativeBias(3, bidirectional=True, num_buckets=8, max_distance=20, **WEIGHTS),
            None,
        ),
    ]


def all_layers(kind=base.Layer):
    return {kind}.union(*[all_layers(each) for each in kind.__subclasses__()])


def run(layer, inputs):
    """The tensors that a layer returns."""
    if inputs is None:
        if not layer.built:
            layer.build()
        return layer.get_weights()
    return [x.numpy() for x in keras.tree.flatten(layer(*inputs)) if x is not None]


def test_every_layer_is_made_again_from_its_config():
    tried = {kind for kind, _ in ENCODERS.values()}
    for layer, inputs in layers():
        first = run(layer, inputs)
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        again = keras.saving.deserialize_keras_object(config)
        assert type(again) is type(layer) and again.get_config() == layer.get_config()
        run(again, inputs)
        again.set_weights(layer.get_weights())
        for ours, theirs in zip(run(again, inputs), first, strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=str(type(layer)))
        tried.add(type(layer))
    assert all_layers() - {base.Layer, Encoder, attention._Heads, block._Sublayers} == tried


@pytest.mark.slow
def test_two_streams_in_a_functional_model(tmp_path):
    """Rows of any length with padding, and queries; saved, loaded and cloned."""
    inputs = {
        name: keras.Input(shape, dtype=dtype, name=name)
        for name, shape, dtype in (
            ("content", (None, 12), "float32"), ("queries", (None, 12), "float32"),
            ("order", (1, None, None), "bool"), ("seen", (1, None, None), "bool"),
            ("segments", (None, 2), "float32"), ("asked", (None, 2), "float32"),
            ("first", (None,), "int32"),
        )
    }  # fmt: skip
    parts = dataclasses.replace(RELATIVE, positions=(blocks.SinusoidalDistances(segments=True),))
    rows, _, _ = RelativeBlock(parts, GLOROT)(keras.layers.Masking()(inputs["content"]))
    states, (own, asked), _ = RelativeBlock(parts, GLOROT)(
        keras.ops.concatenate([rows, inputs["queries"]], axis=1),
        streams=[
            relative_attention.AttentionStream(inputs["order"], inputs["segments"]),
            relative_attention.AttentionStream(inputs["seen"], inputs["asked"], inputs["first"]),
        ],
        content=rows,
        positions=relative_attention.RelativePositions(key_segments=inputs["segments"]),
    )
    assert states.shape == (None, None, 12) and asked.shape == (None, 3, None, None)
    model = keras.Model(inputs, [states, own, asked, rows])
    places = np.arange(4)[:, None], _rng.integers(0, 8, (4, 3))
    order = np.tril(np.ones((8, 8), bool))[None].repeat(4, 0)
    segments = np.eye(2, dtype="float32")[_rng.integers(0, 2, (4, 8))]
    batch = {
        "content": np.where(PADDING[..., None], X, 0), "queries": X[:, :3],
        "order": order[:, None], "seen": order[places][:, None], "segments": segments,
        "asked": segments[places], "first": (8 - places[1]).astype("int32"),
    }  # fmt: skip
    # A query that is a row of the content has its output.
    batch["queries"] = model(batch)[3].numpy()[places]
    states, own, asked, _ = (x.numpy() for x in model(batch))
    np.testing.assert_allclose(states[:, 8:], states[places], rtol=0, atol=1e-5)
    own = np.swapaxes(own, 1, 2)  # [B, T, N, S]
    np.testing.assert_allclose(np.swapaxes(asked, 1, 2), own[places], rtol=0, atol=1e-6)
    hidden = ~(order & PADDING[:, None])
    assert (np.swapaxes(own, 2, 3)[hidden] == 0).all() and (own.max(3) > 0).all()
    model.save(tmp_path / "model.keras")
    for again in (
        keras.models.load_model(tmp_path / "model.keras"), keras.models.clone_model(model)
    ):  # fmt: skip
        again.set_weights(model.get_weights())
        np.testing.assert_array_equal(again(batch)[0], states)
    # The rows alone, without padding, have the outputs that they have with it.
    short = {name: x[2:3] for name, x in batch.items()}
    short |= {
        "content": X[2:3, :3],
        "order": order[2:3, None, :3, :3],
        "segments": segments[2:3, :3],
    }
    short |= {"first": np.array([[3, 2, 1]], "int32"), "seen": order[2:3, None, :3, :3]}
    np.testing.assert_allclose(model(short)[0][:, :3], states[2:3, :3], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "names",
    [["BERT"], pytest.param(list(ENCODERS), marks=[pytest.mark.slow, pytest.mark.long])],
)
def test_fitted_saved_loaded_and_cloned(names, tmp_path):
    made = {name: kind(config, seed=3, name=name) for name, (kind, config) in ENCODERS.items()}
    encoders, batch = (
        [made[name] for name in names],
        {k: FIELDS[k] for n in names for k in batch_of(n)},
    )
    model = classifier(encoders, batch)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, run_eagerly=len(names) > 1)
    before = model.get_weights()
    kept = keras.callbacks.ModelCheckpoint(tmp_path / "model.keras")
    model.fit(batch, LABELS, batch_size=2, verbose=0, callbacks=[kept])
    for encoder in encoders:
        assert encoder.seeds.state.numpy().tolist() == [3, 2]  # batches
    changed = [(a != b).any() for a, b in zip(before, model.get_weights(), strict=True)]
    assert sum(changed) > len(changed) / 2
    expected = model(batch)
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(batch), expected)
    for encoder in encoders:
        again = loaded.get_layer(encoder.name)
        assert type(again) is type(encoder) and again.config == encoder.config
    if len(names) == 1:
        cloned = keras.models.clone_model(model)
        cloned.set_weights(model.get_weights())
        np.testing.assert_array_equal(cloned(batch), expected)


@keras.saving.register_keras_serializable("tests")
class Pair(keras.Model):
    """Two encoders whose outputs are compared."""

    def __init__(self, queries, texts, **options):
        super().__init__(**options)
        self.queries = queries
        self.texts = texts

    def call(self, inputs):
        queries = self.queries(inputs["query"])["pooled_output"]
        texts = keras.ops.cast(self.texts(inputs["text"])["pooled_output"], queries.dtype)
        return keras.ops.sum(queries * texts, axis=-1)

    def get_config(self):
        layers = {"queries": self.queries, "texts": self.texts}
        return {key: keras.saving.serialize_keras_object(x) for key, x in layers.items()}

    @classmethod
    def from_config(cls, config):
        return cls(**{key: keras.saving.deserialize_keras_object(x) for key, x in config.items()})


def test_a_subclassed_model_keeps_what_is_frozen(tmp_path):
    model = Pair(bert(name="queries"), bert(name="texts", seed=1, dtype="mixed_bfloat16"))
    ids = FIELDS["token_ids"]
    inputs = {"query": ids, "text": ids[:, :5]}
    model(inputs)
    model.queries.trainable = False
    model.texts.embeddings.trainable = model.texts.blocks[0].trainable = False
    before = [keras.ops.convert_to_numpy(v) for v in model.weights]
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(inputs, np.ones(4), verbose=0)
    names = [v.path.split("texts/")[1] for v in model.texts.trainable_weights]
    assert names and all(name.startswith(("layer_1/", "pooler/")) for name in names)
    for old, variable in zip(before, model.weights, strict=True):
        assert np.array_equal(old, variable) != variable.trainable, variable.path
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.texts.compute_dtype == "bfloat16" and loaded.texts.dtype == "float32"
    np.testing.assert_array_equal(loaded(inputs), model(inputs))
    assert [v.trainable for v in loaded.weights] == [v.trainable for v in model.weights]


def test_mixed_precision_is_near_float32():
    batch = batch_of("BERT")
    exact, mixed = bert(), bert(dtype="mixed_bfloat16")
    ours, theirs = mixed(**batch)["sequence_output"], exact(**batch)["sequence_output"]
    assert ours.dtype == "bfloat16" and {v.dtype for v in mixed.weights} == {"float32"}
    for mine, same in zip(mixed.weights, exact.weights, strict=True):
        np.testing.assert_array_equal(mine, same)
    np.testing.assert_allclose(keras.ops.cast(ours, "float32"), theirs, rtol=0, atol=0.06)


def test_a_length_beyond_the_positions_is_refused_by_name():
    with pytest.raises(UserError, match="sequences of 10 tokens, but the encoder has 9 positions"):
        bert()(keras.Input((10,), dtype="int32"))
