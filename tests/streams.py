"""Row-continuous shards for tests, made in this process, and a corpus to walk through.

The marked corpus has each word once: word n of the text as it was written has the id n + FIRST.
"""

import dataclasses
from pathlib import Path

import numpy as np

from official import config as configs
from tests import small
from tfrecords_tools.pretraining.settings import Settings

FIRST = len(small.SPECIALS)
PAD, UNK, CLS, SEP, MASK = range(FIRST)
LENGTHS = (37, 3, 60, 1, 25, 44, 90, 2, 71, 30)


def marked(lengths=LENGTHS, sentence=7):
    """Documents of so many words, in sentences of at most 7; each word stands in one place."""
    words, documents = iter(f"w{i}" for i in range(sum(lengths))), []
    for length in lengths:
        text = [next(words) for _ in range(length)]
        documents.append([" ".join(text[i : i + sentence]) for i in range(0, length, sentence)])
    return documents, [f"w{i}" for i in range(sum(lengths))]


def config(**settings):
    return small.config(
        segments={"format": "stream", "max_length": 16, "rows": 4, **settings},
        objectives=[{"type": "masked_lm"}],
        recipe__batch_size=settings.get("rows", 4),
    )


class Walk:
    """Follows a text token by token: which token may come after which, and `end` a document."""

    def __init__(self, lengths, backward, end=SEP):
        self.end = end
        starts = np.cumsum([0, *lengths])
        self.firsts, self.lasts = set(FIRST + starts[:-1]), set(FIRST + starts[1:] - 1)
        self.step = 1
        if backward:
            self.firsts, self.lasts, self.step = self.lasts, self.firsts, -1

    def check(self, tokens):
        for a, b in zip(tokens, tokens[1:], strict=False):
            if a == self.end:
                assert b in self.firsts, (a, b)
            elif a in self.lasts:
                assert b == self.end, (a, b)
            else:
                assert b == a + self.step, (a, b)


def stream_folder(
    folder: Path,
    run_config: configs.Config,
    documents: list[list[str]],
    words=small.WORDS,
    shard_count: int = 3,
) -> Path:
    """A shard folder of the rows of `documents`, whose words stand in `words`.

    The encoder may know fewer: rows are read without one.
    """
    pieces = FIRST + 2 * len(words)
    encoder = dataclasses.replace(run_config.encoder, vocab_size=pieces)
    run_config = dataclasses.replace(run_config, encoder=encoder)
    tokens = small.tokenizer_folder(folder.with_name(folder.name + "-tokenizer"), words)
    small.built_here(folder, Settings.from_config(run_config, tokens), documents, shard_count)
    return folder
