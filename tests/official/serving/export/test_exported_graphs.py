"""What is computed eagerly is computed by an export: every signature of every kind of head.

The exports run in a process that has only TensorFlow, whose graph optimizer has its defaults. The
project's own functions run eagerly, operation by operation.

Shapes: B batch, T length, C choices.
"""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.config.encoders import (
    BilmConfig,
    EncoderDecoderConfig,
    TransformerConfig,
    TransformerXLConfig,
)
from official.config.heads import (
    ClassificationConfig,
    KernelRankingConfig,
    MultiLabelConfig,
    MultipleChoiceConfig,
    RankingConfig,
    RegressionConfig,
    SpanAnswerConfig,
    TokenClassificationConfig,
)
from official.config.objectives import CausalLMConfig, MaskedLMConfig, Seq2SeqLMConfig
from official.saving import checkpoints, model_folder, named_arrays
from official.serving.export import saved_model
from official.serving.signatures import table
from tests import commands, sentences
from tests.official.commands.test_export import GOLDEN, TEXTS
from tests.official.serving.signatures.test_inputs import examples

SIZES = {"hidden_size": 12, "num_layers": 1, "num_heads": 3, "intermediate_size": 20}
BERT = TransformerConfig(**SIZES, max_positions=24, initializer_range=0.5)
ALBERT = TransformerConfig(
    **SIZES | {"num_layers": 2}, max_positions=24, initializer_range=0.5, layer_groups=1,
    embedding_size=6,
)  # fmt: skip
GPT2 = TransformerConfig(
    **SIZES,
    max_positions=24,
    initializer_range=0.5,
    norm="pre",
    causal=True,
    pooler=False,
    positions="sinusoidal",
)
XLNET = TransformerXLConfig(**SIZES, pooler=True, initializer_range=0.5)
# Scaled scores, as T5 has none.
VASWANI = EncoderDecoderConfig(
    **SIZES, norm="layer", norm_position="post", use_bias=True, scale_scores=True,
    positions="sinusoidal", scale_embeddings=True,
)  # fmt: skip
ELMO = BilmConfig(
    character_size=4, filters=((1, 4), (2, 6)), highway_layers=1, cell_size=7, projection_size=5,
    memory_length=0, num_layers=1,
)  # fmt: skip
TAGS = ("O", "B-X", "I-X")
# Environment variables of servers: none, and what docs/serving.md advises for bfloat16.
SERVERS = ("", "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1")
# The encoder and the head.
MODELS = {
    "classification": (BERT, ClassificationConfig(labels=("bad", "good", "neither"))),
    "multi_label": (GPT2, MultiLabelConfig(labels=("bad", "good", "neither"), bilstm=3)),
    "regression": (XLNET, RegressionConfig()),
    "ranking": (BERT, RankingConfig(output="sigmoid", prompt="find ")),
    "kernel_ranking": (BERT, KernelRankingConfig()),
    "span_answer": (BERT, SpanAnswerConfig()),
    "conditional": (XLNET, SpanAnswerConfig(form="conditional")),
    "multiple_choice": (ALBERT, MultipleChoiceConfig()),
    "token_classification": (ALBERT, TokenClassificationConfig(labels=TAGS, crf=True, bilstm=4)),
    "causal_lm": (GPT2, CausalLMConfig()),
    "seq2seq_lm": (VASWANI, Seq2SeqLMConfig()),
    "fill_mask": (BERT, MaskedLMConfig()),
    "words_in_context": (ELMO, None),
}
# What a server does, without anything of this project. With other inputs before, what is kept of
# them would be seen.
CLIENT = """
import os
import sys
os.environ.update(variable.split("=") for variable in sys.argv[3].split())
import numpy as np
import tensorflow as tf
import tensorflow_text
asked, answers = np.load(sys.argv[1]), {}
for folder in sys.argv[4:]:
    model = folder.rsplit("/", 1)[-1]
    signatures = dict(tf.saved_model.load(folder).signatures)
    del signatures["serving_default"]  # is one of the others
    for name, signature in signatures.items():
        specs = signature.structured_input_signature[1]
        inputs = {n: tf.constant(asked[f"{model}/{name}/{n}"], s.dtype) for n, s in specs.items()}
        signature(**{n: value[::-1] if value.shape.rank else value for n, value in inputs.items()})
        for key, value in signature(**inputs).items():
            value = value.numpy()
            answers[f"{model}/{name}/{key}"] = value.astype("S") if value.dtype == object else value
np.savez(sys.argv[2], **answers)
assert not any(name.startswith("official") for name in sys.modules)
"""
RAW = np.array([text.encode() for text in TEXTS])
IDS = {
    "input_word_ids": np.array([[2, 7, 9, 3, 11, 3], [2, 8, 3, 0, 0, 0]]),
    "input_mask": np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]),
    "input_type_ids": np.array([[0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]]),
}
INPUTS = {
    "text_b": RAW[::-1],
    "context": RAW[::-1],
    "choices": np.stack([RAW, RAW[::-1], np.roll(RAW, 1)], axis=1),
    "lengths": np.array([2, 1, 4]),  # of words
    "tokens": RAW[:6].reshape(2, 3),
    "sequence_len": np.array([3, 2]),
    "temperature": np.float32(1.2),
    "top_k": np.int32(9),
    "masked_positions": np.array([[1, 4], [2, 0]]),
    "top_p": np.float32(0.9),
    "seed": np.int64(5),
}


def given(name: str, spec: tf.TensorSpec) -> np.ndarray:
    """Returns the input `spec` of the signature `name`."""
    if spec.name in IDS:
        ids = IDS[spec.name]
        return ids if spec.shape.rank == 2 else np.stack([ids, ids])  # [B, C, T]
    if name == "serve_examples":
        first = {key: value[:1].tolist() for key, value in IDS.items()}
        return examples(**first).numpy().astype("S")
    if spec.name == "examples":
        return examples(text=[text for text in RAW.tolist() if text]).numpy().astype("S")
    if spec.name == "state":
        return np.random.default_rng(1).standard_normal((len(RAW), *spec.shape[1:]))
    if name == "fill_mask" and spec.name == "text":
        return np.array([b"[MASK] " + text + b" the [MASK]" for text in RAW.tolist()])
    return INPUTS.get(spec.name, RAW)


def make(folder, encoder, head):
    """A model folder with random weights."""
    if encoder.type == "bilm":
        tokenizer = tokenizers.Characters(sentences.VOCABULARY)
    else:
        tokenizer = tokenizers.load(GOLDEN)
    encoder = dataclasses.replace(encoder, vocab_size=tokenizer.vocab_size)
    objectives = () if head is None else (head,)
    config = configs.Config(
        "exported", encoder=encoder, objectives=objectives, recipe=configs.Recipe(steps=1)
    )
    configs.save(config, folder / "config.yaml")
    tokenizer.save(folder / "tokenizer")
    model = model_folder.build(config)
    rng = np.random.default_rng(0)
    for variable in model.variables:
        variable.assign_add(0.3 * rng.standard_normal(variable.shape))
    checkpoints.save(folder, 1, named_arrays.values(model.variables_by_path()), {})
    task = {"max_length": 12, "doc_stride": 4, "max_query_length": 4}
    (folder / "task.json").write_text(json.dumps(task))
    return folder


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What the functions give eagerly and what each server gives, by model, signature, output."""
    parent = tmp_path_factory.mktemp("exports")
    asked, eager = {}, {}
    for model, (encoder, head) in MODELS.items():
        folder = make(parent / f"{model}-model", encoder, head)
        options = {"max_new_tokens": 4} if model in ("causal_lm", "seq2seq_lm") else {}
        default, _ = saved_model.export(folder, parent / model, **options)
        context, kind, _ = saved_model.restore(folder, **options)
        signatures = table.make(context, kind, default)[1]
        del signatures["serving_default"]  # is one of the others
        for name, function in signatures.items():
            specs = function.input_signature
            inputs = [given(name, spec) for spec in specs]
            asked |= {f"{model}/{name}/{s.name}": x for s, x in zip(specs, inputs, strict=True)}
            tf.config.run_functions_eagerly(True)
            tensors = [tf.constant(x, s.dtype) for x, s in zip(inputs, specs, strict=True)]
            found = function.python_function(*tensors)
            tf.config.run_functions_eagerly(False)
            eager |= {f"{model}/{name}/{key}": value.numpy() for key, value in found.items()}
    np.savez(parent / "asked.npz", **asked)
    (parent / "client.py").write_text(CLIENT)
    served = {}
    for number, variables in enumerate(SERVERS):
        files = parent / "asked.npz", parent / f"answers{number}.npz"
        folders = [parent / model for model in MODELS]
        commands.run(parent / "client.py", *files, variables, *folders, status=0)
        served[variables] = dict(np.load(files[1]))
    return eager, served


def test_every_kind_of_head_is_exported():
    served = {"words_in_context" if head is None else head.type for _, head in MODELS.values()}
    assert served == {*table._KINDS, "causal_lm", "masked_lm", "words_in_context"}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("variables", SERVERS)
@pytest.mark.parametrize("model", MODELS)
def test_exports_compute_what_is_computed_eagerly(model, variables, answers):
    eager, exported = (
        {name: value for name, value in each.items() if name.startswith(f"{model}/")}
        for each in (answers[0], answers[1][variables])
    )
    assert exported.keys() == eager.keys()
    for name, value in eager.items():
        if np.issubdtype(value.dtype, np.floating):
            np.testing.assert_allclose(exported[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
        else:
            value = value.astype("S") if value.dtype == object else value
            np.testing.assert_array_equal(exported[name], value, err_msg=name)
