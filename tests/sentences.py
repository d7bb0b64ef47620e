"""Shards of sentences of whole words for tests, and the two directions of their text by hand."""

from pathlib import Path

import numpy as np

from official import config as configs
from official import tokenizers
from official.utils import host_seeding
from tests import small
from tfrecords_tools.pretraining.settings import Settings

BEGIN, END, UNK = range(3)
# The last words are not in the vocabulary, and one is longer than 48 bytes.
VOCABULARY = ["<S>", "</S>", "<UNK>", *(f"w{i}" for i in range(40)), "né", "東京"]
WORDS = [*VOCABULARY[3:], "x1", "é" * 25, "</S>", "z" * 300]


def documents(count: int = 9, seed: int = 1) -> list[list[str]]:
    """Documents of sentences of 1 to 12 words."""
    rng = np.random.default_rng(seed)
    sentence = lambda: " ".join(rng.choice(WORDS, rng.integers(1, 13)))  # noqa: E731
    return [[sentence() for _ in range(rng.integers(1, 8))] for _ in range(count)]


def config(encoder: dict | None = None, **segments) -> configs.Config:
    """A config of rows of sentences."""
    raw = {
        "name": "sentences",
        "segments": {
            "format": "stream", "sentences": True, "max_length": 8, "rows": 4, **segments
        },
        "recipe": {"batch_size": segments.get("rows", 4), "steps": 4},
    }  # fmt: skip
    return configs.from_dict(raw)


def number(word: str) -> int:
    """The id of a word of a text; a word that spells a mark is unknown."""
    return VOCABULARY.index(word) if word in VOCABULARY[3:] else UNK


def by_hand(texts: list[list[str]], seed: int, copies: int = 1) -> list[list[tuple]]:
    """The input id, the word (None = a mark), and the target id of each position.

    Of the forward text, and of the backward one.
    """
    forward, backward = [], []
    identities = host_seeding.sort_keys(0, 0, 0, np.arange(len(texts)))  # of one piece of one file
    for i in range(copies):
        for n in np.argsort(host_seeding.sort_keys(seed, i, identities.view(np.int64))):
            for sentence in texts[n]:
                words = sentence.split()
                for direction, order, first, last in (
                    (forward, words, BEGIN, END),
                    (backward, words[::-1], END, BEGIN),
                ):
                    ids = [number(word) for word in order]
                    direction += zip([first, *ids], [None, *order], [*ids, last], strict=True)
    return [forward, backward]


def tokenizer_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizers.Characters(VOCABULARY).save(folder)
    return folder


def shard_folder(folder: Path, run_config: configs.Config, texts: list[list[str]]) -> Path:
    """A shard folder of the rows of `texts`, made in this process."""
    tokens = tokenizer_folder(folder.with_name(folder.name + "-tokenizer"))
    small.built_here(folder, Settings.from_config(run_config, tokens), texts, 3)
    return folder
