"""An export in int8 says how far it moves the outputs, and is refused if that is far."""

import numpy as np
import pytest
import tensorflow as tf

import official
from official.saving import checkpoints, named_arrays
from official.serving.export import hub, int8_loss, litert, saved_model
from official.serving.signatures.inputs import TOKENS
from official.utils.errors import UserError
from tests import commands
from tests.official.serving.export.test_hub import EMBEDDING
from tests.official.serving.export.test_litert import CLASSIFICATION
from tests.official.serving.test_predictor import BERT, load

# The converter of LiteRT leaves smaller matrices as they are.
SIZES = {"hidden_size": 96, "num_heads": 4, "intermediate_size": 192, "initializer_range": 0.08}


@pytest.mark.slow
@pytest.mark.parametrize("objective", [CLASSIFICATION, {"type": "multiple_choice"}])
def test_share(tmp_path, objective):
    load(tmp_path, objective)
    context, kept = saved_model.restore_for_ids(tmp_path, "best", None, None, "litert")
    function, asked = kept["tokens"], []

    def times(factor):
        def rounded(given):
            asked.append(given)
            found = {
                name: np.asarray(value)
                for name, value in function(*map(tf.constant, given.values())).items()
            }
            return {
                name: value * np.float32(factor) if value.dtype == np.float32 else value
                for name, value in found.items()
            }

        return int8_loss.share(context, function, rounded, TOKENS)

    assert times(1) == 0
    assert times(1.125) == times(0.875) == pytest.approx(0.125, abs=1e-6)
    count, choices = len(int8_loss.TEXTS), objective is not CLASSIFICATION
    assert len(asked) == 3 * (1 if choices else count)
    shape = asked[0]["input_word_ids"].shape
    assert shape == (1, count, 16) if choices else len(shape) == 2 and shape[0] == 1
    for factor in (1.3, np.nan):
        with pytest.raises(UserError, match="probabilities is moved by .* give --precision=float"):
            times(factor)


@pytest.mark.slow
@pytest.mark.parametrize("module", [hub, litert])
def test_activations_that_are_large_in_one_dimension(tmp_path, module):
    """In float32 the model is the same: a value is larger, and what reads it smaller."""
    loaded = load(tmp_path / "model", EMBEDDING, encoder={**BERT, **SIZES})
    *_, moved = module.export(tmp_path / "model", tmp_path / "near", precision="int8")
    assert 0.001 < moved < 0.1
    texts = list(int8_loss.TEXTS)
    before = loaded.encode(texts)
    variables = named_arrays.values(loaded.model.variables_by_path())
    for path, value in variables.items():
        if "/query_key_value/" in path:
            value[..., -1] *= 1000
        if path.endswith("attention/output/kernel"):
            value[-1] /= 1000
    checkpoints.save(tmp_path / "model", 2, variables, {})
    loaded = official.load(tmp_path / "model", "last")
    np.testing.assert_allclose(loaded.encode(texts), before, rtol=0, atol=1e-4)
    with pytest.raises(UserError, match="--precision=int8: the output .* is moved by"):
        module.export(tmp_path / "model", tmp_path / "far", "last", precision="int8")
    assert not (tmp_path / "far").exists()


@pytest.mark.slow
def test_command(tmp_path):
    load(tmp_path / "model", CLASSIFICATION, encoder={**BERT, **SIZES})
    options = [f"--model_dir={tmp_path}/model", f"--output={tmp_path}/lite", "--format=litert"]
    done = commands.run("official.export", *options, "--precision=int8", status=0)
    share = float(done.stdout.partition("moves the outputs by ")[2].partition("%")[0])
    assert 0 < share < 5
