"""Runs the code of the page about Keras under JAX; `test_keras_backends.py` starts it.

    python jax_page.py FOLDER

FOLDER has the code, `page.py`, and the model folder that it reads.
"""

import json
import os
import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.chdir(sys.argv[1])
space = runpy.run_path("page.py")
assert space["keras"].backend.backend() == "jax"
texts = space["texts"]
scores = space["model"].predict(space["preprocess"](texts), verbose=0)
found = {"texts": texts, "losses": space["history"].history["loss"], "scores": scores.tolist()}
print(json.dumps(found))
