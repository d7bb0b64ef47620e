import json
import math
import os
import re
import shutil

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import official
from official.conversion import converted_model, huggingface
from official.saving import model_folder
from official.utils.errors import UserError
from tests import ROOT, commands

GOLDEN = ROOT / "tests" / "golden" / "hf_files"
KINDS = ("pretraining", "classification", "bare")
ABOUT = json.loads((GOLDEN / "about.json").read_text())
EXPECTED = np.load(GOLDEN / "expected.npz")
BATCH = {
    "token_ids": EXPECTED["input_ids"],
    "segment_ids": EXPECTED["token_type_ids"],
    "padding_mask": EXPECTED["attention_mask"].astype(bool),
}


def convert(source, output):
    converted = huggingface.read(source)
    converted_model.write(converted, output)
    return converted


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    parent = tmp_path_factory.mktemp("models")
    for kind in KINDS:
        convert(GOLDEN / kind, parent / kind)
    return parent


@pytest.fixture
def source(tmp_path):
    """A copy to spoil."""
    shutil.copytree(GOLDEN / "pretraining", tmp_path / "source")
    return tmp_path / "source"


def tensors_of(folder):
    return safetensors.numpy.load_file(folder / "model.safetensors")


def change(folder, **values):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, **values}))


def logits(model, name):
    encoded = model.encode(BATCH)
    (objective,) = (o for o in model.objectives if o.name == name)
    if name == "masked_lm":
        states = encoded["sequence_output"]
        rows = np.asarray(states).reshape(-1, states.shape[-1])
        return np.asarray(objective.logits(rows, model.encoder)).reshape(*states.shape[:2], -1)
    return np.asarray(objective.logits(encoded))


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_those_of_transformers(folders, kind):
    _, _, model = model_folder.restore(folders / kind)
    encoded = model.encode(BATCH)
    real = BATCH["padding_mask"][..., None]
    np.testing.assert_allclose(
        encoded["sequence_output"] * real, EXPECTED[f"{kind}/last_hidden_state"] * real, atol=1e-5
    )
    if f"{kind}/pooler_output" in EXPECTED:
        np.testing.assert_allclose(
            encoded["pooled_output"], EXPECTED[f"{kind}/pooler_output"], atol=1e-5
        )


def test_logits_are_those_of_transformers(folders):
    _, _, model = model_folder.restore(folders / "pretraining")
    real = BATCH["padding_mask"][..., None]
    np.testing.assert_allclose(
        logits(model, "masked_lm") * real, EXPECTED["pretraining/prediction_logits"] * real,
        atol=1e-5,
    )  # fmt: skip
    np.testing.assert_allclose(
        logits(model, "next_sentence"), EXPECTED["pretraining/seq_relationship_logits"], atol=1e-5
    )
    _, _, model = model_folder.restore(folders / "classification")
    np.testing.assert_allclose(
        logits(model, "classification"), EXPECTED["classification/logits"], atol=1e-5
    )


def test_the_tokenizer_comes_along(folders):
    tokenizer = official.load(folders / "pretraining").tokenizer
    for text, pair, row in zip(ABOUT["texts"], ABOUT["pairs"], BATCH["token_ids"], strict=True):
        first, second = tokenizer.encode([text, pair])
        cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
        ids = np.concatenate([cls, first, sep, second, sep]).astype(np.int32)
        np.testing.assert_array_equal(ids, row[: len(ids)])
        assert not row[len(ids) :].any()


def test_configs_become_ours(folders):
    config, _, _ = model_folder.restore(folders / "classification")
    assert config.encoder.activation == "gelu_tanh"
    assert config.encoder.norm_epsilon == 1e-5
    assert config.objectives[0].labels == ("negative", "neutral", "positive")
    assert config.objectives[0].dropout == 0.2
    config, _, _ = model_folder.restore(folders / "pretraining")
    assert config.encoder.activation == "gelu"
    assert config.segments.max_length == 24
    config, _, _ = model_folder.restore(folders / "bare")
    assert config.objectives == ()
    assert config.encoder.segment_types == 3


@pytest.mark.parametrize("kind", KINDS)
def test_out_and_in_again_is_bit_exact(folders, tmp_path, kind):
    huggingface.write(folders / kind, tmp_path / "out", "best")
    theirs, ours = tensors_of(GOLDEN / kind), tensors_of(tmp_path / "out")
    assert {n: a.tobytes() for n, a in theirs.items()} == {n: a.tobytes() for n, a in ours.items()}
    assert {n: a.shape for n, a in theirs.items()} == {n: a.shape for n, a in ours.items()}
    before = json.loads((GOLDEN / kind / "config.json").read_text())
    after = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {key: after[key] for key in before.keys() & after.keys()} == {
        key: before[key] for key in before.keys() & after.keys()
    }
    assert (tmp_path / "out" / "vocab.txt").read_text() == (GOLDEN / kind / "vocab.txt").read_text()
    again = convert(tmp_path / "out", tmp_path / "again")
    assert again.leftover == []
    first, second = (
        model_folder.restore(folders / kind)[2],
        model_folder.restore(tmp_path / "again")[2],
    )
    for path, variable in first.variables_by_path().items():
        other = second.variables_by_path()[path]
        assert variable.numpy().tobytes() == other.numpy().tobytes(), path


def test_load_encodes_as_transformers_does(folders):
    loaded = official.load(folders / "bare")
    texts = ABOUT["texts"]
    vectors = loaded.encode(texts, batch_size=2)
    for text, vector in zip(texts, vectors, strict=True):
        (ids,) = loaded.tokenizer.encode([text])
        ids = np.array([[loaded.tokenizer.cls_id, *ids, loaded.tokenizer.sep_id]], np.int32)
        states = np.asarray(loaded.model.encode({"token_ids": ids})["sequence_output"])
        np.testing.assert_allclose(vector, states[0].mean(axis=0), atol=1e-5)


@pytest.mark.slow
def test_the_command_line_says_what_it_did(tmp_path):
    def run(*flags):
        return commands.run("official.convert", *flags)

    done = run("--source=hf", f"--input={GOLDEN / 'bare'}", f"--output={tmp_path / 'model'}")
    assert done.returncode == 0, done.stderr
    # 5 variables of the embeddings, 12 a layer, 2 of the pooler.
    wrote, *block = done.stdout.splitlines()
    assert wrote == f"wrote {tmp_path / 'model'}: 31 variables, 3,292 parameters"
    assert block[:2] == [
        "how texts are read:",
        "  class: BertTokenizer (tokenizer_class in tokenizer_config.json)",
    ]
    again = run("--source=hf", f"--input={GOLDEN / 'bare'}", f"--output={tmp_path / 'model'}")
    assert again.returncode == 2
    assert f"error: {tmp_path / 'model'} is there already" in again.stderr
    back = run("--target=hf", f"--input={tmp_path / 'model'}", f"--output={tmp_path / 'hf'}")
    assert back.returncode == 0, back.stderr
    assert (tmp_path / "hf" / "model.safetensors").exists()
    neither = run(f"--input={tmp_path}", f"--output={tmp_path / 'x'}")
    assert neither.returncode == 2
    assert "elmo|package or --target=hf|elmo" in neither.stderr


def test_one_call_converts_both_ways(tmp_path):
    lines = []
    folder = official.convert(GOLDEN / "bare", tmp_path / "model", source="hf", report=lines.append)
    assert folder == str(tmp_path / "model")
    wrote, block = lines
    assert wrote == f"wrote {folder}: 31 variables, 3,292 parameters"
    assert block.splitlines() == [
        "how texts are read:",
        "  class: BertTokenizer (tokenizer_class in tokenizer_config.json)",
        "  case: text is lower-cased: do_lower_case in tokenizer_config.json",
        "  one text: [CLS] A [SEP]",
        "  a pair: [CLS] A [SEP] B [SEP]",
        "  types: types 0 and 1; an odd token stays in the longer text, or else the second",
        "  cut: long texts lose tokens at the right",
        "  length: 24, as model_max_length",
    ]
    back = official.convert(folder, tmp_path / "hf", target="hf", report=lines.append)
    assert lines[2:] == [f"wrote {back}"]
    theirs, ours = tensors_of(GOLDEN / "bare"), tensors_of(tmp_path / "hf")
    assert theirs.keys() == ours.keys()
    for name, tensor in theirs.items():
        np.testing.assert_array_equal(ours[name], tensor)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "give either --source=hf|tf1|garden|elmo|package or --target=hf|elmo"),
        ({"source": "hf", "target": "hf"}, "hf|tf1|garden|elmo|package or --target"),
        ({"source": "torch"}, "--source=torch: the formats are hf, tf1, garden, elmo, package"),
        ({"target": "tf1"}, "--target=tf1: the formats are hf, elmo"),
        ({"source": "hf", "vocab": "words.txt"}, "--vocab: only supported with --source=elmo"),
        ({"source": "hf", "output": GOLDEN}, f"{GOLDEN} is there already"),
        ({"target": "hf"}, f"{GOLDEN / 'bare'}: not a model folder"),
    ],
)
def test_what_cannot_be_converted_is_said(tmp_path, arguments, message):
    arguments = {"output": tmp_path / "new", **arguments}
    with pytest.raises(official.UserError, match=re.escape(message)):
        official.convert(GOLDEN / "bare", **arguments)
    assert not (tmp_path / "new").exists()


def test_old_names_copies_and_constants_are_put_right(source):
    tensors = tensors_of(source)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): array
        for name, array in tensors.items()
    }
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"]
    old["cls.predictions.decoder.bias"] = old.pop("cls.predictions.bias")
    old["bert.embeddings.position_ids"] = np.arange(24)[None]
    safetensors.numpy.save_file(old, source / "model.safetensors")
    converted = huggingface.read(source)
    assert converted.leftover == []
    expected = huggingface.read(GOLDEN / "pretraining").variables
    assert set(converted.variables) == set(expected)
    for path, array in expected.items():
        np.testing.assert_array_equal(converted.variables[path], array)


def test_several_files_are_read_as_one(source):
    names = sorted(tensors := tensors_of(source))
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}  # fmt: skip # noqa: E501
    for file, part in parts.items():
        safetensors.numpy.save_file({name: tensors[name] for name in part}, source / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    (source / "model.safetensors").unlink()
    expected = huggingface.read(GOLDEN / "pretraining").variables
    converted = huggingface.read(source).variables
    for path, array in expected.items():
        np.testing.assert_array_equal(converted[path], array)
    (source / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(UserError, match=r"00002\.safetensors is missing: .*index\.json"):
        huggingface.read(source)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_files_are_read(source, dtype):
    halves = {name: array.astype(dtype) for name, array in tensors_of(source).items()}
    safetensors.numpy.save_file(halves, source / "model.safetensors")
    table = huggingface.read(source).variables["encoder/embeddings/token_embedding/table"]
    assert table.dtype == np.float32
    half = halves["bert.embeddings.word_embeddings.weight"].astype(np.float32)
    np.testing.assert_array_equal(table, half)


def test_an_encoder_without_pooler_stays_without(source):
    tensors = {n: a for n, a in tensors_of(source).items() if "pooler" not in n}
    del tensors["cls.seq_relationship.weight"], tensors["cls.seq_relationship.bias"]
    safetensors.numpy.save_file(tensors, source / "model.safetensors")
    converted = huggingface.read(source)
    assert not converted.config.encoder.pooler
    assert not any("pooler" in path for path in converted.variables)


def test_tensors_without_a_place_are_named(source):
    tensors = {**tensors_of(source), "qa_outputs.weight": np.zeros((2, 12), np.float32)}
    safetensors.numpy.save_file(tensors, source / "model.safetensors")
    assert huggingface.read(source).leftover == ["qa_outputs.weight"]


def test_an_output_layer_of_its_own_is_refused(source):
    tensors = tensors_of(source)
    other = tensors["bert.embeddings.word_embeddings.weight"] + 1
    tensors["cls.predictions.decoder.weight"] = other
    safetensors.numpy.save_file(tensors, source / "model.safetensors")
    with pytest.raises(UserError, match=r"decoder\.weight differs from .*word_embeddings\.weight"):
        huggingface.read(source)


def test_missing_tensors_and_other_shapes_are_named(source):
    tensors = tensors_of(source)
    del tensors["bert.encoder.layer.1.output.dense.bias"]
    safetensors.numpy.save_file(tensors, source / "model.safetensors")
    with pytest.raises(UserError, match=r"safetensors lacks the tensor bert.*1\.output\.dense\.bi"):
        huggingface.read(source)
    tensors["bert.encoder.layer.1.output.dense.bias"] = np.zeros(7, np.float32)
    safetensors.numpy.save_file(tensors, source / "model.safetensors")
    with pytest.raises(UserError, match=r"dense\.bias has the shape \[7\], the config expects \[12\]"):  # fmt: skip # noqa: E501
        huggingface.read(source)


def test_without_weights(source):
    (source / "model.safetensors").unlink()
    with pytest.raises(
        UserError, match=r"model\.safetensors is missing, and so are .*is this the f"
    ):
        huggingface.read(source)


def test_a_broken_file_is_named(source):
    (source / "model.safetensors").write_bytes(b"not that" * 20)
    with pytest.raises(UserError, match=r"model\.safetensors is broken .*download it again"):
        huggingface.read(source)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": "8"}, "config.json: hidden_size: expected a whole number, got '8'"),
        ({"hidden_size": None}, "config.json: hidden_size is missing"),
        ({"num_hidden_layers": True}, "num_hidden_layers: expected a whole number, got True"),
        ({"num_hidden_layers": 2**40}, "config.json: num_layers: 1099511627776 is more than 1000"),
        ({"hidden_size": 3 * 2**40}, "the config expects"),
        ({"max_position_embeddings": 2**40}, "the config expects"),
        ({"layer_norm_eps": math.nan}, "layer_norm_eps: expected a number, got nan"),
        ({"layer_norm_eps": -1.0}, "norm_epsilon: -1.0 is negative"),
        ({"initializer_range": math.inf}, "initializer_range: expected a number, got inf"),
        ({"hidden_dropout_prob": "much"}, "hidden_dropout_prob: expected a number, got 'much'"),
        ({"architectures": 7}, "config.json: architectures: expected a list, got 7"),
        ({"id2label": [1]}, "config.json: id2label: expected a mapping, got"),
        ({"model_type": ["bert"]}, r"model_type \['bert'\] cannot be converted"),
    ],
)
def test_values_that_cannot_be(source, values, message):
    change(source, **values)
    with pytest.raises(UserError, match=message):
        huggingface.read(source)


def test_the_dropout_of_a_task_that_cannot_be(tmp_path):
    shutil.copytree(GOLDEN / "classification", tmp_path / "source")
    change(tmp_path / "source", classifier_dropout=5.0)
    with pytest.raises(UserError, match=r"config.json: dropout: 5.0 is not in \[0, 1\)"):
        huggingface.read(tmp_path / "source")


@pytest.mark.parametrize(
    "index", [{}, {"weight_map": ["a"]}, {"weight_map": {"a": 5, "b": [1]}}, {"weight_map": None}]
)
def test_an_index_that_names_no_files(source, index):
    (source / "model.safetensors").unlink()
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="index.json: weight_map: expected the name of a file"):
        huggingface.read(source)


def test_an_index_leads_nowhere_else(source):
    (source / "model.safetensors").rename(source.parent / "secret.safetensors")
    names = dict.fromkeys("ab", "../secret.safetensors")
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    with pytest.raises(UserError, match="source/secret.safetensors is missing: .*index.json names"):
        huggingface.read(source)


def test_only_regular_files_are_opened(source):
    for name in ("model.safetensors", "vocab.txt", "config.json"):
        (source / name).rename(source / "kept")
        os.mkfifo(source / name)
        with pytest.raises(UserError, match=name.replace(".", r"\.")):
            huggingface.read(source)
        (source / name).unlink()
        (source / "kept").rename(source / name)


def test_a_type_that_numpy_lacks_is_named(source):
    data = (source / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = {"bert.a": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}
    names = json.loads(data[8 : 8 + size])
    header |= {n: {"dtype": "F8_E4M3", "shape": [0], "data_offsets": [1, 1]} for n in names}
    header.pop("__metadata__")
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + b"0"
    (source / "model.safetensors").write_bytes(content)
    with pytest.raises(
        UserError,
        match="model.safetensors: tensor .* cannot be read: it is stored as F8_E4M3: floa",
    ):
        huggingface.read(source)


def test_config_json_missing_broken_or_of_another_model(source, tmp_path):
    change(source, model_type="reformer")
    with pytest.raises(
        UserError, match=r"model_type 'reformer' cannot be converted \(known: bert, "
    ):
        huggingface.read(source)
    change(source, model_type="bert", is_decoder=True)
    with pytest.raises(UserError, match=r"config\.json: is_decoder: True is not supported"):
        huggingface.read(source)
    (source / "config.json").write_text("[1, 2]")
    with pytest.raises(UserError, match="config.json holds a list, expected an object"):
        huggingface.read(source)
    (source / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config\.json is not JSON: "):
        huggingface.read(source)
    (source / "config.json").unlink()
    with pytest.raises(UserError, match=r"config\.json is missing: is this the folder of a Hug"):
        huggingface.read(source)
    with pytest.raises(UserError, match=r"config\.json is missing: is this the folder of a Hug"):
        huggingface.read(tmp_path / "nowhere")


def test_the_vocabulary_must_be_there_and_of_the_models_size(source):
    (source / "vocab.txt").write_text((source / "vocab.txt").read_text() + "more\n")
    with pytest.raises(
        UserError, match=r"vocab\.txt has 36 pieces, .*config\.json says vocab_size 35"
    ):
        huggingface.read(source)
    (source / "vocab.txt").unlink()
    with pytest.raises(UserError, match=r"vocab\.txt is missing: put the model's vocabulary"):
        huggingface.read(source)


def test_a_folder_of_transformers_5_has_tokenizer_json_alone(folders, tmp_path):
    huggingface.write(folders / "bare", tmp_path / "out", "last")
    described = json.loads((tmp_path / "out" / "tokenizer.json").read_text())
    assert len(described["model"]["vocab"]) == 35 and len(described["added_tokens"]) == 5
    (tmp_path / "out" / "vocab.txt").unlink()
    (tmp_path / "out" / "tokenizer_config.json").unlink()
    again = huggingface.read(tmp_path / "out").tokenizer
    assert again.fingerprint == official.load(folders / "bare").tokenizer.fingerprint
    described["model"]["vocab"]["more"] = 35
    (tmp_path / "out" / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(UserError, match=r"tokenizer\.json has 36 pieces, .* vocab_size 35"):
        huggingface.read(tmp_path / "out")


def test_added_tokens_have_rows_and_spare_rows_are_named(source, tmp_path):
    tensors = tensors_of(source)
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        rows = np.zeros((4, *tensors[name].shape[1:]), np.float32)
        tensors[name] = np.concatenate([tensors[name], rows])
    safetensors.numpy.save_file(tensors, source / "model.safetensors", {"format": "pt"})
    change(source, vocab_size=39)
    (source / "added_tokens.json").write_text(json.dumps({"[E1]": 35, "Covid19": 36}))
    (source / "special_tokens_map.json").write_text(
        json.dumps({"additional_special_tokens": ["[E1]"]})
    )
    lines = []
    official.convert(source, tmp_path / "model", source="hf", report=lines.append)
    assert "rows 37 to 38 of the embedding table have no token" in lines
    tokenizer = official.load(tmp_path / "model").tokenizer
    flags = [(token.special, token.normalized) for token in tokenizer.added.values()]
    assert flags == [(True, False), (False, True)]
    # A special token keeps its letters; another one is found in any case.
    ids = tokenizer.encode(["[E1]covid19", "[e1] COVID19"])
    assert ids[0].tolist() == [35, 36] and 35 not in ids[1] and ids[1][-1] == 36
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    written = json.loads((tmp_path / "out" / "tokenizer.json").read_text())["added_tokens"]
    assert [entry["id"] for entry in written] == [0, 1, 2, 3, 4, 35, 36]
    assert huggingface.read(tmp_path / "out").tokenizer.fingerprint == tokenizer.fingerprint


def test_a_vocabulary_without_a_mask_token_is_said(source, tmp_path):
    vocabulary = (source / "vocab.txt").read_text()
    (source / "vocab.txt").write_text(vocabulary.replace("[MASK]", "[mASK]"))
    for path in source.glob("*token*.json"):
        path.unlink()
    lines = []
    official.convert(source, tmp_path / "model", source="hf", report=lines.append)
    assert any("has no mask token: the masked LM cannot fill masks" in line for line in lines)


def test_a_table_may_have_some_rows_to_spare(source, tmp_path):
    tensors = tensors_of(source)
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        spare = np.zeros((5, *tensors[name].shape[1:]), np.float32)
        tensors[name] = np.concatenate([tensors[name], spare])
    safetensors.numpy.save_file(tensors, source / "model.safetensors")
    change(source, vocab_size=40)
    convert(source, tmp_path / "model")
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    again = huggingface.read(tmp_path / "out")
    assert again.config.encoder.vocab_size == 40
    assert again.tokenizer.vocab_size == 35
    change(source, vocab_size=35 + 128)
    with pytest.raises(UserError, match=r"has 35 pieces, .* says vocab_size 163: take the vocab"):
        huggingface.read(source)


def test_the_output_must_not_be_there(folders, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("keep")
    with pytest.raises(UserError, match="out is there already"):
        convert(GOLDEN / "bare", tmp_path / "out")
    with pytest.raises(UserError, match="out is there already"):
        huggingface.write(folders / "bare", tmp_path / "out", "best")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_writing_wants_a_model_folder(tmp_path):
    with pytest.raises(UserError, match=r"not a model folder: there is no config\.yaml in it"):
        huggingface.write(tmp_path, tmp_path / "out", "best")


@pytest.mark.slow
def test_the_side_and_the_length_at_which_the_tokenizer_cuts(tmp_path):
    """All doors read the last tokens, and no more than the tokenizer of the folder allows."""
    folder = tmp_path / "theirs"
    shutil.copytree(GOLDEN / "classification", folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"truncation_side": "left", "model_max_length": 9}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    official.convert(folder, tmp_path / "model", source="hf")
    model = official.load(tmp_path / "model")
    assert model.max_length == 9
    words = [p for p in model.tokenizer.pieces if p.isalpha() and not p.startswith("[")][:12]
    assert len(words) == 12
    long, last, first = " ".join(words), " ".join(words[-7:]), " ".join(words[:7])
    vectors = model.encode([long, last, first])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert np.abs(vectors[0] - vectors[2]).max() > 1e-3
    (tokens,) = model.tokens([long])
    assert [long[a:b] for a, b in zip(tokens.starts, tokens.ends, strict=True)] == words[-7:]
    official.export(tmp_path / "model", tmp_path / "saved")
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    answers = served(tf.constant([long, last, first])).values()
    rows = next(value for value in answers if value.dtype.is_floating).numpy()
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-6)
    # The folder keeps both.
    path = tmp_path / "model" / "tokenizer" / "tokenizer_config.json"
    kept = json.loads(path.read_text())
    assert (kept["truncation_side"], kept["max_tokens"], kept["model_max_length"]) == ("left", 9, 9)
