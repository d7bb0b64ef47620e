"""Answers lists of texts with their ids, by a slow tokenizer of transformers.

Its argument is JSON: `class`, AlbertTokenizer or XLNetTokenizer, and `model`, the path of a
SentencePiece model.
"""

import json
import sys

import transformers


def main():
    """Answers requests line by line."""
    settings = json.loads(sys.argv[1])
    tokenizer = getattr(transformers, settings["class"])(settings["model"])
    for line in sys.stdin:
        texts = json.loads(line)
        print(json.dumps(tokenizer(texts, add_special_tokens=False)["input_ids"]), flush=True)


if __name__ == "__main__":
    main()
