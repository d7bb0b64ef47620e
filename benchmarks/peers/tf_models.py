"""The sides of tf-models-official in `benchmarks.train_step` and `benchmarks.finetune_epoch`.

All code is from tf-models-official. A step of pretraining: `MaskedLMTask` with its encoder, losses
and `train_step`, and the optimizer of their recipe (`adamw`, clipping by the global norm).
Fine-tuning: the records, the data loader, `SentencePredictionTask` with its classifier and
`train_step`, and the optimizer of their experiment `bert/sentence_prediction`. One graph call makes
several steps.

Their `create_finetuning_data` downloads SST-2 and cannot read local files. `records` runs the same
code with their processor of the task, and reads the rows from files.
"""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

import finetune as shared
import server
import steps
import tensorflow as tf
from official.nlp.configs import bert, encoders
from official.nlp.data import (
    classifier_data_lib,
    pretrain_dataloader,
)
from official.nlp.data import sentence_prediction_dataloader as loader
from official.nlp.tasks import masked_lm, sentence_prediction
from official.nlp.tools import tokenization

from official.modeling import optimization, performance

UNDECAYED = ["LayerNorm", "layer_norm", "bias"]
# {their name: our name}, for variables that exist once and for those of each layer.
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
PARTS = ("query", "key", "value")  # one kernel in our model


def step(size: dict) -> None:
    """Serves the steps of this side."""
    performance.set_mixed_precision_policy(tf.as_dtype(size["precision"]))
    task = _pretraining_task(size)
    model = task.build_model()
    adamw = {"weight_decay_rate": 0.01, "gradient_clip_norm": 1.0}
    optimizer = _optimizer(adamw, 1e-4, 100_000, 10_000)
    metrics = task.build_metrics(training=True)
    stacked = [_batch(batch) for batch in steps.batches(size)]
    dataset = tf.data.Dataset.from_tensor_slices(
        {name: tf.stack([batch[name] for batch in stacked]) for name in stacked[0]}
    )
    iterator = iter(dataset.repeat())
    train_step = tf.function(
        lambda batch: task.train_step(batch, model, optimizer, metrics)[task.loss],
        jit_compile=size["compile"] or None,
    )

    @tf.function
    def loop(iterator, count):
        loss = 0.0
        for _ in tf.range(count):
            loss = train_step(next(iterator))
        return loss

    steps.serve(lambda count: loop(iterator, tf.constant(count)).numpy())


def _pretraining_task(size: dict) -> masked_lm.MaskedLMTask:
    """Returns their pretraining task of masked-LM and next-sentence prediction."""
    encoder = encoders.BertEncoderConfig(
        vocab_size=size["vocab"],
        hidden_size=size["hidden"],
        num_layers=size["layers"],
        num_attention_heads=size["heads"],
        intermediate_size=size["intermediate"],
        dropout_rate=0.1,
        attention_dropout_rate=0.1,
    )
    head = bert.ClsHeadConfig(
        inner_dim=size["hidden"], num_classes=2, dropout_rate=0.1, name="next_sentence"
    )
    return masked_lm.MaskedLMTask(
        masked_lm.MaskedLMConfig(
            model=bert.PretrainerConfig(
                encoder=encoders.EncoderConfig(type="bert", bert=encoder), cls_heads=[head]
            ),
            # the task uses this config only to see that there are next-sentence labels
            train_data=pretrain_dataloader.BertPretrainDataConfig(use_next_sentence_label=True),
        )
    )


def finetune(settings: dict) -> None:
    """Serves the steps of this side."""
    performance.set_mixed_precision_policy(tf.as_dtype(settings["precision"]))
    task = _prediction_task(settings)
    model = task.build_model()
    first = shared.weights(settings)
    for variable in model.weights:
        name = variable.name.removesuffix(":0")
        variable.assign(_ours(name, first).reshape(variable.shape))
    total = settings["examples"] // settings["recipe"]["batch_size"]
    learning = settings["recipe"]["optimizer"]
    adamw = {
        "weight_decay_rate": learning["weight_decay"],
        "epsilon": learning["epsilon"],
        "gradient_clip_norm": learning["clip_norm"],
    }
    warmup_steps = round(total * settings["recipe"]["schedule"]["warmup_fraction"])
    optimizer = _optimizer(adamw, learning["learning_rate"], total, warmup_steps)
    train = _training(task, model, optimizer)
    shared.serve(total, train, _evaluation(task, model))


def records(settings: dict) -> None:
    """Writes train.tfrecord and dev.tfrecord, with every row padded to the limit."""
    tokenizer = tokenization.FullTokenizer(settings["vocabulary"], do_lower_case=True)
    classifier_data_lib.generate_tf_record_from_data_file(
        Processor(),
        settings["rows"],
        tokenizer,
        train_data_output_path=f"{settings['output']}/train.tfrecord",
        eval_data_output_path=f"{settings['output']}/dev.tfrecord",
        max_seq_length=settings["length"],
    )


def _optimizer(
    adamw: Mapping[str, float], learning_rate: float, steps: int, warmup_steps: int
) -> tf.keras.optimizers.Optimizer:
    """Returns their AdamW with a warm-up and a linear decay to 0 at step `steps`."""
    factory = optimization.OptimizerFactory(
        optimization.OptimizationConfig(
            {
                "optimizer": {
                    "type": "adamw",
                    "adamw": {**adamw, "exclude_from_weight_decay": UNDECAYED},
                },
                "learning_rate": {
                    "type": "polynomial",
                    "polynomial": {
                        "initial_learning_rate": learning_rate,
                        "end_learning_rate": 0.0,
                        "decay_steps": steps,
                    },
                },
                "warmup": {"type": "polynomial", "polynomial": {"warmup_steps": warmup_steps}},
            }
        )
    )
    return factory.build_optimizer(factory.build_learning_rate())


def _batch(batch):
    tensors = {
        "input_word_ids": batch["token_ids"],
        "input_mask": tf.ones_like(batch["token_ids"]),
        "input_type_ids": batch["segment_ids"],
        "masked_lm_positions": batch["masked_positions"],
        "masked_lm_ids": batch["masked_ids"],
        "masked_lm_weights": tf.ones_like(batch["masked_ids"], tf.float32),
        "next_sentence_labels": batch["next_sentence_label"][:, None],
    }
    return {name: tf.convert_to_tensor(value) for name, value in tensors.items()}


def _ours(name: str, weights: dict):
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


def _prediction_task(settings: dict) -> sentence_prediction.SentencePredictionTask:
    """Returns their task, with an encoder of the same size as ours."""
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


def _training(task, model, optimizer) -> Callable[[int], float]:
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


def _evaluation(task, model) -> Callable[[], dict]:
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


class Processor(classifier_data_lib.SstProcessor):
    """Reads SST-2 from train.tsv and dev.tsv."""

    def get_train_examples(self, data_dir):
        """Returns the rows of train.tsv."""
        return self._rows(data_dir, "train")

    def get_dev_examples(self, data_dir):
        """Returns the rows of dev.tsv."""
        return self._rows(data_dir, "dev")

    def _rows(self, data_dir, split):
        with open(Path(data_dir) / f"{split}.tsv", encoding="utf-8") as lines:
            _, *rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            classifier_data_lib.InputExample(
                guid=f"{split}-{number}", text_a=self.process_text_fn(text), label=label
            )
            for number, (text, label) in enumerate(rows)
        ]


if __name__ == "__main__":
    server.main(step, finetune, records)
