"""Masked LMs of five systems with stored weights, and texts with masks."""

import json
import shutil
from pathlib import Path

import numpy as np

import official
from official.conversion import converted_model, huggingface
from tests import GOLDEN
from tests.official.conversion import systems

TEXTS = (
    "the cat {mask}",
    "{mask} the {mask}, {mask}.",
    "cats{mask}the",
    "{mask}",
)
CASES = ("roberta_masked_lm", "albert_masked_lm", "electra_generator", "distilbert_masked_lm")


def folders(parent: Path) -> Path:
    """Writes the folders of `save_pretrained` into a new folder."""
    parent.mkdir()
    for name in CASES:
        config, parts, _ = systems.load(name)
        systems.write(parent / name, config, parts["weight"])
    shutil.copytree(GOLDEN / "hf_files" / "pretraining", parent / "bert_pretraining")
    return parent


def expected(hf, parent: Path) -> dict:
    """What transformers says of all tokens: see `tests/parity/hf_fill_mask.py`."""
    (parent / "texts.json").write_text(json.dumps(TEXTS))
    hf.run("hf_fill_mask.py", folders(parent / "hf"), parent / "texts.json", parent / "found.json")
    return json.loads((parent / "found.json").read_text())


def loaded(folder: Path, output: Path):
    """A folder of transformers as a model folder, loaded, and the texts with its mask token."""
    converted_model.write(huggingface.read(folder), output)
    model = official.load(output)
    mask = model.tokenizer.pieces[model.tokenizer.mask_id]
    return model, [text.format(mask=mask) for text in TEXTS]


def compare(fillings, rows) -> None:
    """Asserts that texts are filled as `rows` of [token, word, probability] say, for each mask."""
    assert [len(text) for text in fillings] == [len(text) for text in rows]
    for ours, theirs in zip(sum(fillings, []), sum(rows, []), strict=True):
        by_token = {token: (word.strip(), chance) for token, word, chance in theirs}
        assert {f.token_ids[0] for f in ours} == set(by_token)
        assert [f.word for f in ours] == [by_token[f.token_ids[0]][0] for f in ours]
        chances = [f.probability for f in ours]
        assert chances == sorted(chances, reverse=True)
        expected = [by_token[f.token_ids[0]][1] for f in ours]
        np.testing.assert_allclose(chances, expected, rtol=0, atol=1e-5)
