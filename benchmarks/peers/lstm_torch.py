"""The side of PyTorch's `nn.LSTM` with `proj_size` in `lstm`; it has no limits of values."""

import lstm_work as work
import numpy as np
import torch


def reordered(values: np.ndarray) -> np.ndarray:
    """Returns gates on the last axis in the order of the other side.

    Ours is i, j, f, o and PyTorch's i, f, g, o, where g is j: the same exchange both ways.
    """
    i, j, f, o = np.split(values, 4, axis=-1)
    return np.concatenate([i, f, j, o], axis=-1)


def main() -> None:
    """Serves the requests of this side."""
    settings = work.settings()
    arrays = work.arrays(settings)
    cells, size = settings["cells"], settings["projection"]
    lstm = torch.nn.LSTM(size, cells, proj_size=size, batch_first=True)
    bias = arrays["bias"].copy()
    bias[2 * cells : 3 * cells] += 1  # The 1 that our forget gates add when they run.
    kernel = reordered(arrays["kernel"]).T
    values = [kernel[:, :size], kernel[:, size:], reordered(bias), np.zeros(4 * cells, np.float32)]
    values.append(arrays["projection"].T)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0")
    for name, value in zip(names, values, strict=True):
        getattr(lstm, name).data = torch.from_numpy(np.ascontiguousarray(value))
    x, upstream = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["upstream"])
    x.requires_grad_()

    def step():
        lstm.zero_grad()
        x.grad = None
        outputs, _ = lstm(x)
        outputs.backward(upstream)
        kernel = torch.cat([lstm.weight_ih_l0.grad, lstm.weight_hh_l0.grad], dim=1)
        gradients = [x.grad, kernel, lstm.bias_ih_l0.grad, lstm.weight_hr_l0.grad]
        return [value.numpy() for value in (outputs.detach(), *gradients)]

    work.serve(step)


if __name__ == "__main__":
    main()
