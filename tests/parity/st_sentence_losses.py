"""Computes the losses of sentence-transformers; `test_sentence_losses_parity.py` starts it.

    python st_sentence_losses.py IN.npz OUT.npz

IN has `cases` in JSON, {name: options of the objective}, the states of tokens `states/NAME`
[B, C, T, D], and where they are real, `real/NAME` [B, C, T]. What is learned
are the `scores` [B], the `labels` [B] with the `kernel/NAME` and `bias/NAME` of a classifier, or
the vectors of a teacher, `teacher/NAME` [B, C, V], or [B, V] of all texts of an example. OUT has
for each case the `loss`, a mean over the examples, and its `gradient` with respect to the states.
"""

import json
import sys

import numpy as np
import torch
from sentence_transformers import losses
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

MODES = {
    "first": "cls",
    "last": "lasttoken",
    "mean_sqrt_len": "mean_sqrt_len_tokens",
    "weighted_mean": "weightedmean",
}


class States(torch.nn.Module):
    """In place of an encoder: the states of the rows that `input_ids` numbers."""

    def __init__(self, states):
        super().__init__()
        self.states = states  # [N, T, D]

    def forward(self, features):
        ids = features["input_ids"]  # the number of the row, at each position
        return {**features, "token_embeddings": self.states[ids[:, 0], : ids.shape[1]]}


class Model(torch.nn.Sequential):
    """What a loss asks of a SentenceTransformer."""

    device = "cpu"

    def get_embedding_dimension(self):
        return self[1].pooling_output_dimension


def model_of(states, options):
    names = options["pooling"].split(",")
    pooling = Pooling(states.shape[-1], tuple(MODES.get(name, name) for name in names))
    parts = [States(states.flatten(0, 1)), pooling]
    return Model(*parts, *([Normalize()] if options.get("normalize", True) else []))


def loss_of(model, options):
    kind, scale = options.get("loss", "multiple_negatives"), options.get("scale", 20.0)
    if kind == "multiple_negatives":
        both = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
        more = both if options.get("symmetric") else {}
        if rows := options.get("cached_rows"):
            return losses.CachedMultipleNegativesRankingLoss(
                model, scale=scale, mini_batch_size=rows, **more
            )
        return losses.MultipleNegativesRankingLoss(model, scale=scale, **more)
    if kind == "cosent":
        return losses.CoSENTLoss(model, scale=scale)
    if kind == "angle":
        return losses.AnglELoss(model, scale=scale)
    if kind == "cosine":
        return losses.CosineSimilarityLoss(model)
    if kind == "triplet":
        return losses.TripletLoss(model, triplet_margin=options.get("margin", 5.0))
    if kind == "margin_mse":
        return losses.MarginMSELoss(model)
    if kind == "softmax":
        size = model.get_embedding_dimension()
        return losses.SoftmaxLoss(model, size, len(options["labels"]))
    if kind == "mse":
        return losses.MSELoss(model)
    assert kind == "contrastive"
    return losses.ContrastiveLoss(model, margin=options.get("margin", 0.5))


def main(given, output):
    torch.set_default_dtype(torch.float64)
    arrays, results = dict(np.load(given)), {}
    for name, options in json.loads(str(arrays["cases"])).items():
        states = torch.tensor(arrays[f"states/{name}"], requires_grad=True)
        real = torch.tensor(arrays[f"real/{name}"]).long()
        rows = torch.arange(real.shape[0] * real.shape[1]).reshape(real.shape[:2])
        features = [
            {
                "input_ids": rows[:, c, None].expand(-1, real.shape[2]),
                "attention_mask": real[:, c],
            }
            for c in range(real.shape[1])
        ]
        model = model_of(states, options)
        loss = loss_of(model, options)
        if sizes := options.get("sizes"):
            loss = losses.MatryoshkaLoss(model, loss, sizes)
        learned = {"softmax": "labels", "mse": f"teacher/{name}"}
        learned = torch.tensor(arrays[learned.get(options.get("loss"), "scores")])
        if options.get("loss") == "softmax":
            loss.classifier.weight.data = torch.tensor(arrays[f"kernel/{name}"]).T
            loss.classifier.bias.data = torch.tensor(arrays[f"bias/{name}"])
        value = loss(features, learned)
        value.backward()
        results[f"loss/{name}"] = value.detach().numpy()
        results[f"gradient/{name}"] = states.grad.numpy()
    np.savez(output, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
