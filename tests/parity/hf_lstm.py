"""Runs PyTorch's LSTM with a projection, or a bidirectional one; `test_lstm_parity.py` starts it.

    python hf_lstm.py IN.npz OUT.npz [--bidirectional]

IN of the bidirectional one has rows `x` that begin at position 0 and their `lengths`, `upstream` of
the outputs, `upstream_last` of the last output of each direction, and `forward/kernel`,
`forward/bias` and the same of `backward`. OUT gets the outputs of the packed rows, the last ones,
and the gradients.

IN of the other has `x`, `upstream`, `kernel`, `bias` and `projection` as our layer has them, and
the state `c` and `m` before the first step. OUT gets the outputs, the last state and, of the sum of
outputs times `upstream`, the gradients of the arrays.
"""

import sys

import numpy as np
import torch


def reordered(values):
    """i, j, f, o to PyTorch's i, f, g, o, and back."""
    i, j, f, o = np.split(values, 4, axis=-1)
    return np.concatenate([i, f, j, o], axis=-1)


def weights(kernel, bias, size):
    """Our kernel and bias by PyTorch's names."""
    cells = len(bias) // 4
    bias = bias.copy()
    bias[2 * cells : 3 * cells] += 1
    kernel = reordered(kernel).T
    return {
        "weight_ih_l0": kernel[:, :size],
        "weight_hh_l0": kernel[:, size:],
        "bias_ih_l0": reordered(bias),
        "bias_hh_l0": np.zeros_like(bias),
    }


def gradients(lstm, suffix=""):
    """The gradients of a direction, as of our kernel and bias."""
    parts = [getattr(lstm, f"weight_{kind}_l0{suffix}").grad for kind in ("ih", "hh")]
    bias = getattr(lstm, f"bias_ih_l0{suffix}").grad
    return reordered(torch.cat(parts, dim=1).numpy().T), reordered(bias.numpy())


def bidirectional(arrays):
    """Rows of different lengths, packed."""
    size, cells = arrays["x"].shape[-1], len(arrays["forward/bias"]) // 4
    lstm = torch.nn.LSTM(size, cells, bidirectional=True, batch_first=True).double()
    for direction, suffix in (("forward", ""), ("backward", "_reverse")):
        kernel, bias = arrays[f"{direction}/kernel"], arrays[f"{direction}/bias"]
        for name, value in weights(kernel, bias, size).items():
            getattr(lstm, name + suffix).data = torch.from_numpy(np.ascontiguousarray(value))
    x = torch.from_numpy(arrays["x"]).requires_grad_()
    lengths = torch.from_numpy(arrays["lengths"])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
    outputs, (last, _) = lstm(packed)
    outputs, _ = torch.nn.utils.rnn.pad_packed_sequence(outputs, True, total_length=x.shape[1])
    last = torch.cat([last[0], last[1]], dim=-1)
    total = (outputs * torch.from_numpy(arrays["upstream"])).sum()
    (total + (last * torch.from_numpy(arrays["upstream_last"])).sum()).backward()
    results = {"outputs": outputs.detach(), "last": last.detach(), "gradient/x": x.grad}
    for direction, suffix in (("forward", ""), ("backward", "_reverse")):
        kernel, bias = gradients(lstm, suffix)
        results |= {f"gradient/{direction}/kernel": kernel, f"gradient/{direction}/bias": bias}
    return results


def projected(arrays):
    """Rows of one length, from a state."""
    size, cells = arrays["x"].shape[-1], arrays["c"].shape[-1]
    projection = arrays["m"].shape[-1]
    lstm = torch.nn.LSTM(size, cells, proj_size=projection, batch_first=True).double()
    values = weights(arrays["kernel"], arrays["bias"], size)
    values["weight_hr_l0"] = arrays["projection"].T
    for name, value in values.items():
        getattr(lstm, name).data = torch.from_numpy(np.ascontiguousarray(value))
    x, c, m = (torch.from_numpy(arrays[name]).requires_grad_() for name in ("x", "c", "m"))
    outputs, (last_m, last_c) = lstm(x, (m[None], c[None]))
    outputs.backward(torch.from_numpy(arrays["upstream"]))
    kernel, bias = gradients(lstm)
    return {
        "outputs": outputs.detach(),
        "last_c": last_c[0].detach(),
        "last_m": last_m[0].detach(),
        "gradient/x": x.grad,
        "gradient/c": c.grad,
        "gradient/m": m.grad,
        "gradient/kernel": kernel,
        "gradient/bias": bias,
        "gradient/projection": lstm.weight_hr_l0.grad.T,
    }


def main(source, destination, *options):
    """Reads, computes, writes."""
    with np.load(source) as file:
        arrays = dict(file)
    results = (bidirectional if options else projected)(arrays)
    np.savez(destination, **{name: np.asarray(value) for name, value in results.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
