"""The memory of training on a TPU, as the compiler of TPUs plans it, on a machine without one.

The whole step of a replica (forward pass, gradients, sums over replicas, optimizer) is lowered to
HLO, and libtpu compiles that for a slice that is only described (`official.utils.tpu_compiler`). It
either fits the memory of a core, or is refused. Results are kept in the cache of the project,
because a compilation takes minutes.

What runs beside the step is not in it: batches on their way from the host. Sums over replicas are
those of `official.distribution.described_slice`. TensorFlow lowers each operation as for a CPU.
"""

import dataclasses
import functools
import glob
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from official import config as configs
from official.data.mixture import Data
from official.distribution import strategies
from official.distribution.described_slice import DescribedSlice
from official.saving import teachers
from official.training.trainer import Trainer
from official.utils import atomic, model_packages, paths, tpu_compiler
from official.utils.errors import UserError
from official.utils.tpu_compiler import Program, Slice

_UNIT = 8  # rows: a TPU pads smaller parts to so many
_CLOSE = 16  # The largest batch is found up to a part of so many.


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a step takes on each core of a slice.

    Attributes:
      slice_: the slice.
      rows: the rows of a core.
      program: what they take.
      refused: a larger number of rows that does not fit; None = none was tried.
    """

    slice_: Slice
    rows: int
    program: Program
    refused: int | None = None

    @property
    def over(self) -> int:
        """The bytes that are missing, or 0."""
        if self.program.refused is None:
            return 0
        return max(self.program.total - self.slice_.limit, 1)

    def lines(self) -> list[str]:
        """Returns the estimate in words."""
        slice_, program = self.slice_, self.program
        of = f"a core of {slice_.topology} leaves {_mb(slice_.limit)}"
        if program.refused is not None:
            return [f"does not fit: {self.over / 2**30:,.2f} GiB over: {of}"]
        lines = [
            f"on each of {slice_.cores} cores, {self.rows} rows: {_mb(program.arguments)} of "
            f"arguments (weights, the state of the optimizer, a batch), "
            f"{_mb(program.temporaries)} of temporaries, {_mb(program.code)} of code",
            f"fits: {_mb(program.total)} in all; {of}",
        ]
        if self.refused is not None:
            lines.append(
                f"largest batch: {self.rows * slice_.cores} ({self.rows} rows a core; "
                f"{self.refused} do not fit)"
            )
        return lines


def describe(topology: str) -> Slice:
    """Returns what a slice has.

    Args:
      topology: the kind of the chips and their arrangement, such as `v5e:2x2`.

    Raises:
      UserError: libtpu is not installed, or does not know the topology.
    """
    facts = {"topology": topology, "libtpu": tpu_compiler.version()}
    log = os.path.join(_folder(), "topology.log")
    found = _kept(facts, lambda: dataclasses.asdict(tpu_compiler.describe(topology, log)))
    return Slice(**found)


def estimate(config: configs.ResolvedConfig, source: Data, slice_: Slice) -> Estimate:
    """Compiles the step of a run.

    Args:
      config: that of the run. `recipe.batch_size` is divided among the cores.
      source: the training data, which give the shapes of a batch.
      slice_: the slice.

    Raises:
      UserError: libtpu is not installed, or the step has an operation that XLA lacks.
    """
    rows = config.recipe.batch_size // slice_.cores
    dataset = source.dataset(
        config.recipe.batch_size, replicas_per_worker=slice_.cores, one_length=True
    )
    facts = {
        "config": configs.to_dict(config),
        "batch": repr(sorted(dataset.element_spec.items())),
        "slice": dataclasses.asdict(slice_),
        "libtpu": tpu_compiler.version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "encoder-garden": _code(),
    }

    def compiled() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "step.hlo")
            with open(program, "wb") as file:
                file.write(_lowered(config, source, slice_, dataset.element_spec, folder))
            log = os.path.join(_folder(), f"{config.name}.log")
            return dataclasses.asdict(tpu_compiler.compile_program(program, slice_, log))

    return Estimate(slice_, rows, Program(**_kept(facts, compiled)))


def find_batch(config: configs.ResolvedConfig, source: Data, slice_: Slice) -> Estimate:
    """Finds the most rows that a core has memory for.

    Args:
      config: that of the run, with the rows of which more or fewer are tried.
      source: the training data.
      slice_: the slice.

    Returns:
      The estimate of these rows. The next multiple of eight does not fit, or, of many rows, those
      of a sixteenth more.

    Raises:
      UserError: one row does not fit; see also `estimate`.
    """
    tried: dict[int, Estimate] = {}

    def of(rows: int) -> Estimate:
        if rows not in tried:
            recipe = dataclasses.replace(config.recipe, batch_size=rows * slice_.cores)
            tried[rows] = estimate(dataclasses.replace(config, recipe=recipe), source, slice_)
        return tried[rows]

    rows, refused = largest(
        config.recipe.batch_size // slice_.cores, lambda rows: of(rows).program, slice_.limit
    )
    if not rows:
        over = of(1).over / 2**30
        raise UserError(
            f"{config.name}: not even one row a core of {slice_.topology} fits, {over:,.2f} GiB "
            "are missing: take a smaller encoder, shorter rows or recipe.recompute: layers"
        )
    return dataclasses.replace(of(rows), refused=refused)


def largest(start: int, program_of: Callable[[int], Program], limit: int) -> tuple[int, int]:
    """Searches for the largest number of rows that fits.

    Args:
      start: where to begin.
      program_of: returns what a number of rows takes, where temporaries are about in proportion.
      limit: the memory that there is.

    Returns:
      Rows that fit, 0 = none do, and rows that do not.
    """
    fits, refused, rows = 0, 0, max(start, 1)
    while True:
        program = program_of(rows)
        if program.refused is None:
            fits = rows
        else:
            refused = rows
        if fits and not refused:
            left = limit - program.total
            more = int(fits * left / max(program.temporaries, 1))
            rows = _whole(max(fits + more, fits + fits // 8, fits + 1), up=True)
        elif refused - fits <= max(_step(refused), fits // _CLOSE):
            return fits, refused
        else:
            middle = (fits + refused) // 2
            rows = _whole(middle, up=middle < _UNIT)
            rows = min(max(rows, fits + 1), refused - 1)


def _step(rows: int) -> int:
    return _UNIT if rows > _UNIT else 1


def _whole(rows: int, up: bool) -> int:
    """Returns a multiple of eight, or a number of rows below eight as it is."""
    if rows < _UNIT:
        return rows
    return -(-rows // _UNIT) * _UNIT if up else rows // _UNIT * _UNIT


def _lowered(
    config: configs.ResolvedConfig,
    source: Data,
    slice_: Slice,
    batch: Mapping[str, tf.TensorSpec],
    folder: str,
) -> bytes:
    """Returns the HLO of the step of a replica.

    Raises:
      UserError: it has an operation that XLA lacks, or a shape that is not known.
    """
    keras.backend.clear_session()
    strategy = DescribedSlice(slice_.cores)
    model = strategies.build_model(config, strategy, config.recipe.lora)
    teachers.attach(model, config, source.tokenizer, source.manifest.max_length)
    step = Trainer(config, model, source, strategy, paths.path(folder)).train_step

    def run(number, *fields):
        with strategy.replica(number):
            return step.replica_step(dict(zip(batch, fields, strict=True)))

    compiled = tf.function(run, jit_compile=True, autograph=False)
    try:
        ir = compiled.experimental_get_compiler_ir(tf.TensorSpec([], tf.int32), *batch.values())
        return ir(stage="hlo_serialized", platform_name="CPU")
    except (ValueError, tf.errors.OpError) as error:
        raise UserError(
            f"{config.name}: XLA does not compile its step: {str(error).splitlines()[0]}"
        ) from error


@functools.cache
def _code() -> str:
    """Returns a digest of the code of this project, which a checkout may change at any time."""
    folder = os.path.dirname(os.path.dirname(__file__))
    digest = hashlib.sha256()
    for name in sorted(glob.glob(os.path.join(folder, "**", "*.py"), recursive=True)):
        with open(name, "rb") as file:
            digest.update(hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def _folder() -> str:
    return os.fspath(model_packages.cache() / "tpu")


def _kept(facts: Mapping[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Returns a result of the cache, or makes it and keeps it.

    Args:
      facts: all that the result depends on.
      make: returns it.
    """
    text = json.dumps(facts, sort_keys=True)
    name = f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
    path = os.path.join(_folder(), name)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    atomic.make_folder(_folder())
    result = make()
    with atomic.file(path) as file:
        json.dump(result, file)
    return result


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
