"""Computes the losses of sentence-transformers' cross-encoders, and trains by some of them.

    python st_ranking_losses.py FOLDER

`test_ranking_losses_parity.py` starts it. FOLDER/in.npz has `cases` and `trained` in JSON, {name:
options of the objective}, the `scores` and `grades` of documents [B, C], and the number of real
documents of each query, `counts` [B]; lists of a teacher are full. FOLDER/out.npz gets the `loss`
and its `gradient` for each case. FOLDER/bert is a BERT with random weights, and FOLDER/NAME the
same after 20 steps of one of `trained`; NAME.npz has its batches, the `kernel` and the `bias` of
its head before and after them, and the losses.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from sentence_transformers.cross_encoder import CrossEncoder, losses

STEPS, BATCH, DOCUMENTS, LENGTH, WARMUP = 20, 3, 4, 11, 4
RATE, DECAY, EPSILON = 1e-2, 0.01, 1e-2  # with a large epsilon, noise makes no step
SCHEMES = {
    "ndcg_loss1": losses.NDCGLoss1Scheme,
    "ndcg_loss2": losses.NDCGLoss2Scheme,
    "lambda_rank": losses.LambdaRankScheme,
    "ndcg_loss2pp": losses.NDCGLoss2PPScheme,
}


class Scorer(CrossEncoder):
    """What a loss asks of a CrossEncoder; the documents are the numbers of their rows."""

    num_labels, device = 1, torch.device("cpu")

    def __init__(self, scores):
        torch.nn.Module.__init__(self)
        self.scores = scores  # gives the scores of some rows

    def preprocess(self, pairs, prompt=None, task=None):
        return {"rows": torch.tensor([int(document) for _, document in pairs])}

    def forward(self, features):
        return {"scores": self.scores(features["rows"])}


def loss_of(model, options):
    kind, k = options["loss"], options.get("k")
    scale = {"sigma": options.get("scale", 1.0)}
    if kind == "lambda":
        scheme = SCHEMES[options.get("scheme", "ndcg_loss2pp")]()
        return losses.LambdaLoss(model, weighting_scheme=scheme, k=k, **scale)
    if kind == "rank_net":
        return losses.RankNetLoss(model, k=k, **scale)
    if kind == "list_net":
        return losses.ListNetLoss(model)
    if kind == "list_mle":
        return losses.ListMLELoss(model, respect_input_order=False)
    if kind == "p_list_mle":
        return losses.PListMLELoss(model, respect_input_order=False)
    if kind == "adr_mse":
        return losses.ADRMSELoss(model, alpha=options.get("scale", 1.0))
    if kind == "margin_mse":
        return losses.MarginMSELoss(model)
    if kind == "mse":
        return losses.MSELoss(model)
    assert kind == "pointwise"
    return losses.BinaryCrossEntropyLoss(model)


def computed(model, options, grades, counts):
    """The loss of lists; `grades` are [B, C]."""
    rows = [[str(c + b * grades.shape[1]) for c in range(n)] for b, n in enumerate(counts)]
    loss, queries = loss_of(model, options), ["q"] * len(rows)
    if options["loss"] in ("mse", "pointwise"):
        texts = [row for row in sum(rows, [])]
        labels = torch.cat([g[:n] for g, n in zip(grades, counts, strict=True)])
        return loss([["q"] * len(texts), texts], labels)
    if options["loss"] == "margin_mse":
        return loss([queries, *map(list, zip(*rows, strict=True))], grades)
    labels = [g[:n] for g, n in zip(grades, counts, strict=True)]
    return loss([queries, rows], labels)


def train(options, folder, bert):
    """Trains a copy of the BERT, and writes it with its batches."""
    config = transformers.BertConfig.from_pretrained(folder / "bert")
    config.num_labels = 1
    model = transformers.BertForSequenceClassification(config)
    model.bert.load_state_dict(bert.state_dict())
    model.eval()  # no dropout
    shape = (STEPS, BATCH, DOCUMENTS)
    length, begin = torch.randint(6, LENGTH + 1, (*shape, 1)), torch.randint(2, 5, (*shape, 1))
    place = torch.arange(LENGTH)
    ids = torch.randint(5, 61, (*shape, LENGTH)) * (place < length)
    batches = {
        "input_ids": ids,
        "attention_mask": (place < length).long(),
        "token_type_ids": ((place >= begin) & (place < length)).long(),
    }
    grades = (ids[..., 0] - 5) // 19 * 1.0  # from the first token
    counts = torch.randint(2, DOCUMENTS + 1, shape[:2])
    if options["loss"] == "margin_mse":
        counts[:] = DOCUMENTS
    head = model.classifier
    arrays = {"kernel": head.weight.T, "bias": head.bias}
    arrays = {name: value.detach().numpy().copy() for name, value in arrays.items()}
    named = list(model.named_parameters())
    moments = {name: [torch.zeros_like(p), torch.zeros_like(p)] for name, p in named}
    found = []
    for i in range(STEPS):
        flat = {name: value[i].flatten(0, 1) for name, value in batches.items()}
        scorer = Scorer(
            lambda rows, flat=flat: model(**{n: x[rows] for n, x in flat.items()}).logits
        )
        loss = computed(scorer, options, grades[i], counts[i].tolist())
        model.zero_grad()
        loss.backward()
        found.append(loss.item())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rate = RATE * (i / WARMUP if i < WARMUP else 1 - i / STEPS)
        with torch.no_grad():
            for name, parameter in named:
                first, second = moments[name]
                first.mul_(0.9).add_(parameter.grad, alpha=0.1)
                second.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
                update = first / (second.sqrt() + EPSILON)
                if "bias" not in name and "LayerNorm" not in name:
                    update += DECAY * parameter
                parameter.sub_(rate * update)
    after = {"kernel_after": head.weight.T, "bias_after": head.bias}
    arrays |= {name: value.detach().numpy() for name, value in after.items()}
    arrays |= {name: value.numpy() for name, value in batches.items()}
    model.bert.save_pretrained(folder / options["loss"])
    np.savez(
        folder / f"{options['loss']}.npz", losses=found, grades=grades, counts=counts, **arrays
    )


def main(folder):
    folder = Path(folder)
    arrays, results = dict(np.load(folder / "in.npz")), {}
    grades, counts = torch.tensor(arrays["grades"]).float(), arrays["counts"].tolist()
    for name, options in json.loads(str(arrays["cases"])).items():
        scores = torch.tensor(arrays["scores"], requires_grad=True)
        flat = scores.flatten()
        full = options["loss"] in ("margin_mse", "pointwise")
        own = [scores.shape[1]] * len(counts) if full else counts
        given = (grades > 1).float() if options["loss"] == "pointwise" else grades
        loss = computed(Scorer(lambda rows, flat=flat: flat[rows]), options, given, own)
        loss.backward()
        results[f"loss/{name}"] = loss.detach().numpy()
        results[f"gradient/{name}"] = scores.grad.numpy()
    np.savez(folder / "out.npz", **results)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=61,
        hidden_size=15,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=22,
        max_position_embeddings=13,
        initializer_range=0.2,
    )
    bert = transformers.BertModel(config)
    bert.save_pretrained(folder / "bert")
    for options in json.loads(str(arrays["trained"])).values():
        train(options, folder, bert)


if __name__ == "__main__":
    main(*sys.argv[1:])
