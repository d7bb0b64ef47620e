"""Makes tests/golden/ranking.npz: scores of a cross-encoder by transformers.

Run with the Python of the environment of tests/parity/requirements-hf.txt:
    .parity/hf/bin/python tests/golden/make_ranking_golden.py
"""

import os
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

FOLDER = Path(__file__).parent
QUERIES = ["the cat", "quickly running dogs", "a mat , under a tree ?"]
DOCUMENTS = ["A dog sat on the mat.", "cats", "the quick cat ran, and ran and ran under the tree!"]


def main():
    source = FOLDER / "hf_files" / "pretraining"
    tokenizer = transformers.BertTokenizer.from_pretrained(source)
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification.from_pretrained(source, num_labels=1).eval()
    with torch.no_grad():
        model.classifier.weight.normal_(0, 0.5)
        model.classifier.bias.normal_(0, 0.5)
        batch = tokenizer(QUERIES, DOCUMENTS, padding=True, return_tensors="pt")
        logits = model(**batch).logits[:, 0]
    np.savez(
        FOLDER / "ranking.npz",
        kernel=model.classifier.weight.detach().numpy().T,
        bias=model.classifier.bias.detach().numpy(),
        logits=logits.numpy(),
        **{name: values.numpy().astype(np.int32) for name, values in batch.items()},
    )


if __name__ == "__main__":
    main()
