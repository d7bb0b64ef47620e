"""Finds the pronoun of a sentence that a clause has a candidate for.

A row of WNLI is a sentence and one of its clauses, in which some words, the candidate, stand in the
place of a pronoun:

  The drain is clogged with hair. It has to be cleaned.    The hair has to be cleaned.

So the words before and after the candidate are those before and after the pronoun.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

PRONOUNS = frozenset(
    "he him his himself she her hers herself it its itself they them their theirs themselves this "
    "that these those".split()
)
# What a candidate may begin with, though the sentence has another word there, or none.
DETERMINERS = frozenset("a an the this that these those his her its their my our your".split())
_WORD = re.compile(r"\w+(?:-\w+)*|['’]\w+")  # of English, the language of these tasks
_POSSESSIVE = "'s"
MOST_WORDS = 3  # of a candidate that is not a part of the sentence, word for word


class Pronoun(NamedTuple):
    """A pronoun and a candidate for it.

    Attributes:
      start: the first character of the pronoun in its sentence.
      end: the character after its last one.
      candidate: the text that stands in its place, with the case that it has there.
    """

    start: int
    end: int
    candidate: str


class _Words(NamedTuple):
    """The words of a text, in lower case, and their characters."""

    text: str
    words: list[str]
    spans: list[tuple[int, int]]


def find(sentence: str, clause: str) -> Pronoun | None:
    """Finds the pronoun that has the most words of the clause around it; the first of equals.

    Args:
      sentence: a text with a pronoun.
      clause: a part of it with a candidate in place of the pronoun, but for case and punctuation.

    Returns:
      The pronoun; None if no pronoun has words of the clause next to it, or if what stands in its
      place is no candidate: it has another pronoun, or it has over `MOST_WORDS` words and is not a
      part of the sentence, but for its determiner and its possessive.
    """
    ours, theirs = _split(sentence), _split(clause)
    best: tuple[int, int, int] | None = None  # the words around it, of the pronoun, those before it
    count = len(theirs.words)
    for at, word in enumerate(ours.words):
        if word not in PRONOUNS:
            continue
        for before in range(min(at, count - 1) + 1):
            if theirs.words[:before] != ours.words[at - before : at]:
                continue
            after = _same_ending(theirs.words[before + 1 :], ours.words[at + 1 :])
            if before + after > (best[0] if best else 0):
                best = before + after, at, before
    if best is None:
        return None
    around, at, before = best
    chosen = slice(before, before + count - around)
    if not _is_candidate(theirs.words[chosen], ours.words):
        return None
    spans = theirs.spans[chosen]
    candidate = clause[spans[0][0] : spans[-1][1]]
    return Pronoun(*ours.spans[at], _in_place(candidate, sentence, ours.spans[at][0]))


def _split(text: str) -> _Words:
    found = list(_WORD.finditer(text))
    words = [match.group().lower().replace("’", "'") for match in found]
    return _Words(text, words, [match.span() for match in found])


def _same_ending(clause: Sequence[str], sentence: Sequence[str]) -> int:
    """Returns the most words that end a clause and begin the rest of a sentence."""
    numbers = range(min(len(clause), len(sentence)), 0, -1)
    return next((n for n in numbers if list(clause[-n:]) == list(sentence[:n])), 0)


def _is_candidate(candidate: Sequence[str], words: Sequence[str]) -> bool:
    """Returns whether words can be a candidate, and no more than it.

    Where a clause differs from its sentence, other words of it are next to the candidate.
    """
    if any(word in PRONOUNS - DETERMINERS for word in candidate):
        return False
    if len(candidate) <= MOST_WORDS:
        return True
    last = len(candidate) - (candidate[-1] == _POSSESSIVE)
    core = list(candidate[candidate[0] in DETERMINERS : last])
    return any(list(words[i : i + len(core)]) == core for i in range(len(words)))


def _in_place(candidate: str, sentence: str, start: int) -> str:
    """Returns a candidate with a capital at the start of a sentence, and else as a name has one."""
    begins = not sentence[:start].strip() or sentence[:start].rstrip(" \"'“‘(")[-1:] in ".!?:"
    first, words = candidate.partition(" ")[0], sentence.split()
    if begins:
        return candidate[0].upper() + candidate[1:]
    if first.lower() in DETERMINERS or (first.lower() in words and first not in words):
        return candidate[0].lower() + candidate[1:]
    return candidate
