"""Computes losses of sentence encoders with PyTorch; `test_sentence_losses_parity.py` starts it.

    python hf_sentence_losses.py IN.npz OUT.npz

IN has `cases` in JSON, {name: options of the objective}, the vectors `x/NAME` [B, C, V] and the
`scores` [B]. OUT has for each case the `loss`, a sum over the examples, and its `gradient`.
"""

import json
import sys

import numpy as np
import torch
from torch.nn import functional


def ranked(x, options):
    unit = functional.normalize(x, dim=-1)
    documents = torch.cat([unit[:, c] for c in range(1, x.shape[1])])
    scores = unit[:, 0] @ documents.T * options.get("scale", 20.0)
    rows, own = len(x), torch.arange(len(x))
    if added := options.get("hard_negative_weight"):
        for c in range(2, x.shape[1]):
            block = scores[:, (c - 1) * rows : c * rows]
            block += added * torch.eye(rows, dtype=x.dtype)
    loss = functional.cross_entropy(scores, own)
    if options.get("symmetric"):
        loss = (loss + functional.cross_entropy(scores[:, :rows].T, own)) / 2
    return loss * rows


def ordered(values, labels, options):
    values = values * options.get("scale", 20.0)
    gaps = (values[:, None] - values[None])[labels[:, None] < labels[None]]
    return torch.logsumexp(torch.cat([torch.zeros(1, dtype=gaps.dtype), gaps]), 0) * len(labels)


def angles(x, y):
    half = x.shape[-1] // 2
    z, w = (torch.complex(v[:, :half], v[:, half:]) for v in (x, y))
    quotient = (z * w.conj()).sum(-1) / (w.abs() ** 2).sum(-1)
    quotient = quotient / (torch.linalg.norm(x, dim=-1) / torch.linalg.norm(y, dim=-1))
    return (quotient.real + quotient.imag).abs()


def loss(x, labels, options):
    kind = options.get("loss", "multiple_negatives")
    if kind == "multiple_negatives":
        return ranked(x, options)
    if kind == "triplet":
        x = functional.normalize(x, dim=-1) if options.get("normalize", True) else x
        margin = options.get("margin", 5.0)
        return functional.triplet_margin_loss(*x.unbind(1), margin=margin, reduction="sum")
    if kind == "angle":
        return ordered(angles(x[:, 0], x[:, 1]), labels, options)
    cosines = functional.cosine_similarity(x[:, 0], x[:, 1])
    if kind == "cosent":
        return ordered(cosines, labels, options)
    if kind == "cosine":
        return functional.mse_loss(cosines, labels, reduction="sum")
    away = 1 - cosines
    apart = functional.relu(options.get("margin", 0.5) - away) ** 2
    return (0.5 * (labels * away**2 + (1 - labels) * apart)).sum()


def main(given, output):
    arrays = dict(np.load(given))
    labels, results = torch.tensor(arrays["scores"]), {}
    for name, options in json.loads(str(arrays["cases"])).items():
        x = torch.tensor(arrays[f"x/{name}"], requires_grad=True)
        sizes = options.get("sizes", [x.shape[-1]])
        total = sum(loss(x[..., :size], labels, options) for size in sizes)
        total.backward()
        results[f"loss/{name}"] = total.detach().numpy()
        results[f"gradient/{name}"] = x.grad.numpy()
    np.savez(output, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
