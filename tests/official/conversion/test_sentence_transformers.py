"""Folders of sentence-transformers: their settings, their vectors, and the way back."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import official
from official.conversion import converted_model, huggingface
from official.conversion.sentence_transformers import sentence_transformer
from official.saving import embedding_settings, model_folder
from official.saving.embedding_settings import EmbeddingSettings
from official.serving.export import saved_model
from official.serving.signatures import table
from official.tokenizers.pair_packing import pack_texts
from official.utils.errors import UserError
from tests import GOLDEN, commands

CLOSE = dict(rtol=0, atol=1e-5)
TYPES = "sentence_transformers.models."
SWITCHES = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens")
SWITCHES += ("weightedmean_tokens", "lasttoken")
OURS = {
    "cls": "first", "max": "max", "mean": "mean", "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean", "lasttoken": "last",
}  # fmt: skip


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "sentence_vectors.npz") as file:
        return json.loads(str(file["about"])), {name: file[name] for name in file}


def make(folder, golden, name, **changes):
    """A folder as sentence-transformers 5 writes it; `changes` are contents of its files."""
    about, _ = golden
    modes, normalize, include_prompt, default = about["cases"][name]
    shutil.copytree(GOLDEN / "hf_files" / "bare", folder)
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling")]
    kinds += [("Normalize", "2_Normalize")] if normalize else []
    files = {
        "modules.json": [
            {"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, p) in enumerate(kinds)
        ],
        "sentence_bert_config.json": {"max_seq_length": about["max_length"]},
        "1_Pooling/config.json": {
            "word_embedding_dimension": 12,
            **{f"pooling_mode_{s}": s.removesuffix("_tokens" if s != SWITCHES[3] else "")
               .removesuffix("_token") in modes for s in SWITCHES},
            "include_prompt": include_prompt,
        },
        "config_sentence_transformers.json": {
            "__version__": {"sentence_transformers": "5.1.0"},
            "prompts": about["prompts"],
            "default_prompt_name": default,
            "similarity_fn_name": "cosine",
        },
    }  # fmt: skip
    (folder / "1_Pooling").mkdir()
    for path, content in {**files, **changes}.items():
        (folder / path).write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("name", ["mean", "plain", "four", "prompt"])
def test_vectors_and_the_way_back(name, golden, tmp_path):
    about, vectors = golden
    folder = make(tmp_path / "theirs", golden, name)
    converted_model.write(huggingface.read(folder), tmp_path / "model")
    modes, normalize, include_prompt, default = about["cases"][name]
    config = model_folder.config_of(tmp_path / "model")
    (learned,) = config.objectives
    assert learned.poolings == tuple(OURS[mode] for mode in modes)
    assert (learned.normalize, learned.weight, learned.projection) == (normalize, 0, None)
    assert embedding_settings.read(tmp_path / "model", config) == EmbeddingSettings(
        tuple(OURS[mode] for mode in modes), normalize, 12,
        {"query": "the dog: ", "document": ""}, default, include_prompt,
    )  # fmt: skip
    model = official.load(tmp_path / "model")
    assert model.max_length == 12
    np.testing.assert_allclose(model.encode(about["texts"], batch_size=3), vectors[name], **CLOSE)
    huggingface.write(tmp_path / "model", tmp_path / "back", "last")
    for file in ("modules.json", "1_Pooling/config.json"):
        both = [json.loads((parent / file).read_text()) for parent in (folder, tmp_path / "back")]
        assert both[0] == both[1]
    again = huggingface.read(tmp_path / "back")
    assert again.embedding == embedding_settings.read(tmp_path / "model", config)


def test_documents_of_a_search_have_the_prompts_that_they_have_there(golden, tmp_path):
    """sentence-transformers 6.2 never falls back on `passage` or on the default prompt."""
    name = "config_sentence_transformers.json"
    for number, (prompts, default, query, document) in enumerate((
        ({"query": "q: ", "passage": "p: ", "document": ""}, None, "q: ", ""),
        ({"query": "q: ", "passage": "p: "}, None, "q: ", ""),
        ({"passage": "p: "}, "passage", "", ""),
        ({"document": "d: ", "passage": "p: "}, "passage", "", "d: "),
        ({}, None, "", ""),
    )):  # fmt: skip
        changed = {name: {"prompts": prompts, "default_prompt_name": default}}
        folder = make(tmp_path / str(number), golden, "mean", **changed)
        settings = huggingface.read(folder).embedding
        found = [
            settings.prompt(embedding_settings.prompt_of(kind, settings))
            for kind in embedding_settings.PROMPTS
        ]
        assert found == [query, document], prompts
        assert settings.prompt(None) == prompts.get(default, "")
    # A model of ours, whose documents do have it, says so in the way of that library.
    settings = embedding_settings.EmbeddingSettings(prompts={"query": "q: ", "passage": "p: "})
    (tmp_path / "back").mkdir()
    encoder = huggingface.read(folder).config.encoder
    sentence_transformer.write(settings, encoder, 12, tmp_path / "back")
    written = json.loads((tmp_path / "back" / name).read_text())["prompts"]
    assert written == {"query": "q: ", "passage": "p: ", "document": "p: "}


def test_settings_that_are_given_come_first(golden, tmp_path):
    about, vectors = golden
    converted_model.write(
        huggingface.read(make(tmp_path / "theirs", golden, "mean")), tmp_path / "model"
    )
    model, texts = official.load(tmp_path / "model"), about["texts"]
    plain = model.encode(texts, pooling=["first", "max"], normalize=False)
    np.testing.assert_allclose(plain, vectors["plain"], **CLOSE)
    four = "max,mean_sqrt_len,weighted_mean,last"
    joined = model.encode(texts, pooling=four, prompt="query")
    np.testing.assert_allclose(joined, vectors["four"], **CLOSE)
    lengths = np.linalg.norm(model.encode(texts, max_length=20), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-6)
    changed = np.abs(model.encode(texts, max_length=20) - model.encode(texts)).max(axis=1) > 1e-3
    assert changed.tolist() == [False, False, False, True, False]
    for options, message in (
        ({"pooling": "maen"}, "pooling: 'maen' is not one of .* .did you mean 'mean'"),
        ({"prompt": "qeury"}, "prompt: 'qeury' is not a prompt of this model.*known: query"),
        ({"max_length": 99}, "max_length: 99 is not from 4 to 24"),
    ):
        with pytest.raises(UserError, match=message):
            model.encode(texts, **options)


@pytest.mark.parametrize("name", ["mean", "prompt"])
def test_signatures_of_an_export(name, golden, tmp_path):
    """`embed` reads raw texts with the prompt; `embed_tokens` reads ids."""
    about, vectors = golden
    converted_model.write(
        huggingface.read(make(tmp_path / "theirs", golden, name)), tmp_path / "model"
    )
    parts, kind, default = saved_model.restore(tmp_path / "model")
    signatures = table.make(parts, kind, default)[1]
    assert parts.max_length == 12
    found = signatures["embed"](tf.constant(about["texts"]))["vectors"]
    np.testing.assert_allclose(found, vectors[name], **CLOSE)
    if name == "mean":
        batch = pack_texts([tf.constant(about["texts"])], parts.tokenizer, 12)
        ids = batch["token_ids"], tf.cast(batch["padding_mask"], tf.int32), batch["segment_ids"]
        found = signatures["embed_tokens"](*ids)["vectors"]
        np.testing.assert_allclose(found, vectors[name], **CLOSE)


def test_an_export_without_settings_gives_what_encode_gives(tmp_path):
    """The means, which are not normalized."""
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "bare"), tmp_path / "model")
    parts, kind, default = saved_model.restore(tmp_path / "model")
    texts = ["The cat sat on a mat.", "", "dog " * 30]
    found = table.make(parts, kind, default)[1]["embed"](tf.constant(texts))["vectors"]
    expected = official.load(tmp_path / "model").encode(texts)
    assert np.ptp(np.linalg.norm(expected, axis=1)) > 0.01
    np.testing.assert_allclose(found, expected, **CLOSE)


def test_files_of_other_versions(golden, tmp_path):
    """Version 6 names modes; version 0 has the Transformer in a folder; lengths may be missing."""
    changes = {
        "1_Pooling/config.json": {"embedding_dimension": 12, "pooling_mode": ["mean", "cls"]},
        "sentence_bert_config.json": {"max_seq_length": None},
        "config_sentence_transformers.json": {},
    }
    folder = make(tmp_path / "six", golden, "mean", **changes)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    modules[2]["type"] = "sentence_transformers.sentence_transformer.modules.normalize.Normalize"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "0_Transformer").mkdir()
    for file in [
        *folder.glob("*config.json"),
        *folder.glob("*.txt"),
        *folder.glob("*.safetensors"),
    ]:
        file.rename(folder / "0_Transformer" / file.name)
    found = huggingface.read(folder)
    assert found.embedding == embedding_settings.EmbeddingSettings(
        ("mean", "first"), normalize=True, max_length=24
    )
    converted_model.write(found, tmp_path / "model")
    with pytest.raises(UserError, match="joins first, max, mean.*but this model has mean, first"):
        huggingface.write(tmp_path / "model", tmp_path / "back", "last")


def test_what_is_not_supported(golden, tmp_path):
    kinds = ("Transformer", "Dense", "Pooling")
    dense = [{"type": f"models.{kind}", "path": ""} for kind in kinds]
    for number, (changes, message) in enumerate((
        ({"modules.json": dense}, "modules are Transformer, Dense, Pooling: .* are supported"),
        ({"modules.json": {}}, "modules.json holds a dict, expected a list"),
        ({"1_Pooling/config.json": {"pooling_mode": "median"}}, "pooling_mode: 'median'"),
        ({"config_sentence_transformers.json": {"truncate_dim": "4"}}, "size: expected"),
        ({"config_sentence_transformers.json": {"prompts": ["a"]}}, "prompts"),
        ({"sentence_bert_config.json": {"max_seq_length": "long"}}, "max_seq_length"),
    )):  # fmt: skip
        folder = make(tmp_path / str(number), golden, "mean", **changes)
        with pytest.raises(UserError, match=message):
            huggingface.read(folder)


@pytest.mark.parametrize(
    ("activation", "bias", "normalize"), [("tanh", True, True), (None, False, False)]
)
def test_a_dense_module_and_the_way_back(activation, bias, normalize, golden, tmp_path):
    about, vectors = golden
    folder = make(tmp_path / "theirs", golden, "mean" if normalize else "plain")
    modules = json.loads((folder / "modules.json").read_text())
    modules.insert(2, {"idx": 2, "name": "2", "path": "2_Dense", "type": f"{TYPES}Dense"})
    if normalize:
        modules[3] = {**modules[3], "idx": 3, "name": "3", "path": "3_Normalize"}
    (folder / "modules.json").write_text(json.dumps(modules))
    width = 12 if normalize else 24
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((5, width)).astype("float32")
    tensors = {"linear.weight": weight} | ({"linear.bias": np.ones(5, "float32")} if bias else {})
    described = {"in_features": width, "out_features": 5, "bias": bias}
    described["activation_function"] = {
        "tanh": "torch.nn.modules.activation.Tanh", None: "torch.nn.modules.linear.Identity"
    }[activation]  # fmt: skip
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "config.json").write_text(json.dumps(described))
    safetensors.numpy.save_file(tensors, folder / "2_Dense" / "model.safetensors")
    converted_model.write(huggingface.read(folder), tmp_path / "model")

    model = official.load(tmp_path / "model")
    pooled = model.encode(about["texts"], pooling="max" if normalize else "max,first")
    assert pooled.shape[1] == width  # another pooling is not projected
    found = model.encode(about["texts"])
    bare = official.load(tmp_path / "model")
    bare.model.objectives = []
    expected = bare.encode(about["texts"], normalize=False) @ weight.T + float(bias)
    expected = np.tanh(expected) if activation else expected
    if normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, **CLOSE)

    file = embedding_settings.file(tmp_path / "model")
    values = {
        name: value for name, value in json.loads(file.read_text()).items() if name != "checksum"
    }
    file.write_text(json.dumps({**values, "size": 3}))
    huggingface.write(tmp_path / "model", tmp_path / "back", "last")
    assert huggingface.read(tmp_path / "back").embedding.size == 3
    for file in ("modules.json", "2_Dense/config.json"):
        both = [json.loads((parent / file).read_text()) for parent in (folder, tmp_path / "back")]
        assert both[0] == both[1]
    written = safetensors.numpy.load_file(tmp_path / "back" / "2_Dense" / "model.safetensors")
    assert written.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(written[name], tensor)
    described["activation_function"] = "torch.nn.modules.activation.Softsign"
    (folder / "2_Dense" / "config.json").write_text(json.dumps(described))
    with pytest.raises(UserError, match="2_Dense/config.json: activation_function: '.*Softsign'"):
        huggingface.read(folder)


@pytest.mark.slow
def test_commands(golden, tmp_path):
    about, vectors = golden
    folder = make(tmp_path / "theirs", golden, "four")
    options = [f"--input={folder}", f"--output={tmp_path}/model"]
    done = commands.run("official.convert", "--source=hf", *options, status=0)
    assert (
        "vectors of texts as in sentence-transformers: max and mean_sqrt_len and weighted_mean and "
        "last pooling, normalized, at most 12 tokens, prompts query, query if none is named"
    ) in done.stdout
    (tmp_path / "texts.txt").write_text("\n".join(about["texts"]) + "\n")
    options = ["--mode=embed", f"--model_dir={tmp_path}/model", f"--texts={tmp_path}/texts.txt"]
    commands.run("official.main", *options, f"--output={tmp_path}/a.npy", status=0)
    np.testing.assert_allclose(np.load(tmp_path / "a.npy"), vectors["four"], **CLOSE)
    options += ["--pooling=first,max", "--nonormalize", f"--output={tmp_path}/b.npy"]
    model = official.load(tmp_path / "model")
    commands.run("official.main", *options, "--prompt_name=query", "--max_length=9", status=0)
    given = {"pooling": "first,max", "normalize": False, "max_length": 9, "prompt": "query"}
    expected = model.encode(about["texts"], **given)
    np.testing.assert_allclose(np.load(tmp_path / "b.npy"), expected, **CLOSE)


def test_a_damaged_file_of_settings(golden, tmp_path):
    folder = make(tmp_path / "theirs", golden, "mean")
    converted_model.write(huggingface.read(folder), tmp_path / "model")
    file = embedding_settings.file(tmp_path / "model")
    values = json.loads(file.read_text())
    del values["checksum"]
    for change, message in (
        ({"pooling": ["median"]}, "embedding.json: pooling: 'median'"),
        ({"max_length": 99}, "embedding.json: max_length: 99 is not a whole number from 4 to 24"),
        ({"default_prompt": "x"}, "embedding.json: prompt: 'x' is not a prompt"),
        ({"color": 1}, "embedding.json: color: unknown key"),
    ):
        file.write_text(json.dumps({**values, **change}))
        with pytest.raises(UserError, match=message):
            official.load(tmp_path / "model")
