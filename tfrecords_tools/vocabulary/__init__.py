"""Trainers of vocabularies: WordPiece, byte-level BPE, SentencePiece, and whole words."""

TYPES = ("wordpiece", "unigram", "bpe", "byte_bpe", "words")
