"""Multiple choice against transformers, computed anew."""

import numpy as np

from tests.official.modeling import test_choice_golden


def test_outputs_gradients_and_losses_agree_with_transformers(hf, tmp_path):
    hf.run(test_choice_golden.GOLDEN / "make_choice_golden.py", tmp_path)
    with (
        np.load(tmp_path / "choice.npz") as made,
        np.load(test_choice_golden.GOLDEN / "choice.npz") as stored,
    ):
        made = dict(made)
        np.testing.assert_allclose(made["logits"], stored["logits"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(made["losses"], stored["losses"], rtol=1e-4)
    test_choice_golden.compare(made)
