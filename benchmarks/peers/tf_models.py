"""The side of tf-models-official in `train_step`: its masked-LM task, train step and AdamW.

All code is theirs: `MaskedLMTask` with its encoder, losses and `train_step`, and the optimizer of
their pretraining recipe (`adamw`, clipping by the global norm). One graph call makes several steps.
"""

import tensorflow as tf
import work
from official.nlp.configs import bert, encoders
from official.nlp.data import pretrain_dataloader
from official.nlp.tasks import masked_lm

from official.modeling import optimization, performance


def main() -> None:
    """Serves the steps of this side."""
    size = work.sizes()
    performance.set_mixed_precision_policy(tf.as_dtype(size["precision"]))
    task = make_task(size)
    model = task.build_model()
    optimizer = make_optimizer()
    metrics = task.build_metrics(training=True)
    stacked = [_batch(batch) for batch in work.batches(size)]
    dataset = tf.data.Dataset.from_tensor_slices(
        {name: tf.stack([batch[name] for batch in stacked]) for name in stacked[0]}
    )
    iterator = iter(dataset.repeat())
    train_step = tf.function(
        lambda batch: task.train_step(batch, model, optimizer, metrics)[task.loss],
        jit_compile=size["compile"] or None,
    )

    @tf.function
    def loop(iterator, steps):
        loss = 0.0
        for _ in tf.range(steps):
            loss = train_step(next(iterator))
        return loss

    work.serve(lambda steps: loop(iterator, tf.constant(steps)).numpy())


def make_task(size: dict) -> masked_lm.MaskedLMTask:
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
            # The task reads only from these that there are next-sentence labels.
            train_data=pretrain_dataloader.BertPretrainDataConfig(use_next_sentence_label=True),
        )
    )


def make_optimizer() -> tf.keras.optimizers.Optimizer:
    """Returns the optimizer of their pretraining recipe."""
    factory = optimization.OptimizerFactory(
        optimization.OptimizationConfig(
            {
                "optimizer": {
                    "type": "adamw",
                    "adamw": {
                        "weight_decay_rate": 0.01,
                        "exclude_from_weight_decay": ["LayerNorm", "layer_norm", "bias"],
                        "gradient_clip_norm": 1.0,
                    },
                },
                "learning_rate": {
                    "type": "polynomial",
                    "polynomial": {"initial_learning_rate": 1e-4, "decay_steps": 100_000},
                },
                "warmup": {"type": "polynomial", "polynomial": {"warmup_steps": 10_000}},
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


if __name__ == "__main__":
    main()
