"""RoBERTa, ALBERT, ELECTRA, DistilBERT and GPT-2, against stored answers of transformers."""

import json

import numpy as np
import pytest
import safetensors.numpy
import sentencepiece

from official import config as configs
from official.config.distillation import DistillationConfig
from official.config.encoders import TransformerConfig
from official.config.heads import ClassificationConfig, RegressionConfig
from official.config.objectives import CausalLMConfig, GeneratorConfig, MaskedLMConfig
from official.conversion import bert, converted_model, huggingface
from official.saving import model_folder
from official.utils.errors import UserError
from tests.official.conversion import systems

CASES = sorted(path.stem for path in (systems.GOLDEN / "systems").glob("*.npz"))
# Of an ERNIE with embeddings of tasks, other files are written.
WRITTEN = [name for name in CASES if name != "ernie_bare"]


def converted(tmp_path, name):
    config, parts, hidden_states = systems.load(name)
    folder = systems.write(tmp_path / name, config, parts["weight"])
    read_back = huggingface.read(folder)
    converted_model.write(read_back, tmp_path / "model")
    return read_back, parts, hidden_states


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_those_of_transformers(tmp_path, name):
    result, parts, hidden_states = converted(tmp_path, name)
    assert result.leftover == []
    model = model_folder.restore(tmp_path / "model")[2]
    real = parts["batch"]["padding_mask"]
    assert not real[0, -1] and not real[1, 0] and real[2].all()
    assert systems.compare(model, parts, hidden_states) == {}


@pytest.mark.parametrize("name", WRITTEN)
def test_out_again_gives_the_same_files(tmp_path, name):
    converted(tmp_path, name)
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    config, parts, _ = systems.load(name)
    written = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    assert written.keys() == parts["weight"].keys()
    for key, array in parts["weight"].items():
        assert written[key].tobytes() == array.tobytes(), key
        assert written[key].shape == array.shape
    after = json.loads((tmp_path / "out" / "config.json").read_text())
    after.pop("problem_type", None)
    # The ids of the first and last token are those of the vocabulary beside the model.
    known = {key: value for key, value in config.items() if key in after and "os_token" not in key}
    assert {key: after[key] for key in known} == known
    assert len(known) >= 13


def test_every_system_has_its_cases():
    others = {"bert", "t5", "xlnet", "transfo-xl"}  # They have tests of their own.
    assert {name.split("_")[0] for name in CASES} | others == set(huggingface.SYSTEMS)
    assert len(CASES) == 40


def test_a_roberta_has_positions_after_the_padding_token(tmp_path):
    result, _, _ = converted(tmp_path, "roberta_classification")
    encoder = result.config.encoder
    assert (encoder.position_offset, encoder.max_positions, encoder.segment_types) == (2, 11, 1)
    assert (encoder.norm_epsilon, encoder.activation) == (1e-5, "gelu_tanh")
    assert result.config.objectives == (
        ClassificationConfig(labels=("no", "yes", "maybe"), dropout=0.2),
    )
    # The hidden layer of its head is our pooler.
    np.testing.assert_array_equal(
        result.variables["encoder/pooler/bias"],
        systems.load("roberta_classification")[1]["weight"]["classifier.dense.bias"],
    )
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    ids = [written[f"{token}_token_id"] for token in ("bos", "pad", "eos")]
    assert ids == [0, 1, 2]
    assert written["max_position_embeddings"] == 13


def test_an_ernie_has_the_embedding_of_task_0_in_its_positions(tmp_path):
    result, parts, _ = converted(tmp_path, "ernie_bare")
    weights = parts["weight"]
    rows = weights["embeddings.position_embeddings.weight"]
    rows = rows + weights["embeddings.task_type_embeddings.weight"][0]
    np.testing.assert_array_equal(
        result.variables["encoder/embeddings/position_embedding/table"], rows
    )
    assert any("embedding of task 0 is added" in note for note in result.notes)
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    described = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (described["model_type"], described["use_task_id"]) == ("ernie", False)
    assert described["architectures"] == ["ErnieModel"]
    written = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    del weights["embeddings.task_type_embeddings.weight"]
    weights["embeddings.position_embeddings.weight"] = rows
    assert written.keys() == weights.keys()
    assert all((written[key] == array).all() for key, array in weights.items())


def test_numbers_of_labels_without_names():
    def labels(**config):
        (objective,) = bert.BERT.objectives(("classification",), config, "config.json")
        return objective.labels

    assert labels(num_labels=3) == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert labels(num_labels=3, id2label={"0": "a", "1": "b"}) == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert labels(num_labels=2, id2label={"0": "a", "1": "b"}) == ("a", "b")
    assert labels() == ("LABEL_0", "LABEL_1")
    with pytest.raises(UserError, match=r"config.json: num_labels: 'x' is not a number of labels"):
        labels(num_labels="x")


@pytest.mark.parametrize("name", ["xlm-roberta_classification", "camembert_masked_lm"])
def test_a_sentencepiece_model_of_fairseq(tmp_path, name):
    """transformers computes the ids: one more than the model's, or four; <unk> is 3."""
    config, parts, _ = systems.load(name)
    folder = systems.write(tmp_path / "source", config, parts["weight"])
    (folder / "spiece.model").unlink()
    ids = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1, "control_symbols": []}
    model = systems.sentencepiece_model(**ids)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    tokenizer = huggingface.read(folder).tokenizer
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    offset = 4 if name.startswith("camembert") else 1
    text = "the cat sat on Ω mat"
    expected = [number + offset if number else 3 for number in theirs.encode(text)]
    assert 3 in expected and tokenizer.encode([text])[0].tolist() == expected
    first = 5 if name.startswith("camembert") else 0
    end = 6 if name.startswith("camembert") else 2
    assert (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id) == (first, 1, end)
    assert tokenizer.mask_id == len(theirs) + offset == tokenizer.vocab_size - 1
    assert tokenizer.pair_separators == 2
    size = tokenizer.vocab_size
    (folder / "added_tokens.json").write_text(json.dumps({"[E1]": size}))
    system = huggingface.SYSTEMS[name.partition("_")[0]]
    marked = converted_model.tokenizer_of(folder, size + 1, "config.json", system)
    assert marked.encode(["the [E1] cat"])[0].tolist().count(size) == 1
    (folder / "sentencepiece.bpe.model").write_bytes(systems.sentencepiece_model())
    with pytest.raises(UserError, match=r"bpe.model does not begin with <unk>, <s> and </s>"):
        huggingface.read(folder)


def small(**changes):
    fields = {"vocab_size": 40, "hidden_size": 6, "num_heads": 2, "max_positions": 9}
    return TransformerConfig(**{**fields, "activation": "gelu", **changes})


@pytest.mark.parametrize(
    ("encoder", "objectives", "title"),
    [
        (small(), (), "a BERT"),
        (small(pooler=False), (MaskedLMConfig(),), "a BERT"),
        (small(pooler=False), (), "an ELECTRA"),
        (small(embedding_size=6), (), "a BERT"),
        (small(embedding_size=4), (), "an ELECTRA"),
        (small(), (GeneratorConfig(size=0.5), MaskedLMConfig()), "an ELECTRA"),
        (small(family="ernie"), (), "an ERNIE"),
        (small(segment_types=0, pooler=False), (), "a DistilBERT"),
        (small(position_offset=2), (), "a RoBERTa"),
        (small(layer_groups=1), (MaskedLMConfig(),), "an ALBERT"),
        (small(causal=True), (CausalLMConfig(),), "a GPT-2"),
    ],
)
def test_a_model_is_written_as_the_system_with_room_for_it(encoder, objectives, title):
    config = configs.Config(name="x", encoder=encoder, objectives=objectives)
    assert huggingface.system_of(config).title == title


@pytest.mark.parametrize(
    ("encoder", "objectives", "pad_id", "message"),
    [
        (
            small(position_offset=2),
            (),
            0,
            "encoder.position_offset: a RoBERTa has 1, not 2",
        ),
        (small(position_offset=2, layer_groups=1), (), 0, "an ALBERT has 0, not 2"),
        (
            small(layer_groups=1),
            (),
            0,
            r"encoder.embedding_size: 6 is the hidden size: an ALBERT of transformers has a proj",
        ),
        (
            small(position_offset=2, activation="relu"),
            (MaskedLMConfig(),),
            1,
            "activation: the masked_lm head of a RoBERTa always has 'gelu', not 'relu'",
        ),
        (
            small(pooler=False, embedding_size=4),
            (ClassificationConfig(labels=("a", "b"), pooling="first"),),
            0,
            "classification.pooling: an ELECTRA of transformers has 'pooled', not 'first'",
        ),
        (
            small(pooler=False),
            (RegressionConfig(pooling="first"),),
            0,
            "regression.pooling: a BERT of transformers has 'pooled', not 'first'",
        ),
        (
            small(causal=True, segment_types=0, norm="pre", pooler=False),
            (CausalLMConfig(direction="backward"),),
            0,
            "causal_lm.direction: a GPT-2 of transformers reads from left to right, not 'backward'",
        ),
        (small(causal=True), (), 0, "encoder.norm: a GPT-2 has 'pre', not 'post'"),
        (
            small(segment_types=0, norm_epsilon=1e-5),
            (),
            0,
            "encoder.norm_epsilon: a DistilBERT has 1e-12, not 1e-05",
        ),
        (
            small(segment_types=0),
            (),
            0,
            "encoder.pooler: a DistilBERT of transformers has none without the head of a task",
        ),
        (
            small(causal=True, norm="pre"),
            (CausalLMConfig(),),
            0,
            "encoder.segment_types: a GPT-2 has 0, not 2",
        ),
    ],
)
def test_what_no_class_of_transformers_has_is_refused(encoder, objectives, pad_id, message):
    config = configs.Config(name="x", encoder=encoder, objectives=objectives)
    heads = [objective.type for objective in objectives]
    with pytest.raises(UserError, match=message):
        huggingface.system_of(config).huggingface_config(config, heads, pad_id)


def test_albert_configs_become_ours(tmp_path):
    result, _, _ = converted(tmp_path, "albert_pretraining")
    encoder = result.config.encoder
    assert (encoder.layer_groups, encoder.inner_layers, encoder.num_layers) == (2, 2, 4)
    assert (encoder.embedding_size, encoder.hidden_size) == (7, 15)
    assert encoder.activation == "gelu_tanh"
    assert [objective.name for objective in model_folder.build(result.config).objectives] == [
        "masked_lm",
        "sentence_order",
    ]
    assert result.config.segments.relation == "sentence_order"
    assert result.tokenizer.encode(["the cat"])[0].tolist() != []


def test_distilbert_comes_without_segments_and_pooler(tmp_path):
    result, _, _ = converted(tmp_path, "distilbert_bare")
    encoder = result.config.encoder
    assert (encoder.segment_types, encoder.pooler, encoder.activation) == (0, False, "relu")


def test_a_distilbert_classifier_has_a_pooler_with_a_relu(tmp_path):
    config, parts, _ = systems.load("distilbert_bare")
    weights = {f"distilbert.{name}": array for name, array in parts["weight"].items()}
    rng = np.random.default_rng(0)
    for name, shape in (("pre_classifier", (15, 15)), ("classifier", (2, 15))):
        weights[f"{name}.weight"] = rng.normal(size=shape).astype(np.float32)
        weights[f"{name}.bias"] = rng.normal(size=shape[:1]).astype(np.float32)
    config |= {"architectures": ["DistilBertForSequenceClassification"]}
    folder = systems.write(tmp_path / "hf", config, weights)
    read_back = huggingface.read(folder)
    assert read_back.leftover == []
    labels = ("LABEL_0", "LABEL_1")
    assert read_back.config.objectives == (ClassificationConfig(labels=labels, dropout=0.2),)
    converted_model.write(read_back, tmp_path / "model")
    model = model_folder.restore(tmp_path / "model")[2]
    encoded = systems.run(model.encoder, parts["batch"])
    first = np.asarray(encoded["sequence_output"])[:, 0]
    hidden = np.maximum(
        first @ weights["pre_classifier.weight"].T + weights["pre_classifier.bias"], 0
    )
    expected = hidden @ weights["classifier.weight"].T + weights["classifier.bias"]
    np.testing.assert_allclose(model.objectives[0].logits(encoded), expected, **systems.CLOSE)


def test_tied_copies_and_old_constants_are_put_right(tmp_path):
    config, parts, _ = systems.load("albert_pretraining")
    old = dict(parts["weight"])
    old["predictions.decoder.weight"] = old["albert.embeddings.word_embeddings.weight"]
    old["predictions.decoder.bias"] = old.pop("predictions.bias")
    old["albert.embeddings.position_ids"] = np.arange(13)[None]
    read_back = huggingface.read(systems.write(tmp_path / "old", config, old))
    assert read_back.leftover == []
    expected = huggingface.read(systems.write(tmp_path / "new", config, parts["weight"]))
    for path, array in expected.variables.items():
        np.testing.assert_array_equal(read_back.variables[path], array)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "albert_bare",
            {"embedding_size": 15},
            r"config\.json: embedding_size: 15 is the hidden size: an ALBERT of transformers has "
            "a projection",
        ),
        ("albert_bare", {"num_hidden_groups": 3}, "layer_groups: 3 groups do not divide 4 layers"),
        (
            "albert_bare",
            {"inner_group_num": "2"},
            r"config\.json: inner_group_num: expected a whole number, got '2'",
        ),
        ("distilbert_bare", {"activation": "mish"}, "activation: 'mish' is not supported"),
        ("distilbert_bare", {"tie_weights_": False}, "tie_weights_: False is not supported"),
        (
            "gpt2_bare",
            {"embd_pdrop": 0.3},
            "embd_pdrop: 0.3 is not supported with resid_pdrop: 0.1: this encoder has one rate",
        ),
        (
            "gpt2_bare",
            {"scale_attn_by_inverse_layer_idx": True},
            "scale_attn_by_inverse_layer_idx: True is not supported, only False",
        ),
    ],
)
def test_what_our_encoder_has_not_is_refused(tmp_path, name, changes, message):
    config, parts, _ = systems.load(name)
    folder = systems.write(tmp_path / "hf", {**config, **changes}, parts["weight"])
    with pytest.raises(UserError, match=message):
        huggingface.read(folder)


def test_a_gpt2_comes_as_it_was_released(tmp_path):
    """Under the names of the bare encoder, with each layer's mask and the head's copy."""
    config, parts, hidden_states = systems.load("gpt2_causal_lm")
    old = {name.removeprefix("transformer."): a for name, a in parts["weight"].items()}
    assert not set(old) & set(parts["weight"])
    for i in range(3):
        old[f"h.{i}.attn.bias"] = np.tril(np.ones((1, 1, 13, 13), np.float32))
        old[f"h.{i}.attn.masked_bias"] = np.array(-1e4, np.float32)
    old["lm_head.weight"] = old["wte.weight"]
    read_back = huggingface.read(systems.write(tmp_path / "hf", config, old))
    assert read_back.leftover == []
    assert read_back.config.objectives == (CausalLMConfig(),)
    assert (read_back.config.segments.format, read_back.config.segments.max_length) == (
        "blocks",
        13,
    )
    encoder = read_back.config.encoder
    assert (encoder.norm, encoder.causal, encoder.activation) == ("pre", True, "gelu_tanh")
    assert (encoder.segment_types, encoder.intermediate_size, encoder.pooler) == (0, 22, False)
    converted_model.write(read_back, tmp_path / "model")
    model = model_folder.restore(tmp_path / "model")[2]
    assert systems.compare(model, parts, hidden_states) == {}


def test_a_gpt2_without_an_inner_size_has_four_times_the_hidden_one(tmp_path):
    result, _, _ = converted(tmp_path, "gpt2_bare")
    assert systems.load("gpt2_bare")[0]["n_inner"] is None
    assert result.config.encoder.intermediate_size == 60
    assert result.config.objectives == ()
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (written["n_inner"], written["embd_pdrop"], written["resid_pdrop"]) == (None, 0.1, 0.1)
    assert "position_embedding_type" not in written
    tokenizer = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert result.tokenizer.special_ids == (258,)
    assert [written[f"{t}_token_id"] for t in ("bos", "pad", "eos")] == [258] * 3


def test_a_missing_key_names_the_system(tmp_path):
    config, parts, _ = systems.load("albert_bare")
    del config["inner_group_num"]
    with pytest.raises(UserError, match="inner_group_num is missing: .* of an ALBERT model"):
        huggingface.read(systems.write(tmp_path / "hf", config, parts["weight"]))


def test_the_vocabulary_that_is_missing_is_named(tmp_path):
    config, parts, _ = systems.load("albert_bare")
    folder = systems.write(tmp_path / "hf", config, parts["weight"])
    (folder / "spiece.model").unlink()
    with pytest.raises(UserError, match=r"spiece\.model is missing: put the model's vocabulary"):
        huggingface.read(folder)


def test_a_student_is_written_without_what_its_teacher_was_needed_for():
    head = ClassificationConfig(labels=("no", "yes"))
    config = configs.Config("x", objectives=(head, DistillationConfig(logits=1.0)))
    assert huggingface.without_distillation(config).objectives == (head,)
