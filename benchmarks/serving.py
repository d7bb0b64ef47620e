"""Times a classifier that is served: our SavedModels, PyTorch transformers and ONNX Runtime.

  python -m benchmarks.serving [--folder=DIR] [--lengths short --batches 8 --inputs text ...]

One BERT of base size with random weights goes to every side: made by transformers, brought here by
`official.convert` and written by `official.export`, exported to ONNX by PyTorch. Each side runs in
its own process and environment (made as by `make parity` when missing) with the same number of
threads; before anything is timed they answer the same texts, and in float32 their probabilities
must agree to 1e-4. Then they take turns, round after round, on the same requests: texts of 32
tokens, of 128, and of mixed lengths from 8 to 128 (as many from 8 to 16 as from 64 to 128), one by
one and in batches, as ids (padded beforehand) and as text (each side's own tokenizer, padding to
the longest text of a batch).

What is shown for each side: median and 99th percentile of the time of a call, texts a second (the
median of the rounds), what it takes to load, and memory.

--folder keeps models and texts, so that another run need not make them again.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import environments, process
from benchmarks.process import Process

OURS, TORCH, ONNX = "encoder garden", "PyTorch transformers", "ONNX Runtime"
# Side → (environment or None = ours, script, mode).
SIDES = {
    f"{OURS}, float32": (None, "serving_saved_model.py", "float32"),
    f"{OURS}, bfloat16": (None, "serving_saved_model.py", "bfloat16"),
    f"{OURS}, int8": (None, "serving_saved_model.py", "int8"),
    f"{TORCH}, float32": ("hf", "serving_transformers.py", "float32"),
    f"{TORCH}, bfloat16": ("hf", "serving_transformers.py", "bfloat16"),
    f"{TORCH}, bfloat16 compiled": ("hf", "serving_transformers.py", "bfloat16 compiled"),
    f"{ONNX}, float32": ("hf", "serving_onnx.py", "float32"),
    f"{ONNX}, int8": ("hf", "serving_onnx.py", "int8"),
}
LENGTHS = {"short": (32, 32), "long": (128, 128), "mixed": (8, 128)}
MAX_LENGTH = 128
SPECIALS = 2  # [CLS] and [SEP]
TOLERANCE = 1e-4
# What is asked of the figures: which side, which ones it is measured against.
RATIOS = (
    (f"{OURS}, float32", [f"{ONNX}, float32"]),
    (f"{OURS}, bfloat16", [f"{ONNX}, float32"]),
    (f"{OURS}, int8", [f"{ONNX}, int8"]),
    (f"{OURS}, float32", [f"{TORCH}, float32"]),
    (OURS, [name for name in SIDES if name.startswith(TORCH)]),
)


def lengths(kind: str, count: int, rng: np.random.Generator) -> list[int]:
    """How many tokens each of `count` texts has; special ones are counted."""
    least, most = LENGTHS[kind]
    drawn = np.exp(rng.uniform(np.log(least), np.log(most + 1), count))
    return np.clip(drawn.astype(int), least, most).tolist()


def cut(words: Iterator[tuple[str, list[int]]], length: int) -> tuple[str, list[int]]:
    """The next words that make a text of so many tokens: the text and its ids."""
    text, ids = [], []
    while len(ids) < length - SPECIALS:
        word, pieces = next(words)
        if len(ids) + len(pieces) <= length - SPECIALS:
            text.append(word)
            ids += pieces
    return " ".join(text), ids


def write_requests(source: Path, folder: Path, count: int) -> None:
    """Writes requests.json: for each kind of length, texts and their ids, special ones too."""
    from official import tokenizers

    tokenizer = tokenizers.load(folder / "tokenizer")

    def words() -> Iterator[tuple[str, list[int]]]:
        while True:  # a small text is read again
            with open(source, encoding="utf-8") as lines:
                for line in filter(str.strip, lines):
                    found = line.split()
                    pieces = tokenizer.tokenize(found).to_list()
                    for word, ids in zip(found, pieces, strict=True):
                        if ids and tokenizer.unk_id not in ids:
                            yield word, ids

    rng, stream = np.random.default_rng(0), words()
    requests = {}
    for kind in LENGTHS:
        pairs = [cut(stream, length) for length in lengths(kind, count, rng)]
        requests[kind] = {
            "texts": [text for text, _ in pairs],
            "ids": [[tokenizer.cls_id, *ids, tokenizer.sep_id] for _, ids in pairs],
        }
    (folder / "requests.json").write_text(json.dumps(requests))


def prepare(folder: Path, options: argparse.Namespace) -> None:
    """Makes what is not in the folder yet: vocabulary, texts, models."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = folder / "tokenizer"
    if not (folder / "requests.json").exists():
        if options.text is None:
            from demo import corpus

            corpus.write(folder / "corpus")
            options.text = folder / "corpus" / "text" / "train.txt"
        shutil.rmtree(tokenizer, ignore_errors=True)
        if options.vocabulary is None:
            process.run(
                "-m", "tfrecords_tools.build_vocab", f"--input={options.text}",
                f"--output={tokenizer}", f"--vocab_size={min(8000, options.vocab)}", "--lower_case",
            )  # fmt: skip
        else:
            tokenizer.mkdir()
            shutil.copy(options.vocabulary, tokenizer / "vocab.txt")
            (tokenizer / "tokenizer_config.json").write_text('{"do_lower_case": true}\n')
        with open(tokenizer / "vocab.txt", "r+", encoding="utf-8") as file:
            pieces = len(file.readlines())
            file.writelines(f"[unused{number}]\n" for number in range(pieces, options.vocab))
        write_requests(options.text, folder, options.requests)
    sizes = {k: getattr(options, k) for k in "layers hidden heads intermediate".split()}
    pieces = len((tokenizer / "vocab.txt").read_text("utf-8").splitlines())
    # Our own sides alone are content with a model that is there.
    needed = not (folder / "converted").exists() or not all(
        n.startswith(OURS) for n in options.sides
    )
    if needed and not (folder / "int8.onnx").exists():
        given = {"folder": str(folder), "vocab": pieces} | sizes
        script = environments.ROOT / "benchmarks" / "peers" / "serving_model.py"
        process.run(str(script), json.dumps(given), python=environments.python("hf"))
    if not (folder / "converted").exists():
        process.run(
            "-m", "official.convert", "--source=hf", f"--input={folder}/huggingface",
            f"--output={folder}/converted",
        )  # fmt: skip
    for name in options.sides:
        if not name.startswith(OURS) or (folder / f"saved_{SIDES[name][2]}").exists():
            continue
        mode = SIDES[name][2]
        process.run(
            "-m", "official.export", f"--model_dir={folder}/converted",
            f"--output={folder}/saved_{mode}", f"--max_length={MAX_LENGTH}",
            *([] if mode == "float32" else [f"--precision={mode}"]),
        )  # fmt: skip


class Server(Process):
    """One process that answers requests."""

    def __init__(self, name: str, folder: Path, options: argparse.Namespace):
        environment, script, mode = SIDES[name]
        settings = {
            "folder": str(folder),
            "threads": options.threads,
            "max_length": MAX_LENGTH,
            "mode": mode,
        }
        super().__init__(name, environment, script, settings)
        self.loaded = self.ask("ready")
        self.seconds: dict[tuple, list[list[float]]] = {}  # by cell: of each round, of each call
        self.peak = 0.0

    def probabilities(self, inputs: str) -> np.ndarray:
        """What it says of the first eight texts of mixed lengths: [8, C]."""
        question = {"inputs": inputs, "length": "mixed", "batch": 8, "calls": 1, "answers": True}
        return np.array(self.ask(question)["probabilities"])

    def warm(self, cell: tuple[str, str, int]) -> None:
        """One call of a cell: memory is taken, a shape is seen for the first time."""
        self.ask(dict(zip(("inputs", "length", "batch"), cell, strict=True)) | {"calls": 1})

    def time(self, cell: tuple[str, str, int]) -> None:
        """A round of one cell: (inputs, length, batch)."""
        question = dict(zip(("inputs", "length", "batch"), cell, strict=True))
        self.seconds.setdefault(cell, []).append(self.ask(question)["seconds"])

    def rate(self, cell: tuple[str, str, int], requests: int) -> float:
        """Texts a second, the median of the rounds."""
        return requests / statistics.median(map(sum, self.seconds[cell]))

    def calls(self, cell: tuple[str, str, int]) -> list[float]:
        """The milliseconds of every call."""
        return [1000 * seconds for calls in self.seconds[cell] for seconds in calls]


def compare(servers: list[Server]) -> None:
    """Checks that the sides say the same, from ids and from text; exits where they do not."""
    base = {inputs: servers[0].probabilities(inputs) for inputs in ("ids", "text")}
    spread = base["text"][:, 0].std()
    print(f"answers of {servers[0].name}: standard deviation {spread:.3f} over the texts")
    for server in servers:
        found = {inputs: server.probabilities(inputs) for inputs in base}
        apart = {i: float(np.abs(found[i] - base[i]).max()) for i in base}
        shown = ", ".join(f"{value:.1e} from {inputs}" for inputs, value in apart.items())
        print(f"{server.name}: differs by {shown}", flush=True)
        if server.name.endswith("float32") and max(apart.values()) > TOLERANCE:
            sys.exit(f"error: {server.name} says something else than {servers[0].name}")


def table(servers: list[Server], cells: list[tuple], requests: int) -> None:
    """Prints all figures."""
    for inputs, kind in dict.fromkeys(cell[:2] for cell in cells):
        batches = [cell for cell in cells if cell[:2] == (inputs, kind)]
        least, most = LENGTHS[kind]
        tokens = f"{least}" if least == most else f"{least} to {most}"
        print(f"\n{'Ids' if inputs == 'ids' else 'Text'} in, {tokens} tokens:\n")
        head = "".join(f" batch {c[2]}: p50, p99 ms | texts/s |" for c in batches)
        print(f"| side |{head}\n|---|{'---:|---:|' * len(batches)}")
        for server in servers:
            row = ""
            for cell in batches:
                middle, late = np.percentile(server.calls(cell), [50, 99])
                row += f" {middle:,.1f}, {late:,.1f} | {server.rate(cell, requests):,.1f} |"
            print(f"| {server.name} |{row}")
    print("\n| side | loaded in, s | MiB loaded | peak MiB |\n|---|---:|---:|---:|")
    for server in servers:
        loaded = server.loaded
        print(
            f"| {server.name} | {loaded['seconds']:.1f} | {loaded['mib']:,.0f} "
            f"| {server.peak:,.0f} |"
        )
    ratios(servers, cells, requests)


def ratios(servers: list[Server], cells: list[tuple], requests: int) -> None:
    """Prints texts a second over those of others: the best of ours, the best of theirs."""
    columns = {}
    for ours, theirs in RATIOS:
        mine = [server for server in servers if server.name.startswith(ours)]
        others = [server for server in servers if server.name in theirs]
        if mine and others:
            of = ours if ours != OURS else f"{OURS}, its best"
            what = theirs[0] if len(theirs) == 1 else f"{TORCH}, its best"
            columns[f"{of} / {what}"] = [
                max(s.rate(cell, requests) for s in mine)
                / max(s.rate(cell, requests) for s in others)
                for cell in cells
            ]
    if columns:
        print(f"\n| texts a second | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
        for cell, row in zip(cells, zip(*columns.values(), strict=True), strict=True):
            inputs, kind, batch = cell
            what = f"{inputs} in, {kind}, batch {batch}"
            print(f"| {what} |" + "".join(f" {ratio:.2f} |" for ratio in row))


def main() -> None:
    """Runs the benchmark and prints its tables."""
    options = _options()
    with contextlib.ExitStack() as stack:
        folder = options.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = folder.resolve()
        prepare(folder, options)
        requests = len(json.loads((folder / "requests.json").read_text())["short"]["texts"])
        servers = [Server(name, folder, options) for name in options.sides]
        # PyTorch's float32 is what the others are held against.
        compare(sorted(servers, key=lambda server: server.name != f"{TORCH}, float32"))
        cells = [
            (inputs, kind, batch)
            for inputs in options.inputs
            for kind in options.lengths
            for batch in options.batches
        ]
        for cell in cells:
            for server in servers:
                server.warm(cell)
        for number in range(options.rounds):
            for cell in cells:
                for server in servers:
                    server.time(cell)
            print(f"round {number + 1} done", flush=True)
        for server in servers:
            server.peak = server.ask("peak")["mib"]
            server.close()
        print(
            f"\n{options.layers} layers, hidden {options.hidden}, {requests} texts a round, "
            f"{options.rounds} rounds, {options.threads} threads"
        )
        table(servers, cells, requests)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in {
        "layers": 12, "hidden": 768, "heads": 12, "intermediate": 3072, "vocab": 30_522,
        "requests": 32, "rounds": 3, "threads": os.cpu_count(),
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--inputs", nargs="+", choices=["ids", "text"], default=["ids", "text"])
    parser.add_argument("--lengths", nargs="+", choices=LENGTHS, default=list(LENGTHS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--text", type=Path, help="one sentence a line; default: the demo's corpus")
    parser.add_argument(
        "--vocabulary", type=Path, help="an uncased vocab.txt; default: 8,000 learned"
    )
    parser.add_argument("--folder", type=Path, help="keeps what is made, and uses what is there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
