"""The matrix products of BERT's step alone, for `train_step`: the least time that it can take.

Shapes: R rows, I input size, O output size, G batch rows times heads.
"""

import work

from official.modeling.layers.kernels import times_transposed, transposed_times

import tensorflow as tf  # isort: skip


def linear(size: dict) -> list[tuple[int, int, int]]:
    """Returns R, I and O of the affine maps of our BERT, whose last layer computes what is read."""
    batch, length, hidden = size["batch"], size["length"], size["hidden"]
    tokens, predictions = batch * length, batch * size["predictions"]
    read = batch * (size["predictions"] + 1)  # The pooler reads one more.
    inner = size["intermediate"]
    whole = [(tokens, hidden, 3 * hidden), (tokens, hidden, hidden)]
    whole += [(tokens, hidden, inner), (tokens, inner, hidden)]
    last = [(tokens, hidden, 2 * hidden), (read, hidden, hidden), (read, hidden, hidden)]
    last += [(read, hidden, inner), (read, inner, hidden)]
    head = [(predictions, hidden, hidden), (predictions, hidden, size["vocab"])]
    return whole * (size["layers"] - 1) + last + head


def attention(size: dict) -> list[tuple[int, int, int, int]]:
    """Returns G, the number of queries, that of keys, and the size of a head, of each layer."""
    heads, length = size["heads"], size["length"]
    queries = [length] * (size["layers"] - 1) + [size["predictions"] + 1]
    return [(size["batch"] * heads, n, length, size["hidden"] // heads) for n in queries]


def main() -> None:
    """Serves the steps of this side."""
    size = work.sizes()
    dtype = tf.as_dtype(size["precision"])
    draw = lambda *shape: tf.cast(tf.random.stateless_normal(shape, (1, 2)), dtype)  # noqa: E731
    maps = [(draw(r, i), draw(i, o), draw(r, o)) for r, i, o in linear(size)]
    heads = [(draw(g, q, h), draw(g, k, h), draw(g, q, k)) for g, q, k, h in attention(size)]

    @tf.function(autograph=False)
    def step(maps, heads):
        results = []
        for x, kernel, y in maps:  # forward, and the gradients of x and of the kernel
            results += [tf.matmul(x, kernel), times_transposed(y, kernel), transposed_times(x, y)]
        for query, key, scores in heads:  # scores and context, and two gradients of each
            results += [times_transposed(query, key), tf.matmul(scores, key)]
            results += [tf.matmul(scores, key), transposed_times(scores, query)]
            results += [transposed_times(scores, query), times_transposed(query, key)]
        return tf.add_n([tf.cast(tf.reshape(each, [-1])[0], tf.float32) for each in results])

    def run(steps: int) -> float:
        return [float(step(maps, heads)) for _ in range(steps)][-1]

    work.serve(run)


if __name__ == "__main__":
    main()
