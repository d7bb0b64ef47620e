"""Makes tests/golden/torch_files: small files of torch.save in both formats, and their numbers.

Run with the Python of the environment of tests/parity/requirements-hf.txt:
    .parity/hf/bin/python tests/golden/make_torch_files.py
"""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch

OUTPUT = Path(__file__).parent / "torch_files"


def main():
    OUTPUT.mkdir(exist_ok=True)
    torch.manual_seed(0)
    whole = torch.randn(5, 6)
    state = torch.nn.Linear(3, 2).state_dict()  # with attributes of its own
    state |= OrderedDict(
        parameter=torch.nn.Parameter(torch.randn(4)),
        double=torch.randn(2, 2, dtype=torch.float64),
        half=torch.randn(3).half(),
        bfloat16=torch.randn(3).bfloat16(),
        long=torch.arange(4)[None],
        bool=torch.tensor([True, False]),
        whole=whole,
        transposed=whole.T,
        part=whole[1:4, 2:5],
        every_second=whole[::2, 1],
        scalar=torch.tensor(2.5),
        empty=torch.zeros(0, 3),
    )
    torch.save(state, OUTPUT / "archive.bin")
    torch.save(
        {"epoch": 3, "loss": 0.5, "state_dict": state, "options": {"lr": [0.1], "name": None}},
        OUTPUT / "checkpoint.pth",
    )
    torch.save(state, OUTPUT / "old.bin", _use_new_zipfile_serialization=False)
    numbers = {key: value.detach().float().numpy() for key, value in state.items()}
    np.savez(OUTPUT / "numbers.npz", **numbers)


if __name__ == "__main__":
    main()
