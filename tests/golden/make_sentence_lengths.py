"""Makes sentence_lengths.npz: how long the sentences of some documents are, in tokens.

    python -m tests.golden.make_sentence_lengths TEXT TOKENIZER

TEXT has a paragraph a line and an empty line between documents. The file in this folder is of 288
English Wikipedia articles and BERT's uncased vocabulary.
"""

import itertools
import sys
from pathlib import Path

import numpy as np

from official import tokenizers
from tfrecords_tools.text import sentences


def main(text: str, folder: str) -> None:
    """Writes the lengths of all sentences, and how many each paragraph and document has."""
    tokenizer = tokenizers.load(folder)
    documents = Path(text).read_text(encoding="utf-8").strip().split("\n\n")
    split = [[sentences.split(line) for line in d.split("\n")] for d in documents]
    paragraphs = list(itertools.chain.from_iterable(split))
    lines = list(itertools.chain.from_iterable(paragraphs))
    np.savez_compressed(
        Path(__file__).with_name("sentence_lengths.npz"),
        sentences=np.array([len(ids) for ids in tokenizer.encode(lines)], np.uint16),
        paragraphs=np.array([len(paragraph) for paragraph in paragraphs], np.uint8),
        documents=np.array([len(document) for document in split], np.uint8),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
