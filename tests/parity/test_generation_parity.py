"""Generation with rules for tokens and all forms of beam search, made anew by transformers."""

import numpy as np
import pytest

from tests import GOLDEN
from tests.official.serving.generation import generated


@pytest.fixture(scope="module")
def made(hf, tmp_path_factory):
    """What transformers generates now."""
    path = tmp_path_factory.mktemp("generation") / "made.npz"
    hf.run(GOLDEN / "make_generation_settings_golden.py", path)
    return path


def test_the_stored_file_is_made_again(made):
    stored, again = generated.read(""), generated.read("", made)
    assert stored.keys() == again.keys()
    for name, value in stored.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(again[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
        elif not name.endswith("/config"):
            np.testing.assert_array_equal(again[name], value, err_msg=name)


@pytest.mark.parametrize("name", ["t5", "gpt2"])
def test_all_searches_are_those_of_transformers(name, made):
    golden, generator = generated.make(name, made)
    greedy, beams = (generated.names_of(golden, beams) for beams in (False, True))
    assert (len(greedy), len(beams)) == (7, 16)
    found = generated.check(golden, generator, [*greedy, *beams])
    assert len({ids.tobytes() for ids in found.values()}) >= 14
