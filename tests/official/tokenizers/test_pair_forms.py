"""The form of a pair: what a tokenizer records, and what packing makes of it.

Odd rooms: the lengths are those of BERT's slow and fast tokenizers in transformers 4.57.6, and of
its tokenizer in 5.24.0. `tests/parity/test_pair_forms_parity.py` asks the fast one.
"""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

from official import tokenizers
from official.tokenizers import pair_packing, windows
from official.tokenizers.pair_forms import FIRST, LONGER, ONE, TWO, PairForm
from official.utils.errors import UserError
from tests import small


@dataclasses.dataclass(frozen=True)
class Special:
    pairs: PairForm
    pad_id: int = 0
    cls_id: int = 2
    sep_id: int = 3


def lengths_of(first, second, room, rule):
    """Cuts token by token, as both rules say it in words."""
    both = [first, second]
    while sum(both) > room:
        longer = int(both[1] >= both[0])
        both[longer] -= 1
    if rule == LONGER and first + second > room and room % 2 and abs(both[0] - both[1]) == 1:
        # Only where both are cut: the longer text of the two, and the second of equal ones.
        if min(first, second) > min(both):
            both = [max(both), min(both)] if first > second else [min(both), max(both)]
    return both


def ragged(lengths, start):
    return tf.ragged.constant([list(range(start, start + n)) for n in lengths], tf.int32)


@pytest.mark.parametrize("rule", [FIRST, LONGER])
def test_the_odd_token_of_all_lengths(rule):
    special = Special(PairForm(odd_token=rule))
    sizes = [*itertools.product(range(1, 9), repeat=2)]
    first, second = (ragged([pair[i] for pair in sizes], 10 + 50 * i) for i in (0, 1))
    for room in range(2, 14):
        packed = pair_packing.pack([first, second], special, room + 3)
        kept = [lengths_of(a, b, room, rule) for a, b in sizes]
        seconds = packed["segment_ids"].numpy().sum(axis=1) - 1
        totals = packed["padding_mask"].numpy().sum(axis=1) - 3
        assert np.stack([totals - seconds, seconds], 1).tolist() == kept
        for (a, b), lengths in zip(sizes, kept, strict=True):
            arrays = [np.arange(a) + 10, np.arange(b) + 60]
            _, segments = pair_packing.pack_arrays(arrays, special, room + 3)
            assert segments.tolist() == [lengths[0] + 2, lengths[1] + 1]


# transformers 4.57.6 and 5.24.0: the tokens of both texts, of their lengths and the room.
@pytest.mark.parametrize(
    "lengths, room, slow, fast",
    [
        ((10, 10), 7, [4, 3], [3, 4]),
        ((11, 10), 7, [4, 3], [4, 3]),
        ((10, 11), 7, [4, 3], [3, 4]),
        ((4, 10), 7, [4, 3], [3, 4]),
        ((10, 4), 7, [4, 3], [4, 3]),
        ((3, 10), 7, [3, 4], [3, 4]),
        ((10, 10), 8, [4, 4], [4, 4]),
    ],
)
def test_lengths_that_transformers_keeps(lengths, room, slow, fast):
    for rule, expected in ((FIRST, slow), (LONGER, fast)):
        segments = pair_packing.pack_arrays(
            [np.full(n, 9) for n in lengths], Special(PairForm(odd_token=rule)), room + 3
        )[1]
        assert (segments - [2, 1]).tolist() == expected
        assert lengths_of(*lengths, room, rule) == expected


@pytest.mark.parametrize("separators", [1, 2])
@pytest.mark.parametrize("layout", pair_packing.LAYOUTS)
def test_one_type(layout, separators):
    two = Special(PairForm(separators))
    one = Special(PairForm(separators, ONE))
    texts = [ragged([3, 1], 10), ragged([1, 2], 60)]
    for given in (texts, texts[:1]):
        expected = pair_packing.pack(given, two, 12, layout, pad=True)
        packed = pair_packing.pack(given, one, 12, layout, pad=True)
        for name in ("token_ids", "padding_mask"):
            assert np.array_equal(packed[name], expected[name])
        real = packed["padding_mask"].numpy()
        # In each layout all tokens have one type, [CLS] too; that of padding is as ever.
        assert not packed["segment_ids"].numpy()[real].any()
        assert np.array_equal(packed["segment_ids"].numpy()[~real], expected["segment_ids"][~real])
        if len(given) == 2:
            assert expected["segment_ids"].numpy()[real].any()
            again = pair_packing.pack(given, pair_packing.telling_apart(one), 12, layout, pad=True)
            assert np.array_equal(again["segment_ids"], expected["segment_ids"])


@pytest.mark.parametrize("layout", pair_packing.LAYOUTS)
def test_windows_of_one_type(layout):
    tokenizer = Special(PairForm(types=ONE))
    rows = windows.pack_windows(ragged([2], 10), ragged([9], 60), tokenizer, 10, 3, 4)
    assert len(rows["row"]) > 1
    ids = rows["token_ids"].to_tensor(0)
    mask = tf.sequence_mask(rows["token_ids"].row_lengths(), tf.shape(ids)[1])
    batch = {**rows, "token_ids": ids, "segment_ids": tf.zeros_like(ids), "padding_mask": mask}
    moved = windows.arrange_windows(batch, tokenizer, layout)
    assert not tf.boolean_mask(moved["segment_ids"], moved["padding_mask"]).numpy().any()


def test_settings_are_kept_and_old_ones_stay(tmp_path):
    folder = small.tokenizer_folder(tmp_path / "usual")
    tokenizers.load(folder).save(folder)
    usual = tokenizers.load(folder)
    assert usual.pairs == PairForm(1, TWO, FIRST)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    assert not [key for key in settings if key.startswith("pair_")]
    del settings["fingerprint"]
    for key, value, same in (
        ("pair_types", ONE, False),
        ("pair_separators", 2, False),
        ("pair_odd_text", LONGER, True),
    ):
        file.write_text(json.dumps({**settings, key: value}))
        tokenizers.load(folder).save(tmp_path / key)
        assert json.loads((tmp_path / key / file.name).read_text())[key] == value
        again = tokenizers.load(tmp_path / key)
        changed = {key.removeprefix("pair_").replace("odd_text", "odd_token"): value}
        assert again.pairs == dataclasses.replace(usual.pairs, **changed)
        # The types decide what is read. One token of a pair that is cut does not.
        assert (again.fingerprint == usual.fingerprint) is same
        assert (again.splitting() == usual.splitting()) is same


@pytest.mark.parametrize(
    "key, value, known",
    [
        ("pair_separators", 3, "1 or 2"),
        ("pair_separators", True, "1 or 2"),
        ("pair_types", "three", "two or one"),
        ("pair_types", 1, "two or one"),
        ("pair_odd_text", "second", "first or longer"),
    ],
)
def test_values_that_are_not_known(key, value, known):
    with pytest.raises(UserError, match=f"here: {key} is {value!r}, but must be {known}"):
        PairForm.of({key: value}, PairForm(), "here")


def test_a_key_of_before(tmp_path):
    folder = small.tokenizer_folder(tmp_path / "before")
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({"pair_odd_token": LONGER}))
    tokenizer = tokenizers.load(folder)
    assert tokenizer.pairs.odd_token == LONGER
    tokenizer.save(tmp_path / "after")
    # transformers 5 makes a special token of each key that ends with `_token`.
    saved = json.loads((tmp_path / "after" / file.name).read_text())
    assert saved["pair_odd_text"] == LONGER and "pair_odd_token" not in saved
    assert tokenizers.load(tmp_path / "after").pairs == tokenizer.pairs


def test_in_words():
    assert PairForm().words() == (
        "[CLS] A [SEP] B [SEP], types 0 and 1; an odd token stays in the first text"
    )
    assert PairForm(2, ONE, LONGER).words() == (
        "[CLS] A [SEP] [SEP] B [SEP], type 0 for both texts; an odd token stays in the longer "
        "text, or else the second"
    )
    last = PairForm().words("cls_last")
    assert last.startswith("A [SEP] B [SEP] [CLS], types 0 and 1, 2 for [CLS];")
    assert PairForm().words("no_cls").startswith("A [SEP] B [SEP], types 0 and 1;")
