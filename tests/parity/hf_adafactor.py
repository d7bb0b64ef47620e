"""Adafactor of transformers on given gradients, in float64: IN.npz OUT.npz.

IN: `start/NAME`, `patterns/NAME` [5, ...], `sizes` and `rates` [steps]. The gradient of step i is
`sizes[i]` times pattern `i % 5`. OUT: `STEP/NAME`, the weights after every twentieth step.

transformers factors every matrix, and has the settings of T5 but for the rate.
"""

import sys

import numpy as np
import torch
from transformers.optimization import Adafactor


def main(source: str, target: str) -> None:
    """Writes the weights."""
    given = np.load(source)
    tensors = {
        kind: {
            name.removeprefix(f"{kind}/"): torch.from_numpy(given[name])
            for name in given
            if name.startswith(f"{kind}/")
        }
        for kind in ("start", "patterns")
    }
    weights = {name: torch.nn.Parameter(value) for name, value in tensors["start"].items()}
    optimizer = Adafactor(
        weights.values(), lr=1.0, scale_parameter=True, relative_step=False, warmup_init=False
    )
    after = {}
    for step, (size, rate) in enumerate(zip(given["sizes"], given["rates"], strict=True)):
        optimizer.param_groups[0]["lr"] = rate
        for name, weight in weights.items():
            weight.grad = size * tensors["patterns"][name][step % 5]
        optimizer.step()
        if (step + 1) % 20 == 0:
            after |= {
                f"{step + 1}/{name}": weight.detach().numpy().copy()
                for name, weight in weights.items()
            }
    np.savez(target, **after)


if __name__ == "__main__":
    main(*sys.argv[1:])
