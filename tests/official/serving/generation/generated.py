"""Tiny models of transformers and the texts that they generate: generation_settings.npz."""

import json
from types import SimpleNamespace

import numpy as np

from official import config as configs
from official.config.objectives import CausalLMConfig, Seq2SeqLMConfig
from official.conversion import gpt2, mapping
from official.saving import model_folder, named_arrays
from official.saving.generation_settings import Settings
from official.saving.served_model import ServedModel
from official.serving.generation.generator import Generator
from tests import GOLDEN
from tests.official.serving.generation import t5_weights

NEW = 12
TOKENIZER = SimpleNamespace(pad_id=0, cls_id=1, sep_id=1, unk_id=2, vocab_size=17)


def read(prefix, path=GOLDEN / "generation_settings.npz"):
    """The arrays whose names begin with a prefix, by the rest of their names."""
    with np.load(path) as file:
        return {n.removeprefix(prefix): file[n] for n in file if n.startswith(prefix)}


def _t5(golden, weights):
    encoder = t5_weights.encoder_config(json.loads(str(golden["config"])))
    config = configs.Config("t5", encoder=encoder, objectives=(Seq2SeqLMConfig(),))
    model = model_folder.build(config)
    t5_weights.assign(model, weights)
    return Generator(ServedModel(config, TOKENIZER, model, 64))


def _gpt2(golden, weights):
    encoder = gpt2.SYSTEM.encoder_config(
        json.loads(str(golden["config"])), "config.json", ("causal_lm",), pooler=False
    )
    config = configs.Config("gpt2", encoder=encoder, objectives=(CausalLMConfig(),))
    model = model_folder.build(config)
    rows = gpt2.SYSTEM.rows(encoder, ("causal_lm",))
    arrays, _ = mapping.bring_in(rows, weights, model_folder.shapes(config), "golden")
    named_arrays.initialize(model.variables_by_path(), arrays, "golden")
    return Generator(ServedModel(config, TOKENIZER, model, 64))


def make(name, path=GOLDEN / "generation_settings.npz"):
    """The arrays of the model `t5` or `gpt2`, and its generator."""
    golden = read(f"{name}/", path)
    weights = {n[7:]: v for n, v in golden.items() if n.startswith("weight/")}
    return golden, {"t5": _t5, "gpt2": _gpt2}[name](golden, weights)


def settings_of(name):
    """The settings of a search that transformers made under this name."""
    given = json.loads(name)
    if "num_beams" in given:
        return Settings(NEW, length_rule="huggingface", **given)
    return Settings(NEW, temperature=0.0, **given)


def check(golden, generator, names):
    """Compares searches with those of transformers; returns the ids by name."""
    batch = golden["token_ids"], golden["padding_mask"]
    assert len(set(golden["padding_mask"].sum(axis=1))) == 3
    found = {}
    for name in names:
        found[name] = generator.ids(*batch, settings_of(name))
        np.testing.assert_array_equal(found[name], golden[name], err_msg=name)
    return found


def names_of(golden, beams):
    """The names of the searches with beams, or of those without."""
    names = [name for name in golden if name.startswith("{")]
    return [name for name in names if ("num_beams" in name) == beams]
