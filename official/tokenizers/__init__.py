"""Tokenizers that give the same ids in Python and inside a graph.

`load(folder)` reads a tokenizer from files with the usual names: `vocab.txt` for WordPiece,
`spiece.model` for SentencePiece, `vocab.json` with `merges.txt` for byte-level BPE, `words.txt` for
whole words with their characters; or from `tokenizer.json` if the folder has none of these. The
tokenizer's `encode(["some text"])` returns int32 arrays. Its `tokenize(tf.constant(["some text"]))`
returns the same ids as a RaggedTensor, also in tf.function and tf.data. Neither adds special
tokens; `pack` adds them.

Public names are imported on first use, so modules that do not need TensorFlow load without it.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from official.tokenizers.base import Tokenizer
    from official.tokenizers.byte_bpe import ByteBPE
    from official.tokenizers.loading import JSON_FILE, KINDS, load
    from official.tokenizers.pair_packing import arrange, pack, pack_arrays
    from official.tokenizers.sentencepiece import SentencePiece
    from official.tokenizers.word_characters import Characters
    from official.tokenizers.wordpiece import WordPiece

__all__ = [
    "JSON_FILE",
    "KINDS",
    "ByteBPE",
    "Characters",
    "SentencePiece",
    "Tokenizer",
    "WordPiece",
    "arrange",
    "load",
    "pack",
    "pack_arrays",
]

_MODULES = {
    "base": ("Tokenizer",),
    "byte_bpe": ("ByteBPE",),
    "loading": ("JSON_FILE", "KINDS", "load"),
    "pair_packing": ("arrange", "pack", "pack_arrays"),
    "sentencepiece": ("SentencePiece",),
    "word_characters": ("Characters",),
    "wordpiece": ("WordPiece",),
}


def __getattr__(name: str) -> typing.Any:
    """Imports the module of a public name on its first use."""
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
            globals()[name] = value  # the next use does not call this function
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
