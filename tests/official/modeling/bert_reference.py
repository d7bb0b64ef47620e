"""Compares our BERT with what `tests/golden/make_bert_golden.py` stored of transformers' one."""

import json
import types

import numpy as np
import tensorflow as tf

from official.config.objectives import MaskedLMConfig, SentencePairConfig
from official.conversion.bert import BERT
from official.conversion.mapping import bring_in
from official.modeling.model import Model


def load_model(reference):
    """Our model with the weights of the reference, and the table of names."""
    config = json.loads(str(reference["config"]))
    encoder = BERT.encoder_config({"type_vocab_size": 2, **_DROPOUT, **config}, "golden data")
    objectives = (MaskedLMConfig(), SentencePairConfig())
    model = Model(types.SimpleNamespace(seed=0, encoder=encoder, objectives=objectives))
    rows = BERT.rows(encoder, ("masked_lm", "next_sentence"))
    variables = model.variables_by_path()
    for path, value in brought_in(reference, "weight/", rows, variables).items():
        variables[path].assign(value)
    return model, rows


_DROPOUT = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
}


def brought_in(reference, prefix, rows, variables):
    """Arrays of the reference below `prefix`, by our paths."""
    arrays = {k.removeprefix(prefix): reference[k] for k in reference if k.startswith(prefix)}
    shapes = {path: tuple(variable.shape) for path, variable in variables.items()}
    result, unused = bring_in(rows, arrays, shapes, "golden data")
    assert not unused
    assert result.keys() == variables.keys()
    return result


def batch_of(reference, step=...):
    """The stored batch, or one of several."""
    names = [k for k in reference if k.startswith("batch/")]
    return {name.removeprefix("batch/"): tf.constant(reference[name][step]) for name in names}


def joint_loss(model, batch, rng=None):
    """Mean masked-LM loss plus mean next-sentence loss."""
    weights = model.weight_sums(batch)
    losses, _ = model.terms(batch, rng)
    return tf.add_n([losses[name] / weights[name] for name in losses])


def compare(reference):
    """Asserts that outputs agree within 1e-5 and gradients within 1e-4 relative."""
    model, rows = load_model(reference)
    batch = batch_of(reference)
    encoded = model.encode(batch, output_all=True)
    close = dict(rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        np.stack(encoded["hidden_states"]), reference["hidden_states"], **close
    )
    np.testing.assert_allclose(encoded["sequence_output"], reference["hidden_states"][-1], **close)
    np.testing.assert_allclose(np.stack(encoded["attentions"]), reference["attentions"], **close)
    np.testing.assert_allclose(encoded["pooled_output"], reference["pooled_output"], **close)

    lm, pair = model.objectives
    hidden = tf.gather(encoded["sequence_output"], batch["masked_positions"], batch_dims=1)
    logits = lm.logits(tf.reshape(hidden, [-1, hidden.shape[-1]]), model.encoder)
    expected = reference["masked_lm_logits"]
    np.testing.assert_allclose(logits, expected.reshape(-1, expected.shape[-1]), **close)
    np.testing.assert_allclose(pair.logits(encoded), reference["next_sentence_logits"], **close)

    variables = model.variables_by_path()
    with tf.GradientTape() as tape:
        loss = joint_loss(model, batch)
    np.testing.assert_allclose(loss, reference["loss"], **close)
    gradients = tape.gradient(loss, [variable.value for variable in variables.values()])
    expected = brought_in(reference, "gradient/", rows, variables)
    for path, gradient in zip(variables, gradients, strict=True):
        error = np.linalg.norm(gradient - expected[path]) / np.linalg.norm(expected[path])
        assert error < 1e-4, f"gradient of {path}: relative error {error}"
