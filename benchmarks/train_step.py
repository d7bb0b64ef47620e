"""Times one pretraining step of BERT: ours, and those of TensorFlow and PyTorch.

  python -m benchmarks.train_step

or of other systems of this project against BERT at the same sizes:

  python -m benchmarks.train_step --sides 'encoder garden' 'encoder garden, ALBERT' \
      'encoder garden, ELECTRA' 'encoder garden, XLNet'
  python -m benchmarks.train_step --sides 'encoder garden' 'encoder garden, T5' \
      'PyTorch transformers, T5'
  python -m benchmarks.train_step --sides 'encoder garden' 'encoder garden, DeBERTa' \
      'PyTorch transformers, DeBERTa'
  python -m benchmarks.train_step --sides 'encoder garden' 'encoder garden, ModernBERT' \
      'PyTorch transformers, ModernBERT'

The other sides are tf-models-official, PyTorch transformers, and a BERT written by hand in PyTorch
with joined projections, SDPA and the masked LM only at the predicted positions. Same sizes, same
random batches, dropout 0.1, AdamW (ALBERT: LAMB) with clipping. Every side runs in its own process
and environment (made as by `make parity` when missing), in float32 and in mixed bfloat16; the
processes take turns, round after round, on the same cores. The table shows the median of the
rounds, peak memory as the system reports it, and for each side the time of its better precision
relative to our BERT, with the ratio of FLOPs. 'its products alone' are only the matrix products of
our BERT's step, with the same shapes: a lower bound of its time. T5 has as many layers in its
decoder as in its encoder, and as many targets as span corruption gives (29 for 128 tokens). DeBERTa
is the encoder of v3 with a masked LM, since transformers has no class for its pretraining.
ModernBERT has dropout only at the output of attention. Its PyTorch side predicts only the masked
tokens (`sparse_prediction`), and has no dropout.
"""

import argparse
import os
import statistics

from benchmarks.environments import Process

# {side: (environment or None = ours, function of `peers`, system)}.
SIDES = {
    "encoder garden": (None, "train_step_ours.step", "BERT"),
    "its products alone": (None, "train_step_ours.products", "BERT"),
    "encoder garden, ALBERT": (None, "train_step_ours.step", "ALBERT"),
    "encoder garden, ELECTRA": (None, "train_step_ours.step", "ELECTRA"),
    "encoder garden, XLNet": (None, "train_step_ours.step", "XLNet"),
    "tf-models-official": ("tfm", "tf_models.step", "BERT"),
    "PyTorch transformers": ("hf", "train_step_transformers.bert", "BERT"),
    "PyTorch by hand": ("hf", "train_step_torch.step", "BERT"),
    "encoder garden, T5": (None, "train_step_ours.step", "T5"),
    "PyTorch transformers, T5": ("hf", "train_step_transformers.t5", "T5"),
    "encoder garden, DeBERTa": (None, "train_step_ours.step", "DeBERTa"),
    "encoder garden, ModernBERT": (None, "train_step_ours.step", "ModernBERT"),
    "PyTorch transformers, ModernBERT": ("hf", "train_step_transformers.modernbert", "ModernBERT"),
    "PyTorch transformers, DeBERTa": ("hf", "train_step_transformers.deberta", "DeBERTa"),
}
OF_BERT = [name for name, (_, _, system) in SIDES.items() if system == "BERT"]


def targets_of(length: int) -> int:
    """Returns the number of targets of span corruption for a row of T5."""
    return round(length * 0.2266)  # 29 of 128, 116 of 512


def flops(sizes: dict, system: str) -> int:
    """Returns the FLOPs of a forward pass over a sequence; a multiply-add counts as two."""
    length, layers, vocab = sizes["length"], sizes["layers"], sizes["vocab"]

    def encoder(hidden: int, inner: int) -> int:
        return layers * length * (8 * hidden**2 + 4 * length * hidden + 4 * hidden * inner)

    def masked_lm(hidden: int, embedding: int) -> int:
        return sizes["predictions"] * 2 * embedding * (hidden + vocab)

    hidden, inner = sizes["hidden"], sizes["intermediate"]
    if system == "ELECTRA":
        narrow = hidden // 4
        generator = 2 * length * hidden * narrow + encoder(narrow, inner // 4)
        question = 2 * length * hidden * (hidden + 1)
        return encoder(hidden, inner) + question + generator + masked_lm(narrow, hidden)
    if system == "XLNet":
        queries = sizes["predictions"]
        # Content scores, scores of 2 T distances, sums of values; projections of query and output.
        row = 2 * hidden * 4 * length + 4 * hidden**2 + 4 * hidden * inner
        key_value = length * 4 * hidden**2  # The content stream of the last layer is not used.
        content = (layers - 1) * length * row + layers * key_value
        return content + layers * queries * row + queries * 2 * hidden * vocab
    if system == "T5":
        targets = targets_of(length)
        own = 8 * targets * hidden**2 + 4 * targets**2 * hidden
        cross = 4 * (targets + length) * hidden**2 + 4 * targets * length * hidden
        decoder = layers * (own + cross + 4 * targets * hidden * inner)
        return encoder(hidden, inner) + decoder + targets * 2 * hidden * vocab
    if system == "ModernBERT":
        # One layer of three attends to the whole row; gated feed-forward networks.
        near = min(length, 129)
        keys = sum(near if i % 3 else length for i in range(layers))
        row = layers * (8 * hidden**2 + 6 * hidden * inner) + 4 * keys * hidden
        return length * row + masked_lm(hidden, hidden)
    if system == "DeBERTa":
        # Products of queries, and of keys, with 2 T distances; projections of these, for a batch.
        distances = layers * (8 * length**2 * hidden + 8 * length * hidden**2 / sizes["batch"])
        return encoder(hidden, inner) + round(distances) + masked_lm(hidden, hidden)
    embedding = 128 if system == "ALBERT" else hidden
    projection = 0 if embedding == hidden else 2 * length * embedding * hidden
    return encoder(hidden, inner) + projection + masked_lm(hidden, embedding)


class Side(Process):
    """A process that makes training steps on request."""

    def __init__(self, name: str, precision: str, sizes: dict):
        environment, side, system = SIDES[name]
        settings = sizes | {"precision": precision, "system": system}
        super().__init__(f"{name}, {precision}", environment, side, settings)
        self.name = name
        self.precision = precision
        self.answers: list[dict] = []

    def seconds(self) -> float:
        """Returns the seconds per step, the median of the rounds."""
        return statistics.median(answer["seconds"] for answer in self.answers)


def main() -> None:
    """Runs the benchmark and prints its table."""
    options = _options()
    sizes = {
        key: getattr(options, key)
        for key in "layers hidden heads intermediate length batch predictions vocab".split()
    }
    sizes |= {"compile": options.compile, "targets": targets_of(options.length)}
    sides = []
    for name in options.sides:
        for precision in options.precisions:
            side = Side(name, precision, sizes)
            first = side.ask(options.warmup)  # traces graphs and allocates memory
            print(f"{name}, {precision}: first loss {first['loss']:.3f}", flush=True)
            sides.append(side)
    for number in range(options.rounds):
        for side in sides:
            side.answers.append(side.ask(options.steps))
        seconds = "  ".join(f"{side.answers[-1]['seconds']:.3f}" for side in sides)
        print(f"round {number + 1}: {seconds} s/step", flush=True)
    for side in sides:
        side.close()
    _table(sides, sizes)


def _table(sides: list[Side], sizes: dict) -> None:
    best = {}
    for side in sides:
        if side.name not in best or side.seconds() < best[side.name].seconds():
            best[side.name] = side
    ours = best.get("encoder garden")
    print(
        f"\n{sizes['layers']} layers, hidden {sizes['hidden']}, {sizes['heads']} heads, inner "
        f"{sizes['intermediate']}, batch {sizes['batch']} x {sizes['length']}, "
        f"{sizes['predictions']} predictions, {sizes['vocab']:,} pieces, {os.cpu_count()} cores\n"
    )
    print(
        f"| {'side':23} | precision | s/step | range         | tokens/s | peak MiB | vs ours "
        "| FLOPs |"
    )
    print(
        f"|{'-' * 25}|-----------|--------|---------------|----------|----------|---------|-------|"
    )
    for side in sides:
        times = [answer["seconds"] for answer in side.answers]
        ratio = ""
        if ours is not None and side is best[side.name]:
            ratio = f"{side.seconds() / ours.seconds():.2f}x"
        relative = flops(sizes, SIDES[side.name][2]) / flops(sizes, "BERT")
        print(
            f"| {side.name:23} | {side.precision:9} | {side.seconds():6.3f} | "
            f"{f'{min(times):.3f}-{max(times):.3f}':13} | "
            f"{sizes['batch'] * sizes['length'] / side.seconds():8,.0f} | "
            f"{max(answer['peak_mib'] for answer in side.answers):8,.0f} | {ratio:>7} | "
            f"{relative:4.2f}x |"
        )
    print(
        "\nvs ours: seconds per step of a side's better precision over those of our BERT; "
        "FLOPs: of a step over those of BERT's."
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in {
        "layers": 4, "hidden": 512, "heads": 8, "intermediate": 2048, "length": 128, "batch": 16,
        "predictions": 20, "vocab": 30_522, "warmup": 2, "steps": 8, "rounds": 5,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=OF_BERT)
    precisions = ["float32", "bfloat16"]
    parser.add_argument("--precisions", nargs="+", choices=precisions, default=precisions)
    parser.add_argument(
        "--compile", action="store_true", help="XLA for the TensorFlow sides, torch.compile"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
