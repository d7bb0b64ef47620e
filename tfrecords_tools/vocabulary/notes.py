"""Notes of the vocabulary builder about texts that do not fit the kind of vocabulary.

Each function returns a line, or None if there is nothing to report.
"""

import collections
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from official.tokenizers.wordpiece import RELEASE_LIMIT

# Alphabets up to this size fit into a vocabulary completely: SentencePiece recommends a coverage of
# 1.0 for languages with few characters.
SMALL_ALPHABET = 400
_MANY_MARKS = 0.1  # the share of letters
_SHOWN = 8
_LONG = re.compile(rf"\S{{{RELEASE_LIMIT + 1},}}")


def left_out(counts: Mapping[str, int], pieces: Iterable[str], coverage: float) -> str | None:
    """Returns a note about characters of a text that are in no piece, with their counts.

    Args:
      counts: {character: count}.
      pieces: the vocabulary.
      coverage: the share of all characters that the alphabet covers.
    """
    known = set("".join(pieces))
    lacking = collections.Counter({c: n for c, n in counts.items() if c not in known})
    if not lacking:
        return None
    most = sorted(lacking.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{character} {count:,}" for character, count in most[:_SHOWN])
    more = ", …" if len(most) > _SHOWN else ""
    way = (
        f"; the text has {len(counts)} characters: --character_coverage=1.0 keeps all of them"
        if len(counts) <= SMALL_ALPHABET
        else ""
    )
    return (
        f"left out of the alphabet by --character_coverage={coverage:g}: {len(most):,} characters "
        f"that occur {lacking.total():,} times ({shown}{more}); text with them is unknown{way}"
    )


def many_marks(examples: Sequence[str]) -> str | None:
    """Returns a note if a text has many marks, at each of which GPT-2's words end."""
    letters = marks = 0
    for line in examples:
        for character in line:
            if not character.isascii():
                category = unicodedata.category(character)[0]
                marks += category == "M"
                letters += category == "L"
            else:
                letters += character.isalpha()
    if marks <= _MANY_MARKS * letters:
        return None
    return (
        f"{100 * marks / max(1, letters):.0f} marks to 100 letters in the first {len(examples):,} "
        "lines, such as vowel signs: words end at each of them, so texts have two to four times as "
        "many tokens as with WordPiece; --pattern=marks makes them parts of words"
    )


def not_composed(examples: Sequence[str], composes: bool) -> str | None:
    """Returns a note about lines with decomposed letters, as in files of macOS and PDFs.

    Args:
      examples: lines.
      composes: whether `--nfc` is supported.
    """
    others = [line for line in examples if not unicodedata.is_normalized("NFC", line)]
    if not others:
        return None
    way = "--nfc composes them, here and wherever the tokenizer is used" if composes else (
        "compose the text first (NFC), and every text for the tokenizer"
    )  # fmt: skip
    return (
        f"{len(others):,} of the first {len(examples):,} lines are not composed (NFC): an accent "
        f"is a separate character there, so the same word has other pieces; {way}"
    )


def long_runs(examples: Sequence[str]) -> str | None:
    """Returns a note about words that are too long for WordPiece."""
    runs = [run for line in examples for run in _LONG.findall(line)]
    runs = [run for run in runs if not _parted(run)]
    if not runs:
        return None
    total = sum(map(len, examples))
    size = sum(map(len, runs))
    return (
        f"{len(runs):,} words of more than {RELEASE_LIMIT} characters, {100 * size / total:.1f}% "
        f"of the first {len(examples):,} lines, are [UNK] each: text without blanks needs blanks "
        "between its words (a segmenter), or --type=unigram"
    )


def _parted(run: str) -> bool:
    """Returns whether signs and Chinese characters cut a run into short words."""
    length = 0
    for character in run:
        alone = unicodedata.category(character)[0] == "P" or "\u3400" <= character <= "\u9fff"
        length = 0 if alone else length + 1
        if length > RELEASE_LIMIT:
            return False
    return True
