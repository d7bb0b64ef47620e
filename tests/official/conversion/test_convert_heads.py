"""Heads of tasks in the files of transformers: names, classes, and what is refused."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.config.encoders import TransformerConfig, TransformerXLConfig
from official.config.heads import (
    ClassificationConfig,
    MultipleChoiceConfig,
    RankingConfig,
    RegressionConfig,
    SpanAnswerConfig,
    TokenClassificationConfig,
)
from official.conversion import converted_model, electra, huggingface, tf1, xlnet
from official.saving import checkpoints, model_folder
from official.utils.errors import UserError
from tests.official.conversion import systems, xlnets
from tests.official.conversion.test_convert_xlnet import release

SIZES = {"vocab_size": 61, "hidden_size": 15, "num_layers": 2, "num_heads": 3}
SIZES |= {"intermediate_size": 22}
BERT = TransformerConfig(**SIZES, max_positions=13, activation="gelu")
ENCODERS = {
    "bert": BERT,
    "roberta": TransformerConfig(
        **{**SIZES, "vocab_size": 277}, max_positions=11, position_offset=2, segment_types=1
    ),
    "albert": TransformerConfig(**SIZES, embedding_size=7, layer_groups=1),
    "electra": TransformerConfig(**SIZES, embedding_size=10, pooler_activation="gelu"),
    "xlnet": TransformerXLConfig(**{**SIZES, "hidden_size": 18}, pooler=True),
}
CHOICE = MultipleChoiceConfig(dropout=0.3)
SPAN = SpanAnswerConfig()
BEAM = SpanAnswerConfig(form="conditional", start_beam=3, end_beam=2)
TAGS = TokenClassificationConfig(labels=("O", "B-X", "I-X"), dropout=0.3)
CLASSES = ClassificationConfig(labels=("no", "yes", "maybe"), dropout=0.3)
RANKS = RankingConfig(dropout=0.3, output="sigmoid")

_TAGGER = "token_classification/output"
# System, objective, class, and one tensor with our variable that it is, transposed.
CASES = [
    ("bert", CHOICE, "BertForMultipleChoice", "classifier.weight", "multiple_choice/output"),
    ("bert", SPAN, "BertForQuestionAnswering", "qa_outputs.weight", "span_answer/output"),
    (
        "roberta",
        CHOICE,
        "RobertaForMultipleChoice",
        "roberta.pooler.dense.weight",
        "encoder/pooler",
    ),
    ("roberta", CHOICE, "RobertaForMultipleChoice", "classifier.weight", "multiple_choice/output"),
    ("roberta", SPAN, "RobertaForQuestionAnswering", "qa_outputs.weight", "span_answer/output"),
    ("albert", CHOICE, "AlbertForMultipleChoice", "albert.pooler.weight", "encoder/pooler"),
    ("albert", SPAN, "AlbertForQuestionAnswering", "qa_outputs.weight", "span_answer/output"),
    (
        "electra",
        CHOICE,
        "ElectraForMultipleChoice",
        "sequence_summary.summary.weight",
        "encoder/pooler",
    ),
    ("electra", SPAN, "ElectraForQuestionAnswering", "qa_outputs.weight", "span_answer/output"),
    (
        "electra",
        CLASSES,
        "ElectraForSequenceClassification",
        "classifier.dense.weight",
        "encoder/pooler",
    ),
    (
        "electra",
        RegressionConfig(),
        "ElectraForSequenceClassification",
        "classifier.out_proj.weight",
        "regression/output",
    ),
    (
        "xlnet",
        CHOICE,
        "XLNetForMultipleChoice",
        "sequence_summary.summary.weight",
        "encoder/pooler",
    ),
    ("xlnet", SPAN, "XLNetForQuestionAnsweringSimple", "qa_outputs.weight", "span_answer/output"),
    (
        "xlnet",
        BEAM,
        "XLNetForQuestionAnswering",
        "end_logits.dense_0.weight",
        "span_answer/end_hidden",
    ),
    (
        "xlnet",
        BEAM,
        "XLNetForQuestionAnswering",
        "answer_class.dense_1.weight",
        "span_answer/answerable",
    ),
    *(
        (system, RANKS, f"{name}ForSequenceClassification", tensor, "ranking/output")
        for system, name, tensor in (
            ("bert", "Bert", "classifier.weight"),
            ("roberta", "Roberta", "classifier.out_proj.weight"),
            ("albert", "Albert", "classifier.weight"),
            ("electra", "Electra", "classifier.out_proj.weight"),
            ("xlnet", "XLNet", "logits_proj.weight"),
        )
    ),
    *(
        (system, TAGS, f"{name}ForTokenClassification", "classifier.weight", _TAGGER)
        for system, name in (
            ("bert", "Bert"),
            ("roberta", "Roberta"),
            ("albert", "Albert"),
            ("electra", "Electra"),
            ("xlnet", "XLNet"),
        )
    ),
]


def make(folder, encoder, objective, kind):
    """A model folder with random weights; returns them by path."""
    folder.mkdir()
    config = configs.Config(name="x", encoder=encoder, objectives=(objective,))
    configs.save(config, folder / "config.yaml")
    systems.write_vocabulary(folder, kind)
    tokenizers.load(folder).save(folder / "tokenizer")
    rng = np.random.default_rng(0)
    variables = {
        path: rng.standard_normal(variable.shape).astype(np.float32)
        for path, variable in model_folder.build(config).variables_by_path().items()
    }
    checkpoints.save(folder, 1, variables, {})
    return variables


@pytest.mark.parametrize(
    "kind, objective, name, tensor, path", CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_heads_are_written_and_read_again(tmp_path, kind, objective, name, tensor, path):
    variables = make(tmp_path / "model", ENCODERS[kind], objective, kind)
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    described = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (described["architectures"], described["model_type"]) == ([name], kind)
    written = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_array_equal(written[tensor], variables[f"{path}/kernel"].T)
    # No class for spans or tokens has a pooler, and none of ours reads it.
    unused = ("encoder/pooler/",) if objective in (SPAN, BEAM, TAGS) else ()
    own = kind in ("roberta", "electra") and "Sequence" in name  # the pooler is in the classifier
    assert any("pooler" in key or "summary" in key for key in written) == (not unused and not own)
    again = huggingface.read(tmp_path / "out")
    assert again.leftover == []
    assert again.config.encoder.pooler == (not unused)
    assert again.config.objectives == (objective,)
    expected = {p: array for p, array in variables.items() if not p.startswith(unused or "-")}
    assert again.variables.keys() == expected.keys()
    for p, array in expected.items():
        np.testing.assert_array_equal(again.variables[p], array, err_msg=p)


def test_beams_and_rates_are_in_the_config(tmp_path):
    make(tmp_path / "beam", ENCODERS["xlnet"], BEAM, "xlnet")
    make(tmp_path / "choice", ENCODERS["electra"], CHOICE, "electra")
    actual = {}
    for name in ("beam", "choice"):
        huggingface.write(tmp_path / name, tmp_path / f"{name}-out", "last")
        actual[name] = json.loads((tmp_path / f"{name}-out" / "config.json").read_text())
    assert (actual["beam"]["start_n_top"], actual["beam"]["end_n_top"]) == (3, 2)
    summary = {k: v for k, v in actual["choice"].items() if k.startswith("summary")}
    assert summary == {
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
        "summary_last_dropout": 0.3,
    }


def test_tags_are_the_labels_of_the_config(tmp_path):
    make(tmp_path / "model", BERT, TAGS, "bert")
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    described = json.loads((tmp_path / "out" / "config.json").read_text())
    assert described["id2label"] == {"0": "O", "1": "B-X", "2": "I-X"}
    assert described["label2id"] == {"O": 0, "B-X": 1, "I-X": 2}
    assert described["classifier_dropout"] == 0.3 and "problem_type" not in described


def test_an_electra_without_a_pooler_may_choose(tmp_path):
    encoder = TransformerConfig(**SIZES, pooler=False)
    objective = MultipleChoiceConfig(pooling="first")
    variables = make(tmp_path / "model", encoder, objective, "electra")
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    described = json.loads((tmp_path / "out" / "config.json").read_text())
    assert described["architectures"] == ["ElectraForMultipleChoice"]
    assert (described["summary_use_proj"], described["summary_activation"]) == (False, "")
    again = huggingface.read(tmp_path / "out")
    assert again.config.objectives == (objective,) and not again.config.encoder.pooler
    assert again.variables.keys() == variables.keys()


def test_the_class_tells_heads_of_one_name_apart():
    system, names = huggingface.SYSTEMS["bert"], ["classifier.weight", "classifier.bias"]

    def heads(*classes, **config):
        return system.heads_of(names, {"architectures": list(classes), **config})

    assert heads("BertForMultipleChoice") == ("multiple_choice",)
    assert heads("BertForMultipleChoice", id2label={"0": "x"}) == ("multiple_choice",)
    assert heads("BertForSequenceClassification") == ("classification",)
    assert heads("BertForSequenceClassification", id2label={"0": "x"}) == ("regression",)
    assert heads() == ("classification",)
    assert heads("BertForTokenClassification") == ("token_classification",)
    assert heads("BertForNextSentencePrediction") == ()
    names = ["qa_outputs.weight", "qa_outputs.bias"]
    assert heads() == heads("BertForQuestionAnswering") == ("span_answer",)


def test_a_pooler_that_an_old_file_of_spans_has_is_left_over(tmp_path):
    make(tmp_path / "model", BERT, SPAN, "bert")
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    file = tmp_path / "out" / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    tensors["bert.pooler.dense.bias"] = np.zeros(15, np.float32)
    safetensors.numpy.save_file(tensors, file, metadata={"format": "pt"})
    assert huggingface.read(tmp_path / "out").leftover == ["bert.pooler.dense.bias"]


@pytest.mark.parametrize(
    ("encoder", "objective", "message"),
    [
        (
            TransformerConfig(**SIZES, embedding_size=10),
            CLASSES,
            "pooler_activation: an ELECTRA of transformers has 'gelu' with classification, not 't",
        ),
        (
            TransformerConfig(**SIZES, position_offset=1, pooler_activation="relu"),
            CHOICE,
            "pooler_activation: a RoBERTa of transformers has 'tanh' with multiple_choice, not 're",
        ),
        (
            TransformerConfig(**SIZES, position_offset=1, pooler=False),
            MultipleChoiceConfig(pooling="first"),
            "multiple_choice.pooling: a RoBERTa of transformers has 'pooled', not 'first'",
        ),
        (
            BERT,
            BEAM,
            "no BERT class of transformers has the heads conditional_span_answer",
        ),
        (
            BERT,
            dataclasses.replace(TAGS, crf=True),
            "token_classification.crf: a BERT of transformers does not",
        ),
        (
            BERT,
            dataclasses.replace(CLASSES, bilstm=4),
            "classification.bilstm: a BERT of transformers does not",
        ),
        (
            dataclasses.replace(BERT, scale_embeddings=True),
            CLASSES,
            "encoder.scale_embeddings: a BERT has False, not True",
        ),
    ],
)
def test_heads_that_transformers_has_not_are_refused(tmp_path, encoder, objective, message):
    make(tmp_path / "model", encoder, objective, "bert")
    with pytest.raises(UserError, match=message):
        huggingface.write(tmp_path / "model", tmp_path / "out", "last")


def test_sinusoids_are_written_as_a_table(tmp_path):
    encoder = dataclasses.replace(ENCODERS["electra"], positions="sinusoidal")
    make(tmp_path / "model", encoder, CLASSES, "electra")
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    tensors = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    table = tensors["electra.embeddings.position_embeddings.weight"]
    assert table.shape == (512, 10)
    waves = [f(p / 10000 ** (i / 5)) for p in (3, 400) for i in range(5) for f in (np.sin, np.cos)]
    np.testing.assert_allclose(table[[3, 400]].ravel(), waves, atol=1e-4)
    read = huggingface.read(tmp_path / "out")
    assert read.config.encoder.positions == "learned"
    np.testing.assert_array_equal(
        read.variables["encoder/embeddings/position_embedding/table"], table
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"summary_type": "mean"}, r"config.json: summary_type: 'mean' is not supported, only"),
        (
            {"summary_activation": "mish"},
            "summary_activation: 'mish' is not supported if summary_use_proj is True",
        ),
        (
            {"summary_use_proj": False},
            "summary_activation: 'gelu' is not supported if summary_use_proj is False",
        ),
    ],
)
def test_summaries_of_another_kind_are_refused(tmp_path, changes, message):
    make(tmp_path / "model", ENCODERS["electra"], CHOICE, "electra")
    huggingface.write(tmp_path / "model", tmp_path / "out", "last")
    file = tmp_path / "out" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(UserError, match=message):
        huggingface.read(tmp_path / "out")


def test_what_is_written_as_an_electra():
    for encoder, objectives, system in (
        (BERT, (SPAN,), huggingface.SYSTEMS["bert"]),
        (TransformerConfig(**SIZES, pooler_activation="gelu"), (CLASSES,), electra.SYSTEM),
        (BERT, (MultipleChoiceConfig(pooling="first"),), electra.SYSTEM),
    ):
        config = configs.Config(name="x", encoder=encoder, objectives=objectives)
        assert huggingface.system_of(config) is system


def test_answers_of_a_released_xlnet_are_read(tmp_path):
    """The names are those of function_builder.get_qa_outputs."""
    folder, ours = release(tmp_path)
    reader = tf.train.load_checkpoint(str(folder / "xlnet_model.ckpt"))
    stored = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    rng, expected = np.random.default_rng(5), {}
    for theirs, path, shape in (
        ("start_logits/dense/kernel", "start/kernel", (18, 1)),
        ("start_logits/dense/bias", "start/bias", (1,)),
        ("end_logits/dense_0/kernel", "end_hidden/kernel", (36, 18)),
        ("end_logits/dense_0/bias", "end_hidden/bias", (18,)),
        ("end_logits/LayerNorm/gamma", "end_norm/scale", (18,)),
        ("end_logits/LayerNorm/beta", "end_norm/offset", (18,)),
        ("end_logits/dense_1/kernel", "end/kernel", (18, 1)),
        ("end_logits/dense_1/bias", "end/bias", (1,)),
        ("answer_class/dense_0/kernel", "answerable_hidden/kernel", (36, 18)),
        ("answer_class/dense_0/bias", "answerable_hidden/bias", (18,)),
        ("answer_class/dense_1/kernel", "answerable/kernel", (18, 1)),
    ):
        stored[theirs] = expected[f"span_answer/{path}"] = rng.normal(size=shape).astype("f4")
    # Fine-tuning writes neither of the two, and the slots of TensorFlow's Adam.
    del stored["model/lm_loss/bias"], stored["model/transformer/mask_emb/mask_emb"]
    stored |= {f"{name}/Adam": stored[name] for name in ("start_logits/dense/bias",)}
    stored["beta1_power"] = np.float32(0.9)
    tf.raw_ops.SaveV2(
        prefix=str(folder / "xlnet_model.ckpt"),
        tensor_names=list(stored),
        shape_and_slices=[""] * len(stored),
        tensors=list(stored.values()),
    )
    converted = tf1.read(folder)
    assert converted.leftover == [] and converted.config.objectives[0].form == "conditional"
    for path, array in expected.items():
        np.testing.assert_array_equal(converted.variables[path], array, err_msg=path)
    assert converted.variables.keys() - expected.keys() == ours.keys() - {
        "permutation_lm/output_bias", "encoder/embeddings/query_start",
    }  # fmt: skip
    converted_model.write(converted, tmp_path / "model")
    assert huggingface.system_of(converted.config) is xlnet.SYSTEM
    # The scores, worked out from the release's names.
    model = model_folder.restore(tmp_path / "model")[2]
    batch = xlnets.load("xlnet_lm")[2][0]["batch"]
    batch = {name: batch[name] for name in ("token_ids", "segment_ids")}
    states = np.asarray(model.encode(batch)["sequence_output"], np.float64)  # [B, T, 18]
    (head,) = model.objectives

    def dense(x, name, bias=True):
        return x @ stored[f"{name}/kernel"] + (stored[f"{name}/bias"] if bias else 0)

    starts = dense(states, "start_logits/dense")[..., 0]
    np.testing.assert_allclose(head.start_logits(states.astype("f4")), starts, atol=1e-4)
    place = 2
    both = np.concatenate([states, np.repeat(states[:, place : place + 1], 7, axis=1)], axis=-1)
    hidden = np.tanh(dense(both, "end_logits/dense_0"))
    hidden -= hidden.mean(-1, keepdims=True)
    hidden /= np.sqrt((hidden**2).mean(-1, keepdims=True) + 1e-12)
    hidden = hidden * stored["end_logits/LayerNorm/gamma"] + stored["end_logits/LayerNorm/beta"]
    ends = dense(hidden, "end_logits/dense_1")[..., 0]
    actual = head.end_logits(states.astype("f4"), np.full((2, 1), place))[:, 0]
    np.testing.assert_allclose(actual, ends, atol=1e-3)
    chances = np.exp(starts - starts.max(-1, keepdims=True))
    chances /= chances.sum(-1, keepdims=True)
    pooled = np.concatenate([np.einsum("btd,bt->bd", states, chances), states[:, -1]], axis=-1)
    hidden = np.tanh(dense(pooled, "answer_class/dense_0"))
    null = dense(hidden, "answer_class/dense_1", bias=False)[:, 0]
    allowed = np.ones(starts.shape, bool)
    actual = head.null_logits(states.astype("f4"), starts.astype("f4"), allowed)
    np.testing.assert_allclose(actual, null, atol=1e-3)
