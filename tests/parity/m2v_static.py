"""Runs model2vec; `test_model2vec_parity.py` starts it.

    python m2v_static.py JOBS.json

Each job is [`distill`, FOLDER, OUTPUT, arguments of `distill`], which writes a folder of static
vectors of an encoder, or [`encode`, FOLDER, OUT.npy, texts], which writes the vectors of texts.
"""

import json
import sys
from pathlib import Path

import numpy as np
from model2vec import StaticModel


def main(jobs):
    for what, folder, output, given in json.loads(Path(jobs).read_text()):
        if what == "distill":
            from model2vec.distill import distill

            distill(folder, device="cpu", **given).save_pretrained(output)
        else:
            np.save(output, StaticModel.from_pretrained(folder).encode(given))


if __name__ == "__main__":
    main(*sys.argv[1:])
