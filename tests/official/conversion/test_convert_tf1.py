"""The TF1 releases of BERT and ALBERT: their names, and the answers that their weights give."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from official.config.heads import ClassificationConfig, RegressionConfig, SpanAnswerConfig
from official.conversion import converted_model, tf1
from official.saving import model_folder
from official.tokenizers.sentencepiece_rules import TextRules
from official.utils.errors import UserError
from tests.official.conversion import systems

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s", ".", "on"]
CONFIG = {
    "vocab_size": len(PIECES),
    "hidden_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 10,
    "max_position_embeddings": 9,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "hidden_act": "gelu",
}


def release_tensors():
    """Random tensors under the names and in the shapes of the release, written out by hand."""
    rng = np.random.default_rng(0)
    tensors = {}

    def add(name, *shape):
        tensors[name] = (rng.standard_normal(shape) * 0.5).astype(np.float32)

    def dense(name, inner, outer):
        add(f"{name}/kernel", inner, outer)
        add(f"{name}/bias", outer)

    def norm(name):
        add(f"{name}/LayerNorm/beta", 6)
        add(f"{name}/LayerNorm/gamma", 6)

    add("bert/embeddings/word_embeddings", 11, 6)
    add("bert/embeddings/position_embeddings", 9, 6)
    add("bert/embeddings/token_type_embeddings", 2, 6)
    norm("bert/embeddings")
    for i in range(2):
        layer = f"bert/encoder/layer_{i}"
        for part in ("query", "key", "value"):
            dense(f"{layer}/attention/self/{part}", 6, 6)
        dense(f"{layer}/attention/output/dense", 6, 6)
        norm(f"{layer}/attention/output")
        dense(f"{layer}/intermediate/dense", 6, 10)
        dense(f"{layer}/output/dense", 10, 6)
        norm(f"{layer}/output")
    dense("bert/pooler/dense", 6, 6)
    dense("cls/predictions/transform/dense", 6, 6)
    norm("cls/predictions/transform")
    add("cls/predictions/output_bias", 11)
    add("cls/seq_relationship/output_weights", 2, 6)
    add("cls/seq_relationship/output_bias", 2)
    return tensors


def save(folder, tensors, name="bert_model.ckpt"):
    """A checkpoint as TF1's Saver writes it, with the slots of the release's optimizer."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [
            tf.compat.v1.Variable(array, name=name, use_resource=False)
            for name, array in tensors.items()
        ]
        for slot in ("adam_m", "adam_v"):
            for path, array in tensors.items():
                variables.append(
                    tf.compat.v1.Variable(array * 0, name=f"{path}/{slot}", use_resource=False)
                )
        variables.append(tf.compat.v1.Variable(7, name="global_step", use_resource=False))
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(variables)
        saver.save(session, str(folder / name), write_meta_graph=False, write_state=False)


@pytest.fixture
def release(tmp_path):
    folder = tmp_path / "uncased_L-2_H-6_A-3"
    folder.mkdir()
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    save(folder, release_tensors())
    return folder


def gelu(x):
    """The release's own form."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def forward(t, ids, types, real):
    """BERT in NumPy, straight from the release's names; softmax over real keys only."""

    def dense(x, name):
        return x @ t[f"{name}/kernel"] + t[f"{name}/bias"]

    def norm(x, name):
        centered = x - x.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * t[f"{name}/LayerNorm/gamma"] + t[f"{name}/LayerNorm/beta"]

    x = t["bert/embeddings/word_embeddings"][ids]
    x = x + t["bert/embeddings/position_embeddings"][: ids.shape[1]]
    x = norm(x + t["bert/embeddings/token_type_embeddings"][types], "bert/embeddings")
    for i in range(2):
        layer = f"bert/encoder/layer_{i}"
        q, k, v = (
            dense(x, f"{layer}/attention/self/{part}").reshape(*ids.shape, 3, 2)
            for part in ("query", "key", "value")
        )
        scores = np.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(2)
        scores = np.where(real[:, None, None, :], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        context = np.einsum("bnts,bsnh->btnh", weights, v).reshape(x.shape)
        attended = dense(context, f"{layer}/attention/output/dense")
        x = norm(x + attended, f"{layer}/attention/output")
        inner = gelu(dense(x, f"{layer}/intermediate/dense"))
        x = norm(x + dense(inner, f"{layer}/output/dense"), f"{layer}/output")
    pooled = np.tanh(dense(x[:, 0], "bert/pooler/dense"))
    hidden = norm(gelu(dense(x, "cls/predictions/transform/dense")), "cls/predictions/transform")
    masked = hidden @ t["bert/embeddings/word_embeddings"].T + t["cls/predictions/output_bias"]
    related = (
        pooled @ t["cls/seq_relationship/output_weights"].T + t["cls/seq_relationship/output_bias"]
    )
    return x, pooled, masked, related


def test_outputs_are_those_of_the_release(release, tmp_path):
    converted = tf1.read(release)
    assert converted.leftover == []
    converted_model.write(converted, tmp_path / "model")
    config, _, model = model_folder.restore(tmp_path / "model")
    assert config.name == "uncased_L-2_H-6_A-3"
    batch = {
        "token_ids": np.array([[2, 5, 6, 3, 7, 8, 3], [2, 10, 3, 0, 0, 0, 0]], np.int32),
        "segment_ids": np.array([[0, 0, 0, 0, 1, 1, 1], [0] * 7], np.int32),
        "padding_mask": np.array([[1] * 7, [1, 1, 1, 0, 0, 0, 0]], bool),
    }
    tensors = {name: array.astype(np.float64) for name, array in release_tensors().items()}
    states, pooled, masked, related = forward(tensors, *batch.values())
    encoded = model.encode(batch)
    real = batch["padding_mask"][..., None]
    np.testing.assert_allclose(encoded["sequence_output"] * real, states * real, atol=1e-5)
    np.testing.assert_allclose(encoded["pooled_output"], pooled, atol=1e-5)
    masked_lm, next_sentence = model.objectives
    rows = np.asarray(encoded["sequence_output"]).reshape(-1, 6)
    actual = np.asarray(masked_lm.logits(rows, model.encoder)).reshape(2, 7, -1)
    np.testing.assert_allclose(actual * real, masked * real, atol=1e-5)
    np.testing.assert_allclose(next_sentence.logits(encoded), related, atol=1e-5)


def test_case_is_told_from_the_vocabulary(release):
    assert tf1.read(release).tokenizer.encode(["The CAT"])[0].tolist() == [5, 6]
    # The release's limit for a word. Files of transformers, which do not say one, have 100.
    assert tf1.read(release).tokenizer.max_input_chars_per_word == 200
    pieces = [{"the": "The", "cat": "CAT"}.get(piece, piece) for piece in PIECES]
    (release / "vocab.txt").write_text("\n".join(pieces) + "\n")
    assert tf1.read(release).tokenizer.encode(["The CAT"])[0].tolist() == [5, 6]
    assert tf1.read(release).tokenizer.encode(["the cat"])[0].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("scope", "outputs", "objective"),
    [
        ("", 3, ClassificationConfig(labels=("LABEL_0", "LABEL_1", "LABEL_2"))),
        ("", 1, RegressionConfig()),
        ("cls/squad/", 2, SpanAnswerConfig()),
    ],
)
def test_a_fine_tuned_head_comes_along(release, tmp_path, scope, outputs, objective):
    """The names are those of run_classifier.py and run_squad.py."""
    tensors = {k: v for k, v in release_tensors().items() if not k.startswith("cls/")}
    rng = np.random.default_rng(1)
    weights, bias = rng.normal(size=(outputs, 6)), rng.normal(size=outputs)
    tensors[f"{scope}output_weights"] = weights.astype(np.float32)
    tensors[f"{scope}output_bias"] = bias.astype(np.float32)
    save(release, tensors)
    converted = tf1.read(release)
    assert converted.config.objectives == (objective,)
    spans = objective == SpanAnswerConfig()
    # No span reads a pooler.
    pooler = ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]
    assert converted.leftover == (pooler if spans else [])
    converted_model.write(converted, tmp_path / "model")
    model = model_folder.restore(tmp_path / "model")[2]
    ids = np.array([[2, 5, 6, 3, 7, 8, 3], [2, 10, 3, 0, 0, 0, 0]], np.int32)
    types = np.array([[0, 0, 0, 0, 1, 1, 1], [0] * 7], np.int32)
    real = np.array([[1] * 7, [1, 1, 1, 0, 0, 0, 0]], bool)
    double = {name: array.astype(np.float64) for name, array in release_tensors().items()}
    states, pooled, _, _ = forward(double, ids, types, real)
    encoded = model.encode({"token_ids": ids, "segment_ids": types, "padding_mask": real})
    (head,) = model.objectives
    if spans:
        actual = np.stack(head.boundary_logits(encoded["sequence_output"]), axis=-1)
        np.testing.assert_allclose(actual[real], (states @ weights.T + bias)[real], atol=1e-5)
    else:
        actual = head.scores(encoded)[:, None] if outputs == 1 else head.logits(encoded)
        np.testing.assert_allclose(actual, pooled @ weights.T + bias, atol=1e-5)


def test_missing_tensors_and_other_shapes_are_named(release):
    tensors = release_tensors()
    del tensors["bert/pooler/dense/bias"]
    save(release, tensors)
    with pytest.raises(UserError, match=r"bert_model\.ckpt lacks the tensor bert/pooler/dense/b"):
        tf1.read(release)
    tensors["bert/pooler/dense/bias"] = np.zeros(5, np.float32)
    save(release, tensors)
    with pytest.raises(UserError, match=r"dense/bias has the shape \[5\], the config expects"):
        tf1.read(release)


def test_files_that_are_not_there_are_named(release):
    save(release, release_tensors(), "other.ckpt")
    with pytest.raises(UserError, match=r"several checkpoints \(bert_model\.ckpt, other\.ck"):
        tf1.read(release)
    for path in release.glob("*.ckpt.*"):
        path.unlink()
    with pytest.raises(UserError, match=r"has no checkpoint: expected a file \*\.ckpt\.index"):
        tf1.read(release)
    (release / "bert_config.json").unlink()
    with pytest.raises(UserError, match=r"bert_config\.json is missing: is this the folder of a"):
        tf1.read(release)


def test_a_damaged_checkpoint_is_named(release):
    (data,) = release.glob("bert_model.ckpt.data-*")
    whole = data.read_bytes()
    data.write_bytes(bytes(len(whole)))
    with pytest.raises(UserError, match=r"bert_model\.ckpt: .*cannot be read"):
        tf1.read(release)
    data.write_bytes(whole[:100])
    with pytest.raises(
        UserError, match=r"ckpt: bert/\S+ has the shape .* more than the [\d,]+ bytes"
    ):
        tf1.read(release)
    Path(release / "bert_model.ckpt.index").write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match=r"bert_model\.ckpt: cannot be read"):
        tf1.read(release)


@pytest.mark.parametrize("name", ["run [1]", "run*", "what?"])
def test_a_folder_whose_name_is_a_pattern(release, name):
    """TensorFlow matches paths of checkpoints with files, and finds none."""
    folder = release.rename(release.with_name(name))
    (folder / "checkpoint").write_text('model_checkpoint_path: "bert_model.ckpt"\n')
    (folder / "other.ckpt.index").write_bytes(b"")
    tensors = tf1.Checkpoint(folder)
    for key, tensor in release_tensors().items():
        np.testing.assert_array_equal(tensors[key], tensor)


def test_a_checkpoint_file_leads_nowhere_else(release):
    outside = release.parent / "outside"
    outside.mkdir()
    for path in release.glob("bert_model.ckpt*"):
        path.rename(outside / path.name)
    state = release / "checkpoint"
    state.write_text(f'model_checkpoint_path: "{outside}/bert_model.ckpt"\n')
    with pytest.raises(UserError, match="has no checkpoint"):
        tf1.read(release)
    # Of several it may say which, wherever the folder was when it was written.
    for path in outside.iterdir():
        shutil.copy(path, release / path.name)
        shutil.copy(path, release / path.name.replace("bert_model", "other"))
    assert tf1.read(release).variables


def test_only_regular_files_are_opened(release):
    (path,) = release.glob("*.data-*")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="data-00000-of-00001 is not a regular file"):
        tf1.read(release)


def test_the_vocabulary_must_be_of_the_models_size(release):
    (release / "vocab.txt").write_text("\n".join([*PIECES, "more"]) + "\n")
    with pytest.raises(UserError, match=r"has 12 pieces, .*bert_config\.json says vocab_size 11"):
        tf1.read(release)


def albert_tensors(theirs):
    """The tensors of transformers under the names of the release, written out by hand."""
    tensors = {}

    def dense(name, source):
        tensors[f"{name}/kernel"] = theirs[f"{source}.weight"].T
        tensors[f"{name}/bias"] = theirs[f"{source}.bias"]

    def norm(name, source):
        tensors[f"{name}/gamma"] = theirs[f"{source}.weight"]
        tensors[f"{name}/beta"] = theirs[f"{source}.bias"]

    for table in ("word", "position", "token_type"):
        name = f"embeddings/{table}_embeddings"
        tensors[f"bert/{name}"] = theirs[f"albert.{name.replace('/', '.')}.weight"]
    norm("bert/embeddings/LayerNorm", "albert.embeddings.LayerNorm")
    dense("bert/encoder/embedding_hidden_mapping_in", "albert.encoder.embedding_hidden_mapping_in")
    for group in range(2):
        for layer in range(2):
            ours = f"bert/encoder/transformer/group_{group}/inner_group_{layer}"
            source = f"albert.encoder.albert_layer_groups.{group}.albert_layers.{layer}"
            for part in ("query", "key", "value"):
                dense(f"{ours}/attention_1/self/{part}", f"{source}.attention.{part}")
            dense(f"{ours}/attention_1/output/dense", f"{source}.attention.dense")
            norm(f"{ours}/LayerNorm", f"{source}.attention.LayerNorm")
            dense(f"{ours}/ffn_1/intermediate/dense", f"{source}.ffn")
            dense(f"{ours}/ffn_1/intermediate/output/dense", f"{source}.ffn_output")
            norm(f"{ours}/LayerNorm_1", f"{source}.full_layer_layer_norm")
    dense("bert/pooler/dense", "albert.pooler")
    dense("cls/predictions/transform/dense", "predictions.dense")
    norm("cls/predictions/transform/LayerNorm", "predictions.LayerNorm")
    tensors["cls/predictions/output_bias"] = theirs["predictions.bias"]
    tensors["cls/seq_relationship/output_weights"] = theirs["sop_classifier.classifier.weight"]
    tensors["cls/seq_relationship/output_bias"] = theirs["sop_classifier.classifier.bias"]
    return tensors


@pytest.fixture
def stored():
    return systems.load("albert_pretraining")


@pytest.fixture
def albert_release(tmp_path, stored):
    config, parts, _ = stored
    folder = tmp_path / "albert_base"
    folder.mkdir()
    keys = """attention_probs_dropout_prob hidden_dropout_prob embedding_size hidden_size
        initializer_range intermediate_size max_position_embeddings num_attention_heads
        num_hidden_layers num_hidden_groups inner_group_num type_vocab_size vocab_size"""
    config = {key: config[key] for key in keys.split()}
    config |= {"hidden_act": "gelu", "net_structure_type": 0, "gap_size": 0}
    (folder / "albert_config.json").write_text(json.dumps(config))
    (folder / "30k-clean.model").write_bytes(systems.sentencepiece_model())
    (folder / "30k-clean.vocab").write_text("not read")
    save(folder, albert_tensors(parts["weight"]), "model.ckpt-best")
    return folder


def test_outputs_are_those_of_the_weights(albert_release, tmp_path, stored):
    converted = tf1.read(albert_release)
    assert converted.leftover == []
    assert converted.config.encoder.activation == "gelu_tanh"
    converted_model.write(converted, tmp_path / "model")
    _, tokenizer, model = model_folder.restore(tmp_path / "model")
    _, parts, hidden_states = stored
    assert systems.compare(model, parts, hidden_states) == {}
    assert tokenizer.decode(tokenizer.encode(["the cat"])[0]) == "the cat"
    # Text is prepared as the release does.
    assert tokenizer.rules == TextRules(True, True, False, tokenizer.lower_case)
    assert tokenizer.split_digit_comma


def test_an_encoder_alone_comes_in(albert_release, stored):
    tensors = albert_tensors(stored[1]["weight"])
    save(
        albert_release,
        {name: array for name, array in tensors.items() if not name.startswith("cls/")},
        "model.ckpt-best",
    )
    converted = tf1.read(albert_release)
    assert converted.config.objectives == ()
    np.testing.assert_array_equal(
        converted.variables["encoder/group_1_layer_0/feed_forward/outer/kernel"],
        stored[1]["weight"][
            "albert.encoder.albert_layer_groups.1.albert_layers.0.ffn_output.weight"
        ].T,
    )


def test_missing_tensors_and_vocabularies_are_named(albert_release, stored):
    (albert_release / "30k-clean.model").rename(albert_release / "vocabulary")
    with pytest.raises(UserError, match=r"spiece\.model is missing: put the model's vocabulary"):
        tf1.read(albert_release)
    (albert_release / "vocabulary").rename(albert_release / "spiece.model")
    assert tf1.read(albert_release).tokenizer.vocab_size == 40
    tensors = albert_tensors(stored[1]["weight"])
    del tensors["bert/encoder/transformer/group_0/inner_group_1/LayerNorm_1/beta"]
    save(albert_release, tensors, "model.ckpt-best")
    with pytest.raises(UserError, match=r"lacks the tensor bert/.*inner_group_1/LayerNorm_1/beta"):
        tf1.read(albert_release)
