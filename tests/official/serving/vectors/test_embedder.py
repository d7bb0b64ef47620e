"""Vectors of texts and of tokens, beside the encoder run by hand on one text at a time."""

import json

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official.modeling.model import Model
from official.saving import checkpoints, named_arrays
from official.saving.embedding_settings import EmbeddingSettings
from official.serving.compute import first_call, length_groups
from official.serving.vectors import vector_files
from official.tokenizers.pair_packing import num_specials
from official.utils.errors import UserError
from tests import commands, small

TEXTS = ["Ba be  bi", "", "ré BO-bu!", "do " * 60, "a fafe, “gi”", "ba"]
LENGTH = 16  # of training


@pytest.fixture(scope="module", params=["transformer", "transformer_xl"])
def folder(request, tmp_path_factory):
    """A model with random weights; the second kind has its special tokens at the end."""
    folder = tmp_path_factory.mktemp("embedding") / "model"
    config = small.config(
        segments__max_length=LENGTH, encoder__num_layers=2, encoder__initializer_range=0.5
    )
    if request.param == "transformer_xl":
        sizes = {"vocab_size": 125, "hidden_size": 16, "num_layers": 2, "num_heads": 2}
        config = small.config(
            segments__max_length=LENGTH,
            corruption={"type": "permutation", "k": 4, "num_predict": 4, "max_span": 2},
            encoder={"type": "transformer_xl", "initializer_range": 0.5, **sizes},
            objectives=[{"type": "permutation_lm"}],
        )
    model = Model(config)
    folder.mkdir()
    small.tokenizer_folder(folder / "tokenizer")
    configs.save(config, folder / "config.yaml")
    checkpoints.save(folder, 1, named_arrays.values(model.variables_by_path()), {})
    return folder


def by_hand(loaded, text):
    """Ids and hidden states of one text alone, all layers, and the columns of its own tokens."""
    ids = loaded.tokenizer.encode([text])[0][: LENGTH - 2].tolist()
    cls, sep = loaded.tokenizer.cls_id, loaded.tokenizer.sep_id
    if loaded.config.encoder.layout == "cls_first":
        row, segments, own = [cls, *ids, sep], [0] * (len(ids) + 2), slice(1, len(ids) + 1)
    else:
        row, segments, own = [*ids, sep, cls], [0] * (len(ids) + 1) + [2], slice(0, len(ids))
    batch = {"token_ids": np.array([row], np.int32), "segment_ids": np.array([segments], np.int32)}
    encoded = loaded.model.encode(batch, output_all=True)
    return ids, [np.asarray(states)[0] for states in encoded["hidden_states"]], own


def test_first_batches_that_are_alone_are_computed_without_a_graph(folder, monkeypatch):
    loaded = official.load(folder)
    with monkeypatch.context() as patch:
        patch.setattr(tf.types.experimental.PolymorphicFunction, "__call__", None)
        first = [loaded.encode(TEXTS) for _ in range(first_call.EAGER_CALLS)]
    for vectors in first:
        np.testing.assert_allclose(loaded.encode(TEXTS), vectors, rtol=0, atol=1e-6)


@pytest.mark.parametrize("batch_size, repeatable", [(2, False), (len(TEXTS), True)])
def test_batches_that_are_not_alone_have_the_same_bits(folder, batch_size, repeatable, monkeypatch):
    loaded = official.load(folder).embedder
    loaded.repeatable = repeatable
    encode = loaded.model.encode

    def in_graph(*args, **options):
        assert not tf.executing_eagerly()
        return encode(*args, **options)

    monkeypatch.setattr(loaded.model, "encode", in_graph)
    first = loaded.texts(TEXTS, batch_size=batch_size)
    np.testing.assert_array_equal(loaded.texts(TEXTS, batch_size=batch_size), first)


def test_batches_have_little_padding(folder, monkeypatch):
    """The longest rows of a batch are hardly longer than the others, and memory has a bound."""
    monkeypatch.setattr(length_groups, "READING", 6)
    monkeypatch.setattr(length_groups, "STARTING", 0)
    monkeypatch.setattr(length_groups, "POSITIONS", 40)
    model = official.load(folder)
    lengths = np.random.default_rng(0).integers(0, 20, 50)  # 13 and more are cut
    groups = list(model.embedder._groups(lengths, 7, LENGTH))
    assert sorted(np.concatenate(groups)) == list(range(50))
    specials = num_specials(1, model.tokenizer, model.config.encoder.text_layout)
    for rows in groups:
        widths = np.minimum(lengths[rows] + specials, LENGTH)
        assert len(rows) <= 7 and len(rows) * widths.max() <= 40
        assert np.sum(widths.max() - widths) <= 6
    texts = TEXTS * 5
    vectors = model.encode(texts)
    monkeypatch.setattr(length_groups, "READING", 10**6)
    monkeypatch.setattr(length_groups, "POSITIONS", 10**6)
    assert len(list(official.load(folder).embedder._groups(lengths, 50, LENGTH))) == 1
    np.testing.assert_allclose(official.load(folder).encode(texts), vectors, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_vectors_of_all_layers_are_those_of_each(folder, tmp_path, pooling):
    loaded = official.load(folder)
    found = loaded.encode(TEXTS, layer="all", pooling=pooling)
    each = [loaded.encode(TEXTS, layer=layer, pooling=pooling) for layer in range(3)]
    np.testing.assert_allclose(found, np.stack(each, axis=1), atol=1e-6)
    batches = loaded.encode(TEXTS, layer="all", pooling=pooling, batch_size=2)  # by a graph too
    np.testing.assert_allclose(batches, found, atol=1e-5)
    again = official.load(folder).embedder  # a process computes the same vectors as another
    settings = EmbeddingSettings((pooling,))
    vector_files.write(
        again, TEXTS, tmp_path / "out.npy", settings=settings, layer="all", report=len
    )
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), found)


def test_vectors_of_tokens_of_all_layers(folder, tmp_path):
    loaded = official.load(folder)
    whole = loaded.tokens(TEXTS, layer="all")
    first = loaded.tokens(TEXTS, layer=1)
    assert whole[0].vectors.shape == (len(whole[0].pieces), 3, 16)
    for all_layers, one in zip(whole, first, strict=True):
        np.testing.assert_allclose(all_layers.vectors[:, 1], one.vectors, atol=1e-6)
    options = {"tokens": True, "layer": "all", "report": len}
    vector_files.write(loaded.embedder, TEXTS[:1], tmp_path / "out.jsonl", **options)
    line = json.loads((tmp_path / "out.jsonl").read_text())
    vectors = np.array([token["vector"] for token in line["tokens"]], np.float32)
    np.testing.assert_allclose(vectors, whole[0].vectors, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("layer", [-1, 2, 1, 0, -3])
def test_vectors_of_any_layer(folder, layer):
    loaded = official.load(folder)
    alone = [by_hand(loaded, text)[1][layer] for text in TEXTS]
    for pooling, expected in {
        "mean": [states.mean(axis=0) for states in alone],
        "first": [states[0] for states in alone],
        "last": [states[-1] for states in alone],
    }.items():
        actual = loaded.encode(TEXTS, batch_size=4, pooling=pooling, layer=layer)
        np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("layer", [-1, 1])
def test_vectors_of_tokens_and_the_characters_they_stand_for(folder, layer):
    loaded = official.load(folder)
    actual = loaded.tokens(TEXTS, batch_size=2, layer=layer)
    assert len(actual) == len(TEXTS)
    for text, token in zip(TEXTS, actual, strict=True):
        ids, states, own = by_hand(loaded, text)
        assert token.pieces == [loaded.tokenizer.pieces[i] for i in ids]
        np.testing.assert_allclose(token.vectors, states[layer][own], atol=1e-5)
    words = [TEXTS[2][a:b] for a, b in zip(actual[2].starts, actual[2].ends, strict=True)]
    assert words == ["ré", "BO", "-", "bu", "!"]
    assert len(actual[3].pieces) == LENGTH - 2 and actual[1].vectors.shape == (0, 16)


@pytest.mark.slow
def test_files_of_vectors(folder, tmp_path, monkeypatch):
    loaded, said = official.load(folder), []
    monkeypatch.setattr(vector_files, "CHUNK", 4)
    options = {"layer": 1, "report": said.append}
    first = EmbeddingSettings(("first",))
    vector_files.write(loaded.embedder, TEXTS, tmp_path / "v.npy", settings=first, **options)
    array = np.load(tmp_path / "v.npy")
    assert array.dtype == np.float32
    wanted = loaded.encode(TEXTS, pooling="first", layer=1)
    np.testing.assert_allclose(array, wanted, atol=1e-5)
    again = official.load(folder)
    vector_files.write(again.embedder, TEXTS, tmp_path / "v.jsonl", settings=first, **options)
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == TEXTS
    np.testing.assert_array_equal(np.float32([line["vector"] for line in lines]), array)
    vector_files.write(loaded.embedder, TEXTS, tmp_path / "t.jsonl", tokens=True, **options)
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    token = lines[2]["tokens"][1]
    assert (token["piece"], token["start"], token["end"]) == ("bo", 3, 5)
    np.testing.assert_allclose(token["vector"], loaded.tokens(TEXTS, layer=1)[2].vectors[1], 1e-5)
    assert said[-1].startswith(f"{tmp_path}/t.jsonl: 6 texts, ")
    assert said[-1].endswith(" cut at 16 tokens") and loaded.embedder.cut == 4  # one in each call
    assert {path.name for path in tmp_path.iterdir()} == {"v.npy", "v.jsonl", "t.jsonl"}


def test_what_cannot_be_is_refused(folder, tmp_path):
    loaded = official.load(folder)
    for options, message in [
        ({"pooling": "median"}, "pooling: 'median' is not one of mean, first, last, max"),
        ({"layer": 3}, "layer: 3 is out of range: 0 is the embeddings, 1 to 2 are the layers"),
        ({"layer": -4}, "layer: -4 is out of range"),
        ({"layer": "last"}, "layer: 'last' is not a layer: give a number, 'all' or 'mix'"),
        ({"batch_size": 0}, "batch_size: 0 is less than 1"),
    ]:
        with pytest.raises(UserError, match=message):
            loaded.encode(TEXTS, **options)
    with pytest.raises(UserError, match=r"give a list of texts, such as \[text\]"):
        loaded.tokens("a text")
    message = "this encoder has no pooler"
    if loaded.config.encoder.pooler:
        message = "pooling: pooled: not supported for layer 1, only the last"
    with pytest.raises(UserError, match=message):
        loaded.encode(TEXTS, pooling="pooled", layer=1)
    with pytest.raises(UserError, match=r"vectors are written as \.npy or \.npz or \.jsonl"):
        vector_files.check_output(tmp_path / "v.txt", False)
    with pytest.raises(UserError, match=r"v\.npy: .* name a \.jsonl file"):
        vector_files.check_output(tmp_path / "v.npy", True)


@pytest.mark.slow
def test_the_command(folder, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    done = commands.run(
        "official.main",
        "--mode=embed",
        f"--model_dir={folder}",
        f"--texts={tmp_path / 'texts.txt'}",
        f"--output={tmp_path / 'v.npy'}",
        "--pooling=last",
    )
    assert done.returncode == 0, done.stderr
    assert "6 texts" in done.stdout
    wanted = official.load(folder).encode(TEXTS, pooling="last")
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), wanted, atol=1e-5)
