"""Trainers of vocabularies: WordPiece, byte-level BPE, SentencePiece."""
