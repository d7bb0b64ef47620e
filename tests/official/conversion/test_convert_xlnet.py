"""XLNet and Transformer-XL, against stored answers of transformers."""

import dataclasses
import json
import re

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.config.encoders import TransformerXLConfig
from official.config.heads import ClassificationConfig, MultipleChoiceConfig, RegressionConfig
from official.config.objectives import CausalLMConfig, PermutationLMConfig
from official.conversion import converted_model, huggingface, mapping, tf1, transfo_xl, xlnet
from official.saving import model_folder, named_arrays
from official.utils.errors import UserError
from tests.official.conversion import systems, xlnets

CASES = sorted(path.stem for path in xlnets.GOLDEN.glob("*.npz"))
WRITTEN = [name for name in CASES if name.startswith("xlnet")]


def converted(tmp_path, name, folder=xlnets.GOLDEN):
    config, weights, rows = xlnets.load(name, folder)
    tmp_path.mkdir(exist_ok=True)
    read_back = huggingface.read(xlnets.write(tmp_path / name, config, weights))
    converted_model.write(read_back, tmp_path / "model")
    return read_back, config, rows


def test_there_are_all_cases():
    assert CASES == [
        "transfo_xl_adaptive",
        "transfo_xl_plain",
        "transfo_xl_same_length",
        "xlnet_backward",
        "xlnet_classification",
        "xlnet_lm",
        "xlnet_one_way",
        "xlnet_regression",
    ]


@pytest.mark.parametrize("name", CASES)
def test_states_and_memory_are_those_of_transformers(tmp_path, name):
    result, config, rows = converted(tmp_path, name)
    if not name.startswith("transfo_xl"):
        assert result.leftover == []
    model = model_folder.restore(tmp_path / "model")[2]
    xlnets.compare(model.encoder, config, rows)
    for i, objective in [(i, o) for o in model.objectives for i in range(len(rows))]:
        encoded = xlnets.encode(model.encoder, rows, i, False)
        if objective.name == "regression":
            actual = np.asarray(objective.scores(encoded))[:, None]
        elif objective.name == "permutation_lm":
            states = np.asarray(encoded["query_output"]).reshape(-1, 18)
            actual = np.asarray(objective.logits(states, model.encoder)).reshape(2, 3, -1)
        else:
            actual = objective.logits(encoded)
        np.testing.assert_allclose(actual, rows[i]["answer"]["logits"], **xlnets.CLOSE)


@pytest.mark.parametrize("name", WRITTEN)
def test_out_again_gives_the_same_files(tmp_path, name):
    converted(tmp_path, name)
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    config, weights, _ = xlnets.load(name)
    written = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    assert written.keys() == weights.keys()
    for key, array in weights.items():
        assert written[key].tobytes() == array.tobytes(), key
        assert written[key].shape == array.shape
    after = json.loads((tmp_path / "out" / "config.json").read_text())
    changed = ["problem_type", "bi_data", "pad_token_id"]
    if name == "xlnet_regression":
        # Its one label has a name with us, and its layers have biases of their own.
        changed += ["id2label", "label2id", "untie_r"]
    for key in changed:
        after.pop(key, None)
    known = {key: value for key, value in config.items() if key in after}
    assert {key: after[key] for key in known} == known
    assert len(known) >= 15
    settings = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    # Text is prepared as the release does, and so it is by transformers.
    assert (settings["keep_accents"], settings["remove_space"]) == (False, True)
    assert settings["replace_quotes"] and settings["split_digit_comma"]


def test_configs_become_ours(tmp_path):
    settings = converted(tmp_path / "a", "xlnet_lm")[0].config
    assert settings.objectives == (PermutationLMConfig(),)
    encoder = settings.encoder
    assert encoder == TransformerXLConfig(
        vocab_size=61, hidden_size=18, num_layers=3, num_heads=3, intermediate_size=23,
        activation="gelu", dropout=0.1, attention_dropout=0.1, inner_dropout=0.1,
        memory_length=5, reuse_length=4, initializer_range=0.25,
    )  # fmt: skip
    settings = converted(tmp_path / "b", "xlnet_classification")[0].config
    assert settings.objectives == (
        ClassificationConfig(labels=("no", "yes", "maybe"), dropout=0.2),
    )
    assert (settings.encoder.pooler, settings.encoder.pooled_position) == (True, "last")
    assert (settings.encoder.memory_length, settings.encoder.norm_epsilon) == (0, 1e-6)
    settings = converted(tmp_path / "c", "xlnet_regression")[0].config
    assert settings.objectives == (RegressionConfig(dropout=0.1),)
    encoder = settings.encoder
    assert encoder.layout == "cls_last"  # as XLNetTokenizer puts <cls> at the end
    assert (encoder.pooled_position, encoder.untie_biases) == ("first_of_text", True)
    encoder = converted(tmp_path / "d", "transfo_xl_adaptive")[0].config.encoder
    assert encoder == TransformerXLConfig(
        vocab_size=61, hidden_size=18, num_layers=3, num_heads=3, head_size=5,
        intermediate_size=23, segment_types=0, activation="relu", dropout=0.1,
        attention_dropout=0.0, inner_dropout=0.1, norm_epsilon=1e-5, attention="uni",
        memory_length=5, scale_embeddings=True, query_stream=False, initializer_range=0.25,
    )  # fmt: skip


def test_the_adaptive_softmax_is_left_out(tmp_path):
    read_back = converted(tmp_path, "transfo_xl_adaptive")[0]
    assert read_back.leftover and all(name.startswith("crit.") for name in read_back.leftover)
    weights = xlnets.load("transfo_xl_adaptive")[1]
    tables = transfo_xl.OneTable(weights, "file")
    assert len(tables) == len(list(tables)) == len(weights) - 6 + 1
    table = read_back.variables["encoder/embeddings/token_embedding/table"]
    for row, cluster, within in [(3, 0, 3), (20, 1, 0), (34, 1, 14), (60, 2, 25)]:
        narrow = weights[f"transformer.word_emb.emb_layers.{cluster}.weight"][within]
        projection = weights[f"transformer.word_emb.emb_projs.{cluster}"]
        np.testing.assert_allclose(table[row], projection @ narrow, rtol=1e-5, atol=1e-6)


def release(tmp_path, shared=False, **changes):
    """The folder of a release, with the weights of a golden case, and those by our paths."""
    config, weights, _ = xlnets.load("xlnet_lm")
    encoder = xlnet.SYSTEM.encoder_config(config, "config.json", pooler=False)
    encoder = dataclasses.replace(encoder, untie_biases=not shared)
    rows = xlnet.encoder_rows(encoder)
    shapes = model_folder.shapes(configs.Config("x", encoder=encoder))
    ours, _ = mapping.bring_in(rows, weights, shapes, "golden")
    stored = {}
    for row in rows:
        path = row.path.split("/")
        layer = re.search(r"layer_(\d+)/", row.path)
        scope = "model/transformer"
        inside = f"{scope}/layer_{layer[1]}" if layer else scope
        if path[1] == "biases":
            stored[f"{scope}/{xlnet.BIASES[path[-1]]}"] = ours[row.path]
            continue
        if path[-1] in (*xlnet.BIASES, "segment_embedding"):
            name = xlnet.BIASES.get(path[-1], "seg_embed")
            stored.setdefault(f"{scope}/{name}", [None] * 3)[int(layer[1])] = ours[row.path]
            continue
        kind = {"scale": "gamma", "offset": "beta"}.get(path[-1], path[-1])
        kernel = ours[row.path]
        heads = (18, 3, 6)
        if "query_key_value" in path:
            for letter, part in zip("qkv", np.split(kernel, 3, axis=1), strict=True):
                stored[f"{inside}/rel_attn/{letter}/kernel"] = part.reshape(heads)
        elif "position_key" in path:
            stored[f"{inside}/rel_attn/r/kernel"] = kernel.reshape(heads)
        elif "output" in path:
            stored[f"{inside}/rel_attn/o/kernel"] = kernel.T.reshape(heads)
        elif "attention_norm" in path:
            stored[f"{inside}/rel_attn/LayerNorm/{kind}"] = kernel
        elif "feed_forward_norm" in path:
            stored[f"{inside}/ff/LayerNorm/{kind}"] = kernel
        elif "feed_forward" in path:
            number = {"inner": 1, "outer": 2}[path[-2]]
            stored[f"{inside}/ff/layer_{number}/{kind}"] = kernel
        elif path[-1] == "query_start":
            stored[f"{scope}/mask_emb/mask_emb"] = kernel.reshape(1, 1, 18)
        else:
            stored[f"{scope}/word_embedding/lookup_table"] = kernel
    folder = tmp_path / "release"
    folder.mkdir()
    stored["model/lm_loss/bias"] = ours["permutation_lm/output_bias"] = weights["lm_loss.bias"]
    stored["global_step"] = np.int64(7)
    tf.raw_ops.SaveV2(
        prefix=str(folder / "xlnet_model.ckpt"),
        tensor_names=list(stored),
        shape_and_slices=[""] * len(stored),
        tensors=[tf.constant(np.asarray(array)) for array in stored.values()],
    )
    described = {"d_head": 6, "d_inner": 23, "d_model": 18, "ff_activation": "gelu",
                 "n_head": 3, "n_layer": 3, "n_token": 61, "untie_r": not shared}  # fmt: skip
    (folder / "xlnet_config.json").write_text(json.dumps(described | changes))
    (folder / "spiece.model").write_bytes(systems.sentencepiece_model())
    return folder, ours


@pytest.mark.parametrize("shared", [False, True])
def test_the_release_is_read(tmp_path, shared):
    folder, ours = release(tmp_path, shared)
    read_back = tf1.read(folder)
    assert read_back.leftover == [] and read_back.config.encoder.untie_biases is not shared
    assert ("encoder/biases/segment_bias" in ours) == shared
    assert read_back.variables.keys() == ours.keys()
    for path, array in ours.items():
        np.testing.assert_array_equal(read_back.variables[path], array, err_msg=path)
    encoder = read_back.config.encoder
    assert (encoder.activation, encoder.norm_epsilon, encoder.pooler) == ("gelu_tanh", 1e-12, False)
    assert read_back.config.objectives == (PermutationLMConfig(),)
    assert read_back.tokenizer.rules.remove_space and read_back.tokenizer.split_digit_comma


def fine_tuned(tmp_path, heads):
    """The folder of a release after fine-tuning, and its pretrained model's states of a batch.

    It has the slots of TensorFlow's Adam, and neither `mask_emb` nor the bias of the language
    model, which no graph of the release's fine-tuning has.
    """
    folder, _ = release(tmp_path)
    reader = tf.train.load_checkpoint(str(folder / "xlnet_model.ckpt"))
    stored = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    converted_model.write(tf1.read(folder), tmp_path / "pretrained")
    batch = xlnets.load("xlnet_lm")[2][0]["batch"]
    batch = {name: batch[name] for name in ("token_ids", "segment_ids")}
    states = model_folder.restore(tmp_path / "pretrained")[2].encode(batch)["sequence_output"]
    del stored["model/transformer/mask_emb/mask_emb"], stored["model/lm_loss/bias"]
    stored |= heads
    for slot in ("Adam", "Adam_1"):
        stored |= {f"{name}/{slot}": stored[name] for name in heads}
    stored |= {"beta1_power": np.float32(0.9), "beta2_power": np.float32(0.9)}
    tf.raw_ops.SaveV2(
        prefix=str(folder / "xlnet_model.ckpt"),
        tensor_names=list(stored),
        shape_and_slices=[""] * len(stored),
        tensors=[tf.constant(np.asarray(array)) for array in stored.values()],
    )
    return folder, batch, np.asarray(states, np.float64)


@pytest.mark.parametrize(
    ("scope", "outputs", "objective"),
    [
        (
            "model/classification_mnli/logit", 3,
            ClassificationConfig(labels=("LABEL_0", "LABEL_1", "LABEL_2")),
        ),
        ("model/regression_sts-b/logit", 1, RegressionConfig()),
        ("logits/dense", 1, MultipleChoiceConfig()),
    ],
)  # fmt: skip
def test_a_fine_tuned_head_comes_along(tmp_path, scope, outputs, objective):
    rng = np.random.default_rng(0)
    array = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    summary = "model/sequnece_summary/summary"
    heads = {
        f"{summary}/kernel": array(18, 18), f"{summary}/bias": array(18),
        f"{scope}/kernel": array(18, outputs), f"{scope}/bias": array(outputs),
    }  # fmt: skip
    folder, batch, states = fine_tuned(tmp_path, heads)
    read_back = tf1.read(folder)
    assert read_back.leftover == [] and read_back.config.objectives == (objective,)
    assert read_back.config.encoder.query_stream is False and read_back.config.encoder.pooler
    converted_model.write(read_back, tmp_path / "model")
    model = model_folder.restore(tmp_path / "model")[2]
    encoded = model.encode(batch)
    np.testing.assert_allclose(encoded["sequence_output"], states, atol=1e-6)
    pooled = np.tanh(states[:, -1] @ heads[f"{summary}/kernel"] + heads[f"{summary}/bias"])
    expected = pooled @ heads[f"{scope}/kernel"] + heads[f"{scope}/bias"]
    np.testing.assert_allclose(encoded["pooled_output"], pooled, atol=1e-5)
    (head,) = model.objectives
    if objective == MultipleChoiceConfig():
        actual = np.asarray(head.output_projection(encoded["pooled_output"]))
    else:
        actual = head.scores(encoded)[:, None] if outputs == 1 else head.logits(encoded)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    # transformers has `mask_emb`, and makes it anew where a file lacks it.
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    written = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    assert "transformer.mask_emb" not in written and "logits_proj.weight" in written
    again = huggingface.read(tmp_path / "out")
    assert again.leftover == [] and again.config.encoder == read_back.config.encoder
    for path, value in read_back.variables.items():
        np.testing.assert_array_equal(again.variables[path], value, err_msg=path)


def test_heads_of_several_tasks_are_refused(tmp_path):
    heads = {
        f"model/classification_{task}/logit/{kind}": np.zeros(shape, np.float32)
        for task in ("mnli", "sst-2")
        for kind, shape in (("kernel", (18, 2)), ("bias", (2,)))
    }
    folder, _, _ = fine_tuned(tmp_path, heads)
    with pytest.raises(UserError, match="has the heads of several tasks .model/classification_mn"):
        tf1.read(folder)


def test_a_vocabulary_of_another_size_gets_advice_that_fits_it(tmp_path):
    folder, _ = release(tmp_path, n_token=30)
    with pytest.raises(UserError) as error:
        tf1.read(folder)
    assert "spiece.model has 40 pieces, " in str(error.value)
    assert str(error.value).endswith(
        "xlnet_config.json says vocab_size 30: take the SentencePiece model that was released with "
        "these weights; a newly trained model has other pieces under the same ids"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_head": 7}, r"xlnet_config.json: d_head: 7 is not supported, only d_model"),
        ({"untie_r": False}, r"r_w_bias has the shape \[3, 3, 6\], the config expects \[3, 6\]"),
        ({"n_layer": 4}, "lacks the tensors model/transformer/layer_3"),
    ],
)
def test_what_a_release_cannot_be(tmp_path, changes, message):
    folder, _ = release(tmp_path, **changes)
    with pytest.raises(UserError, match=message):
        tf1.read(folder)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("xlnet_lm", {"same_length": True}, "same_length: True is not supported, only False"),
        ("xlnet_lm", {"attn_type": "both"}, "attention: 'both' is not one of bi, uni"),
        ("xlnet_lm", {"ff_activation": "mish"}, "ff_activation: 'mish' is not supported"),
        ("xlnet_lm", {"d_model": 17}, "hidden_size: 17 is odd"),
        (
            "xlnet_regression",
            {"summary_type": "mean"},
            "summary_type: 'mean' is not supported, only",
        ),
        ("xlnet_regression", {"summary_activation": None}, "summary_activation: None is not supp"),
        ("transfo_xl_plain", {"pre_lnorm": True}, "pre_lnorm: True is not supported, only False"),
        ("transfo_xl_plain", {"attn_type": 1}, "attn_type: 1 is not supported, only 0"),
    ],
)
def test_configs_that_are_something_else_are_refused(tmp_path, name, changes, message):
    config, weights, _ = xlnets.load(name)
    folder = xlnets.write(tmp_path / "hf", config | changes, weights)
    with pytest.raises(UserError, match=message):
        huggingface.read(folder)


def small(**changes):
    fields = {"vocab_size": 40, "hidden_size": 6, "num_heads": 2}
    return TransformerXLConfig(**{**fields, **changes})


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (small(head_size=2), "encoder.head_size: an XLNet has 3 .*, not 2"),
        (small(segment_types=0), "encoder.segment_types: an XLNet has 2, not 0"),
        (small(scale_embeddings=True), "encoder.scale_embeddings: an XLNet has False, not True"),
        (
            small(same_length=True, attention="uni", memory_length=4),
            "encoder.same_length: an XLNet has False, not True",
        ),
        (small(pooler=True), "encoder.pooler: an XLNet of transformers has none without the head"),
    ],
)
def test_what_an_xlnet_cannot_be_is_not_written(encoder, message):
    config = configs.Config("x", encoder=encoder)
    assert huggingface.system_of(config) is xlnet.SYSTEM
    with pytest.raises(UserError, match=message):
        xlnet.SYSTEM.huggingface_config(config, [])


def test_a_causal_lm_is_not_written(tmp_path):
    """XLNetLMHeadModel predicts each token from a query of its own position, not from the left."""
    config = configs.Config(
        "x", encoder=small(attention="uni", query_stream=False), objectives=(CausalLMConfig(),)
    )
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    tokenizer = tokenizers.load(release(tmp_path)[0])
    read_back = converted_model.Converted(config, tokenizer, variables, [])
    converted_model.write(read_back, tmp_path / "model")
    with pytest.raises(UserError) as error:
        huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    assert str(error.value) == (
        "no XLNet class of transformers has the heads causal_lm. To write only the encoder, "
        "convert a copy of the model folder without `objectives` in its config.yaml"
    )
    assert not (tmp_path / "out").exists()
    alone = dataclasses.replace(config, objectives=())
    configs.save(alone, tmp_path / "model" / "config.yaml")
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    described = json.loads((tmp_path / "out" / "config.json").read_text())
    assert described["architectures"] == ["XLNetModel"]


def test_biases_that_layers_share_are_written_into_each(tmp_path):
    """transformers has them there, and reads `untie_r: false` like `true`."""
    folder, _ = release(tmp_path, shared=True)
    converted_model.write(tf1.read(folder), tmp_path / "model")
    shared = model_folder.restore(tmp_path / "model")[2]
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    written = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    ours = shared.variables_by_path()
    for path, name in xlnet.BIASES.items():
        for i in range(3):
            actual = written[f"transformer.layer.{i}.rel_attn.{name}"]
            np.testing.assert_array_equal(actual, ours[f"encoder/biases/{path}"].numpy())
    assert json.loads((tmp_path / "out" / "config.json").read_text())["untie_r"] is False
    again = huggingface.read(tmp_path / "out")
    assert again.leftover == [] and again.config.encoder.untie_biases
    converted_model.write(again, tmp_path / "again")
    batch = xlnets.load("xlnet_lm")[2][0]["batch"]
    expected, actual = (
        model.encode(batch) for model in (shared, model_folder.restore(tmp_path / "again")[2])
    )
    for name in ("sequence_output", "query_output"):
        np.testing.assert_array_equal(actual[name], expected[name])


def test_a_size_of_heads_that_is_the_usual_one_may_be_written():
    config = configs.Config("x", encoder=small(head_size=3))
    assert xlnet.SYSTEM.huggingface_config(config, [])["n_head"] == 2
