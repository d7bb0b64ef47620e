"""Reads PARENT/vectors and PARENT/ranking by fastembed's own calls for models of one's own.

PARENT/rows.json has `texts`, and `pairs` of a query and a document; vectors and scores are printed.
"""

import json
import sys
from pathlib import Path

from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from fastembed.rerank.cross_encoder import TextCrossEncoder


def main() -> None:
    parent = Path(sys.argv[1])
    rows, common = json.loads((parent / "rows.json").read_text("utf-8")), {"license": "mit"}
    common |= {"model_file": "onnx/model.onnx", "sources": ModelSource(hf="me/model")}
    TextEmbedding.add_custom_model(
        model="me/vectors",
        dim=rows["size"],
        pooling=PoolingType.DISABLED,
        normalization=False,
        output_name="sentence_embedding",
        **common,
    )
    TextCrossEncoder.add_custom_model(model="me/ranking", **common)
    model = TextEmbedding("me/vectors", specific_model_path=str(parent / "vectors"))
    ranker = TextCrossEncoder("me/ranking", specific_model_path=str(parent / "ranking"))
    found = {
        "vectors": [vector.tolist() for vector in model.embed(rows["texts"], batch_size=7)],
        "scores": list(map(float, ranker.rerank_pairs(rows["pairs"], batch_size=7))),
    }
    print(json.dumps(found))


main()
