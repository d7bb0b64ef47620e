"""Our side of `lstm`, with the limits of ELMo, which these values do not reach."""

import lstm_work as work
import tensorflow as tf

from official.distribution import numerics
from official.modeling.layers.lstm import ProjectedLSTM


def main() -> None:
    """Serves the requests of this side."""
    settings = work.settings()
    numerics.restrict_graph_optimizer()
    arrays = work.arrays(settings)
    size = settings["projection"]
    lstm = ProjectedLSTM(
        size,
        settings["cells"],
        size,
        cell_clip=3.0,
        projection_clip=3.0,
        initializer="zeros",
        name="lstm",
    )
    lstm.build()
    variables = [lstm.kernel, lstm.bias, lstm.projection]
    for variable, name in zip(variables, ("kernel", "bias", "projection"), strict=True):
        variable.assign(arrays[name])
    x, upstream = tf.constant(arrays["x"]), tf.constant(arrays["upstream"])

    @tf.function(jit_compile=settings["xla"])
    def step():
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = lstm(x, None)[0]
        sources = [x, *(variable.value for variable in variables)]
        return [outputs, *tape.gradient(outputs, sources, output_gradients=upstream)]

    work.serve(lambda: [value.numpy() for value in step()])


if __name__ == "__main__":
    main()
