"""Our side of `finetune_epoch`: the steps of the training loop with configs/finetune/sst2.yaml."""

from pathlib import Path

import finetune_work as work

from official import config as configs
from official.data import ShardDataset
from official.data.checks import task_labels
from official.distribution import numerics, strategies
from official.distribution.strategies import distribute
from official.evaluation.evaluator import Evaluator
from official.saving import named_arrays
from official.training import optimizers, resolve
from official.training.train_step import TrainStep


def main() -> None:
    """Serves the steps of this side."""
    settings = work.settings()
    folder = Path(settings["folder"])
    config = configs.load(settings["config"], settings["overrides"])
    config = resolve.inherit(config, configs.load(folder / "init"))
    numerics.set_precision(config.recipe.precision)
    strategy = strategies.create("one_device", "", 0)
    shards = str(folder / "shards")
    source = ShardDataset(shards, config, "train", training=True)
    config = resolve.resolve(config, source.tokenizer.vocab_size, task_labels(source.manifest))
    validation = ShardDataset(shards, config, "validation")
    model = strategies.build_model(config, strategy)
    named_arrays.assign(model.variables_by_path(), work.weights(settings), "the first weights")
    total = config.recipe.total_steps(source.num_examples)
    with strategy.scope():
        optimizer = optimizers.make(config.recipe, total, model)
    step = TrainStep(model, optimizer, strategy, seed=config.seed)
    iterator = iter(distribute(strategy, source, config.recipe.batch_size))
    evaluator = Evaluator(config, model, strategy)

    def evaluate() -> dict:
        metrics = evaluator.run(validation)
        return {name: metrics[name] for name in ("accuracy", "loss")}

    work.serve(total, lambda count: step.run(iterator, count), evaluate)


if __name__ == "__main__":
    main()
