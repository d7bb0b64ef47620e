"""Times the preprocessing of BERT's pretraining examples: ours and tf-models-official's.

  python -m benchmarks.preprocess [--text=FILE] [--vocabulary=FILE] [--memory]

Both sides run as commands, as for users, with the same text, vocabulary, lengths, masks and
duplicates, and take turns, round after round, on the same cores. Theirs (`create_pretraining_data`)
is one process in a separate environment (made as by `make parity` when missing). Ours runs one
worker a core. Each side also runs on a text of two documents, which measures its start-up (mainly
the import of TensorFlow); examples a second are given with and without the start-up. Peak memory is
the peak, as the system reports it, of the main process and of its largest worker, each with its
shared pages.

--memory shows the time and the memory of ours, from a small corpus to a large one.
"""

import argparse
import functools
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import yaml

from benchmarks import environments

LENGTH, PREDICTIONS, DUPLICATES, MASK_RATE = 128, 20, 5, 0.15
THEIRS = "tf-models-official"
# {side: (options of build_shards, a description of the files)}.
OURS = {
    "ours, tf_models": (["--format=tf_models"], "the same features"),
    "ours, static masks": (["--override=segments.static_masks=true"], "unpadded, masked"),
    "ours": ([], "unpadded, to be masked in training"),
}


class Memory(threading.Thread):
    """Measures the peak memory of a process and its descendants, in MiB."""

    def __init__(self, process: int):
        super().__init__(daemon=True)
        self._process = process
        self._ended = threading.Event()
        self.main = self.worker = 0.0

    def run(self) -> None:
        """Measures ten times a second."""
        while not self._ended.wait(0.1):
            self.main = max(self.main, _peak(self._process))
            for below in children(self._process):
                # Workers are grandchildren: they are forked from a child of the main process.
                self.worker = max([self.worker, *map(_peak, children(below))])

    def end(self) -> None:
        """Stops measuring."""
        self._ended.set()
        self.join()


def _peak(process: int) -> float:
    try:
        status = Path(f"/proc/{process}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    except (OSError, IndexError):  # the process has ended
        return 0.0


def children(process: int) -> list[int]:
    """Returns the processes that a process has started, and that run."""
    try:
        files = Path(f"/proc/{process}/task").glob("*/children")
        return [int(child) for path in files for child in path.read_text().split()]
    except OSError:
        return []


def measure(command: list[str], records: Path) -> dict:
    """Runs a command and counts the examples that it wrote to `records`, a file or a folder.

    Their command must not start in our root folder, where `official` is our package; ours must, so
    that its workers can import it.
    """
    folder = records.parent if records.suffix else environments.ROOT
    variables = environments.variables()
    with tempfile.TemporaryFile("w+") as output:
        started = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=output, stderr=output)
        memory = Memory(process.pid)
        memory.start()
        status = process.wait()
        seconds = time.monotonic() - started
        memory.end()
        output.seek(0)
        said = output.read()
        if status:
            sys.exit(f"error: {' '.join(command)} ended with {status}:\n{said[-3000:]}")
    paths = [records] if records.is_file() else list(records.glob("*.tfrecord"))
    answer = {
        "seconds": seconds,
        "examples": sum(map(count_records, paths)),
        "bytes": sum(path.stat().st_size for path in paths),
        "main": memory.main,
        "worker": memory.worker,
        "said": said,
    }
    shutil.rmtree(records) if records.is_dir() else records.unlink()
    return answer


def count_records(path: Path) -> int:
    """Returns the number of records in a TFRecord file."""
    count = 0
    with open(path, "rb") as file:
        while head := file.read(12):
            file.seek(struct.unpack("<Q", head[:8])[0] + 4, os.SEEK_CUR)
            count += 1
    return count


def run_theirs(text: Path, folder: Path, options: argparse.Namespace) -> dict:
    """Measures create_pretraining_data."""
    output = folder / "theirs.tfrecord"
    settings = {
        "input_file": text,
        "output_file": output,
        "vocab_file": folder / "tokenizer" / "vocab.txt",
        "do_lower_case": not options.cased,
        "do_whole_word_mask": options.unit == "word",
        "max_seq_length": LENGTH,
        "max_predictions_per_seq": PREDICTIONS,
        "masked_lm_prob": MASK_RATE,
        "dupe_factor": DUPLICATES,
    }
    module = "official.nlp.data.create_pretraining_data"
    flags = [f"--{name}={value}" for name, value in settings.items()]
    return measure([environments.python("tfm"), "-m", module, *flags], output)


def run_ours(text: Path, folder: Path, options: argparse.Namespace, name: str) -> dict:
    """Measures build_shards."""
    command = [
        sys.executable, "-m", "tfrecords_tools.build_shards", f"--config={folder}/config.yaml",
        f"--input={text}", f"--tokenizer={folder}/tokenizer", f"--output={folder}/ours",
        f"--workers={options.workers}", *OURS[name][0],
    ]  # fmt: skip
    return measure(command, folder / "ours")


def write_config(folder: Path, unit: str) -> None:
    """Returns our config of the same sizes; its network is not used."""
    config = {
        "name": "preprocess",
        "segments": {"max_length": LENGTH, "duplicates": DUPLICATES},
        "corruption": {
            "type": "token_masks",
            "unit": unit,
            "mask_rate": MASK_RATE,
            "max_predictions": PREDICTIONS,
        },
        "encoder": {
            "type": "transformer",
            "hidden_size": 8,
            "num_layers": 1,
            "num_heads": 1,
            "intermediate_size": 8,
        },
        "objectives": [{"type": "masked_lm"}, {"type": "sentence_pair"}],
        "recipe": {"steps": 1},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


def write_text(source: Path, target: Path, megabytes: float) -> None:
    """Writes whole documents of `source`, repeated as often as needed."""
    size = 0
    with open(target, "wb") as out:
        while size < megabytes * 1e6:
            with open(source, "rb") as lines:
                for line in lines:
                    size += out.write(line)
                    if not line.strip() and size >= megabytes * 1e6:
                        return
            size += out.write(b"\n\n")


def speed(folder: Path, options: argparse.Namespace) -> None:
    """Prints the table of both sides."""
    text, little = folder / "text.txt", folder / "little.txt"
    write_text(options.text, text, options.megabytes)
    write_text(options.text, little, 0.001)
    sides = {THEIRS: run_theirs, **{n: functools.partial(run_ours, name=n) for n in OURS}}
    answers: dict[str, list[dict]] = {name: [] for name in sides}
    for number in range(options.rounds):
        for name, side in sides.items():
            start = side(little, folder, options)["seconds"]
            answers[name].append({**side(text, folder, options), "start": start})
        shown = (f"{a[-1]['seconds']:.1f} ({a[-1]['start']:.1f})" for a in answers.values())
        print(f"round {number + 1}, seconds (to start): {'  '.join(shown)}", flush=True)
    pieces = len((folder / "tokenizer" / "vocab.txt").read_bytes().split())
    print(
        f"\n{text.stat().st_size / 1e6:.1f} MB of text, {pieces:,} pieces, length {LENGTH}, "
        f"{DUPLICATES} duplicates, {options.unit} masks; {os.cpu_count()} cores, "
        f"{options.workers} workers; medians of {options.rounds} rounds\n"
    )
    print(
        "| side | examples | start, s | whole, s | examples/s | vs theirs | once started "
        "| vs theirs | MB | main MiB | worker MiB | what it writes |"
    )
    print(f"|---|{'---:|' * 10}---|")
    base = _rates(answers[THEIRS])
    for name, rounds in answers.items():
        whole, started = _rates(rounds)
        print(
            f"| {name} | {rounds[0]['examples']:,} | {_median(rounds, 'start'):.1f} "
            f"| {_median(rounds, 'seconds'):.1f} | {whole:,.0f} | {whole / base[0]:.1f}x "
            f"| {started:,.0f} | {started / base[1]:.1f}x | {rounds[0]['bytes'] / 1e6:.0f} "
            f"| {max(r['main'] for r in rounds):,.0f} | {max(r['worker'] for r in rounds):,.0f} "
            f"| {OURS[name][1] if name in OURS else 'padded, masked'} |"
        )


def _rates(rounds: list[dict]) -> tuple[float, float]:
    """Returns examples per second, with and without the time to start."""
    seconds, start = _median(rounds, "seconds"), _median(rounds, "start")
    examples = rounds[0]["examples"]
    # Differences below a tenth of the start time are noise.
    return examples / seconds, examples / max(seconds - start, start / 10)


def _median(rounds: list[dict], what: str) -> float:
    return statistics.median(answer[what] for answer in rounds)


def memory(folder: Path, options: argparse.Namespace) -> None:
    """Prints how our memory grows with the corpus."""
    print(f"\n{options.side}, {options.workers} workers\n")
    print("| text MB | examples | shards MB | seconds | main MiB | worker MiB |")
    print("|---:|---:|---:|---:|---:|---:|")
    answers = []
    for megabytes in options.memory_megabytes:
        text = folder / "text.txt"
        write_text(options.text, text, megabytes)
        result = run_ours(text, folder, options, options.side)
        answers.append(result)
        print(
            f"| {megabytes:.0f} | {result['examples']:,} | {result['bytes'] / 1e6:,.0f} | "
            f"{result['seconds']:.1f} | {result['main']:,.0f} | {result['worker']:,.0f} |",
            flush=True,
        )
    for part in ("main", "worker"):
        growth = answers[-1][part] / answers[0][part] - 1
        print(f"growth of the {part} process: {growth:+.1%}")


def prepare(folder: Path, options: argparse.Namespace) -> None:
    """Finds or creates the text and the vocabulary."""
    if options.text is None:
        from demo import corpus

        corpus.write(folder / "corpus")
        options.text = folder / "corpus" / "text" / "train.txt"
    if options.vocabulary is None:
        options.cased = False
        arguments = f"--input={options.text} --output={folder}/tokenizer --vocab_size=8000"
        command = [sys.executable, "-m", "tfrecords_tools.build_vocab", *arguments.split()]
        subprocess.run([*command, "--lower_case"], cwd=environments.ROOT, check=True)
    else:
        (folder / "tokenizer").mkdir()
        shutil.copy(options.vocabulary, folder / "tokenizer" / "vocab.txt")
        settings = f'{{"do_lower_case": {str(not options.cased).lower()}}}\n'
        (folder / "tokenizer" / "tokenizer_config.json").write_text(settings)
    write_config(folder, options.unit)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, help="one sentence a line; default: the demo's corpus")
    parser.add_argument("--vocabulary", type=Path, help="a vocab.txt; default: learned")
    parser.add_argument("--cased", action="store_true", help="the vocabulary is a cased one")
    parser.add_argument("--megabytes", type=float, default=16, help="of text (default: 16)")
    parser.add_argument("--unit", choices=["token", "word"], default="token", help="of the masks")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="default: the cores")
    parser.add_argument("--memory", action="store_true", help="show the growth of memory alone")
    parser.add_argument("--memory_megabytes", type=float, nargs="+", default=[10, 200])
    parser.add_argument("--side", choices=OURS, default="ours", help="of --memory: what is written")
    return parser.parse_args()


def main() -> None:
    """Runs the benchmark and prints its tables."""
    options = _options()
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name), options)
        (memory if options.memory else speed)(Path(name), options)


if __name__ == "__main__":
    main()
