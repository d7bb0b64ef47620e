"""Folders of CrossEncoder: what is read as a ranker, what is written, and what is refused."""

import json

import numpy as np
import pytest
import safetensors.numpy

import official
from official.config.encoders import TransformerConfig
from official.config.heads import ClassificationConfig, RankingConfig
from official.conversion import converted_model, huggingface
from official.utils.errors import UserError
from tests import commands
from tests.official.conversion.test_convert_heads import BERT, ENCODERS, SIZES, make

IDENTITY = "torch.nn.modules.linear.Identity"
SIGMOID = "torch.nn.modules.activation.Sigmoid"
MODULE = "sentence_transformers.base.modules.transformer.Transformer"
SETTINGS, LENGTHS = "config_sentence_transformers.json", "sentence_bert_config.json"
CARDS = ("modules.json", SETTINGS, LENGTHS, "README.md")
TEXTS = ["the cats", "a dog", "the", ""]


def written(tmp_path, objective, encoder=BERT, kind="bert"):
    """The folder that a model folder with random weights is written as."""
    make(tmp_path / "model", encoder, objective, kind)
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    return tmp_path / "out"


def change(file, **keys):
    content = {**json.loads(file.read_text()), **keys}
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def bare(folder, *removed):
    """Removes the files of sentence-transformers, and what config.json says of a ranker."""
    for name in removed or CARDS:
        (folder / name).unlink()
    change(folder / "config.json", sentence_transformers=None)


def found(folder):
    """The type of the objective, and what it gives."""
    (objective,) = huggingface.read(folder).config.objectives
    return objective.type, getattr(objective, "output", None)


def test_the_files_of_a_ranker(tmp_path):
    folder = written(tmp_path, RankingConfig(output="sigmoid", prompt="find: ", dropout=0.2))
    read = {name: (folder / name).read_text() for name in (*CARDS, "config.json")}
    assert json.loads(read["modules.json"]) == [{"idx": 0, "name": "0", "path": "", "type": MODULE}]
    assert json.loads(read[SETTINGS]) == {
        "activation_fn": SIGMOID,
        "default_prompt_name": "query",
        "model_type": "CrossEncoder",
        "prompts": {"query": "find: "},
    }
    assert list(json.loads(read[SETTINGS])) == sorted(json.loads(read[SETTINGS]))
    assert json.loads(read[LENGTHS]) == {
        "transformer_task": "sequence-classification",
        "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
        "module_output_name": "scores",
    }
    assert read["README.md"].startswith(
        "---\ntags:\n- sentence-transformers\n- cross-encoder\n- reranker\n"
        "pipeline_tag: text-ranking\nlibrary_name: sentence-transformers\n---\n\n# x\n"
    )
    described = json.loads(read["config.json"])
    assert described["architectures"] == ["BertForSequenceClassification"]
    assert described["id2label"] == {"0": "LABEL_0"} and described["classifier_dropout"] == 0.2
    assert described["sentence_transformers"] == {"activation_fn": SIGMOID}
    lengths = json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"]
    assert lengths == 13 == huggingface.read(folder).tokenizer.max_tokens
    assert huggingface.read(folder).config.objectives == (
        RankingConfig(output="sigmoid", prompt="find: ", dropout=0.2),
    )


def test_what_says_that_one_label_is_a_ranker(tmp_path):
    folder = written(tmp_path, RankingConfig())
    assert found(folder) == ("ranking", "logits")
    # The settings have no activation: those of config.json, or else the sigmoid.
    change(folder / SETTINGS, activation_fn=None)
    assert found(folder) == ("ranking", "logits")
    change(folder / "config.json", sentence_transformers=None)
    assert found(folder) == ("ranking", "sigmoid")
    # `torch.nn.Identity` is the same class under a shorter path.
    change(folder / SETTINGS, activation_fn="torch.nn.Identity")
    assert found(folder) == ("ranking", "logits")
    # Without modules.json: the settings, then README.md, then config.json.
    bare(folder, "modules.json", "README.md", LENGTHS)
    assert found(folder) == ("ranking", "logits")
    (folder / SETTINGS).unlink()
    assert found(folder) == ("regression", None)
    card = "---\nlicense: mit\npipeline_tag: {}\n---\n\npipeline_tag: text-ranking\n"
    (folder / "README.md").write_text(card.format("text-classification"))
    assert found(folder) == ("regression", None)
    (folder / "README.md").write_text(card.format("text-ranking"))
    assert found(folder) == ("ranking", "sigmoid")
    (folder / "README.md").unlink()
    change(folder / "config.json", sbert_ce_default_activation_function=IDENTITY)
    assert found(folder) == ("ranking", "logits")
    change(folder / "config.json", sentence_transformers={"activation_fn": SIGMOID})
    assert found(folder) == ("ranking", "sigmoid")


def test_the_length_is_that_of_the_files(tmp_path):
    encoder = ENCODERS["roberta"]
    folder = written(tmp_path, RankingConfig(), encoder, "roberta")
    assert official.load(folder).max_length == encoder.max_positions == 11
    change(folder / LENGTHS, max_seq_length=9)
    assert official.load(folder).max_length == 9
    converted_model.write(huggingface.read(folder), tmp_path / "again")
    assert official.load(tmp_path / "again").max_length == 9
    # config.json counts two positions that no token has: without a length, 13 is not 13.
    change(folder / LENGTHS, max_seq_length=None)
    for name in ("tokenizer_config.json", "tokenizer.json"):
        content = json.loads((folder / name).read_text())
        kept = {k: v for k, v in content.items() if k not in ("model_max_length", "max_tokens")}
        (folder / name).write_text(json.dumps(kept))
    change(folder / "tokenizer_config.json", fingerprint=None)
    assert json.loads((folder / "config.json").read_text())["max_position_embeddings"] == 13
    assert official.load(folder).max_length == 11


def test_scores_have_the_activation_once(tmp_path):
    folder = written(tmp_path, RankingConfig(output="sigmoid"))
    model = official.load(folder)
    raw = model.rank("the dog", TEXTS, raw=True)
    np.testing.assert_allclose(model.rank("the dog", TEXTS), 1 / (1 + np.exp(-raw)), rtol=1e-6)
    change(folder / SETTINGS, activation_fn=IDENTITY)
    np.testing.assert_array_equal(official.load(folder).rank("the dog", TEXTS), raw)
    assert np.ptp(raw) > 0.1


def test_old_names_of_norms_are_read(tmp_path):
    folder = written(tmp_path, RankingConfig())
    right = huggingface.read(folder).variables
    file = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    for new, old in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
        assert any(new in name for name in tensors)
        tensors = {name.replace(new, old): tensor for name, tensor in tensors.items()}
    safetensors.numpy.save_file(tensors, file, metadata={"format": "pt"})
    again = huggingface.read(folder)
    assert again.variables.keys() == right.keys() and not again.leftover
    for path, array in right.items():
        np.testing.assert_array_equal(again.variables[path], array, err_msg=path)


def test_several_labels_are_classified_and_not_ranked(tmp_path):
    classes = ClassificationConfig(labels=("no", "yes", "maybe"))
    folder = written(tmp_path, classes)
    modules = [{"idx": 0, "name": "0", "path": "", "type": MODULE}]
    (folder / "modules.json").write_text(json.dumps(modules))
    settings = {"model_type": "CrossEncoder", "activation_fn": IDENTITY}
    (folder / SETTINGS).write_text(json.dumps(settings))
    converted = huggingface.read(folder)
    assert converted.config.objectives == (classes,)
    assert any("see classify" in note for note in converted.notes)
    with pytest.raises(UserError, match="rank: this model has no objective ranking .* classify"):
        official.load(folder).rank("the dog", TEXTS)
    # Labels with a sigmoid each; the activation that no objective has is refused.
    change(folder / SETTINGS, activation_fn=SIGMOID)
    change(folder / "config.json", problem_type=None)
    assert huggingface.read(folder).config.objectives[0].type == "multi_label"
    change(folder / SETTINGS, activation_fn="torch.nn.modules.activation.Tanh")
    with pytest.raises(UserError, match="activation_fn: .*Tanh' is not supported for several"):
        huggingface.read(folder)


def test_what_is_not_supported(tmp_path):
    folder = written(tmp_path, RankingConfig())
    module = json.loads((folder / "modules.json").read_text())[0]
    kept = {name: (folder / name).read_text() for name in (*CARDS, "config.json")}
    for file, keys, message in (
        (SETTINGS, {"activation_fn": "torch.nn.modules.activation.Tanh"},
         "activation_fn: 'torch.*Tanh' is not supported, only torch.*Identity or torch.*Sigmoid"),
        (SETTINGS, {"activation_fn": "mine.Activation"}, "activation_fn: 'mine.Activation'"),
        (SETTINGS, {"activation_fn": ["x"]}, r"activation_fn: \['x'\]: expected the path"),
        (SETTINGS, {"prompts": [1]}, "prompts"),
        (SETTINGS, {"model_type": "Reader"}, "model_type: 'Reader': known are CrossEncoder, "),
        (SETTINGS, {"model_type": None}, "modules are Transformer: Transformer, Pooling"),
        (LENGTHS, {"transformer_task": "fill-mask"}, "'fill-mask', but that of a CrossEncoder is"),
        (LENGTHS, {"query_length": 3}, "query_length"),
        ("config.json", {"sentence_transformers": 3}, None),
        ("config.json", {"id2label": 3}, "id2label"),
    ):  # fmt: skip
        for name, text in kept.items():
            (folder / name).write_text(text)
        change(folder / file, **keys)
        if message is None:  # the settings come first
            assert found(folder) == ("ranking", "logits")
            change(folder / SETTINGS, activation_fn=None)
            message = "config.json: sentence_transformers: 3: expected an object"
        with pytest.raises(UserError, match=message):
            huggingface.read(folder)
    for name, text in kept.items():
        (folder / name).write_text(text)
    dense = {"idx": 1, "name": "1", "path": "1_Dense", "type": "sentence_transformers.Dense"}
    for listed, message in (
        ([module, dense], "modules are Transformer, Dense: a Transformer alone are supported"),
        ([], "modules.json: there are no modules in it"),
    ):
        (folder / "modules.json").write_text(json.dumps(listed))
        with pytest.raises(UserError, match=message):
            huggingface.read(folder)


@pytest.mark.parametrize(
    "kind, encoder, objective, message",
    [
        ("electra", {"embedding_size": 10, "pooler": False}, {"pooling": "first"},
         "objectives: ranking.pooling: an ELECTRA of transformers has 'pooled', not 'first'"),
        ("bert", {}, {"pooling": "mean"}, "ranking.pooling: a BERT of transformers has 'pooled'"),
        ("bert", {}, {"transform": True}, "ranking.transform: a BERT of transformers has false"),
        ("bert", {}, {"bilstm": 4}, "ranking.bilstm: a BERT of transformers does not have it"),
    ],
)  # fmt: skip
def test_heads_that_transformers_lacks_are_not_written(tmp_path, kind, encoder, objective, message):
    encoder = TransformerConfig(**SIZES, **encoder)
    make(tmp_path / "model", encoder, RankingConfig(**objective), kind)
    with pytest.raises(UserError, match=message):
        huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    assert not (tmp_path / "out").exists()


def test_a_prompt_that_nobody_names_is_reported(tmp_path):
    folder = written(tmp_path, RankingConfig(prompt="find: "))
    change(folder / SETTINGS, default_prompt_name=None)
    converted = huggingface.read(folder)
    assert converted.config.objectives[0].prompt == ""
    assert any("only taken if named are left out: query" in note for note in converted.notes)
    change(folder / SETTINGS, default_prompt_name="query")
    asked = official.load(folder)
    change(folder / SETTINGS, default_prompt_name=None, prompts={})
    model = official.load(folder)
    prompted = model.rank("find: dog", TEXTS)
    np.testing.assert_allclose(asked.rank("dog", TEXTS), prompted, rtol=1e-6)
    assert np.abs(model.rank("dog", TEXTS) - prompted).max() > 1e-3


@pytest.mark.slow
def test_commands(tmp_path):
    folder = written(tmp_path, RankingConfig(output="sigmoid"))
    options = [f"--input={folder}", f"--output={tmp_path}/again"]
    done = commands.run("official.convert", "--source=hf", *options, status=0)
    assert "length      : 13" in done.stdout or "length: 13" in done.stdout
    options = ["--target=hf", f"--input={tmp_path}/again", f"--output={tmp_path}/back"]
    commands.run("official.convert", *options, status=0)
    for name in (*CARDS[:3], "config.json", "model.safetensors"):
        assert (tmp_path / "back" / name).read_bytes() == (folder / name).read_bytes(), name
