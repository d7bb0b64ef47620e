"""Generation with an encoder-decoder: against transformers, against a loop without a cache."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.objectives import Seq2SeqLMConfig
from official.saving import model_folder
from official.serving.sampling import Settings
from official.serving.text_generator import TextGenerator, right_padded
from official.serving.text_model import TextModel
from official.utils import seeding
from official.utils.errors import UserError
from tests import GOLDEN
from tests.official.serving import t5_weights

NEW = 12
SIZE = 17
# Pieces are letters; the texts of T5 end with id 1.
TOKENIZER = SimpleNamespace(
    pad_id=0,
    sep_id=1,
    vocab_size=SIZE,
    encode=lambda texts: [np.array([ord(c) - ord("a") for c in text], int) for text in texts],
    decode=lambda ids: "".join(chr(i + ord("a")) for i in ids),
)
DRAWN = Settings(NEW, temperature=1.5, top_k=9, top_p=0.9, seed=3)


def read(number):
    with np.load(GOLDEN / "generation.npz") as file:
        prefix = f"{number}/"
        return {name.removeprefix(prefix): file[name] for name in file if name.startswith(prefix)}


@pytest.fixture(scope="module", params=range(6))
def case(request):
    golden = read(request.param)
    return golden, make(golden)


def make(golden, max_length=64):
    config = configs.Config(
        "t5",
        encoder=t5_weights.encoder_config(json.loads(str(golden["config"]))),
        objectives=(Seq2SeqLMConfig(),),
    )
    model = model_folder.build(config)
    t5_weights.assign(model, {n[7:]: v for n, v in golden.items() if n.startswith("weight/")})
    return TextGenerator(TextModel(config, TOKENIZER, model, max_length))


def test_the_searches_are_those_of_transformers(case):
    golden, generator = case
    batch = golden["token_ids"], golden["padding_mask"]
    assert golden["padding_mask"].sum(axis=1).tolist() == [7, 3, 5]
    found = generator.ids(*batch, Settings(NEW))
    np.testing.assert_array_equal(found, golden["greedy"])
    for penalty in (0.6, 1.0, 2.0):
        ids, scores = generator._beam_graph(
            *map(tf.constant, batch), NEW, 4, "huggingface", tf.constant(penalty)
        )
        np.testing.assert_array_equal(ids[:, 0], golden[f"beams/{penalty}"])
        np.testing.assert_allclose(scores[:, 0], golden[f"scores/{penalty}"], atol=1e-5, rtol=1e-5)
