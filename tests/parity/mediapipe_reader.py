"""Reads models by MediaPipe's text tasks: PARENT; what each says of `texts.json` is printed.

PARENT has a folder `classifier` or `embedder`, or both, with a `model.tflite`.
"""

import json
import sys
from pathlib import Path

from mediapipe.tasks.python import text


def main() -> None:
    parent = Path(sys.argv[1])
    texts = json.loads((parent / "texts.json").read_text("utf-8"))
    found = {}
    if (file := parent / "classifier" / "model.tflite").exists():
        with text.TextClassifier.create_from_model_path(str(file)) as task:
            found["classifier"] = [
                {each.category_name: each.score for each in one.classifications[0].categories}
                for one in map(task.classify, texts)
            ]
    if (file := parent / "embedder" / "model.tflite").exists():
        with text.TextEmbedder.create_from_model_path(str(file)) as task:
            found["embedder"] = [
                one.embeddings[0].embedding.tolist() for one in map(task.embed, texts)
            ]
    print(json.dumps(found))
    loaded = {module.partition(".")[0] for module in sys.modules}
    others = loaded & {"tensorflow", "keras", "torch", "official"}
    assert not others, others


main()
