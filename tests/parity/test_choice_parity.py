"""Multiple choice against transformers, computed anew."""

import numpy as np

from tests.official.modeling import test_choice_golden


def test_outputs_gradients_and_losses_agree_with_transformers(hf, tmp_path):
    hf.run(test_choice_golden.GOLDEN / "make_choice_golden.py", tmp_path)
    with (
        np.load(tmp_path / "choice.npz") as result,
        np.load(test_choice_golden.GOLDEN / "choice.npz") as stored,
    ):
        result = dict(result)
        np.testing.assert_allclose(result["logits"], stored["logits"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(result["losses"], stored["losses"], rtol=1e-4)
    test_choice_golden.compare(result)
