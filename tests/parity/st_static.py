"""Encodes texts by a StaticEmbedding; `test_model2vec_parity.py` starts it.

    python st_static.py JOBS.json

Each job is [FOLDER, OUT.npy, texts, SAVED]; SAVED is the folder as sentence-transformers writes it.
"""

import json
import sys
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer


def main(jobs):
    for folder, output, texts, saved in json.loads(Path(jobs).read_text()):
        model = SentenceTransformer(folder, device="cpu")
        np.save(output, model.encode(texts))
        model.save_pretrained(saved)


if __name__ == "__main__":
    main(*sys.argv[1:])
