"""Learns vocabularies from word counts: WordPiece, byte-level BPE, and whole words.

WordPiece and byte-level BPE join the most frequent pair of neighboring pieces first, beginning with
single characters or bytes (Sennrich et al. 2016; Radford et al. 2019, section 2.2). Words are split
as the tokenizer splits them. Only the words and their counts are in memory. Ties are decided by
order, so the same text gives the same vocabulary.
"""

import collections
import functools
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import tensorflow as tf

from official.tokenizers import byte_bpe
from official.tokenizers.byte_vocabulary import ALPHABET
from official.tokenizers.word_characters import SPECIALS, split_words
from official.tokenizers.wordpiece import (
    CONTINUES,
    UNKNOWN_WORD,
    clean,
    space_words,
)
from official.utils.errors import UserError
from tfrecords_tools.vocabulary.word_counts import MAX_WORDS, WordCounts, most_common

WORDPIECE_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# The padding id is 1, as in RoBERTa.
BYTE_BPE_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MIN_COUNT = 2  # the smallest count of a pair that is joined


def wordpiece_counts(
    lower_case: bool, strip_accents: bool | None = None, max_words: int = MAX_WORDS
) -> WordCounts:
    """Returns a counter of the words that WordPiece sees.

    Args:
      lower_case: whether text is lower-cased.
      strip_accents: whether accents are removed; None = as `lower_case`.
      max_words: the number of distinct words that are kept.
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


def learn_wordpiece(
    counts: Mapping[str, int],
    vocab_size: int,
    coverage: float,
    report: Callable[[int], None] = lambda done: None,
) -> list[str]:
    """Learns the pieces.

    Args:
      counts: {word: count}.
      vocab_size: the number of pieces to learn, including special tokens.
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
    pieces = [*WORDPIECE_SPECIALS, *alphabet, *(CONTINUES + c for c in alphabet if c not in alone)]
    if len(pieces) > vocab_size:
        raise UserError(
            f"--vocab_size={vocab_size} is too small: the alphabet alone takes {len(pieces)} "
            f"pieces ({len(alphabet)} characters, most of them in two forms, and "
            f"{len(WORDPIECE_SPECIALS)} special tokens); make it larger, or --character_coverage "
            "smaller"
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


def byte_bpe_counts(max_words: int = MAX_WORDS, pattern: str = byte_bpe.GPT2) -> WordCounts:
    """Returns a counter of the words that byte-level BPE sees, including white space."""
    find = functools.partial(byte_bpe.find, pattern=pattern)

    def words(texts: Sequence[str]) -> Iterator[str]:
        return itertools.chain.from_iterable(map(find, texts))

    return WordCounts(words, max_words, str.encode)


def learn_byte_bpe(
    counts: Mapping[bytes, int],
    vocab_size: int,
    report: Callable[[int], None] = lambda done: None,
) -> tuple[list[str], list[tuple[str, str]]]:
    """Learns the pieces.

    Args:
      counts: {word: count}.
      vocab_size: the number of pieces to learn, including special tokens and the 256 bytes.
      report: is called at intervals with the number of pieces so far.

    Returns:
      The pieces (the special tokens, the bytes, and the others in the order in which they were
      learned), and the merges in their order.

    Raises:
      UserError: `vocab_size` is too small for the bytes, or too large for the text.
    """
    pieces = [*BYTE_BPE_SPECIALS, *ALPHABET.values()]
    if len(pieces) > vocab_size:
        raise UserError(
            f"--vocab_size={vocab_size} is too small: the 256 bytes and "
            f"{len(BYTE_BPE_SPECIALS)} special tokens alone take {len(pieces)} pieces"
        )
    ids = {piece: i for i, piece in enumerate(pieces)}
    byte_ids = [ids[ALPHABET[byte]] for byte in range(256)]
    words = (([byte_ids[byte] for byte in word], count) for word, count in counts.items())
    merges = grow(pieces, vocab_size, words, str.__add__, report)
    return pieces, merges


def whole_word_counts(split_punctuation: bool = False, max_words: int = MAX_WORDS) -> WordCounts:
    """Returns a counter of the words of a tokenizer of whole words."""

    def words(texts: Sequence[str]) -> list[bytes]:
        with tf.device("/CPU:0"):
            strings = tf.constant(texts, tf.string)
            return split_words(strings, split_punctuation).values.numpy().tolist()

    return WordCounts(words, max_words, lambda word: word.decode("utf-8", "replace"))


def learn_words(counts: Mapping[str, int], vocab_size: int) -> list[str]:
    """Returns the words of a vocabulary: the special tokens, and the others by descending count.

    The sampled softmax of a word language model assumes this order (Peters et al., 2018, and its
    release). Ties are in the order of the bytes.

    Args:
      counts: {word: count}.
      vocab_size: the number of words, including special tokens.

    Raises:
      UserError: `vocab_size` has no room for a word, or is more than the text has.
    """
    room = vocab_size - len(SPECIALS)
    if room < 1:
        raise UserError(
            f"--vocab_size={vocab_size} is too small: {' '.join(SPECIALS)} take {len(SPECIALS)}"
        )
    encoded = {word.encode(): count for word, count in counts.items() if word not in SPECIALS}
    if len(encoded) < room:
        raise UserError(
            f"--vocab_size={vocab_size} is more than the text supports: it has {len(encoded)} "
            f"distinct words and {len(SPECIALS)} special tokens: lower it to "
            f"{len(encoded) + len(SPECIALS)}, or use more text"
        )
    return [*SPECIALS, *(word.decode() for word, _ in most_common(encoded, room))]


class Pairs:
    """The pairs of neighboring pieces in words, with their counts."""

    def __init__(self, words: Iterable[tuple[list[int], int]]):
        """Counts the pairs of words, each given as (ids of its pieces, its count)."""
        self._words: list[list[int]] = []
        self._weights: list[int] = []
        self._counts: dict[tuple[int, int], int] = collections.defaultdict(int)
        self._where: dict[tuple[int, int], list[int]] = collections.defaultdict(list)
        for spelled, count in words:
            if len(spelled) == 1:
                continue
            for pair in zip(spelled, spelled[1:], strict=False):
                self._counts[pair] += count
                self._where[pair].append(len(self._words))
            self._words.append(spelled)
            self._weights.append(count)
        self._heap = [(-count, pair) for pair, count in self._counts.items()]
        heapq.heapify(self._heap)

    def pop(self) -> tuple[int, int] | None:
        """Returns the most frequent pair, or None; in a tie, the pair of the oldest pieces."""
        while self._heap:
            negative, pair = heapq.heappop(self._heap)
            count = self._counts.get(pair, 0)
            if count == -negative and count >= MIN_COUNT:
                return pair
            if MIN_COUNT <= count < -negative:  # It has become rarer since it was pushed.
                heapq.heappush(self._heap, (-count, pair))
        return None

    def join(self, left: int, right: int, joined: int) -> None:
        """Replaces `left` followed by `right` by `joined`."""
        new = set()
        for index in dict.fromkeys(self._where.pop((left, right))):
            old = self._words[index]
            word = _joined(old, left, right, joined)
            if len(word) == len(old):
                continue
            self._words[index] = word
            weight = self._weights[index]
            for pair in zip(old, old[1:], strict=False):
                self._counts[pair] -= weight
            for pair in zip(word, word[1:], strict=False):
                self._counts[pair] += weight
                if joined in pair:
                    self._where[pair].append(index)
                    new.add(pair)
        self._counts.pop((left, right), None)
        for pair in new:
            heapq.heappush(self._heap, (-self._counts[pair], pair))


def grow(
    pieces: list[str],
    vocab_size: int,
    words: Iterable[tuple[list[int], int]],
    text: Callable[[str, str], str],
    report: Callable[[int], None],
) -> list[tuple[str, str]]:
    """Appends pieces to `pieces`, by joining the most frequent pairs, until it has `vocab_size`.

    Args:
      pieces: the first pieces, which the words consist of.
      vocab_size: the number of pieces at the end.
      words: (ids of the pieces, count) of each word.
      text: returns the text of two joined pieces.
      report: is called at intervals with the number of pieces so far.

    Returns:
      The pairs that were joined, in order.

    Raises:
      UserError: the words do not have enough pairs that occur at least `MIN_COUNT` times.
    """
    ids = {piece: i for i, piece in enumerate(pieces)}
    pairs = Pairs(words)
    merges = []
    while len(pieces) < vocab_size:
        pair = pairs.pop()
        if pair is None:
            raise UserError(
                f"--vocab_size={vocab_size} is more than the text supports: it has {len(pieces)} "
                f"pieces that occur {MIN_COUNT} times or more: lower it to {len(pieces)}, or use "
                "more text"
            )
        left, right = pair
        merges.append((pieces[left], pieces[right]))
        joined = text(*merges[-1])
        # Several pairs may give the same text: "a" + "bc" and "ab" + "c".
        if joined not in ids:
            ids[joined] = len(pieces)
            pieces.append(joined)
            if len(pieces) % 1000 == 0:
                report(len(pieces))
        pairs.join(left, right, ids[joined])
    return merges


def _joined(word: list[int], left: int, right: int, joined: int) -> list[int]:
    result, i, last = [], 0, len(word) - 1
    while i <= last:
        if i < last and word[i] == left and word[i + 1] == right:
            result.append(joined)
            i += 2
        else:
            result.append(word[i])
            i += 1
    return result
