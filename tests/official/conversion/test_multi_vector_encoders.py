"""Folders of late interaction, of sentence-transformers and of PyLate: there, back, and refused."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

import official
from official import config as configs
from official.config.late_interaction import Expansion, LateInteractionConfig
from official.conversion import huggingface
from official.saving import model_folder
from official.utils.errors import UserError
from tests import GOLDEN

OBJECTIVE = LateInteractionConfig(
    size=5, query_prefix="a dog ", document_prefix="the ", document_length=9, mean=True,
    expansion=Expansion(8, "min", attend=True, token="cat"), skipped_words=(".", "mat"), weight=0.0,
)  # fmt: skip
# What PyLate has settings of: each prefix is a piece of the vocabulary.
PYLATE = LateInteractionConfig(
    size=5, query_prefix="?", document_prefix="!", query_length=8, document_length=9,
    expansion=Expansion(8), skipped_words=(".", "mat"), weight=0.0,
)  # fmt: skip
TEXTS = ["The cat sat on a mat.", "dog " * 30, "a cat and a dog"]


def model(folder, objective=OBJECTIVE):
    """A model folder with random weights of the projection."""
    bare = huggingface.read(GOLDEN / "hf_files" / "bare")
    objective = objective.for_tokenizer(bare.tokenizer)
    config = configs.ResolvedConfig.of(bare.config, objectives=(objective,))
    variables = dict(bare.variables)
    if objective.size is not None:
        draw = np.random.default_rng(1).normal(0, 0.5, (12, objective.size)).astype(np.float32)
        variables["late_interaction/projection/kernel"] = draw
    model_folder.write_new(config, bare.tokenizer, variables, folder)
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder of sentence-transformers, and the vectors of the model that it was written from."""
    parent = tmp_path_factory.mktemp("late")
    huggingface.write(model(parent / "model"), parent / "theirs", "last")
    loaded = official.load(parent / "model")
    return parent / "theirs", [loaded.token_vectors(TEXTS, k) for k in ("query", "document")]


def test_a_folder_is_read_as_it_was_written(written):
    folder, expected = written
    converted = huggingface.read(folder)
    (found,) = converted.config.objectives
    assert dataclasses.replace(found, ids=None) == OBJECTIVE
    assert (
        converted.tokenizer.max_tokens
        == huggingface.read(GOLDEN / "hf_files" / "bare").tokenizer.max_tokens
    )
    modules = json.loads((folder / "modules.json").read_text())
    assert [each["path"] for each in modules] == [
        "", "1_Dense", "2_MultiVectorMask", "3_Normalize"
    ]  # fmt: skip
    loaded = official.load(folder)
    for kind, right in zip(("query", "document"), expected, strict=True):
        for one, other in zip(loaded.token_vectors(TEXTS, kind), right, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_model_without_a_projection_or_an_expansion(tmp_path):
    bare = LateInteractionConfig(size=None, query_length=6, weight=0.0)
    huggingface.write(model(tmp_path / "model", bare), tmp_path / "theirs", "last")
    (found,) = huggingface.read(tmp_path / "theirs").config.objectives
    assert dataclasses.replace(found, ids=None) == bare
    assert not (tmp_path / "theirs" / "1_Dense").exists()
    assert len(official.load(tmp_path / "theirs").token_vectors(TEXTS, "query")[0]) == 6


@pytest.mark.parametrize(
    ("changes", "read"),
    [
        ({}, {}),
        ({"expansion": Expansion(8, attend=True)}, {}),
        ({"expansion": Expansion(8, token="[MASK]")}, {"expansion": Expansion(8)}),
        ({"expansion": None}, {}),
        # PyLate has a length for each kind of text: here it is that of the model.
        (
            {"expansion": None, "query_length": None, "document_length": None},
            {"query_length": 24, "document_length": 24},
        ),
        ({"query_prefix": "", "document_prefix": ""}, {}),
        # PyLate takes words that are no pieces for unknown text.
        ({"skipped_words": (".", "~")}, {"skipped_words": (".",)}),
    ],
)
def test_a_model_in_the_form_of_pylate(tmp_path, changes, read):
    objective = dataclasses.replace(PYLATE, **changes)
    huggingface.write(model(tmp_path / "model", objective), tmp_path / "theirs", "last")
    modules = json.loads((tmp_path / "theirs" / "modules.json").read_text())
    assert [(each["path"], each["type"]) for each in modules] == [
        ("", "sentence_transformers.models.Transformer"), ("1_Dense", "pylate.models.Dense.Dense")
    ]  # fmt: skip
    (found,) = huggingface.read(tmp_path / "theirs").config.objectives
    assert dataclasses.replace(found, ids=None) == dataclasses.replace(objective, **read)


def test_the_form_of_pylate_keeps_the_vectors(tmp_path):
    huggingface.write(model(tmp_path / "model", PYLATE), tmp_path / "theirs", "last")
    ours, back = (official.load(tmp_path / name) for name in ("model", "theirs"))
    for kind in ("query", "document"):
        for one, other in zip(
            ours.token_vectors(TEXTS, kind), back.token_vectors(TEXTS, kind), strict=True
        ):
            np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": None},
        {"mean": True},
        {"query_prefix": "a dog "},
        {"document_prefix": "the "},  # one token, whose piece has no blank
        {"expansion": Expansion(8, "min")},
        {"expansion": Expansion(8, token="cat")},
    ],
)
def test_a_model_that_pylate_has_no_settings_for(tmp_path, changes):
    objective = dataclasses.replace(PYLATE, **changes)
    huggingface.write(model(tmp_path / "model", objective), tmp_path / "theirs", "last")
    settings = json.loads((tmp_path / "theirs" / "config_sentence_transformers.json").read_text())
    assert settings["model_type"] == "MultiVectorEncoder"
    (found,) = huggingface.read(tmp_path / "theirs").config.objectives
    assert dataclasses.replace(found, ids=None) == objective


def test_settings_of_pylate(tmp_path):
    huggingface.write(model(tmp_path / "model", PYLATE), tmp_path / "theirs", "last")

    def read(file, **changes):
        path = tmp_path / "theirs" / file
        before = path.read_text()
        given = json.loads(before) | changes
        given.pop("fingerprint", None)
        path.write_text(json.dumps(given))
        converted = huggingface.read(tmp_path / "theirs")
        path.write_text(before)
        return converted

    settings = "config_sentence_transformers.json"
    found = read(settings, skiplist_words=["~", ".", "a dog"]).config.objectives[0]
    assert (found.skipped_words, found.ids.skipped) == ((".", "[UNK]"), (20, 1))
    found = read(settings, do_query_expansion=False, attend_to_expansion_tokens=True)
    assert found.config.objectives[0].expansion is None
    # It is the length of the last text that was cut, and a text of `query_length` is longer.
    assert read("sentence_bert_config.json", max_seq_length=7).tokenizer.max_tokens == 24
    # PyLate pads with the mask token, and config.json says what the model was trained with.
    tokenizer = read("tokenizer_config.json", pad_token="[MASK]").tokenizer
    assert (tokenizer.pad_id, tokenizer.mask_id, tokenizer.special_ids[0]) == (0, 4, 0)
    with pytest.raises(UserError, match="skiplist_words: expected"):
        read(settings, skiplist_words=".")


def test_a_checkpoint_of_stanford(tmp_path):
    huggingface.write(model(tmp_path / "model", PYLATE), tmp_path / "theirs", "last")
    right, folder = huggingface.read(tmp_path / "theirs"), tmp_path / "stanford"
    ignored = shutil.ignore_patterns("modules.json", "*sentence*", "1_Dense")
    shutil.copytree(tmp_path / "theirs", folder, ignore=ignored)
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    (folder / "config.json").write_text(json.dumps(config))
    metadata = {
        "query_token_id": "##s", "doc_token_id": "!", "query_maxlen": 8, "doc_maxlen": 9,
        "attend_to_mask_tokens": True,
    }  # fmt: skip
    (folder / "artifact.metadata").write_text(json.dumps(metadata))
    with pytest.raises(UserError, match="linear.weight: missing"):
        huggingface.read(folder)
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    tensors = {f"bert.{name.removeprefix('bert.')}": each for name, each in tensors.items()}
    tensors |= safetensors.numpy.load_file(tmp_path / "theirs/1_Dense/model.safetensors")
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    converted = huggingface.read(folder)
    assert converted.variables.keys() == right.variables.keys()
    for path, value in right.variables.items():
        np.testing.assert_array_equal(converted.variables[path], value, err_msg=path)
    (found,) = converted.config.objectives
    assert (found.expansion, found.document_length) == (Expansion(8, attend=True), 9)
    # The marker of queries is a piece, which the tokenizer does not find in a text.
    pieces = converted.tokenizer.pieces
    assert [pieces[i] for i in found.ids.query_prefix] == ["##s"]
    assert [pieces[i] for i in found.ids.skipped] == ["!", ",", ".", "?", "[UNK]"]
    (folder / "artifact.metadata").write_text(json.dumps({**metadata, "mask_punctuation": False}))
    assert huggingface.read(folder).config.objectives[0].ids.skipped == ()


def test_a_marker_that_sentence_transformers_would_split(tmp_path):
    objective = dataclasses.replace(PYLATE, query_prefix="##s", mean=True)
    with pytest.raises(UserError, match="each is a token here"):
        huggingface.write(model(tmp_path / "model", objective), tmp_path / "theirs", "last")


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("1_Dense/config.json", {"bias": True}, "linear.bias: missing"),
        (
            "1_Dense/config.json",
            {"activation_function": "torch.nn.modules.activation.Tanh"},
            "a projection of tokens has no bias and no activation here",
        ),
        ("1_Dense/config.json", {"use_residual": True}, "use_residual: a layer with a residual"),
        (
            "2_MultiVectorMask/config.json",
            {"skiplist_tasks": ["query"]},
            "skiplist_tasks: .'query'.: only those of documents",
        ),
        ("2_MultiVectorMask/config.json", {"keep_only_token_ids": [3]}, "keep_only_token_ids: not"),
        (
            "3_Normalize/config.json",
            {"module_input_name": "sentence_embedding"},
            "module_input_name: 'sentence_embedding': expected 'token_embeddings'",
        ),
        (
            "config_sentence_transformers.json",
            {"similarity_fn_name": "cosine"},
            "similarity_fn_name: 'cosine' is not one of maxsim, meanmaxsim",
        ),
        (
            "sentence_bert_config.json",
            {"query_expansion": {"strategy": "min", "length": 8, "token": "nothing"}},
            "expansion.token: 'nothing' is no piece",
        ),
        (
            "sentence_bert_config.json",
            {"query_expansion": {"strategy": "most", "length": 8}},
            "form: 'most' is not one of fixed, min",
        ),
        (
            "tokenizer_config.json",
            {"padding_side": "left"},
            "not supported with padding_side: left",
        ),
    ],
)
def test_what_is_refused(written, tmp_path, file, changes, message):
    shutil.copytree(written[0], tmp_path / "theirs")
    path = tmp_path / "theirs" / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=message):
        huggingface.read(tmp_path / "theirs")
