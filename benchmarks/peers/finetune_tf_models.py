"""The side of tf-models-official in `finetune_epoch`: its sentence prediction.

All code is theirs: the records, the data loader, `SentencePredictionTask` with its classifier and
`train_step`, and the optimizer of their experiment `bert/sentence_prediction`. One graph call makes
several steps.
"""

from collections.abc import Callable

import finetune_work as work
import tensorflow as tf
from official.nlp.configs import encoders
from official.nlp.data import sentence_prediction_dataloader as loader
from official.nlp.tasks import sentence_prediction

from official.modeling import optimization, performance

# Their names → ours, of variables that exist once and of those that each layer has.
ONCE = {
    "word_embeddings/embeddings": "embeddings/token_embedding/table",
    "position_embedding/embeddings": "embeddings/position_embedding/table",
    "type_embeddings/embeddings": "embeddings/segment_embedding/table",
    "embeddings/layer_norm/gamma": "embeddings/norm/scale",
    "embeddings/layer_norm/beta": "embeddings/norm/offset",
    "pooler_transform/kernel": "pooler/kernel",
    "pooler_transform/bias": "pooler/bias",
}
IN_LAYERS = {
    "self_attention/attention_output": "attention/output",
    "self_attention_layer_norm": "attention_norm",
    "intermediate": "feed_forward/inner",
    "output": "feed_forward/outer",
    "output_layer_norm": "feed_forward_norm",
}
LAST = {"kernel": "kernel", "bias": "bias", "gamma": "scale", "beta": "offset"}
PARTS = ("query", "key", "value")  # In our model, these are one kernel.


def ours(name: str, weights: dict):
    """Returns our initial value of one of their variables, in our shape."""
    if name.startswith("sentence_prediction/logits/"):
        return weights[f"classification/output/{name.rpartition('/')[2]}"]
    if name in ONCE:
        return weights[f"encoder/{ONCE[name]}"]
    _, layer, rest = name.split("/", 2)  # transformer/layer_0/...
    stem, _, last = rest.rpartition("/")
    part = stem.rpartition("/")[2]
    if part in PARTS:
        joined = weights[f"encoder/{layer}/attention/query_key_value/{last}"]
        size = joined.shape[-1] // len(PARTS)
        return joined[..., PARTS.index(part) * size :][..., :size]
    return weights[f"encoder/{layer}/{IN_LAYERS[stem]}/{LAST[last]}"]


def main() -> None:
    """Serves the steps of this side."""
    settings = work.settings()
    performance.set_mixed_precision_policy(tf.as_dtype(settings["precision"]))
    task = make_task(settings)
    model = task.build_model()
    first = work.weights(settings)
    for variable in model.weights:
        name = variable.name.removesuffix(":0")
        variable.assign(ours(name, first).reshape(variable.shape))
    total = settings["examples"] // settings["recipe"]["batch_size"]
    train = make_train(task, model, make_optimizer(settings["recipe"], total))
    work.serve(total, train, make_evaluate(task, model))


def make_task(settings: dict) -> sentence_prediction.SentencePredictionTask:
    """Returns their task, with an encoder of the size of ours."""
    folder, size = settings["folder"], settings["encoder"]
    encoder = encoders.BertEncoderConfig(
        vocab_size=size["vocab_size"],
        hidden_size=size["hidden_size"],
        num_layers=size["num_layers"],
        num_attention_heads=size["num_heads"],
        intermediate_size=size["intermediate_size"],
        max_position_embeddings=size["max_positions"],
        dropout_rate=size["dropout"],
        attention_dropout_rate=size["attention_dropout"],
    )

    def data(split: str, training: bool) -> loader.SentencePredictionDataConfig:
        return loader.SentencePredictionDataConfig(
            input_path=f"{folder}/theirs/{split}.tfrecord",
            global_batch_size=settings["recipe"]["batch_size"],
            seq_length=settings["length"],
            is_training=training,
            drop_remainder=training,
        )

    return sentence_prediction.SentencePredictionTask(
        sentence_prediction.SentencePredictionConfig(
            model=sentence_prediction.ModelConfig(
                num_classes=2,
                use_encoder_pooler=True,
                encoder=encoders.EncoderConfig(type="bert", bert=encoder),
            ),
            train_data=data("train", True),
            validation_data=data("dev", False),
        )
    )


def make_optimizer(recipe: dict, total: int) -> tf.keras.optimizers.Optimizer:
    """Returns the optimizer of their experiment, with the settings of our recipe."""
    learning = recipe["optimizer"]
    warmup_steps = round(total * recipe["schedule"]["warmup_fraction"])
    factory = optimization.OptimizerFactory(
        optimization.OptimizationConfig(
            {
                "optimizer": {
                    "type": "adamw",
                    "adamw": {
                        "weight_decay_rate": learning["weight_decay"],
                        "epsilon": learning["epsilon"],
                        "exclude_from_weight_decay": ["LayerNorm", "layer_norm", "bias"],
                        "gradient_clip_norm": learning["clip_norm"],
                    },
                },
                "learning_rate": {
                    "type": "polynomial",
                    "polynomial": {
                        "initial_learning_rate": learning["learning_rate"],
                        "end_learning_rate": 0.0,
                        "decay_steps": total,
                    },
                },
                "warmup": {"type": "polynomial", "polynomial": {"warmup_steps": warmup_steps}},
            }
        )
    )
    return factory.build_optimizer(factory.build_learning_rate())


def make_train(task, model, optimizer) -> Callable[[int], float]:
    """Returns a function that makes a number of steps and returns the last loss."""
    metrics = task.build_metrics(training=True)
    iterator = iter(task.build_inputs(task.task_config.train_data))

    @tf.function
    def loop(iterator, steps):
        loss = 0.0
        for _ in tf.range(steps):
            loss = task.train_step(next(iterator), model, optimizer, metrics)[task.loss]
        return loss

    return lambda steps: float(loop(iterator, tf.constant(steps)))


def make_evaluate(task, model) -> Callable[[], dict]:
    """Returns a function that evaluates the model on the development set."""

    @tf.function
    def outputs(batch):
        logits = model(batch, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            batch["label_ids"], tf.cast(logits, tf.float32)
        )
        right = tf.argmax(logits, axis=-1, output_type=tf.int32) == batch["label_ids"]
        return tf.cast(right, tf.float32), losses

    def evaluate() -> dict:
        batches = [outputs(batch) for batch in task.build_inputs(task.task_config.validation_data)]
        accuracy, loss = (
            float(tf.reduce_mean(tf.concat(values, 0))) for values in zip(*batches, strict=True)
        )
        return {"accuracy": accuracy, "loss": loss}

    return evaluate


if __name__ == "__main__":
    main()
