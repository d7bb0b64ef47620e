"""tf-models-official's side of `finetune_epoch`: its sentence prediction.

Everything is theirs: the records and the data loader that reads them,
`SentencePredictionTask` with its classifier and `train_step`, the optimizer of their experiment
`bert/sentence_prediction`, several steps in one graph call.
"""

import finetune_work as work
import tensorflow as tf
from official.nlp.configs import encoders
from official.nlp.data import sentence_prediction_dataloader as loader
from official.nlp.tasks import sentence_prediction

from official.modeling import optimization, performance

# Their names → ours, for what stands once and for what each layer has.
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
PARTS = ("query", "key", "value")  # which are one kernel here


def ours(name: str, weights: dict):
    """The first value of one of their variables, before it has their shape."""
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
    folder, size, recipe = settings["folder"], settings["encoder"], settings["recipe"]
    performance.set_mixed_precision_policy(tf.as_dtype(settings["precision"]))
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
            global_batch_size=recipe["batch_size"],
            seq_length=settings["length"],
            is_training=training,
            drop_remainder=training,
        )

    task = sentence_prediction.SentencePredictionTask(
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
    model = task.build_model()
    first = work.weights(settings)
    for variable in model.weights:
        name = variable.name.removesuffix(":0")
        variable.assign(ours(name, first).reshape(variable.shape))

    total = settings["examples"] // recipe["batch_size"]
    learning = recipe["optimizer"]
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
                "warmup": {
                    "type": "polynomial",
                    "polynomial": {
                        "warmup_steps": round(total * recipe["schedule"]["warmup_fraction"])
                    },
                },
            }
        )
    )
    optimizer = factory.build_optimizer(factory.build_learning_rate())
    metrics = task.build_metrics(training=True)
    iterator = iter(task.build_inputs(task.task_config.train_data))

    @tf.function
    def loop(iterator, steps):
        loss = 0.0
        for _ in tf.range(steps):
            loss = task.train_step(next(iterator), model, optimizer, metrics)[task.loss]
        return loss

    @tf.function
    def outputs(batch):
        logits = model(batch, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            batch["label_ids"], tf.cast(logits, tf.float32)
        )
        right = tf.argmax(logits, axis=-1, output_type=tf.int32) == batch["label_ids"]
        return tf.cast(right, tf.float32), losses

    def evaluate() -> dict:
        found = [outputs(batch) for batch in task.build_inputs(task.task_config.validation_data)]
        accuracy, loss = (
            float(tf.reduce_mean(tf.concat(values, 0))) for values in zip(*found, strict=True)
        )
        return {"accuracy": accuracy, "loss": loss}

    work.serve(total, lambda count: float(loop(iterator, tf.constant(count))), evaluate)


if __name__ == "__main__":
    main()
