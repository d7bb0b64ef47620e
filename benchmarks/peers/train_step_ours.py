"""Our sides of `benchmarks.train_step`: the training step, and only its matrix products.

Shapes: R rows, I input size, O output size, G batch rows times heads.
"""

import server
import steps

from official import config as configs
from official.corruption import permutation
from official.distribution import numerics, strategies
from official.modeling.layers.kernels import times_transposed, transposed_times
from official.training import optimizers, train_step

import tensorflow as tf  # isort: skip

# The differences of other systems to BERT. ALBERT: shared layers, a narrow token table, LAMB; its
# sentence-order head is a next-sentence head with other labels. ELECTRA: a generator of a quarter
# of the size, and replaced-token detection. XLNet: relative attention of two streams, the second
# one for the predicted positions only, without memory. T5: an encoder-decoder. DeBERTa: v3, with a
# masked LM. ModernBERT: the settings of its paper, but AdamW as for the others.
ENCODERS = {
    "BERT": {"type": "transformer"},
    "ALBERT": {"type": "transformer", "embedding_size": 128, "layer_groups": 1},
    "ELECTRA": {"type": "transformer", "pooler": False},
    "XLNet": {"type": "transformer_xl"},
    "T5": {"type": "encoder_decoder"},
    "ModernBERT": {
        "type": "transformer", "positions": "rotary", "rotary_theta": 160000.0,
        "local_attention": {}, "segment_types": 0, "activation": "gelu", "gated": True,
        "use_bias": False, "norm": "pre", "norm_bias": False, "norm_embeddings": True,
        "first_norm": False, "norm_epsilon": 1e-5, "dropout": 0.0, "attention_dropout": 0.0,
        "attention_output_dropout": 0.1, "pooler": False, "max_positions": 8192,
    },
    "DeBERTa": {
        "type": "transformer", "disentangled": {}, "positions": "none", "segment_types": 0,
        "activation": "gelu", "norm_epsilon": 1e-7, "initializer": "normal", "pooler": False,
    },
}  # fmt: skip
PAIRS = [{"type": "masked_lm"}, {"type": "sentence_pair"}]
OBJECTIVES = {
    "BERT": PAIRS,
    "ALBERT": PAIRS,
    "ELECTRA": [{"type": "generator", "size": 0.25}, {"type": "replaced_tokens"}],
    "XLNet": [{"type": "permutation_lm"}],
    "T5": [{"type": "seq2seq_lm"}],
    "DeBERTa": [{"type": "masked_lm"}],
    "ModernBERT": [{"type": "masked_lm"}],
}


def step(size: dict) -> None:
    """Serves the steps of the training loop, on the model of a config."""
    system, predictions = size["system"], size["predictions"]
    corruption = {"type": "token_masks", "max_predictions": predictions}
    if system == "XLNet":
        corruption = {"type": "permutation", "unit": "token", "num_predict": predictions}
    data = {
        "segments": {"format": "pairs", "max_length": size["length"]},
        "corruption": corruption,
    }
    config = configs.from_dict(
        {
            "name": "train_step",
            **({} if system == "T5" else data),
            "encoder": {
                "vocab_size": size["vocab"],
                "hidden_size": size["hidden"],
                "num_layers": size["layers"],
                "num_heads": size["heads"],
                "intermediate_size": size["intermediate"],
                **ENCODERS[system],
            },
            "objectives": OBJECTIVES[system],
            "recipe": {
                "steps": 100_000,
                "batch_size": size["batch"],
                "precision": size["precision"].replace("bfloat16", "mixed_bfloat16"),
                "jit_compile": size["compile"],
                "optimizer": {"type": "lamb" if system == "ALBERT" else "adamw"},
                "schedule": {"warmup_steps": 10_000},
            },
        }
    )
    numerics.set_precision(config.recipe.precision)
    strategy = strategies.create("one_device", "", 0)
    model = strategies.build_model(config, strategy)
    with strategy.scope():
        optimizer = optimizers.make(config.recipe, config.recipe.steps, model)
    train = train_step.TrainStep(
        model, optimizer, strategy, seed=0, jit_compile=config.recipe.jit_compile
    )
    batches = [_batch(batch, system) for batch in steps.batches(size)]
    dataset = tf.data.Dataset.from_tensor_slices(
        {name: tf.stack([batch[name] for batch in batches]) for name in batches[0]}
    )
    iterator = iter(strategy.experimental_distribute_dataset(dataset.repeat()))

    def run(count: int) -> float:
        sums = train.run(iterator, count).sums
        return train.statistics.summarize(sums[-1:], model.term_weights)["loss"]

    steps.serve(run)


def _batch(batch, system):
    """Returns a batch of `steps` as the reader returns it: no padding, no unused predictions."""
    token_ids, targets = batch["token_ids"], batch["masked_positions"]
    more = {
        "padding_mask": tf.ones_like(token_ids, tf.bool),
        "masked_weights": tf.ones_like(batch["masked_ids"], tf.float32),
        "example_weights": tf.ones_like(batch["next_sentence_label"], tf.float32),
        "row_seeds": token_ids[:, :2],
    }
    if system == "XLNet":
        rows, length = token_ids.shape
        ordered = tf.reduce_any(tf.one_hot(targets, length, True, False, dtype=tf.bool), axis=1)
        order = permutation.orders(tf.cast(tf.range(rows), tf.uint64), length)
        more["permutation_mask"] = permutation.may_attend(order, ordered)
    if system == "T5":
        more["target_mask"] = tf.ones_like(batch["target_ids"])
    return {name: tf.convert_to_tensor(value) for name, value in (batch | more).items()}


def products(size: dict) -> None:
    """Serves only the matrix products of BERT's step: a lower bound of its time."""
    dtype = tf.as_dtype(size["precision"])
    draw = lambda *shape: tf.cast(tf.random.stateless_normal(shape, (1, 2)), dtype)  # noqa: E731
    maps = [(draw(r, i), draw(i, o), draw(r, o)) for r, i, o in _maps(size)]
    heads = [(draw(g, q, h), draw(g, k, h), draw(g, q, k)) for g, q, k, h in _attention(size)]

    @tf.function(autograph=False)
    def multiply(maps, heads):
        results = []
        for x, kernel, y in maps:  # forward; gradients of x and of the kernel
            results += [tf.matmul(x, kernel), times_transposed(y, kernel), transposed_times(x, y)]
        for query, key, scores in heads:  # scores and context; two gradients of each
            results += [times_transposed(query, key), tf.matmul(scores, key)]
            results += [tf.matmul(scores, key), transposed_times(scores, query)]
            results += [transposed_times(scores, query), times_transposed(query, key)]
        return tf.add_n([tf.cast(tf.reshape(each, [-1])[0], tf.float32) for each in results])

    steps.serve(lambda count: [float(multiply(maps, heads)) for _ in range(count)][-1])


def _maps(size: dict) -> list[tuple[int, int, int]]:
    """Returns R, I and O of the affine maps of our BERT; the last layer computes only rows read."""
    batch, length, hidden = size["batch"], size["length"], size["hidden"]
    tokens, predictions = batch * length, batch * size["predictions"]
    read = batch * (size["predictions"] + 1)  # the pooler reads one more row
    inner = size["intermediate"]
    whole = [(tokens, hidden, 3 * hidden), (tokens, hidden, hidden)]
    whole += [(tokens, hidden, inner), (tokens, inner, hidden)]
    last = [(tokens, hidden, 2 * hidden), (read, hidden, hidden), (read, hidden, hidden)]
    last += [(read, hidden, inner), (read, inner, hidden)]
    head = [(predictions, hidden, hidden), (predictions, hidden, size["vocab"])]
    return whole * (size["layers"] - 1) + last + head


def _attention(size: dict) -> list[tuple[int, int, int, int]]:
    """Returns (G, number of queries, number of keys, head size) of each layer."""
    heads, length = size["heads"], size["length"]
    queries = [length] * (size["layers"] - 1) + [size["predictions"] + 1]
    return [(size["batch"] * heads, n, length, size["hidden"] // heads) for n in queries]


if __name__ == "__main__":
    server.main(step, products)
