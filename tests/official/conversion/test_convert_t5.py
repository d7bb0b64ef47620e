"""T5 of transformers: read, compared in every number, trained, and written again bit for bit.

All is computed in float64.
"""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import official
from official import tokenizers
from official.config.encoders import EncoderDecoderConfig
from official.config.objectives import Seq2SeqLMConfig
from official.conversion import converted_model, huggingface, t5, tf1
from official.distribution import numerics
from official.modeling.model import Model
from official.saving import named_arrays
from official.utils.errors import UserError
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden" / "t5"
NAMES = ["v1_0", "v1_0_deep", "v1_1", "silu"]
# The texts whose means are golden, before an empty one.
TEXTS = ["the cat sat on the mat", "a dog ran to the old house", "we read the book of the day"]
# The variables with golden gradients, and where they are in ours.
GRADIENTS = {
    "shared.weight": ("encoder/token_embedding/table", None),
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": (
        "encoder/encoder/relative_bias/table",
        None,
    ),
    "encoder.block.0.layer.0.SelfAttention.q.weight": (
        "encoder/encoder/layer_0/attention/query_key_value/kernel",
        (0, 3),
    ),
    "decoder.block.0.layer.1.EncDecAttention.v.weight": (
        "encoder/decoder/layer_0/cross_attention/key_value/kernel",
        (1, 2),
    ),
    "decoder.final_layer_norm.weight": ("encoder/decoder/final_norm/scale", None),
}


@pytest.fixture(autouse=True)
def float64():
    numerics.set_precision("float64")
    yield
    numerics.set_precision("float32")


@pytest.fixture(params=NAMES)
def golden(request):
    """A folder of transformers, our model of it, and what transformers computes."""
    folder = GOLDEN / request.param
    converted = huggingface.read(folder)
    assert not converted.leftover
    model = Model(converted.config, dtype="float64")
    for path, variable in model.variables_by_path().items():
        variable.assign(converted.variables[path])
    return folder, model, dict(np.load(folder / "golden.npz"))


def batch_of(theirs):
    labels = theirs["labels"]
    return {
        "token_ids": tf.constant(theirs["ids"], tf.int32),
        "padding_mask": tf.constant(theirs["mask"] > 0),
        "target_ids": tf.constant(np.where(labels < 0, 0, labels), tf.int32),
        "target_mask": tf.constant(labels >= 0),
    }


def loss_of(model, batch):
    losses, _ = model.terms(model.prepare(batch))
    return losses["seq2seq_lm"] / model.weight_sums(batch)["seq2seq_lm"]


def test_states_logits_and_loss(golden):
    _, model, theirs = golden
    batch = model.prepare(batch_of(theirs))
    encoded = model.encode(batch)
    real = theirs["mask"] > 0
    ours = encoded["sequence_output"].numpy()
    np.testing.assert_allclose(ours[real], theirs["encoded"][real], rtol=1e-9, atol=1e-9)
    decoded = encoded["decoder_output"]
    np.testing.assert_allclose(decoded, theirs["decoded"], rtol=1e-9, atol=1e-9)
    (objective,) = model.objectives
    logits = objective.logits(tf.reshape(decoded, [-1, decoded.shape[-1]]), model.encoder)
    np.testing.assert_allclose(
        tf.reshape(logits, theirs["logits"].shape), theirs["logits"], rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(loss_of(model, batch_of(theirs)), theirs["loss"], rtol=1e-9)


def test_gradients(golden):
    _, model, theirs = golden
    with tf.GradientTape() as tape:
        loss = loss_of(model, batch_of(theirs))
    variables = model.variables_by_path()
    paths = [path for path, _ in GRADIENTS.values()]
    gradients = tape.gradient(loss, [variables[path].value for path in paths])
    for (name, (_, part)), gradient in zip(GRADIENTS.items(), gradients, strict=True):
        ours = tf.convert_to_tensor(gradient).numpy()
        if part is not None:
            ours = np.split(ours, part[1], axis=-1)[part[0]].T
        wanted = theirs[f"gradient/{name}"]
        np.testing.assert_allclose(ours, wanted, rtol=1e-7, atol=1e-8 * np.abs(wanted).max())


@pytest.mark.parametrize("golden", NAMES[:3], indirect=True)
def test_fifty_losses_of_training(golden):
    _, model, theirs = golden
    batch = batch_of(theirs)
    variables = [variable.value for variable in model.trainable_variables]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(model, batch)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(1e-4 * tf.convert_to_tensor(gradient))
        return loss

    losses = [float(step()) for _ in range(50)]
    np.testing.assert_allclose(losses, theirs["losses"], rtol=1e-4)
    assert losses[-1] < losses[0] - 0.01


@pytest.mark.parametrize("name", NAMES)
def test_written_again_bit_for_bit(name, tmp_path):
    folder = GOLDEN / name
    converted = huggingface.read(folder)
    converted_model.write(converted, tmp_path / "model")
    huggingface.write(tmp_path / "model", tmp_path / "written", "last")
    ours, theirs = (
        safetensors.numpy.load_file(path / "model.safetensors")
        for path in (tmp_path / "written", folder)
    )
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        np.testing.assert_array_equal(ours[key], value, err_msg=key)
    written = json.loads((tmp_path / "written" / "config.json").read_text())
    described = json.loads((folder / "config.json").read_text())
    for key in (
        "architectures", "d_ff", "d_kv", "d_model", "decoder_start_token_id", "dropout_rate",
        "eos_token_id", "feed_forward_proj", "is_encoder_decoder", "layer_norm_epsilon",
        "model_type", "num_decoder_layers", "num_heads", "num_layers", "pad_token_id",
        "relative_attention_max_distance", "relative_attention_num_buckets", "vocab_size",
    ):  # fmt: skip
        assert written[key] == described[key], key
    assert written["tie_word_embeddings"] == described.get("tie_word_embeddings", True)
    assert "bos_token_id" not in written


@pytest.mark.parametrize(("tied", "scaled"), [(True, True), (True, False), (False, False)])
def test_tying_and_scale_as_transformers_5_says_them(tied, scaled, tmp_path):
    """Its files say `tie_word_embeddings: true` in any case."""
    source = GOLDEN / ("v1_0" if tied else "v1_1")
    folder = shutil.copytree(source, tmp_path / "saved")
    described = json.loads((folder / "config.json").read_text())
    described |= {"tie_word_embeddings": True, "scale_decoder_outputs": scaled}
    (folder / "config.json").write_text(json.dumps(described))
    converted = huggingface.read(folder)
    encoder = converted.config.encoder
    assert (encoder.tied_output, encoder.scale_output) == (tied, scaled)
    assert ("seq2seq_lm/output/kernel" in converted.variables) == (not tied)
    converted_model.write(converted, tmp_path / "model")
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (written["tie_word_embeddings"], written["scale_decoder_outputs"]) == (scaled, scaled)
    tensors = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    assert ("lm_head.weight" in tensors) == (not scaled)
    again = huggingface.read(tmp_path / "out")
    assert again.config.encoder == encoder and again.variables.keys() == converted.variables.keys()


def test_an_encoder_alone_is_that_of_transformers():
    converted = huggingface.read(GOLDEN / "encoder")
    assert not converted.leftover
    model = Model(converted.config, dtype="float64")
    named_arrays.initialize(model.variables_by_path(), converted.variables, "encoder")
    theirs = np.load(GOLDEN / "encoder" / "golden.npz")
    real = theirs["mask"] > 0
    encoded = model.encode({"token_ids": theirs["ids"].astype(np.int32), "padding_mask": real})
    ours = np.asarray(encoded["sequence_output"])
    np.testing.assert_allclose(ours[real], theirs["encoded"][real], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("described", [{}, {"is_encoder_decoder": True}, {"architectures": None}])
def test_an_encoder_alone_makes_a_folder_that_encodes(described, tmp_path):
    numerics.set_precision("float32")
    folder = tmp_path / "t5"
    shutil.copytree(GOLDEN / "encoder", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | described))
    converted_model.write(huggingface.read(folder), tmp_path / "model")
    loaded = official.load(tmp_path / "model")
    vectors = loaded.encode([*TEXTS, ""])
    means = np.load(GOLDEN / "encoder" / "golden.npz")["means"]
    np.testing.assert_allclose(vectors, means, rtol=1e-5, atol=1e-5)
    (states,) = loaded.tokens([TEXTS[1]])
    assert "".join(states.pieces).replace("▁", " ").strip() == TEXTS[1]
    assert len(states.pieces) == len(states.vectors)
    with pytest.raises(UserError, match="cannot generate text: it is an encoder without a decoder"):
        loaded.generate(["the cat"])
    with pytest.raises(UserError, match="this model has no objective token_classification"):
        loaded.tag(["the cat"])
    with pytest.raises(ValueError, match="encoder.decoder_layers: 0: without a decoder, the"):
        Seq2SeqLMConfig().check_encoder(loaded.config.encoder)
    huggingface.write(tmp_path / "model", tmp_path / "written", "last")
    ours, theirs = (
        safetensors.numpy.load_file(path / "model.safetensors")
        for path in (tmp_path / "written", folder)
    )
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        np.testing.assert_array_equal(ours[key], value, err_msg=key)
    written = json.loads((tmp_path / "written" / "config.json").read_text())
    assert written["architectures"] == ["T5EncoderModel"] and not written["is_encoder_decoder"]
    assert written["feed_forward_proj"] == "gated-silu"


def test_a_text_of_a_whole_t5_is_encoded_without_a_token_before_it(tmp_path):
    numerics.set_precision("float32")
    converted_model.write(huggingface.read(GOLDEN / "silu"), tmp_path / "model")
    loaded = official.load(tmp_path / "model")
    ids = [*loaded.tokenizer.encode(TEXTS[:1])[0], 1]
    states = loaded.model.encode({"token_ids": np.array([ids], np.int32)})["sequence_output"]
    mean = np.asarray(states)[0].mean(axis=0)
    np.testing.assert_allclose(loaded.encode(TEXTS)[0], mean, rtol=1e-5, atol=1e-5)


def test_forms_of_the_feed_forward_network_have_a_name_each():
    names = "relu gelu gelu_new silu gated-relu gated-gelu gated-gelu_python gated-silu".split()
    for name in names:
        fields = t5._more_fields({"feed_forward_proj": name, "dropout_rate": 0, "num_layers": 1})
        encoder = EncoderDecoderConfig(activation=fields["activation"], gated=fields["gated"])
        assert t5._more_keys(encoder)["feed_forward_proj"] == name


def test_the_tokenizer_is_that_of_transformers():
    converted = huggingface.read(GOLDEN / "v1_0")
    tokenizer = converted.tokenizer
    theirs = np.load(GOLDEN / "v1_0" / "golden.npz")["tokens"]
    (ours,) = tokenizer.encode(["a dog ran to the old house"])
    assert [*ours, tokenizer.sep_id] == theirs.tolist()
    assert (tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id) == (0, 1, 2)
    assert tokenizer.sentinel_ids == tuple(range(128, 28, -1)) and tokenizer.vocab_size == 129
    assert tokenizer.decode([*ours, 128]) == "a dog ran to the old house <extra_id_0>"


@pytest.mark.parametrize(("given", "written"), [(False, False), (True, True), (None, True)])
def test_what_transformers_does_after_a_sentinel_is_kept(given, written, tmp_path):
    folder = tmp_path / "t5"
    shutil.copytree(GOLDEN / "v1_0", folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "legacy": given}))
    tokenizers.load(folder).save(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert saved["legacy"] is written


# What transformers 4.57 gives, whose converter makes a `tokenizer.json` of the model. Version 5 has
# always a blank. The sentinels take the blanks beside them.
AFTER = "the cat<extra_id_0>sat <extra_id_1> the"


@pytest.mark.parametrize(
    ("given", "pieces"),
    [
        ({}, "▁t h e ▁ c at <extra_id_0> ▁ s at <extra_id_1> ▁t h e"),
        ({"legacy": False}, "▁t h e ▁ c at <extra_id_0> s at <extra_id_1> t h e"),
        ({"add_prefix_space": None}, "t h e ▁ c at <extra_id_0> s at <extra_id_1> t h e"),
        ({"add_prefix_space": False}, "t h e ▁ c at <extra_id_0> s at <extra_id_1> t h e"),
    ],
)
def test_a_blank_before_text_is_that_of_transformers(given, pieces, tmp_path):
    folder = tmp_path / "t5"
    shutil.copytree(GOLDEN / "v1_0", folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "legacy": True, **given}))
    tokenizer = tokenizers.load(folder)
    (ids,) = tokenizer.encode([AFTER])
    assert [tokenizer.pieces[i] for i in ids] == pieces.split()
    tokenizer.save(tmp_path / "saved")
    # An earlier folder of this project has no such setting, and stays as it was.
    path = tmp_path / "saved" / "tokenizer_config.json"
    saved = json.loads(path.read_text())
    assert ("prepend_scheme" in saved) == bool(given)
    assert tokenizers.load(tmp_path / "saved").encode([AFTER])[0].tolist() == ids.tolist()


def test_what_a_t5_does_not_have_is_refused(tmp_path):
    folder = tmp_path / "t5"
    shutil.copytree(GOLDEN / "v1_1", folder)
    path = folder / "config.json"
    described = json.loads(path.read_text())
    path.write_text(json.dumps({**described, "feed_forward_proj": "gated-mish"}))
    with pytest.raises(UserError, match="feed_forward_proj: 'gated-mish' is not supp.*gated-silu"):
        huggingface.read(folder)
    path.write_text(json.dumps({**described, "d_kv": 4}))
    with pytest.raises(UserError, match=r"has the shape \[15, 12\], the config expects \[20, 12\]"):
        huggingface.read(folder)


def test_repeated_tables_and_a_bias_that_nothing_reads_are_left_out(tmp_path):
    folder = tmp_path / "t5"
    shutil.copytree(GOLDEN / "v1_0", folder)
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    table = tensors["shared.weight"]
    more = {
        "encoder.embed_tokens.weight": table,
        "decoder.embed_tokens.weight": table,
        "lm_head.weight": table,
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": table[:32, :3],
    }
    safetensors.numpy.save_file(
        {**tensors, **{name: value.copy() for name, value in more.items()}},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    assert not huggingface.read(folder).leftover
    safetensors.numpy.save_file(
        {**tensors, "lm_head.weight": table + 1}, folder / "model.safetensors"
    )
    with pytest.raises(UserError, match=r"lm_head\.weight differs from shared\.weight: an output"):
        huggingface.read(folder)


def of_release(name, value):
    """The name and value of a tensor in a checkpoint of the release."""
    if name == "shared.weight":
        return "shared/embedding", value
    if name == "lm_head.weight":
        return "decoder/logits/kernel", value.T
    if "norm" in name:
        kind = "scale"
    else:
        kind = "kernel" if "DenseReluDense" in name else ""
        value = value.T
    words = name.removesuffix(".weight").split(".")
    if words[1] == "block":
        words[1:5] = [f"block_{int(words[2]):03}", f"layer_{int(words[4]):03}"]
    return "/".join([*words, kind] if kind else words), value


@pytest.mark.parametrize("name", ["v1_0_deep", "v1_1"])
@pytest.mark.parametrize("norms", ["layer_norm", "rms_norm"])
def test_a_checkpoint_of_the_release_is_the_same_model(name, norms, tmp_path):
    theirs = safetensors.numpy.load_file(GOLDEN / name / "model.safetensors")
    tensors = dict(of_release(*item) for item in theirs.items())
    tensors = {key.replace("/layer_norm/", f"/{norms}/"): x for key, x in tensors.items()}
    query = "encoder/block_000/layer_000/SelfAttention/q"
    assert tensors[query].shape == theirs["encoder.block.0.layer.0.SelfAttention.q.weight"].T.shape
    unused = "decoder/block_000/layer_001/EncDecAttention/relative_attention_bias"
    more = {
        f"{query}_slot_vr": tensors[query][0],
        unused: tensors[query],
        "global_step": np.int64(7),
    }
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "model.ckpt-7"),
        tensor_names=list(tensors | more),
        shape_and_slices=[""] * len(tensors | more),
        tensors=[tf.constant(value) for value in (tensors | more).values()],
    )
    shutil.copy(GOLDEN / name / "spiece.model", tmp_path)
    shutil.copytree(GOLDEN / name, folder := tmp_path / "hf")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "legacy": True}))
    released, expected = tf1.read(tmp_path), huggingface.read(folder)
    assert not released.leftover
    assert released.variables.keys() == expected.variables.keys()
    for path, value in expected.variables.items():
        np.testing.assert_array_equal(released.variables[path], value, err_msg=path)
    sizes = ("hidden_size", "head_size", "num_layers", "decoder_layers", "num_heads", "gated")
    for key in (*sizes, "intermediate_size", "relative_buckets", "tied_output", "vocab_size"):
        assert getattr(released.config.encoder, key) == getattr(expected.config.encoder, key), key
    assert released.tokenizer.fingerprint == expected.tokenizer.fingerprint
