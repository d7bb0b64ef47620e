"""Trainers of vocabularies: WordPiece, byte-level BPE, SentencePiece."""

TYPES = ("wordpiece", "unigram", "bpe", "byte_bpe")
