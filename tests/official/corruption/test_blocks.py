"""Blocks of a masked row: who sees whom, and which sizes are refused."""

import numpy as np
import pytest
import tensorflow as tf

from official.config.corruptions import TokenMasksConfig
from official.corruption import token_masks
from official.data import ShardDataset
from official.modeling import masks
from official.utils.errors import UserError
from tests import small
from tests.official.corruption.test_token_masks import VOCABULARY, make_rows, pad, seeds_of


@pytest.mark.parametrize("length", [6, 12])
def test_masks_are_those_of_a_loop(length):
    batch = pad(make_rows([length, 5]), length)
    for size in [n for n in range(1, length + 1) if length % n == 0]:
        config = TokenMasksConfig(block_size=size)
        corrupted = token_masks.corrupt(config, VOCABULARY, batch, seeds_of(2))
        assert corrupted.keys() == batch.keys() | config.gives()
        seen = np.array(masks.combine(masks.blocks(corrupted["block_ids"]), None))
        for b in range(2):
            for i in range(length):
                for j in range(length):
                    assert seen[b, 0, i, j] == (j // size <= i // size), (size, i, j)


def test_blocks_change_nothing_else():
    batch = pad(make_rows([64, 40]))
    plain = token_masks.corrupt(TokenMasksConfig(), VOCABULARY, batch, seeds_of(2))
    corrupted = token_masks.corrupt(TokenMasksConfig(block_size=16), VOCABULARY, batch, seeds_of(2))
    assert "block_ids" in TokenMasksConfig(block_size=16).gives() - TokenMasksConfig().gives()
    assert corrupted.keys() - plain.keys() == {"block_ids"} and corrupted["block_ids"].shape == (
        2,
        64,
    )
    for name, value in plain.items():
        np.testing.assert_array_equal(corrupted[name], value)


@pytest.mark.slow
@pytest.mark.parametrize("static", [False, True])
def test_batches_have_blocks(static, tmp_path):
    config = small.config(segments__static_masks=static, corruption__block_size=8)
    batch = next(
        iter(ShardDataset(small.shard_folder(tmp_path / "shards", config), config).dataset(4))
    )
    np.testing.assert_array_equal(batch["block_ids"], [np.arange(32) // 8] * 4)
    assert batch["block_ids"].dtype == tf.int32


STREAM = {
    "segments": {"format": "stream", "max_length": 32, "rows": 8, "reuse_length": 12},
    "encoder": {"type": "transformer_xl", "memory_length": 9, "reuse_length": 12},
    "objectives": [{"type": "masked_lm"}],
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corruption__block_size": 0}, "corruption.block_size: 0 is less than 1"),
        ({"corruption__block_size": 5},
         r"corruption.block_size: blocks of 5 do not fill max_length 32: 32 = 6 × 5 \+ 2; take a"),
        ({**STREAM, "corruption__block_size": 8},
         r"block_size: blocks of 8 do not end where the next row continues, after reuse_length 12 "
         r"= 1 × 8 \+ 4: take a divisor of both reuse_length and max_length 32"),
        ({"segments__packing": 2, "corruption__block_size": 8},
         "corruption.block_size: 8 tokens of a row are counted, and sequences that share one begin "
         "anywhere: take segments.packing: 1"),
        (STREAM,
         r"config: corruption.block_size: missing: the next row asks for the text behind the first "
         r"12 tokens \(segments.reuse_length\), which these see before the memory keeps them "
         r"\(encoder.attention: bi\): set it to a divisor of them and of max_length 32, such as 4, "
         r"or take encoder.attention: uni, or encoder.memory_length: 0 and encoder.reuse_length"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        small.config(**changes)


def test_what_the_refusal_says_to_do_works():
    assert small.config(**STREAM, corruption__block_size=4).corruption.block_size == 4
    for changes in ({"attention": "uni"}, {"memory_length": 0, "reuse_length": 0}):
        small.config(**{**STREAM, "encoder": {**STREAM["encoder"], **changes}})
    # Rows without a reused part are remembered whole, and followed by other text.
    segments = {**STREAM["segments"], "reuse_length": 0}
    encoder = {**STREAM["encoder"], "reuse_length": 0}
    small.config(**{**STREAM, "segments": segments, "encoder": encoder})
    # What hides nothing has nothing to see.
    permuted = {
        **STREAM, "objectives": [{"type": "permutation_lm"}],
        "corruption": {"type": "permutation", "unit": "token", "num_predict": 5, "perm_size": 4},
    }  # fmt: skip
    assert small.config(**permuted).corruption.type == "permutation"


def test_a_corruption_that_nobody_asks_about_needs_no_blocks():
    pairs = {
        **STREAM,
        "segments": {**STREAM["segments"], "relation": "next_sentence"},
        "encoder": {**STREAM["encoder"], "pooler": True},
        "objectives": [{"type": "sentence_pair"}],
    }
    assert small.config(**pairs).corruption.block_size is None
