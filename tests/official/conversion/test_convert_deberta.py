"""DeBERTa: files of pretraining, of other forms and other networks, and the tokenizer of v2 and v3.

What all systems have is in `test_convert_systems.py`.
"""

import json

import numpy as np
import pytest
import safetensors.numpy
import scipy.special
import sentencepiece

from official.config.objectives import MaskedLMConfig, ReplacedTokensConfig
from official.conversion import converted_model, deberta, heads, huggingface
from official.saving import model_folder, warm_start
from official.tokenizers import sentencepiece as ours
from official.utils.errors import UserError
from tests.official.conversion import systems

WORDS = "deberta.embeddings.word_embeddings"


def folder_of(path, change):
    """The folder of a bare encoder whose tensors `change` has changed, and its weights."""
    config, parts, _ = systems.load("deberta-v2_bare")
    config.pop("architectures")
    weights = change({f"deberta.{name}": array for name, array in parts["weight"].items()})
    return systems.write(path, config, weights), weights


def of_pretraining(weights):
    rng = np.random.default_rng(0)
    size = len(weights["deberta.embeddings.LayerNorm.bias"])
    draw = lambda *shape: rng.standard_normal(shape).astype("float32")  # noqa: E731
    weights[f"{WORDS}._weight"] = draw(61, size)
    weights["deberta.embeddings.position_embeddings.weight"] = draw(13, size)
    for head in ("mask_predictions", "lm_predictions.lm_head"):
        weights[f"{head}.dense.weight"] = draw(size, size)
        for part in ("dense.bias", "LayerNorm.weight", "LayerNorm.bias"):
            weights[f"{head}.{part}"] = draw(size)
    weights["mask_predictions.classifier.weight"] = draw(1, size)
    weights["mask_predictions.classifier.bias"] = draw(1)
    weights["lm_predictions.lm_head.bias"] = draw(61)
    return weights


def test_a_file_of_a_discriminator_alone(tmp_path):
    """As released: parts of a masked LM are left over, and so is what the table has learned."""
    folder, weights = folder_of(tmp_path / "hf", of_pretraining)
    converted = huggingface.read(folder)
    assert converted.config.objectives == (ReplacedTokensConfig(form="deberta", weight=10.0),)
    table = converted.variables["encoder/embeddings/token_embedding/table"]
    np.testing.assert_array_equal(table, weights[f"{WORDS}.weight"])
    own = (f"{WORDS}._weight", "deberta.embeddings.position_embeddings.weight")
    assert set(converted.leftover) == {n for n in weights if n.startswith("lm_")} | set(own)
    converted_model.write(converted, tmp_path / "model")
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    written = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    assert written.keys() == weights.keys() - set(converted.leftover)
    assert all(written[name].tobytes() == weights[name].tobytes() for name in written)
    described = json.loads((tmp_path / "out" / "config.json").read_text())
    assert described["architectures"] == ["DebertaV2Model"]
    assert huggingface.read(tmp_path / "out").config.objectives == converted.config.objectives


def test_a_file_of_a_masked_lm_with_positions(tmp_path):
    """As those of v1 and v2, whose config.json names no class."""

    def without_discriminator(weights):
        weights = of_pretraining(weights)
        return {
            name: array for name, array in weights.items()
            if not name.startswith("mask_") and not name.endswith("._weight")
        }  # fmt: skip

    folder, weights = folder_of(tmp_path / "hf", without_discriminator)
    converted = huggingface.read(folder)
    assert converted.config.objectives == (MaskedLMConfig(enhanced_mask_decoder=True),)
    assert converted.leftover == []
    converted_model.write(converted, tmp_path / "model")
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    written = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    assert written.keys() == weights.keys()
    assert all(written[name].tobytes() == weights[name].tobytes() for name in written)
    described = json.loads((tmp_path / "out" / "config.json").read_text())
    assert described["architectures"] == ["DebertaV2ForMaskedLM"] and not described["legacy"]
    # A file of another class may have these parts as well.
    described = {**json.loads((folder / "config.json").read_text())}
    described["architectures"] = ["DebertaV2Model"]
    (folder / "config.json").write_text(json.dumps(described))
    bare = huggingface.read(folder)
    assert bare.config.objectives == () and len(bare.leftover) == 6


def pair(folder, delta=True):
    """A discriminator and its generator as released, of one layer; and both files' tensors."""
    config, parts, _ = systems.load("deberta-v2_classification")
    config = {key: value for key, value in config.items() if key != "architectures"}
    weights = {n: a for n, a in parts["weight"].items() if n.startswith("deberta.")}
    main = of_pretraining(dict(weights))
    rng = np.random.default_rng(1)
    small = {
        name: rng.standard_normal(array.shape).astype("float32")
        for name, array in main.items()
        if not name.startswith("mask_") and not name.endswith("._weight")
        and ".layer.1." not in name and ".layer.2." not in name
    }  # fmt: skip
    learned = main.pop(f"{WORDS}._weight")
    main[f"{WORDS}.weight"] = small[f"{WORDS}.weight"] + learned
    if delta:
        main[f"{WORDS}._weight"] = learned
        main["deberta.embeddings.position_embeddings._weight"] = np.zeros((13, 21), "float32")
    systems.write(folder, config, main)
    for spelled in list(main):
        if spelled.startswith("lm_") or "position_emb" in spelled:
            main.pop(spelled)  # They are not those of the generator.
    file = folder / "model.generator.safetensors"
    safetensors.numpy.save_file(small, file, metadata={"format": "pt"})
    return main, small


def test_a_discriminator_and_its_generator_become_one_model_and_two_files_again(tmp_path):
    main, small = pair(tmp_path / "hf")
    converted = huggingface.read(tmp_path / "hf")
    generator, head = converted.config.objectives
    assert (generator.size, generator.num_layers, generator.sharing) == (1.0, 1, "gdes")
    assert generator.enhanced_mask_decoder and generator.decoupled
    assert (head.form, head.weight) == ("deberta", 10.0)
    masks = converted.config.corruption
    assert (masks.windows, masks.mask_prob, masks.random_prob) == (True, 1.0, 0.0)
    assert converted.config.segments.max_length == 13 and masks.max_predictions == 2
    delta = converted.variables["encoder/embeddings/token_embedding/delta"]
    assert delta.tobytes() == main[f"{WORDS}._weight"].tobytes()
    converted_model.write(converted, tmp_path / "model")
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    for name, expected in (("model", main), ("model.generator", small)):
        written = safetensors.numpy.load_file(tmp_path / "out" / f"{name}.safetensors")
        assert written.keys() == expected.keys()
        for key, array in expected.items():
            assert written[key].tobytes() == array.tobytes(), key
    again = huggingface.read(tmp_path / "out")
    assert again.leftover == [] and again.config.objectives == converted.config.objectives
    assert again.variables.keys() == converted.variables.keys()
    for path, array in converted.variables.items():
        assert again.variables[path].tobytes() == array.tobytes(), path


def test_the_head_of_replaced_tokens_is_that_of_the_release(tmp_path):
    main, _ = pair(tmp_path / "hf")
    converted_model.write(huggingface.read(tmp_path / "hf"), tmp_path / "model")
    model = model_folder.restore(tmp_path / "model")[2]
    batch = systems.load("deberta-v2_classification")[1]["batch"]
    states = np.asarray(systems.run(model.encoder, batch)["sequence_output"], "float64")
    x = states + states[:, :1]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-7)
    x = x * main["mask_predictions.LayerNorm.weight"] + main["mask_predictions.LayerNorm.bias"]
    x = x @ main["mask_predictions.dense.weight"].T + main["mask_predictions.dense.bias"]
    x = x * (1 + scipy.special.erf(x / np.sqrt(2))) / 2
    x = x @ main["mask_predictions.classifier.weight"].T + main["mask_predictions.classifier.bias"]
    actual = model.objectives[1].logits(states.astype("float32"))
    np.testing.assert_allclose(actual, x[..., 0], rtol=0, atol=1e-4)
    # Of the generator, each part has its place, and the last layer of three is not its own.
    paths = {path: v.numpy() for path, v in model.variables_by_path().items()}
    assert not [path for path in paths if path.startswith("generator/encoder/layer_1")]
    assert paths["generator/masked_lm/position_embedding/table"].shape == (13, 21)


def test_pretraining_goes_on_from_both_parts_or_from_the_encoder(tmp_path):
    main, _ = pair(tmp_path / "hf")
    converted = huggingface.read(tmp_path / "hf")
    converted_model.write(converted, tmp_path / "model")
    model = model_folder.build(converted.config)
    count, fresh = warm_start.start_from(model, str(tmp_path / "model"), "last", "all")
    paths = {path: v.numpy() for path, v in model.variables_by_path().items()}
    assert count == len(paths) == len(converted.variables) and fresh == []
    assert all((paths[path] == converted.variables[path]).all() for path in paths)
    # The encoder alone reads the same table above that of a fresh generator.
    model = model_folder.build(converted.config)
    assert warm_start.start_from(model, str(tmp_path / "model"), "last", "encoder")[1] == [
        "generator", "replaced_tokens",
    ]  # fmt: skip
    variables = {path: v.numpy() for path, v in model.variables_by_path().items()}
    base = variables["generator/encoder/embeddings/token_embedding/table"]
    delta = variables["encoder/embeddings/token_embedding/delta"]
    np.testing.assert_allclose(base + delta, main[f"{WORDS}.weight"], rtol=0, atol=1e-6)
    assert np.abs(base - paths["generator/encoder/embeddings/token_embedding/table"]).max() > 1


def test_a_discriminator_whose_file_has_the_sum_alone(tmp_path):
    """As that of the base size; half precision rounds the sum."""
    main, small = pair(tmp_path / "hf", delta=False)
    name = "encoder/embeddings/token_embedding/delta"
    table, base = (tensors[f"{WORDS}.weight"] for tensors in (main, small))
    delta = huggingface.read(tmp_path / "hf").variables[name]
    np.testing.assert_array_equal(delta, table - base)
    halves = safetensors.numpy.load_file(tmp_path / "hf" / "model.safetensors")
    halves[f"{WORDS}._weight"] = (table - base).astype("float16")
    halves[f"{WORDS}.weight"] = table.astype("float16")
    safetensors.numpy.save_file(halves, tmp_path / "hf" / "model.safetensors", {"format": "pt"})
    delta = huggingface.read(tmp_path / "hf").variables[name]
    np.testing.assert_array_equal(delta, table.astype("float16").astype("float32") - base)
    # One table that both read is no sum.
    halves[f"{WORDS}.weight"] = base
    del halves[f"{WORDS}._weight"]
    safetensors.numpy.save_file(halves, tmp_path / "hf" / "model.safetensors", {"format": "pt"})
    shared = huggingface.read(tmp_path / "hf")
    assert shared.config.objectives[0].sharing == "token" and name not in shared.variables


def test_the_last_layer_as_the_code_of_the_release_spells_it(tmp_path):
    main, _ = pair(tmp_path / "hf")
    file = tmp_path / "hf" / "model.safetensors"
    renamed = {
        name.replace("classifier", "classifer"): array
        for name, array in safetensors.numpy.load_file(file).items()
    }
    safetensors.numpy.save_file(renamed, file, {"format": "pt"})
    kernel = huggingface.read(tmp_path / "hf").variables["replaced_tokens/output/kernel"]
    np.testing.assert_array_equal(kernel.T, main["mask_predictions.classifier.weight"])


def test_a_generator_has_a_config_of_its_own(tmp_path):
    pair(tmp_path / "hf")
    expected = huggingface.read(tmp_path / "hf")
    file = tmp_path / "hf" / "generator_config.json"
    for sizes in ({}, {"num_hidden_layers": 1}, {"model_type": "deberta-v2", "hidden_size": 21}):
        file.write_text(json.dumps(sizes))
        found = huggingface.read(tmp_path / "hf")
        assert found.config == expected.config
        assert found.variables.keys() == expected.variables.keys()
        for path, array in expected.variables.items():
            np.testing.assert_array_equal(found.variables[path], array)
    for sizes, message in (
        ({"num_hidden_layers": 2}, "config.json: num_hidden_layers is 2, and .* has 1 layers: are"),
        ({"intermediate_size": 9}, r"has the shape .*, the config expects \[9\b"),
        (
            {"layer_norm_eps": 0.5},
            "norm_epsilon is 0.5, where a generator .*: convert the two separ",
        ),
        ({"hidden_act": "sine"}, "hf/generator_config.json: hidden_act: 'sine'"),
        ([], "generator_config.json"),
    ):
        file.write_text(json.dumps(sizes))
        with pytest.raises(UserError, match=message):
            huggingface.read(tmp_path / "hf")


def test_generators_that_do_not_fit(tmp_path):
    _, small = pair(tmp_path / "hf")
    file = tmp_path / "hf" / "model.generator.safetensors"
    head = {name: array for name, array in small.items() if name.startswith("lm_")}
    safetensors.numpy.save_file(head, file, {"format": "pt"})
    with pytest.raises(UserError, match=r"model.generator.safetensors has no tensors of layers"):
        huggingface.read(tmp_path / "hf")
    body = {name: array for name, array in small.items() if not name.startswith("lm_")}
    safetensors.numpy.save_file(body, file, {"format": "pt"})
    with pytest.raises(UserError, match=r"model.generator.safetensors has no masked LM, so it is"):
        huggingface.read(tmp_path / "hf")
    with pytest.raises(
        UserError,
        match="objectives: generator: hidden_size is 12, and 24 in the encoder: the two networks",
    ):
        deberta.check_generator({"hidden_size": 12, "num_hidden_layers": 1}, {"hidden_size": 24})
    # Heads of other forms are those of no class.
    for objective, name in (
        (ReplacedTokensConfig(), "replaced_tokens"),
        (ReplacedTokensConfig(form="deberta"), "normed_replaced_tokens"),
    ):
        assert heads.name_of(objective) == name
    assert deberta.SYSTEM.has_room_for(ReplacedTokensConfig(form="deberta"))
    assert not deberta.SYSTEM.has_room_for(ReplacedTokensConfig())
    assert not huggingface.SYSTEMS["electra"].has_room_for(ReplacedTokensConfig(form="deberta"))


def test_a_file_without_the_finished_table_is_refused(tmp_path):
    def delta_alone(weights):
        weights[f"{WORDS}._weight"] = weights.pop(f"{WORDS}.weight")
        return weights

    folder, _ = folder_of(tmp_path / "hf", delta_alone)
    with pytest.raises(UserError, match=r"_weight is the difference of the discriminator"):
        huggingface.read(folder)


def test_parts_of_another_network_are_refused(tmp_path):
    name = "deberta.encoder.layer.0.attention.self.pos_key_proj.weight"

    def with_own_projection(weights):
        return {**weights, name: weights[name.replace("pos_key", "key")].copy()}

    folder, _ = folder_of(tmp_path / "hf", with_own_projection)
    with pytest.raises(UserError, match=f"an encoder that is not supported, such as {name}"):
        huggingface.read(folder)


def test_the_older_names_of_the_masked_lm(tmp_path):
    config, parts, _ = systems.load("deberta-v2_masked_lm")
    older = dict(parts["weight"])
    for theirs, name in deberta._LEGACY.items():
        older[theirs] = older.pop(name)
    older["cls.predictions.decoder.weight"] = older[f"{WORDS}.weight"].copy()
    older["cls.predictions.decoder.bias"] = older["cls.predictions.bias"].copy()
    read = huggingface.read(systems.write(tmp_path / "new", config, parts["weight"]))
    again = huggingface.read(
        systems.write(
            tmp_path / "old", {**config, "legacy": True, "tie_word_embeddings": True}, older
        )
    )
    assert again.leftover == [] and again.config.objectives == read.config.objectives
    for path, array in read.variables.items():
        np.testing.assert_array_equal(again.variables[path], array)


def test_one_matrix_of_v1_is_laid_out_head_by_head():
    tensor = np.arange(12 * 4, dtype="float32").reshape(12, 4)  # 2 heads of size 2
    row = deberta.HeadByHead("kernel", ("in_proj",), heads=2)
    kernel = row.join([tensor], (4, 12))
    query, key, value = np.split(kernel, 3, axis=1)
    for part, first in ((query, 0), (key, 2), (value, 4)):
        expected = [*tensor[first : first + 2], *tensor[6 + first : 8 + first]]
        np.testing.assert_array_equal(part.T, expected)
    np.testing.assert_array_equal(row.split(kernel)["in_proj"], tensor)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("deberta-v2_bare", {"relative_attention": None}, "relative_attention: None is not"),
        ("deberta-v2_bare", {"position_biased_input": True}, "position_biased_input: True is not"),
        ("deberta-v2_bare", {"share_att_key": False}, "share_att_key: False is not supported"),
        ("deberta-v2_bare", {"pos_att_type": "c2p"}, "pos_att_type: 'c2p' is not supported, only"),
        ("deberta-v2_bare", {"type_vocab_size": 2}, "type_vocab_size: 2 is not supported, only 0"),
        ("deberta-v2_bare", {"attention_head_size": 7}, "attention_head_size: 7 is not supported"),
        ("deberta-v2_bare", {"conv_groups": 3}, "conv_groups: 3 is not supported, only 1"),
        ("deberta-v2_bare", {"conv_act": "sin"}, "conv_act: 'sin' is not supported"),
        ("deberta-v2_bare", {"conv_kernel_size": 4}, "kernel_size: 4 is not an odd number"),
        ("deberta-v2_bare", {"position_buckets": 7}, "buckets: 7 is not an even number"),
        ("deberta-v2_bare", {"pooler_hidden_act": "tanh"}, "pooler_hidden_act: 'tanh' is not"),
        ("deberta_bare", {"talking_head": True}, "talking_head: True is not supported"),
    ],
)
def test_what_our_encoder_has_not_is_refused(name, changes, message):
    config = {**systems.load(name)[0], **changes}
    system = huggingface.SYSTEMS[config["model_type"]]
    with pytest.raises(UserError, match=f"config.json: .*{message}"):
        system.encoder_config(config, "config.json")


def test_configs_of_the_releases():
    config = {
        "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
        "max_position_embeddings": 512, "relative_attention": True, "position_buckets": 256,
        "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": "p2c|c2p",
        "layer_norm_eps": 1e-7, "max_relative_positions": -1, "position_biased_input": False,
        "num_attention_heads": 12, "num_hidden_layers": 12, "type_vocab_size": 0,
        "vocab_size": 128100,
    }  # fmt: skip
    encoder = deberta.SYSTEM.encoder_config(config, "config.json", pooler=False)
    form = encoder.disentangled
    assert (form.buckets, form.max_distance, form.own_projections, form.norm) == (
        256,
        512,
        False,
        True,
    )
    assert encoder.convolution is None and encoder.positions == "none" and not encoder.pooler
    assert (encoder.norm_epsilon, encoder.activation) == (1e-7, "gelu")
    keys = deberta.SYSTEM.encoder.keys(encoder)
    assert {key: keys[key] for key in config if key != "pos_att_type"} == {
        key: value for key, value in config.items() if key != "pos_att_type"
    }
    xlarge = {**config, "conv_kernel_size": 3, "conv_act": "gelu", "attention_head_size": 64}
    convolution = deberta.SYSTEM.encoder_config(xlarge, "config.json").convolution
    assert (convolution.kernel_size, convolution.activation) == (3, "gelu")
    v1 = {**config, "pos_att_type": "c2p|p2c", "vocab_size": 50265}
    form = deberta.V1.encoder_config(v1, "config.json").disentangled
    assert (form.buckets, form.max_distance, form.own_projections, form.norm) == (
        0,
        512,
        True,
        False,
    )


def test_the_mask_token_comes_after_the_pieces_of_a_model(tmp_path):
    model = systems.sentencepiece_model(**systems.SENTENCEPIECE["deberta-v2"])
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    (tmp_path / "spm.model").write_bytes(model)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    tokenizer = converted_model.tokenizer_of(tmp_path, 100, "config.json", deberta.SYSTEM)
    assert tokenizer.mask_id == len(theirs) == tokenizer.vocab_size - 1
    ids = (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.unk_id)
    assert ids == (0, 1, 2, 3) and not tokenizer.lower_case
    for text in ("the cat sat", "The [MASK] Ω cat", "", "  two  blanks "):
        assert tokenizer.encode([text])[0].tolist() == theirs.encode(text)
    (masked,) = tokenizer.encode(["the [MASK] cat"], special=True)
    assert masked.tolist().count(tokenizer.mask_id) == 1
    size = tokenizer.vocab_size
    converted_model.tokenizer_of(tmp_path, size + 999, "config.json", deberta.SYSTEM)
    with pytest.raises(UserError, match=rf"spm.model has {size} pieces, config.json says"):
        converted_model.tokenizer_of(tmp_path, size + 1000, "config.json", deberta.SYSTEM)
    whole = ours.with_mask(model, "spm.model")
    assert ours.with_mask(whole, "spm.model") == whole and ours.without_mask(whole) == model
    assert ours.without_mask(model) == model
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"split_by_punct": True}))
    with pytest.raises(UserError, match=r"tokenizer_config.json: split_by_punct is true, which"):
        converted_model.tokenizer_of(tmp_path, 100, "config.json", deberta.SYSTEM)
    (tmp_path / "spm.model").unlink()
    with pytest.raises(UserError, match=r"spm.model is missing: put the model's vocabulary there"):
        converted_model.tokenizer_of(tmp_path, 100, "config.json", deberta.SYSTEM)
