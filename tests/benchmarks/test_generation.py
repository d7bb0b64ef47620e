import argparse

import pytest
import sentencepiece

from benchmarks import generation
from official import tokenizers


class Side:
    """What the table and the comparison want of a side."""

    new_tokens = 10
    rate = generation.Side.rate

    def __init__(self, side, precision, seconds, tokens=((1, 2),)):
        self.side, self.precision = side, precision
        self.name = f"{side}, {precision}"
        self.seconds = {(4, 2): seconds}
        self.tokens = [list(row) for row in tokens]

    def generate(self, case):
        return self.tokens


def test_the_ratio_is_that_of_the_better_precisions():
    sides = [
        Side(generation.OURS, "float32", [2.0, 1.0, 9.0]),
        Side(generation.OURS, "bfloat16", [0.5]),
        Side(generation.THEIRS, "float32", [1.0]),
        Side(generation.THEIRS, "bfloat16", [4.0]),
    ]
    # 4 rows of 10 tokens in 2 s, the median, are 20 tokens per second.
    lines = generation.table(sides, [(4, 2)])
    assert lines[2] == "| 4 | 2 | 20 | 80 | 40 | 10 | 2.00 |"
    assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|")


def test_other_tokens_in_float32_end_the_benchmark():
    sides = [Side(generation.OURS, "float32", []), Side(generation.THEIRS, "float32", [])]
    generation.compare(sides, (4, 2))
    rounded = Side(generation.OURS, "bfloat16", [], tokens=[(1, 3)])
    generation.compare([*sides, rounded], (4, 2))
    sides[1].tokens[0][1] = 3
    with pytest.raises(SystemExit, match="4 rows, 2 beams: the sides generate other tokens"):
        generation.compare(sides, (4, 2))


def test_the_pieces_are_a_vocabulary_of_the_size(tmp_path):
    generation.write_pieces(tmp_path / "spiece.model", 40)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spiece.model"))
    assert pieces.vocab_size() == 40
    assert (pieces.pad_id(), pieces.eos_id(), pieces.unk_id(), pieces.bos_id()) == (0, 1, 2, -1)
    assert pieces.encode("7 39") == [7, 39]


def test_the_pairs_are_a_vocabulary_of_the_size(tmp_path):
    generation.write_pairs(tmp_path, 300)
    tokenizer = tokenizers.load(tmp_path)
    assert (tokenizer.vocab_size, tokenizer.sep_id) == (300, 299)
    assert tokenizer.decode(tokenizer.encode(["any text"])[0]) == "any text"


def test_flags_change_the_sizes_of_a_model():
    sizes = dict.fromkeys(("layers", "hidden", "heads", "intermediate", "vocab", "new_tokens"))
    given = argparse.Namespace(**sizes | {"layers": 2, "length": 5}, rounds=1)
    changed = generation.family("gpt2", given)
    known = generation.FAMILIES["gpt2"]
    assert changed.sizes == known.sizes | {"layers": 2}
    assert (changed.length, changed.new_tokens, changed.top_k) == (5, 256, 40)
