"""Vectors of whole texts against states of transformers that are pooled by hand, computed anew."""

import numpy as np

from tests import GOLDEN


def test_the_golden_vectors_are_those_of_transformers(hf, tmp_path):
    hf.run(GOLDEN / "make_sentence_vectors_golden.py", tmp_path / "vectors.npz")
    with np.load(tmp_path / "vectors.npz") as new, np.load(GOLDEN / "sentence_vectors.npz") as old:
        assert set(new) == set(old)
        for name in set(new) - {"about"}:
            # 2e-6 was seen on a processor that rounds in other places.
            np.testing.assert_allclose(new[name], old[name], rtol=0, atol=1e-5)
