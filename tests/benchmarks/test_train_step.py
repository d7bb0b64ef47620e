import pytest

from benchmarks import train_step
from tests import commands

SMALL = "--layers 1 --hidden 16 --heads 2 --intermediate 32 --length 32 --batch 4 --predictions 5"


@pytest.mark.slow
@pytest.mark.long
def test_our_sides_run_and_are_tabled():
    sides = [f"encoder garden{name}" for name in ("", ", ELECTRA", ", T5")]
    more = "--vocab 100 --steps 2 --rounds 1 --precisions float32"
    done = commands.run(
        "benchmarks.train_step", "--sides", *sides, *SMALL.split(), *more.split(), status=0
    )
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if "first loss" in line]
    # Untrained: ln 100 for the masked tokens, and ln 2 for the sentence or 50 times that.
    assert losses == pytest.approx([5.30, 39.26, 5.1], abs=0.3)
    table = [line for line in done.stdout.splitlines() if "garden" in line and "|" in line]
    rows = [tuple(cell.strip() for cell in line.split("|")[1:3]) for line in table]
    assert rows == [(side, "float32") for side in sides]
    assert "1.00x" in table[0]


def test_flops_of_a_sequence():
    """Hand counts for 2 layers of 8 with 16 inside, 4 tokens, 3 predictions, 10 pieces."""
    sizes = dict(layers=2, hidden=8, intermediate=16, length=4, predictions=3, vocab=10)
    products = 4 * (8 * 8 * 4) + 4 * 4 * 8 * 2 + 2 * (4 * 8 * 16)  # q k v o, scores and sums, inner
    bert = 2 * (2 * products) + 2 * 3 * (8 * 8 + 8 * 10)
    assert train_step.flops(sizes, "BERT") == bert
    narrow = 4 * (2 * 2 * 4) + 4 * 4 * 2 * 2 + 2 * (4 * 2 * 4)
    generator = 2 * 4 * 8 * 2 + 2 * (2 * narrow) + 2 * 3 * (2 * 8 + 8 * 10)
    question = 2 * 4 * (8 * 8 + 8)
    assert train_step.flops(sizes, "ELECTRA") == 2 * (2 * products) + question + generator
    # Each row: 4 scores by content, 8 by distance, 4 sums, q and output, inner; the last layer has
    # no rows but those that are predicted; k and v of every layer.
    row = 2 * (16 * 8 + 2 * 8 * 8 + 2 * 8 * 16)
    xlnet = (4 + 2 * 3) * row + 2 * (2 * 4 * (2 * 8 * 8)) + 2 * 3 * 8 * 10
    assert train_step.flops(sizes, "XLNet") == xlnet
    # One target for four tokens: its own q, k, v and output, those of the cross-attention, whose
    # keys and values are of all four tokens, and inner.
    own, cross = 4 * 8 * 8 + 2 * 8, 2 * 8 * 8 + 4 * 2 * 8 * 8 + 2 * 4 * 8
    decoder = 2 * (2 * (own + cross + 2 * 8 * 16)) + 2 * 8 * 10
    assert train_step.flops(sizes, "T5") == 2 * (2 * products) + decoder
