"""Small, real inputs for tests: a tokenizer, documents, a shard folder, configs."""

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.data.order import Files
from official.shards import manifest, stored_arrays
from official.utils import host_seeding
from tfrecords_tools.pretraining import builder, examples
from tfrecords_tools.pretraining.segments import TokenizedDocuments
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text.corpus import DocumentChunk
from tfrecords_tools.text.documents import Document, ReadCounts
from tfrecords_tools.writing import shards as shard_records

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in "aeiou"]


def tokenizer_folder(folder: Path, words=WORDS, sentinels: int = 0) -> Path:
    """A WordPiece vocabulary of whole words, of their second halves, and of sentinels."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = [*SPECIALS, *words, *(f"##{word}" for word in words)]
    pieces += [f"<extra_id_{i}>" for i in reversed(range(sentinels))]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder


def documents(count: int, seed: int = 0) -> list[list[str]]:
    """Documents of a few sentences of a few words of one or two pieces."""
    rng = np.random.default_rng(seed)
    word = lambda: "".join(rng.choice(WORDS, rng.integers(1, 3)))  # noqa: E731
    sentence = lambda: " ".join(word() for _ in range(rng.integers(3, 9)))  # noqa: E731
    return [[sentence() for _ in range(rng.integers(2, 9))] for _ in range(count)]


def chunk(texts: Sequence[Sequence[str]], group: int = 0) -> DocumentChunk:
    """Documents, each of some sentences, as they are read from a file."""
    read = [Document("\n".join(text), (0, 0, i)) for i, text in enumerate(texts)]
    return DocumentChunk(group, 0, read, ReadCounts(documents=len(read)))


def tokenized(ids, row_splits, counts) -> TokenizedDocuments:
    """Whole documents of so many sentences each; see `TokenizedDocuments.from_sentences`."""
    read = [Document("", (0, 0, i)) for i in range(len(counts))]
    return TokenizedDocuments.from_sentences(ids, row_splits, counts, read)


def config(**changes) -> configs.Config:
    """A tiny BERT; `changes` are dotted keys with __ for the dots."""
    raw = {
        "name": "tiny",
        "segments": {"max_length": 32},
        "corruption": {"type": "token_masks", "max_predictions": 5},
        "encoder": {
            "type": "transformer",
            "vocab_size": len(SPECIALS) + 2 * len(WORDS),
            "hidden_size": 16,
            "num_layers": 1,
            "num_heads": 2,
            "intermediate_size": 32,
            "max_positions": 32,
        },
        "objectives": [{"type": "masked_lm"}, {"type": "sentence_pair"}],
        "recipe": {
            "steps": 6,
            "batch_size": 8,
            "report_every": 2,
            "save_every": 2,
            "optimizer": {"learning_rate": 1e-2},
        },
    }
    for key, value in copy.deepcopy(changes).items():
        *parents, last = key.split("__")
        place = raw
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return configs.from_dict(raw)


def shard_folder(folder: Path, run_config: configs.Config, count: int = 60, seed: int = 0) -> Path:
    """Pretraining shards of `documents`, made in this process; phrases are pairs of words."""
    sentinels = getattr(run_config.corruption, "sentinels", 0)
    tokens = tokenizer_folder(folder.with_name(folder.name + "-tokenizer"), sentinels=sentinels)
    folder.mkdir(parents=True)
    phrases = None
    if getattr(run_config.corruption, "unit", None) == "phrase":
        phrases = folder.with_name(folder.name + "-phrases")
        phrases.write_text("".join(f"{a} {b}\n" for a in WORDS[::3] for b in WORDS[::2]))
    settings = Settings.from_config(run_config, tokens, phrases=phrases)
    records, counts = examples.process_chunk(chunk(documents(count, seed)), settings)
    keys = host_seeding.sort_keys(settings.seed, 0, np.arange(len(records)))
    order = np.argsort(keys)
    names = [folder / f"train-{part:05d}-of-00002.tfrecord" for part in range(2)]
    shards = tuple(
        shard_records.write_file(name, [records[i] for i in order[part::2]])
        for part, name in enumerate(names)
    )
    write_manifest(folder, settings, shards, counts.tokens)
    return folder


def write_manifest(folder, settings, shards, counts):
    """Finishes a folder of shards that were made with `settings`, as `builder.build` does."""
    tokenizer = tokenizers.load(settings.tokenizer)
    tokenizer.save(folder / manifest.TOKENIZER_FOLDER)
    manifest.write(
        folder,
        manifest.Manifest(
            kind="pretraining",
            features=settings.features,
            tokenizer=tokenizer.files,
            tokenizer_fingerprint=tokenizer.fingerprint,
            max_length=settings.segments.row_tokens,
            seed=settings.seed,
            config=settings.to_record(),
            shards=shards,
            token_counts=stored_arrays.write_token_counts(folder, counts),
        ),
    )


def built_here(
    folder: Path, settings: Settings, texts: Sequence[Sequence[str]], num_shards: int = 0
) -> manifest.Manifest:
    """Shards of texts as `build_shards` makes them, in this process."""
    path = folder.with_name(folder.name + "-text.txt")
    path.write_text("\n\n".join("\n".join(text) for text in texts) + "\n")
    return builder.build(
        settings, str(path), folder, num_shards=num_shards, report=lambda line: None
    )


def replace(config: configs.Config, **recipe) -> configs.Config:
    """The config with another recipe."""
    return dataclasses.replace(config, recipe=dataclasses.replace(config.recipe, **recipe))


def numbered_shards(folder: Path, counts: Sequence[int]) -> Files:
    """Writes shards with these numbers of records, whose records say their numbers."""
    paths, number = [], 0
    for part, count in enumerate(counts):
        paths.append(str(folder / f"{part}.tfrecord"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for _ in range(count):
                writer.write(str(number).encode())
                number += 1
    return Files(paths, counts)
