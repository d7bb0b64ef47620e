"""Phrases and entities of a lexicon file, found in tokenized text.

A lexicon has one phrase or entity a line. A line matches wherever its words stand one after the
other in a sentence, whatever white space is between and around them. A word is a run of letters and
digits with their combining marks; every other sign is a word of its own, and so is every letter of
a script that is written without blanks (Chinese, Japanese, Thai and others). Line and text are both
compared as the tokenizer gives them back. So both are normalised alike, and the pieces need not be
the same: after "(" the first piece of a word has no blank mark.

A match begins where a token begins and ends where a token ends. Of matches that overlap the one
that begins first counts, and of those that begin together the longest.

Shapes: K tokens of the piece, C characters that they stand for, W words, L lines of the lexicon.
"""

import os
import sys
import unicodedata
from pathlib import Path

import numpy as np

from official import tokenizers
from official.tokenizers import word_starts
from official.utils.errors import UserError
from tfrecords_tools.pretraining.segments import TokenizedDocuments
from tfrecords_tools.text.documents import clean

_LINE = 0  # the key of a node of the trie under which a line ends; the other keys are words
_NO_TEXT = b"\0"  # stands for a special token: no line has it
# Kinds of characters: white space, signs, letters of scripts without blanks, other letters and
# digits, and the marks that belong to a letter.
_SPACE, _SIGN, _ALONE, _LETTER, _MARK = range(1, 6)


class Lexicon:
    """The lines of a lexicon file, as words in a trie.

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
        self._spellings = list(tokenizer.spellings)
        for token in special:
            self._spellings[token] = _NO_TEXT
        # Of each piece the bytes, and how many of them are white space before and behind the rest.
        self._sizes = np.array([len(text) for text in self._spellings])
        self._leading = self._sizes - [len(text.lstrip()) for text in self._spellings]
        self._trailing = self._sizes - [len(text.rstrip()) for text in self._spellings]
        self._kinds = np.zeros(sys.maxunicode + 1, np.uint8)  # by code point; 0 = not known yet
        self._trie: dict = {}
        for number, ids in enumerate(tokenizer.encode(self.lines)):
            if not len(ids) or special.intersection(ids.tolist()):
                continue  # matches nothing: an unknown piece stands for any word
            node = self._trie
            for word in _strings(*self._spans(ids)):
                node = node.setdefault(word, {})
            node.setdefault(_LINE, number)

    def find(self, piece: TokenizedDocuments) -> tuple[np.ndarray, np.ndarray]:
        """Finds the lines in a piece.

        Returns:
          bool [K], true where a token goes on with the phrase of the token before it; how often
          each line matches in the documents that are not lent, int64 [L].
        """
        inner = np.zeros(len(piece.ids), bool)
        matches = np.zeros(len(self.lines), np.int64)
        codes, begins, ends = self._spans(piece.ids)
        words = _strings(codes, begins, ends)
        firsts, lasts, at_begin, at_end = self._tokens(piece.ids, codes, begins, ends)
        sentences = np.searchsorted(piece.sentences, firsts, side="right")
        # Of each word: the words up to the end of its sentence.
        stops = np.searchsorted(sentences, sentences, side="right")
        own = piece.sentences[piece.documents[len(piece.documents) - 1 - piece.lent]]
        done = 0
        for begin in [place for place, word in enumerate(words) if word in self._trie]:
            if begin < done or not at_begin[begin]:
                continue
            node, found = self._trie, None
            for place in range(begin, stops[begin]):
                node = node.get(words[place])
                if node is None:
                    break
                if _LINE in node and at_end[place]:
                    done, found = place + 1, node[_LINE]
            if found is not None:
                inner[firsts[begin] + 1 : lasts[done - 1] + 1] = True
                matches[found] += firsts[begin] < own
        return inner, matches

    def _spans(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the code points of tokens [C], and where words begin and end in them [W]."""
        spelled = b"".join([self._spellings[token] for token in ids.tolist()])
        # A byte that is no character becomes a surrogate.
        text = spelled.decode("utf-8", "surrogateescape")
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        for code in np.unique(codes[self._kinds[codes] == 0]).tolist():
            self._kinds[code] = _kind(chr(code))
        kinds = self._kinds[codes]
        before = np.append(np.uint8(_SPACE), kinds)[:-1]
        # What marks hang on: the nearest character before that is none.
        places = np.maximum.accumulate(np.where(kinds == _MARK, 0, np.arange(len(kinds))))
        base = np.append(np.uint8(_SPACE), kinds[places])[:-1]
        starts = (kinds == _SIGN) | (kinds == _ALONE)
        starts |= (kinds == _LETTER) & (base != _LETTER)
        starts |= (kinds == _MARK) & ((before == _SPACE) | (before == _SIGN))
        begins = np.flatnonzero(starts)
        # A word ends where another one begins, or white space.
        bounds = np.append(starts | ((kinds == _SPACE) & (before != _SPACE)), True)
        stops = np.flatnonzero(bounds)
        return codes, begins, stops[np.searchsorted(stops, begins, side="right")]

    def _tokens(
        self, ids: np.ndarray, codes: np.ndarray, begins: np.ndarray, ends: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns the first and the last token of each word, and whether it begins and ends there.

        All are [W].
        """
        sizes = 1 + (codes >= 1 << 7) + (codes >= 1 << 11) + (codes >= 1 << 16)  # in bytes
        sizes[(codes >= 0xDC80) & (codes <= 0xDCFF)] = 1
        places = np.append(0, np.cumsum(sizes))
        token_ends = np.cumsum(self._sizes[ids])
        token_begins = token_ends - self._sizes[ids]
        firsts = np.searchsorted(token_begins, places[begins], side="right") - 1
        lasts = np.searchsorted(token_ends, places[ends])
        return (
            firsts,
            lasts,
            token_begins[firsts] + self._leading[ids[firsts]] == places[begins],
            token_ends[lasts] - self._trailing[ids[lasts]] == places[ends],
        )


def _kind(character: str) -> int:
    if character.isspace():
        return _SPACE
    if unicodedata.category(character).startswith("M"):
        return _MARK
    if not character.isalnum():
        return _SIGN
    return _ALONE if word_starts.unspaced(character) else _LETTER


def _strings(codes: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> list[str]:
    """Returns the words that begin and end at these places among code points."""
    text = codes.tobytes().decode("utf-32-le", "surrogatepass")
    return [text[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


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
