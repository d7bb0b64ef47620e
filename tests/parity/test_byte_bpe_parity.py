"""transformers loads the folders of build_vocab --type=byte_bpe, and gives the same ids."""

import json
import random

import numpy as np
import pytest

from official import tokenizers
from tests.official.tokenizers.byte_bpe_reference import texts
from tfrecords_tools.vocabulary import builder


@pytest.mark.parametrize("prefix", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_million_characters_and_every_code_point(hf, tmp_path, prefix):
    (tmp_path / "text.txt").write_text("\n".join(texts(40_000, seed=2)), encoding="utf-8")
    built = builder.build(
        str(tmp_path / "text.txt"), tmp_path / "tok", "byte_bpe", 1000, add_prefix_space=prefix
    )
    every = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    random.Random(0).shuffle(every)
    lines = texts(1_000_000) + ["".join(every[i : i + 500]) for i in range(0, len(every), 500)]
    # Text that spells a special token is text here, and the token there.
    lines = [line.replace("<mask>", "").replace("</s>", "") for line in lines]
    (tmp_path / "texts.json").write_text(json.dumps(lines))
    hf.run("hf_byte_bpe.py", tmp_path / "tok", tmp_path / "texts.json", tmp_path / "ids.npz")
    expected = np.load(tmp_path / "ids.npz")
    values, splits = built.encode_ragged(lines)
    np.testing.assert_array_equal(np.diff(splits), expected["lengths"])
    np.testing.assert_array_equal(values, expected["values"])
    ids = built.encode(lines[:40])
    both = zip(ids[:20], ids[20:], strict=True)
    pairs = [tokenizers.pack_arrays(two, built, 10_000)[0] for two in both]
    np.testing.assert_array_equal(np.concatenate(pairs), expected["pairs"])
