"""The sides of `benchmarks.lstm`: our LSTM with a projection, and PyTorch's.

For each request, a side computes the outputs of all steps, and the gradients of a weighted sum of
the outputs. It answers with the seconds and the means of absolute values. The settings are `rows`
(B), `length` (T), `cells` (C), `projection` (P) and `xla`.

Shapes: B rows, T steps, C cells, P projection and input.
"""

from collections.abc import Callable, Sequence

import numpy as np
import server

RESULTS = ("outputs", "gradient of the input", "of the kernel", "of the bias", "of the projection")


def arrays(settings: dict) -> dict[str, np.ndarray]:
    """Returns the arrays of all sides, in float32.

    Returns:
      `kernel` [2P, 4C] with the gates i, j, f, o, `bias` [4C], `projection` [C, P], and `x` and
      `upstream` [B, T, P].
    """
    rows, length, cells, size = (settings[k] for k in ("rows", "length", "cells", "projection"))
    rng = np.random.default_rng(0)
    limit = cells**-0.5
    values = {
        "kernel": rng.uniform(-limit, limit, (2 * size, 4 * cells)),
        "bias": rng.uniform(-limit, limit, 4 * cells),
        "projection": rng.uniform(-limit, limit, (cells, size)),
        "x": rng.standard_normal((rows, length, size)),
        "upstream": rng.standard_normal((rows, length, size)),
    }
    return {name: value.astype(np.float32) for name, value in values.items()}


def serve(step: Callable[[], Sequence[np.ndarray]]) -> None:
    """Answers requests; `step` returns the arrays of `RESULTS`."""

    def answer(request: None) -> dict:
        del request
        seconds, results = server.timed(step)
        means = {
            name: float(np.abs(value).mean(dtype=np.float64))
            for name, value in zip(RESULTS, results, strict=True)
        }
        return {"seconds": seconds, "means": means}

    server.serve(answer)


def ours(settings: dict) -> None:
    """Our side, with ELMo's clipping, whose limits these values do not reach."""
    import tensorflow as tf

    from official.distribution import numerics
    from official.modeling.layers.lstm import ProjectedLSTM

    numerics.restrict_graph_optimizer()
    values = arrays(settings)
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
        variable.assign(values[name])
    x, upstream = tf.constant(values["x"]), tf.constant(values["upstream"])

    @tf.function(jit_compile=settings["xla"])
    def step():
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = lstm(x, None)[0]
        sources = [x, *(variable.value for variable in variables)]
        return [outputs, *tape.gradient(outputs, sources, output_gradients=upstream)]

    serve(lambda: [value.numpy() for value in step()])


def pytorch(settings: dict) -> None:
    """The side of PyTorch's `nn.LSTM` with `proj_size`, which does not clip values."""
    import torch

    values = arrays(settings)
    cells, size = settings["cells"], settings["projection"]
    lstm = torch.nn.LSTM(size, cells, proj_size=size, batch_first=True)
    bias = values["bias"].copy()
    bias[2 * cells : 3 * cells] += 1  # our forget gates add 1 at run time
    kernel = _reordered(values["kernel"]).T
    theirs = {
        "weight_ih_l0": kernel[:, :size],
        "weight_hh_l0": kernel[:, size:],
        "bias_ih_l0": _reordered(bias),
        "bias_hh_l0": np.zeros(4 * cells, np.float32),
        "weight_hr_l0": values["projection"].T,
    }
    for name, value in theirs.items():
        getattr(lstm, name).data = torch.from_numpy(np.ascontiguousarray(value))
    x, upstream = torch.from_numpy(values["x"]), torch.from_numpy(values["upstream"])
    x.requires_grad_()

    def step():
        lstm.zero_grad()
        x.grad = None
        outputs, _ = lstm(x)
        outputs.backward(upstream)
        kernel = torch.cat([lstm.weight_ih_l0.grad, lstm.weight_hh_l0.grad], dim=1)
        gradients = [x.grad, kernel, lstm.bias_ih_l0.grad, lstm.weight_hr_l0.grad]
        return [value.numpy() for value in (outputs.detach(), *gradients)]

    serve(step)


def _reordered(values: np.ndarray) -> np.ndarray:
    """Returns gates on the last axis in the order of the other side.

    Ours is i, j, f, o and PyTorch's is i, f, g, o, where g is j: swapping two gates converts both
    ways.
    """
    i, j, f, o = np.split(values, 4, axis=-1)
    return np.concatenate([i, f, j, o], axis=-1)


if __name__ == "__main__":
    server.main(ours, pytorch)
