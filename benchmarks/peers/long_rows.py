"""The side of `benchmarks.long_rows`: a layer of ModernBERT, forward and backward.

A request is a number of steps. The side makes these steps, and answers with the seconds of a step
and with the peak memory of steps above that of the process before the first step. The settings are
`kind`, `local` or `global`, and `length` (T).
"""

import server

SIZE, HEADS, INNER, REACH = 768, 12, 1152, 64


def layer(settings: dict) -> None:
    """Serves the steps."""
    import tensorflow as tf

    from official.config import blocks
    from official.distribution import numerics
    from official.modeling.layers.block import Block
    from official.modeling.layers.local_attention import Blocks
    from official.modeling.layers.random import Draws, Initializers, RandomWeights
    from official.modeling.layers.rotary_positions import Rotation

    numerics.set_precision("mixed_bfloat16")
    numerics.restrict_graph_optimizer()
    parts = blocks.BlockParts(
        SIZE,
        blocks.Heads(HEADS, SIZE // HEADS, use_bias=False),
        blocks.FeedForwardParts(INNER, "gelu", gated=True, use_bias=False),
        blocks.Norm(1e-5, bias=False),
        pre_norm=True,
        positions=(blocks.Rotary(),),
    )
    weights = RandomWeights("truncated_normal", 0.02, Draws.of_name(0, "layer"))
    block = Block(parts, Initializers(weights), name="layer", dtype="mixed_bfloat16")
    block.build()
    length = settings["length"]
    x = tf.random.stateless_normal((1, length, SIZE), (1, 2))
    upstream = tf.random.stateless_normal((1, length, SIZE), (3, 4))

    @tf.function
    def step():
        positions = tf.range(length)[None]
        rotation = Rotation.of(positions, SIZE // HEADS, 10000.0, "bfloat16")
        mask = Blocks.of(length, REACH) if settings["kind"] == "local" else None
        with tf.GradientTape() as tape:
            tape.watch(x)
            states = block(x, attention_mask=mask, positions=[rotation]).states
            loss = tf.reduce_sum(tf.cast(states, tf.float32) * upstream)
        gradients = tape.gradient(loss, [x, *block.trainable_variables])
        return [tf.reduce_sum(gradient) for gradient in gradients]

    before = server.mib("VmRSS")

    def answer(steps: int) -> dict:
        seconds, _ = server.timed(lambda: [step()[0].numpy() for _ in range(steps)])
        return {"seconds": seconds / steps, "mib": server.mib("VmHWM") - before}

    server.serve(answer)


if __name__ == "__main__":
    server.main(layer)
