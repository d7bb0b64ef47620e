"""Times the serving of a classifier: our exports and other runtimes.

  python -m benchmarks.serving [--folder=DIR] [--lengths short --batches 8 --inputs text ...]

The other runtimes are PyTorch transformers, ONNX Runtime, OpenVINO and CTranslate2.
--system=deberta (v3) and --system=modernbert compare our exports only with transformers.

All sides serve the same BERT of base size with random weights, made by transformers: converted by
`official.convert` and exported by `official.export`, exported to ONNX by PyTorch (OpenVINO reads
this file), or converted by CTranslate2. Each side runs in separate processes and a separate
environment (made as by `make parity` when missing); before anything is timed, the sides answer the
same texts, and in float32 their probabilities must agree to 1e-4. Then they take turns, round after
round, on the same requests: texts of 32 tokens, of 128, and of mixed lengths from 8 to 128 (as many
from 8 to 16 as from 64 to 128), one by one and in batches, as ids (padded beforehand) and as text
(each side's own tokenizer, padding to the longest text of a batch).

A side is served in two ways, each by a process: one request at a time, computed with all threads;
and as many concurrent requests as there are threads, each computed with one thread. The tables show
for each side: median and 99th percentile of the time of a single call; texts a second (the median
of the rounds) in both ways; the time to load, and memory. Ratios are those of the better way of
each side. A process takes up to 1.5 GB; --at_once=1 needs half as many processes.

--folder keeps models and texts for further runs.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import environments
from benchmarks.environments import Process

OURS, TORCH, ONNX = "encoder garden", "PyTorch transformers", "ONNX Runtime"
OPENVINO, CTRANSLATE = "OpenVINO", "CTranslate2"
# {side: (environment or None = ours, function of `peers`, mode)}.
SIDES = {
    f"{OURS}, float32": (None, "serving.saved_model", "float32"),
    f"{OURS}, bfloat16": (None, "serving.saved_model", "bfloat16"),
    f"{OURS}, int8": (None, "serving.saved_model", "int8"),
    f"{OURS}, LiteRT int8": ("hf", "serving.litert", "litert_int8"),
    f"{TORCH}, float32": ("hf", "serving.transformers", "float32"),
    f"{TORCH}, float32 compiled": ("hf", "serving.transformers", "float32 compiled"),
    f"{TORCH}, bfloat16": ("hf", "serving.transformers", "bfloat16"),
    f"{TORCH}, bfloat16 compiled": ("hf", "serving.transformers", "bfloat16 compiled"),
    f"{ONNX}, float32": ("hf", "serving.onnx", "float32"),
    f"{ONNX}, int8": ("hf", "serving.onnx", "int8"),
    f"{OPENVINO}, float32": ("hf", "serving.openvino", "float32"),
    f"{OPENVINO}, bfloat16": ("hf", "serving.openvino", "bfloat16"),
    f"{OPENVINO}, int8": ("hf", "serving.openvino", "int8"),
    # CTranslate2 has no bfloat16 on CPUs.
    f"{CTRANSLATE}, float32": ("hf", "serving.ctranslate", "float32"),
    f"{CTRANSLATE}, int8": ("hf", "serving.ctranslate", "int8"),
}
# Further files of some sides, besides those of `serving.write`: {begin of the side's name: (the
# function of `peers` that writes them, the last file that it writes)}.
WRITERS = {
    f"{OPENVINO}, int8": ("serving.write_openvino", "openvino_int8.xml"),
    CTRANSLATE: ("serving.write_ctranslate", "ctranslate2"),
}
SYSTEMS = {"bert": tuple(SIDES)} | dict.fromkeys(
    ("deberta", "modernbert"),
    tuple(
        name for name in SIDES
        if name.startswith(TORCH) or name in (f"{OURS}, float32", f"{OURS}, bfloat16")
    ),
)  # fmt: skip
LENGTHS = {"short": (32, 32), "long": (128, 128), "mixed": (8, 128)}
MAX_LENGTH = 128
SPECIALS = 2  # [CLS] and [SEP]
TOLERANCE = 1e-4
BASE = f"{TORCH}, float32"  # the other sides are compared with this side
# The ratios to print: the best of our sides over the best of others, by the begin of their names.
RATIOS = (
    (f"{OURS}, float32", f"{ONNX}, float32"),
    (f"{OURS}, bfloat16", f"{ONNX}, float32"),
    (f"{OURS}, int8", f"{ONNX}, int8"),
    (f"{OURS}, LiteRT int8", f"{ONNX}, int8"),
    (f"{OURS}, float32", f"{OPENVINO}, float32"),
    (f"{OURS}, bfloat16", f"{OPENVINO}, bfloat16"),
    (f"{OURS}, int8", f"{OPENVINO}, int8"),
    (f"{OURS}, LiteRT int8", f"{OPENVINO}, int8"),
    (f"{OURS}, float32", f"{CTRANSLATE}, float32"),
    (f"{OURS}, int8", f"{CTRANSLATE}, int8"),
    (f"{OURS}, float32", f"{TORCH}, float32"),
    (f"{OURS}, bfloat16", f"{TORCH}, bfloat16"),
    (OURS, TORCH),
)

Cell = tuple[str, str, int]  # inputs, length, batch


class Server(Process):
    """A process that answers `at_once` requests at a time."""

    def __init__(self, name: str, folder: Path, threads: int, at_once: int):
        environment, side, mode = SIDES[name]
        settings = {
            "folder": str(folder),
            "threads": max(1, threads // at_once),
            "at_once": at_once,
            "max_length": MAX_LENGTH,
            "mode": mode,
        }
        super().__init__(name, environment, side, settings)
        self.loaded = self.ask("ready")
        self.seconds: dict[Cell, list[list[float]]] = {}  # of each call of each round
        self.rates: dict[Cell, list[float]] = {}  # texts per second of each round
        self.peak = 0.0

    def probabilities(self, inputs: str) -> np.ndarray:
        """Returns the probabilities of the first eight texts of mixed lengths, [8, C]."""
        question = {"inputs": inputs, "length": "mixed", "batch": 8, "calls": 1, "answers": True}
        return np.array(self.ask(question)["probabilities"])

    def warm(self, cell: Cell) -> None:
        """Makes one call of a cell, to allocate memory and trace new shapes."""
        self.ask(dict(zip(("inputs", "length", "batch"), cell, strict=True)) | {"calls": 1})

    def time(self, cell: Cell) -> None:
        """Runs a round of one cell."""
        answer = self.ask(dict(zip(("inputs", "length", "batch"), cell, strict=True)))
        self.seconds.setdefault(cell, []).append(answer["seconds"])
        self.rates.setdefault(cell, []).append(answer["texts"] / answer["whole"])

    def rate(self, cell: Cell) -> float:
        """Returns texts per second, the median of the rounds."""
        return statistics.median(self.rates[cell])

    def calls(self, cell: Cell) -> list[float]:
        """Returns the milliseconds of every call."""
        return [1000 * seconds for calls in self.seconds[cell] for seconds in calls]


Sides = dict[str, list[Server]]  # the servers of a side; the first answers one request at a time


def compare(sides: Sides) -> None:
    """Checks that the sides agree, from ids and from text; exits if they do not."""
    servers = sorted((s for side in sides.values() for s in side), key=lambda s: s.name != BASE)
    base = {inputs: servers[0].probabilities(inputs) for inputs in ("ids", "text")}
    spread = base["text"][:, 0].std()
    print(f"answers of {servers[0].name}: standard deviation {spread:.3f} over the texts")
    for server in servers:
        answers = {inputs: server.probabilities(inputs) for inputs in base}
        apart = {i: float(np.abs(answers[i] - base[i]).max()) for i in base}
        shown = ", ".join(f"{value:.1e} from {inputs}" for inputs, value in apart.items())
        print(f"{server.name}: differs by {shown}", flush=True)
        if "float32" in server.name and max(apart.values()) > TOLERANCE:
            sys.exit(f"error: the answers of {server.name} differ from those of {servers[0].name}")


def table(sides: Sides, cells: list[Cell], at_once: list[int]) -> None:
    """Prints all measurements.

    Args:
      sides: the sides, after their rounds.
      cells: the cells that were timed.
      at_once: the number of concurrent requests of each side's servers.
    """
    for inputs, kind in dict.fromkeys(cell[:2] for cell in cells):
        batches = [cell for cell in cells if cell[:2] == (inputs, kind)]
        shortest, longest = LENGTHS[kind]
        tokens = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
        print(f"\n{'Ids' if inputs == 'ids' else 'Text'} in, {tokens} tokens:\n")
        rates = "".join(f" texts/s, {n} at once |" for n in at_once)
        head = "".join(f" batch {c[2]}: p50, p99 ms |{rates}" for c in batches)
        print(f"| side |{head}\n|---|{'---:|' * (1 + len(at_once)) * len(batches)}")
        for name, servers in sides.items():
            row = ""
            for cell in batches:
                middle, late = np.percentile(servers[0].calls(cell), [50, 99])
                row += f" {middle:,.1f}, {late:,.1f} |"
                row += "".join(f" {server.rate(cell):,.1f} |" for server in servers)
            print(f"| {name} |{row}")
    print("\n| side | loaded in, s | MiB loaded | peak MiB |\n|---|---:|---:|---:|")
    for name, (server, *_) in sides.items():
        loaded = server.loaded
        print(f"| {name} | {loaded['seconds']:.1f} | {loaded['mib']:,.0f} | {server.peak:,.0f} |")
    ratios(sides, cells)


def ratios(sides: Sides, cells: list[Cell]) -> None:
    """Prints the ratio of texts per second of the best of our sides to the best of theirs."""

    def best(beginning: str, cell: Cell) -> float:
        chosen = [sides[name] for name in sides if name.startswith(beginning)]
        return max((s.rate(cell) for servers in chosen for s in servers), default=0.0)

    columns = {
        f"{ours} / {theirs}": [best(ours, cell) / best(theirs, cell) for cell in cells]
        for ours, theirs in RATIOS
        if best(ours, cells[0]) and best(theirs, cells[0])
    }
    if columns:
        print(f"\n| texts a second | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
        for cell, row in zip(cells, zip(*columns.values(), strict=True), strict=True):
            inputs, kind, batch = cell
            what = f"{inputs} in, {kind}, batch {batch}"
            print(f"| {what} |" + "".join(f" {ratio:.2f} |" for ratio in row))


def main() -> None:
    """Runs the benchmark and prints its tables."""
    options = _options()
    with environments.folder(options.folder) as folder:
        prepare(folder, options)
        requests = len(json.loads((folder / "requests.json").read_text())["short"]["texts"])
        at_once = options.at_once or list(dict.fromkeys((1, options.threads)))
        sides = {
            name: [Server(name, folder, options.threads, number) for number in at_once]
            for name in options.sides
        }
        compare(sides)
        cells = [
            (inputs, kind, batch)
            for inputs in options.inputs
            for kind in options.lengths
            for batch in options.batches
        ]
        servers = [server for side in sides.values() for server in side]
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
        table(sides, cells, at_once)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in {
        "layers": 12, "hidden": 768, "heads": 12, "intermediate": 3072, "vocab": 30_522,
        "requests": 32, "rounds": 3, "threads": os.cpu_count(),
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    parser.add_argument("--system", choices=SYSTEMS, default="bert", help="default: bert")
    parser.add_argument("--sides", nargs="+", choices=SIDES, help="default: all of the system")
    parser.add_argument("--inputs", nargs="+", choices=["ids", "text"], default=["ids", "text"])
    parser.add_argument("--lengths", nargs="+", choices=LENGTHS, default=list(LENGTHS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument(
        "--at_once", nargs="+", type=int, help="requests at a time; default: 1, and the threads"
    )
    parser.add_argument("--text", type=Path, help="one sentence a line; default: the demo's corpus")
    parser.add_argument(
        "--vocabulary", type=Path, help="an uncased vocab.txt; default: 8,000 learned"
    )
    parser.add_argument(
        "--folder", type=Path, help="folder that keeps the files, and whose files are used again"
    )
    options = parser.parse_args()
    known = SYSTEMS[options.system]
    options.sides = options.sides or list(known)
    if others := [side for side in options.sides if side not in known]:
        parser.error(f"--sides: {', '.join(others)}: not of --system={options.system}")
    return options


def lengths(kind: str, count: int, rng: np.random.Generator) -> list[int]:
    """Returns the length of each of `count` texts, including special tokens."""
    shortest, longest = LENGTHS[kind]
    drawn = np.exp(rng.uniform(np.log(shortest), np.log(longest + 1), count))
    return np.clip(drawn.astype(int), shortest, longest).tolist()


def cut(words: Iterator[tuple[str, list[int]]], length: int) -> tuple[str, list[int]]:
    """Returns the next words that form a text of a given length, as text and as ids."""
    text, ids = [], []
    while len(ids) < length - SPECIALS:
        word, pieces = next(words)
        if len(ids) + len(pieces) <= length - SPECIALS:
            text.append(word)
            ids += pieces
    return " ".join(text), ids


def write_requests(source: Path, folder: Path, count: int) -> None:
    """Writes requests.json: texts and their ids, with special tokens, for each kind of length."""
    from official import tokenizers

    tokenizer = tokenizers.load(folder / "tokenizer")

    def words() -> Iterator[tuple[str, list[int]]]:
        while True:  # a small text is read repeatedly
            with open(source, encoding="utf-8") as lines:
                for line in filter(str.strip, lines):
                    words = line.split()
                    pieces = tokenizer.tokenize(words).to_list()
                    for word, ids in zip(words, pieces, strict=True):
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


def write_tokenizer(vocabulary: Path, folder: Path, size: int) -> None:
    """Writes an uncased WordPiece tokenizer, with unused pieces up to a size."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pieces = vocabulary.read_text("utf-8").splitlines()
    pieces += [f"[unused{number}]" for number in range(len(pieces), size)]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), "utf-8")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}\n')


def prepare(folder: Path, options: argparse.Namespace) -> None:
    """Creates the files that are missing in a folder: vocabulary, texts, models.

    Args:
      folder: the folder.
      options: the options of the command line; `sides` decides which files are needed.
    """
    ours = [name for name in options.sides if name.startswith(OURS)]
    theirs = [name for name in options.sides if name not in ours]
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = folder / "tokenizer"
    if not (folder / "requests.json").exists():
        if options.text is None:
            from demo import corpus

            corpus.write(folder / "corpus")
            options.text = folder / "corpus" / "text" / "train.txt"
        vocabulary = options.vocabulary
        if vocabulary is None:
            environments.run(
                "tfrecords_tools.build_vocab", f"--input={options.text}",
                f"--output={folder}/learned", f"--vocab_size={min(8000, options.vocab)}",
                "--lower_case",
            )  # fmt: skip
            vocabulary = folder / "learned" / "vocab.txt"
        write_tokenizer(vocabulary, tokenizer, options.vocab)
        write_requests(options.text, folder, options.requests)
    sizes = {k: getattr(options, k) for k in "layers hidden heads intermediate".split()}
    pieces = len((tokenizer / "vocab.txt").read_text("utf-8").splitlines())
    # If only our sides run, an existing model is used.
    written = folder / ("int8.onnx" if options.system == "bert" else "huggingface")
    if (theirs or not (folder / "converted").exists()) and not written.exists():
        settings = {"folder": str(folder), "vocab": pieces, "system": options.system} | sizes
        environments.run_peer("serving.write", "hf", settings)
    if not (folder / "converted").exists():
        environments.run(
            "official.convert", "--source=hf", f"--input={folder}/huggingface",
            f"--output={folder}/converted",
        )  # fmt: skip
    for beginning, (writer, file) in WRITERS.items():
        if any(name.startswith(beginning) for name in theirs) and not (folder / file).exists():
            environments.run_peer(writer, "hf", {"folder": str(folder)})
    for name in (SIDES[side][2] for side in ours):  # "precision" or "format_precision"
        form, _, precision = name.rpartition("_")
        if not (folder / f"saved_{name}").exists():
            environments.run(
                "official.export", f"--model_dir={folder}/converted",
                f"--output={folder}/saved_{name}", f"--max_length={MAX_LENGTH}",
                f"--precision={precision}", f"--format={form or 'saved_model'}",
            )  # fmt: skip


if __name__ == "__main__":
    main()
