"""Our sides of `train_step`: the training loop's own step, on the model that a config describes."""

import work

from official import config as config_lib
from official.training import optimizers, setup, step, strategies

import tensorflow as tf  # isort: skip

# What makes another system of BERT's config. ALBERT: one layer run again and again, a narrow token
# table, LAMB; its sentence-order head is a next-sentence head with other labels.
# ELECTRA: a generator of a quarter of the size in front, another question.
ENCODERS = {
    "BERT": {},
    "ALBERT": {"embedding_size": 128, "layer_groups": 1},
    "ELECTRA": {"pooler": False},
}
OPTIMIZERS = {"BERT": "adamw", "ALBERT": "lamb", "ELECTRA": "adamw"}
PAIRS = [{"type": "masked_lm"}, {"type": "sentence_pair"}]
OBJECTIVES = {
    "BERT": PAIRS,
    "ALBERT": PAIRS,
    "ELECTRA": [{"type": "generator", "size": 0.25}, {"type": "replaced_tokens"}],
}


def main() -> None:
    """Serves the steps of this side."""
    size = work.sizes()
    config = config_lib.from_dict(
        {
            "name": "train_step",
            "segments": {"format": "pairs", "max_length": size["length"]},
            "corruption": {"type": "token_masks", "max_predictions": size["predictions"]},
            "encoder": {
                "type": "transformer",
                "vocab_size": size["vocab"],
                "hidden_size": size["hidden"],
                "num_layers": size["layers"],
                "num_heads": size["heads"],
                "intermediate_size": size["intermediate"],
                **ENCODERS[size["system"]],
            },
            "objectives": OBJECTIVES[size["system"]],
            "recipe": {
                "steps": 100_000,
                "batch_size": size["batch"],
                "precision": size["precision"].replace("bfloat16", "mixed_bfloat16"),
                "jit_compile": size["compile"],
                "optimizer": {"type": OPTIMIZERS[size["system"]]},
                "schedule": {"warmup_steps": 10_000},
            },
        }
    )
    setup.set_precision(config.recipe.precision)
    strategy = strategies.create("one_device", "", 0)
    model = setup.build_model(config, strategy)
    with strategy.scope():
        optimizer = optimizers.make(config.recipe, config.recipe.steps, model)
    train = step.TrainStep(
        model, optimizer, strategy, seed=0, jit_compile=config.recipe.jit_compile
    )
    batches = [_batch(batch) for batch in work.batches(size)]
    dataset = tf.data.Dataset.from_tensor_slices(
        {name: tf.stack([batch[name] for batch in batches]) for name in batches[0]}
    )
    iterator = iter(strategy.experimental_distribute_dataset(dataset.repeat()))

    def run(steps: int) -> float:
        rows = train.run(iterator, steps)
        return train.statistics.summarise(rows[-1:], model.term_weights)["loss"]

    work.serve(run)


def _batch(batch):
    ones = {
        "padding_mask": tf.ones_like(batch["token_ids"], tf.bool),
        "masked_weights": tf.ones_like(batch["masked_ids"], tf.float32),
        "example_weights": tf.ones_like(batch["next_sentence_label"], tf.float32),
        "row_seeds": batch["token_ids"][:, :2],
    }
    return {name: tf.convert_to_tensor(value) for name, value in (batch | ones).items()}


if __name__ == "__main__":
    main()
