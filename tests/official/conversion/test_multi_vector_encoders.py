"""Folders of late interaction, of sentence-transformers and of PyLate: there, back, and refused."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

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


def test_a_folder_of_pylate(written, tmp_path):
    shutil.copytree(written[0], tmp_path / "pylate")
    modules = json.loads((tmp_path / "pylate" / "modules.json").read_text())[:2]
    for module, kind in zip(
        modules,
        ("sentence_transformers.models.Transformer", "pylate.models.Dense.Dense"),
        strict=True,
    ):
        module["type"] = kind
    settings = {
        "model_type": "ColBERT", "similarity_fn_name": "MaxSim", "query_prefix": "a dog ",
        "document_prefix": "the ", "query_length": 8, "document_length": 9,
        "attend_to_expansion_tokens": False, "do_query_expansion": True, "skiplist_words": ["."],
    }  # fmt: skip

    def write(**changes):
        for name, value in {
            "modules.json": modules,
            "config_sentence_transformers.json": settings | changes,
            "sentence_bert_config.json": {"max_seq_length": 12},
        }.items():
            (tmp_path / "pylate" / name).write_text(json.dumps(value))
        return huggingface.read(tmp_path / "pylate").config.objectives[0]

    found = write()
    assert (found.expansion, found.mean, found.skipped_words) == (Expansion(8), False, (".",))
    assert (found.query_prefix, found.document_length, found.size) == ("a dog ", 9, 5)
    found = write(do_query_expansion=False, attend_to_expansion_tokens=True)
    assert (found.expansion, found.query_length) == (None, 8)


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
