"""Finds the phrases and entities of a lexicon file in tokenized text.

A lexicon has one phrase or entity on each line. A line matches if its words occur consecutively in
a sentence, with any white space between and around them. A word is a run of letters and digits with
their combining marks. Every other sign is a separate word, and so is every letter of a script
without blanks (Chinese, Japanese, Thai and others). The line and the text are both tokenized and
detokenized before they are compared. So both are normalized in the same way, but need not have the
same pieces: after "(", the first piece of a word has no blank mark.

A match begins at the begin of a token and ends at the end of a token. If matches overlap, the one
that begins first counts; if several begin together, the longest.

Shapes: K tokens of the text, C characters of these tokens, W words, L lines of the lexicon.
"""

import os
import sys
import unicodedata
from typing import TYPE_CHECKING

import numpy as np

from official.utils import paths
from official.utils.errors import UserError
from tfrecords_tools.pretraining.segments import TokenizedDocuments
from tfrecords_tools.text.documents import cleaned

if TYPE_CHECKING:
    from official import tokenizers

_LINE = 0  # The key that marks the end of a line in a node of the trie; other keys are words.
_NO_TEXT = b"\0"  # Stands for a special token; no line contains it.
# Kinds of characters: white space, signs, letters of scripts without blanks, other letters and
# digits, and the marks that belong to a letter.
_SPACE, _SIGN, _ALONE, _LETTER, _MARK = range(1, 6)


class Lexicon:
    """The lines of a lexicon file, as words in a trie.

    Attributes:
      lines: L strings, without empty and repeated lines.
    """

    def __init__(self, path: str | os.PathLike, tokenizer: "tokenizers.Tokenizer"):
        """Reads and tokenizes the file.

        Raises:
          UserError: the file is missing, not UTF-8, or has no line.
        """
        self.lines = read_lines(path)
        special = set(tokenizer.special_ids)
        self._spellings = list(tokenizer.spellings)
        for token in special:
            self._spellings[token] = _NO_TEXT
        # The number of bytes of each vocabulary entry, and of its white space at either end.
        self._sizes = np.array([len(text) for text in self._spellings])
        self._leading = self._sizes - [len(text.lstrip()) for text in self._spellings]
        self._trailing = self._sizes - [len(text.rstrip()) for text in self._spellings]
        self._kinds = np.zeros(sys.maxunicode + 1, np.uint8)  # By code point; 0 = not yet known.
        self._trie: dict = {}
        for number, ids in enumerate(tokenizer.encode(self.lines)):
            if not len(ids) or special.intersection(ids.tolist()):
                continue  # An unknown piece may stand for any word, so the line matches nothing.
            node = self._trie
            for word in _strings(*self._spans(ids)):
                node = node.setdefault(word, {})
            node.setdefault(_LINE, number)

    def find(self, text: TokenizedDocuments) -> tuple[np.ndarray, np.ndarray]:
        """Finds the lines in a text.

        Returns:
          Flags, bool [K], that are true where a token continues the phrase of the token before it,
          and the number of matches of each line, int64 [L].
        """
        inner = np.zeros(len(text.ids), bool)
        matches = np.zeros(len(self.lines), np.int64)
        codes, begins, ends = self._spans(text.ids)
        words = _strings(codes, begins, ends)
        firsts, lasts, at_begin, at_end = self._tokens(text.ids, codes, begins, ends)
        sentences = np.searchsorted(text.sentences, firsts, side="right")
        # The end of the sentence of each word, in words.
        stops = np.searchsorted(sentences, sentences, side="right")
        done = 0
        for begin in [i for i, word in enumerate(words) if word in self._trie]:
            if begin < done or not at_begin[begin]:
                continue
            node, line = self._trie, None
            for i in range(begin, stops[begin]):
                if words[i] not in node:
                    break
                node = node[words[i]]
                if _LINE in node and at_end[i]:
                    done, line = i + 1, node[_LINE]
            if line is not None:
                inner[firsts[begin] + 1 : lasts[done - 1] + 1] = True
                matches[line] += 1
        return inner, matches

    def _spans(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the code points of tokens [C], and the begin and end of words in them [W]."""
        spelled = b"".join([self._spellings[token] for token in ids.tolist()])
        # Bytes that are not valid UTF-8 become surrogates.
        text = spelled.decode("utf-8", "surrogateescape")
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        for code in np.unique(codes[self._kinds[codes] == 0]).tolist():
            self._kinds[code] = _kind(chr(code))
        kinds = self._kinds[codes]
        before = np.append(np.uint8(_SPACE), kinds)[:-1]
        # The kind of the nearest character before that is not a mark.
        nearest = np.maximum.accumulate(np.where(kinds == _MARK, 0, np.arange(len(kinds))))
        base = np.append(np.uint8(_SPACE), kinds[nearest])[:-1]
        starts = (kinds == _SIGN) | (kinds == _ALONE)
        starts |= (kinds == _LETTER) & (base != _LETTER)
        starts |= (kinds == _MARK) & ((before == _SPACE) | (before == _SIGN))
        begins = np.flatnonzero(starts)
        # A word ends where another word or white space begins.
        bounds = np.append(starts | ((kinds == _SPACE) & (before != _SPACE)), True)
        stops = np.flatnonzero(bounds)
        return codes, begins, stops[np.searchsorted(stops, begins, side="right")]

    def _tokens(
        self, ids: np.ndarray, codes: np.ndarray, begins: np.ndarray, ends: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns the first and last token of each word, and whether they begin and end with it.

        All four are [W].
        """
        sizes = 1 + (codes >= 1 << 7) + (codes >= 1 << 11) + (codes >= 1 << 16)  # In bytes.
        sizes[(codes >= 0xDC80) & (codes <= 0xDCFF)] = 1
        offsets = np.append(0, np.cumsum(sizes))
        token_ends = np.cumsum(self._sizes[ids])
        token_begins = token_ends - self._sizes[ids]
        firsts = np.searchsorted(token_begins, offsets[begins], side="right") - 1
        lasts = np.searchsorted(token_ends, offsets[ends])
        return (
            firsts,
            lasts,
            token_begins[firsts] + self._leading[ids[firsts]] == offsets[begins],
            token_ends[lasts] - self._trailing[ids[lasts]] == offsets[ends],
        )


def _kind(character: str) -> int:
    from official.tokenizers import word_starts  # It imports TensorFlow.

    if character.isspace():
        return _SPACE
    if unicodedata.category(character).startswith("M"):
        return _MARK
    if not character.isalnum():
        return _SIGN
    return _ALONE if word_starts.unspaced(character) else _LETTER


def _strings(codes: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> list[str]:
    """Returns the words with these begins and ends among code points."""
    text = codes.tobytes().decode("utf-32-le", "surrogatepass")
    return [text[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def read_lines(path: str | os.PathLike) -> list[str]:
    """Returns the lines of a lexicon file, without empty and repeated ones.

    Raises:
      UserError: the file is missing, not UTF-8, or has no line.
    """
    try:
        text = paths.path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"lexicon {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"lexicon {path}: not UTF-8 ({error}): convert it") from None
    lines = list(dict.fromkeys(cleaned(text)))
    if not lines:
        raise UserError(
            f"lexicon {path} is empty: give it one phrase or entity a line "
            "(tfrecords_tools.build_phrases finds phrases in text)"
        )
    return lines
