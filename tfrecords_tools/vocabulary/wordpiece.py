"""Learns a WordPiece vocabulary from word counts.

As in byte-pair encoding, the most frequent pair of neighbouring pieces is joined first. Words are
split as the tokenizer splits them. Only the words and their counts are in memory. Ties are decided
by order, so the same text gives the same vocabulary.
"""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from official.tokenizers.wordpiece import (
    CONTINUES,
    UNKNOWN_WORD,
    clean,
    space_words,
)
from official.utils.errors import UserError
from tfrecords_tools.vocabulary.merges import grow
from tfrecords_tools.vocabulary.word_counts import MAX_WORDS, WordCounts, most_common

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def word_counts(
    lower_case: bool, strip_accents: bool | None = None, max_words: int = MAX_WORDS
) -> WordCounts:
    """Returns a counter of the words that the tokenizer sees.

    Args:
      lower_case: whether text is lower-cased.
      strip_accents: whether accents are removed; None = as `lower_case`.
      max_words: the number of different words that are kept.
    """
    strips = lower_case if strip_accents is None else strip_accents

    def words(texts: Sequence[str]) -> list[bytes]:
        with tf.device("/CPU:0"):
            cleaned = clean(tf.constant(texts, tf.string), lower_case, strips)
            return b" ".join(space_words(cleaned).numpy().tolist()).split()

    def text(word: bytes) -> str | None:
        long = UNKNOWN_WORD.encode() in word
        return None if long else word.decode("utf-8", "replace")

    return WordCounts(words, max_words, text)


def learn(
    counts: Mapping[str, int],
    vocab_size: int,
    coverage: float,
    report: Callable[[int], None] = lambda done: None,
) -> list[str]:
    """Learns the pieces.

    Args:
      counts: word → count.
      vocab_size: the number of pieces to learn, special tokens counted.
      coverage: the share of all characters that the alphabet covers. The rarest characters are left
        out, and words with them are unknown.
      report: is called at intervals with the number of pieces so far.

    Returns:
      The special tokens, the characters (at the begin of a word and within a word), and the other
      pieces in the order in which they were learned.

    Raises:
      UserError: `vocab_size` is too small for the alphabet, or too large for the text.
    """
    alphabet = _alphabet(counts, coverage)
    parted = space_words(tf.constant([f"a{character}" for character in alphabet], tf.string))
    alone = {c for c, word in zip(alphabet, parted.numpy(), strict=True) if b" " in word}
    pieces = [*SPECIAL, *alphabet, *(CONTINUES + c for c in alphabet if c not in alone)]
    if len(pieces) > vocab_size:
        raise UserError(
            f"--vocab_size={vocab_size} is too small: the alphabet alone takes {len(pieces)} "
            f"pieces ({len(alphabet)} characters, most of them in two forms, and {len(SPECIAL)} "
            "special tokens); make it larger, or --character_coverage smaller"
        )
    ids = {piece: i for i, piece in enumerate(pieces)}
    words = _spelled(counts, ids, frozenset(alphabet))
    grow(pieces, vocab_size, words, lambda a, b: a + b.removeprefix(CONTINUES), report)
    return pieces


def _spelled(
    counts: Mapping[str, int], ids: Mapping[str, int], alphabet: frozenset
) -> Iterator[tuple[list[int], int]]:
    """Yields the words whose characters are all in the alphabet, as pieces, and their counts."""
    for word, count in counts.items():
        if alphabet.issuperset(word):
            yield [ids[word[0]], *(ids[CONTINUES + character] for character in word[1:])], count


def _alphabet(counts: Mapping[str, int], coverage: float) -> list[str]:
    characters: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    wanted = coverage * sum(characters.values())
    kept, covered = [], 0
    for character, count in most_common(characters, len(characters)):
        if covered >= wanted:
            break
        kept.append(character)
        covered += count
    return sorted(kept)
