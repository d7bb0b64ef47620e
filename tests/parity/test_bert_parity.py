"""BERT against transformers, computed anew."""

import numpy as np

from tests.official.modeling import bert_reference
from tests.official.modeling.test_bert_golden import GOLDEN


def test_outputs_and_gradients_agree_with_transformers(hf, tmp_path):
    hf.run(GOLDEN / "make_bert_golden.py", tmp_path)
    for name in ["small", "deep", "wide"]:
        with (
            np.load(tmp_path / f"bert_{name}.npz") as result,
            np.load(GOLDEN / f"bert_{name}.npz") as stored,
        ):
            result = dict(result)
            np.testing.assert_allclose(result["loss"], stored["loss"], rtol=1e-5)
        bert_reference.compare(result)


def test_the_stored_losses_of_training_come_out_again(hf, tmp_path):
    hf.run(GOLDEN / "make_bert_golden.py", tmp_path)
    with (
        np.load(tmp_path / "bert_losses.npz") as result,
        np.load(GOLDEN / "bert_losses.npz") as stored,
    ):
        np.testing.assert_allclose(result["losses"], stored["losses"], rtol=1e-4)
