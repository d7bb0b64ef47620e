"""Makes the table of docs/memory.md: what the training steps of published systems take on TPUs.

  python -m benchmarks.tpu_memory [--only=NAME ...] [--topology=NAME ...] [--folder=DIR]

Each row of the table is a config of configs/pretrain with eight rows on each core, at the length of
its paper. The compiler of TPUs compiles its whole step for each slice (see
`official.training.tpu_memory`). The shards are of the corpus of the demo, with the vocabulary sizes
of the configs. A compilation takes minutes, and its result is kept. The weights of a model and the
state of its optimizer have to fit the memory of this machine, with some gigabytes for the compiler.
"""

import argparse
import dataclasses
from pathlib import Path

from benchmarks import environments, memory
from demo import corpus
from official import config as configs
from official.training import run as training_run
from official.training import tpu_memory
from official.training.tpu_memory import Estimate
from official.utils.errors import UserError

_ROWS = 8
TOPOLOGIES = ("v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2")
SYSTEMS = (
    memory.Run("pretrain/bert_base"),
    memory.Run("pretrain/bert_large"),
    memory.Run("pretrain/roberta_base", "byte_bpe"),
    memory.Run("pretrain/albert_xxlarge", "unigram", ["recipe.accumulation=1"]),
    memory.Run("pretrain/electra_base"),
    memory.Run("pretrain/xlnet_large", "unigram"),
    memory.Run("pretrain/deberta_v3_base", "unigram"),
    memory.Run("pretrain/modernbert_base", "byte_bpe"),
    memory.Run("pretrain/t5_base", "sentinels"),
)


def main() -> None:
    """Prints the table, each row when all its slices are compiled."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], help="parts of the names of configs")
    parser.add_argument("--topology", nargs="+", default=TOPOLOGIES, help="the slices")
    parser.add_argument("--folder", type=Path, help="for the data; default: a temporary folder")
    options = parser.parse_args()
    with environments.folder(options.folder) as folder:
        if not (folder / "text").exists():
            corpus.write(folder)
        print(f"| system | length | {' | '.join(options.topology)} |", flush=True)
        print(f"|---|---:|{'---|' * len(options.topology)}", flush=True)
        for system in SYSTEMS:
            if not options.only or any(each in system.name for each in options.only):
                cells = [cell(system, folder, each) for each in options.topology]
                length = configs.load(f"configs/{system.config}.yaml").segments.max_length
                name = system.config.partition("/")[2]
                print(f"| {name} | {length} | {' | '.join(cells)} |", flush=True)


def cell(system: memory.Run, folder: Path, topology: str) -> str:
    """Returns what stands in the table for a system and a slice."""
    try:
        return shown(measure(system, folder, topology))
    except UserError as error:
        return f"not compiled: {error}"


def measure(system: memory.Run, folder: Path, topology: str) -> Estimate:
    """Compiles the step of a system."""
    batch = _ROWS * tpu_memory.describe(topology).cores
    path = f"configs/{system.config}.yaml"
    changes = [*system.overrides, f"recipe.batch_size={batch}"]
    if configs.load(path).segments.format == "stream":
        changes.append(f"segments.rows={batch}")
    sized = dataclasses.replace(system, overrides=changes)
    data = memory.shards(sized, folder, system.config)
    [(_, found)] = training_run.estimate_tpu_memory(configs.load(path, changes), data, topology)
    return found


def shown(found: Estimate) -> str:
    """Returns arguments, temporaries and code in GB, or what is missing."""
    program = found.program
    if program.refused is not None:
        return f"{found.over / 2**30:,.2f} GiB over"
    parts = (program.arguments, program.temporaries, program.code)
    return " + ".join(f"{part / 1e9:.2f}" for part in parts)


if __name__ == "__main__":
    main()
