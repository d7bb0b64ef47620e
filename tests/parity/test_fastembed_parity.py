"""`--layout=hub`: fastembed's classes for vectors and rerankers give the answers of the model."""

import json

import numpy as np
import pytest

import official
from official.serving.export import hub
from tests.parity.test_hub_parity import CLOSE, make, pairs, rows


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet"])
def test_vectors_and_scores(fastembed, tmp_path, name):
    given, models = {"texts": rows(), "pairs": pairs()}, {}
    for head in ("vectors", "ranking"):
        make(tmp_path / f"{head}_model", name, head)
        hub.export(tmp_path / f"{head}_model", tmp_path / head)
        models[head] = official.load(tmp_path / f"{head}_model")
    vectors = models["vectors"].encode(given["texts"])
    queries, documents = map(list, zip(*given["pairs"], strict=True))
    scores = models["ranking"].rank(queries, documents, raw=True)
    (tmp_path / "rows.json").write_text(json.dumps({**given, "size": vectors.shape[1]}))
    found = json.loads(fastembed.run("fastembed_reader.py", tmp_path))
    assert np.ptp(vectors, axis=0).min() > 0.01 and np.ptp(scores) > 0.01
    np.testing.assert_allclose(found["vectors"], vectors, **CLOSE)
    # Of scores beyond 1 as a share of the largest one.
    limit = 1e-5 * max(1, abs(scores).max())
    np.testing.assert_allclose(found["scores"], scores, rtol=0, atol=limit)
