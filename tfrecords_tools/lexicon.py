"""Phrases and entities of a lexicon file, found in tokenized text.

A lexicon has one phrase or entity a line. A line is tokenized as text is, and matches where its
tokens stand, whole words only, within a sentence. Of matches that overlap the one that begins first
counts, and of those that begin together the longest.

Shapes: K tokens of the piece, V pieces of the vocabulary, L lines of the lexicon.
"""

import os
from pathlib import Path

import numpy as np

from official import tokenizers
from official.errors import UserError
from tfrecords_tools.documents import clean
from tfrecords_tools.segments import Piece

_LINE = -1  # the key of a node of the trie under which a line ends; ids are never negative


class Lexicon:
    """The lines of a lexicon file, as token ids in a trie.

    Attributes:
      lines: L strings; empty lines and repeated ones are left out.
    """

    def __init__(self, path: str | os.PathLike, tokenizer: tokenizers.Tokenizer):
        """Reads and tokenizes the file.

        Raises:
          UserError: no such file, not UTF-8, or no line in it.
        """
        self.lines = read(path)
        special = set(tokenizer.special_ids)
        self._trie: dict = {}
        self._longest = 0
        # Where a vocabulary tells words at the start of a text from others, a line is both.
        for texts in (self.lines, [f" {line}" for line in self.lines]):
            for number, ids in enumerate(tokenizer.encode(texts)):
                if not len(ids) or special.intersection(ids.tolist()):
                    continue  # matches nothing: an unknown piece stands for any word
                node = self._trie
                for token in ids.tolist():
                    node = node.setdefault(token, {})
                node.setdefault(_LINE, number)
                self._longest = max(self._longest, len(ids))
        opens = np.zeros(tokenizer.vocab_size, bool)
        opens[[token for token in self._trie if token >= 0]] = True
        self._opens = opens & tokenizer.word_starts
        # A comma ends a word whether or not the vocabulary lets it begin one.
        bare = [piece.lstrip("#") or "#" for piece in tokenizer.pieces]
        self._breaks = tokenizer.word_starts | ~np.array([text[0].isalnum() for text in bare])

    def find(self, piece: Piece) -> tuple[np.ndarray, np.ndarray]:
        """Finds the lines in a piece.

        Returns:
          bool [K], true where a token goes on with the phrase of the token before it; how often
          each line matched, int64 [L].
        """
        inner = np.zeros(len(piece.ids), bool)
        matches = np.zeros(len(self.lines), np.int64)
        ids = piece.ids.tolist()
        breaks = self._breaks[piece.ids].tolist()
        stops = np.repeat(piece.sentences[1:], np.diff(piece.sentences))
        done = 0
        for begin in np.flatnonzero(self._opens[piece.ids]).tolist():
            if begin < done:
                continue
            stop = int(stops[begin])
            node, found = self._trie, None
            for place in range(begin, min(stop, begin + self._longest)):
                node = node.get(ids[place])
                if node is None:
                    break
                if _LINE in node and (place + 1 == stop or breaks[place + 1]):
                    done, found = place + 1, node[_LINE]
            if found is not None:
                inner[begin + 1 : done] = True
                matches[found] += 1
        return inner, matches


def read(path: str | os.PathLike) -> list[str]:
    """Returns the lines of a lexicon file, without empty and repeated ones.

    Raises:
      UserError: no such file, not UTF-8, or no line in it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"lexicon {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"lexicon {path}: not UTF-8 ({error}): convert it") from None
    lines = list(dict.fromkeys(filter(None, map(clean, text.splitlines()))))
    if not lines:
        raise UserError(
            f"lexicon {path} is empty: give it one phrase or entity a line "
            "(tfrecords_tools.build_phrases finds phrases in text)"
        )
    return lines
