"""Runs PyTorch's LSTM with a projection; `test_lstm_parity.py` starts it.

    python hf_lstm.py IN.npz OUT.npz

IN has `x`, `upstream`, `kernel`, `bias` and `projection` as our layer has them, and the state `c`
and `m` before the first step. OUT gets the outputs, the last state and, of the sum of outputs times
`upstream`, the gradients of the arrays.
"""

import sys

import numpy as np
import torch


def reordered(values):
    """i, j, f, o to PyTorch's i, f, g, o, and back."""
    i, j, f, o = np.split(values, 4, axis=-1)
    return np.concatenate([i, f, j, o], axis=-1)


def main(source, destination):
    """Reads, computes, writes."""
    with np.load(source) as file:
        arrays = dict(file)
    size, cells = arrays["x"].shape[-1], arrays["c"].shape[-1]
    projection = arrays["m"].shape[-1]
    lstm = torch.nn.LSTM(size, cells, proj_size=projection, batch_first=True).double()
    bias = arrays["bias"].copy()
    bias[2 * cells : 3 * cells] += 1
    kernel = reordered(arrays["kernel"]).T
    values = {
        "weight_ih_l0": kernel[:, :size],
        "weight_hh_l0": kernel[:, size:],
        "bias_ih_l0": reordered(bias),
        "bias_hh_l0": np.zeros_like(bias),
        "weight_hr_l0": arrays["projection"].T,
    }
    for name, value in values.items():
        getattr(lstm, name).data = torch.from_numpy(np.ascontiguousarray(value))
    x, c, m = (torch.from_numpy(arrays[name]).requires_grad_() for name in ("x", "c", "m"))
    outputs, (last_m, last_c) = lstm(x, (m[None], c[None]))
    outputs.backward(torch.from_numpy(arrays["upstream"]))
    kernel = torch.cat([lstm.weight_ih_l0.grad, lstm.weight_hh_l0.grad], dim=1).numpy()
    results = {
        "outputs": outputs.detach(),
        "last_c": last_c[0].detach(),
        "last_m": last_m[0].detach(),
        "gradient/x": x.grad,
        "gradient/c": c.grad,
        "gradient/m": m.grad,
        "gradient/kernel": reordered(kernel.T),
        "gradient/bias": reordered(lstm.bias_ih_l0.grad.numpy()),
        "gradient/projection": lstm.weight_hr_l0.grad.T,
    }
    np.savez(destination, **{name: np.asarray(value) for name, value in results.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
