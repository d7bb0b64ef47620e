"""Sparse vectors of sentence-transformers; `test_sparse_parity.py` starts it.

    python st_sparse.py IN.npz FOLDER
    python st_sparse.py FOLDER

The first trains. IN has `cases` in JSON, {name: options of the objective}; `ids/NAME` and
`real/NAME` [steps, B, C, T], the tokens of each step and where they are real; and `scores` [B].
`FOLDER/init` has a random masked LM. FOLDER gets a folder NAME for each case, with the model after
all steps of SGD, and `out.npz`: the three terms of each step, `terms/NAME` [steps, 3], and
`vectors/NAME` [B, C, V] of the first batch at the start.

The second writes FOLDER/router with the masked LM of `FOLDER/init`, if there is one, and a random
table of queries. FOLDER/answers.json has the vectors that the folder gives to the `queries` and the
`documents` of FOLDER/texts.json.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder import losses
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling

BASES = {
    "multiple_negatives": losses.SparseMultipleNegativesRankingLoss,
    "margin_mse": losses.SparseMarginMSELoss,
}


def router(folder):
    folder = Path(folder)
    if (folder / "init").exists():
        encoder = Transformer(str(folder / "init"), transformer_task="fill-mask")
        encoder.max_seq_length = 11
        weights = torch.tensor(np.random.default_rng(0).normal(1, 1, len(encoder.tokenizer)))
        table = SparseStaticEmbedding(encoder.tokenizer, weights.float())
        both = Router.for_query_document(
            query_modules=[table], document_modules=[encoder, SpladePooling()]
        )
        prompts = {"query": "a cat ", "document": "the "}
        made = SparseEncoder(modules=[both], device="cpu", prompts=prompts)
        made.save_pretrained(str(folder / "router"))
    model = SparseEncoder(str(folder / "router"), device="cpu")
    texts = json.loads((folder / "texts.json").read_text())
    answers = {
        "queries": model.encode_query(texts["queries"]),
        "documents": model.encode_document(texts["documents"]),
    }
    answers = {kind: vectors.to_dense().tolist() for kind, vectors in answers.items()}
    (folder / "answers.json").write_text(json.dumps(answers))


def train(given, folder):
    arrays, folder = dict(np.load(given)), Path(folder)
    results = {}
    for name, options in json.loads(str(arrays["cases"])).items():
        encoder = Transformer(str(folder / "init"), transformer_task="fill-mask")
        activation = "log1p_relu" if options.get("logarithms") == 2 else "relu"
        pooling = SpladePooling(options.get("pooling", "max"), activation)
        model = SparseEncoder(modules=[encoder, pooling], device="cpu").train().double()
        base = BASES[options.get("loss", "multiple_negatives")](model)
        factors = options["document_flops"], options["query_flops"]
        threshold = options.get("flops_threshold")
        loss = losses.SpladeLoss(
            model, base, *factors, document_regularizer_threshold=threshold,
            query_regularizer_threshold=threshold,
        )  # fmt: skip
        optimizer = torch.optim.SGD(model.parameters(), lr=options["rate"])
        terms, steps = [], len(arrays[f"ids/{name}"])
        for step in range(steps):
            share = min(step / options["ramp_steps"], 1.0) ** 2
            loss.document_regularizer_weight = factors[0] * share
            loss.query_regularizer_weight = factors[1] * share
            ids, real = (torch.tensor(arrays[f"{n}/{name}"][step]) for n in ("ids", "real"))
            features = [
                {"input_ids": i, "attention_mask": r.long()}
                for i, r in zip(ids.unbind(1), real.unbind(1), strict=True)
            ]
            if step == 0:
                with torch.no_grad():
                    vectors = [model(dict(f))["sentence_embedding"] for f in features]
                results[f"vectors/{name}"] = torch.stack(vectors, 1).numpy()
            found = loss(features, torch.tensor(arrays["scores"], dtype=torch.float64))
            optimizer.zero_grad()
            sum(found.values()).backward()
            optimizer.step()
            keys = ("base_loss", "document_regularizer_loss", "query_regularizer_loss")
            terms.append([float(found[key].detach()) for key in keys])
        results[f"terms/{name}"] = np.array(terms)
        model.float().save_pretrained(str(folder / name))
    np.savez(folder / "out.npz", **results)


if __name__ == "__main__":
    (train if len(sys.argv) > 2 else router)(*sys.argv[1:])
