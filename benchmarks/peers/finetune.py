"""Common code of both sides of `benchmarks.finetune_epoch`, and our side.

A side answers requests: a number of steps to make, "steps" or "evaluate".
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import server


def weights(settings: dict) -> dict[str, np.ndarray]:
    """Returns the initial weights of both sides, by our variable paths."""
    with np.load(Path(settings["folder"]) / "weights.npz") as arrays:
        return {name.replace("|", "/"): arrays[name] for name in arrays}


def serve(steps: int, train: Callable[[int], object], evaluate: Callable[[], dict]) -> None:
    """Answers requests.

    Args:
      steps: the number of steps of the epoch.
      train: makes a number of steps, and returns when they are finished.
      evaluate: returns `accuracy` and `loss` on the development set.
    """

    def answer(request: int | str) -> dict:
        if request == "steps":
            result = {"steps": steps}
        elif request == "evaluate":
            result = evaluate()
        else:
            result = {"seconds": server.timed(train, request)[0]}
        return {**result, "peak_mib": server.mib("VmHWM")}

    server.serve(answer)


def ours(settings: dict) -> None:
    """Our side: the steps of the training loop with configs/finetune/sst2.yaml."""
    from official import config as configs
    from official.data import ShardDataset
    from official.data.checks import task_labels
    from official.distribution import numerics, strategies
    from official.distribution.strategies import distribute
    from official.evaluation.evaluator import Evaluator
    from official.saving import named_arrays
    from official.training import optimizers, resolve
    from official.training.train_step import TrainStep

    folder = Path(settings["folder"])
    config = configs.load(settings["config"], settings["overrides"])
    config = resolve.inherit(config, configs.load(folder / "init"))
    numerics.set_precision(config.recipe.precision)
    strategy = strategies.create("one_device", "", 0)
    shards = str(folder / "shards")
    source = ShardDataset(shards, config, "train", training=True)
    config = resolve.fill_in(config, source.tokenizer.vocab_size, task_labels(source.manifest))
    validation = ShardDataset(shards, config, "validation")
    model = strategies.build_model(config, strategy)
    named_arrays.assign(model.variables_by_path(), weights(settings), "the first weights")
    total = config.recipe.total_steps(source.num_examples)
    with strategy.scope():
        optimizer = optimizers.make(config.recipe, total, model)
    step = TrainStep(model, optimizer, strategy, seed=config.seed)
    iterator = iter(distribute(strategy, source, config.recipe.batch_size))
    evaluator = Evaluator(config, model, strategy)

    def evaluate() -> dict:
        metrics = evaluator.run(validation)
        return {name: metrics[name] for name in ("accuracy", "loss")}

    serve(total, lambda count: step.run(iterator, count), evaluate)


if __name__ == "__main__":
    server.main(ours)
