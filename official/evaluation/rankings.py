"""Metrics of rankings, and their predictions as TREC runs."""

from collections.abc import Mapping

import numpy as np

from official import config as configs
from official.data import ShardDataset
from official.evaluation import ranking_metrics, rows
from official.shards import side_texts
from official.tasks import trec
from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

SUFFIX = ".run"


class Scorer:
    """See `official.evaluation.evaluator.Scorer`."""

    outputs = ("score",)

    def __init__(self, config: configs.Config, source: ShardDataset):
        self._config, self._source = config, source

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """See `ranking_metrics.evaluate`."""
        return ranking_metrics.evaluate(self._source, outputs)

    def check_output(self, output: AnyPath, top: int) -> None:
        """Refuses a file that is not a run, and a split without candidates."""
        del top
        if output.suffix != SUFFIX:
            raise UserError(f"{output}: rankings are written as TREC runs: name a file {SUFFIX}")
        self._candidates()

    def write(self, outputs: Mapping[str, np.ndarray], output: AnyPath, top: int) -> None:
        """Writes the candidates of each query, the best first."""
        numbers, outputs = rows.in_order(outputs, self._source)
        run = self._candidates().run(numbers, outputs["score"])
        with atomic.file(output) as stream:
            trec.write_run(stream, run, self._config.name, top)

    def _candidates(self) -> side_texts.Candidates:
        source = self._source
        return side_texts.read_candidates(paths.path(source.folder), source.manifest, source.split)
