"""Learns a WordPiece vocabulary from word counts.

Pieces are joined pair by pair, the most frequent pair first, as in byte-pair encoding, over the
words that the tokenizer itself parts. Only the words and their counts are in memory, and everything
that ties is decided by order, so that the same text gives the same vocabulary.
"""

import collections
import heapq
from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from official.errors import UserError
from official.tokenizers.wordpiece import (
    CONTINUES,
    MAX_WORD_BYTES,
    UNKNOWN_WORD,
    clean,
    space_words,
)

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MIN_COUNT = 2
MAX_WORDS = 1_000_000
_CHUNK_CHARACTERS = 1 << 20


class WordCounts:
    """Counts words as they come, in bounded memory.

    Attributes:
      counts: word → count; where text has more than twice `max_words` different words, the rarest
        are let go from time to time, half of them.
      total: words seen.
    """

    def __init__(self, lower_case: bool, max_words: int = MAX_WORDS):
        self.counts: collections.Counter[bytes] = collections.Counter()
        self.total = 0
        self._lower_case = lower_case
        self._max_words = max_words
        self._waiting: list[str] = []
        self._size = 0

    def add(self, texts: Iterable[str]) -> None:
        """Counts the words of `texts`."""
        for text in texts:
            self._waiting.append(text)
            self._size += len(text)
        if self._size >= _CHUNK_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        """Counts what waits for a batch to fill up."""
        with tf.device("/CPU:0"):
            texts = clean(tf.constant(self._waiting, tf.string), self._lower_case, self._lower_case)
            words = b" ".join(space_words(texts).numpy().tolist()).split()
        self.counts.update(words)
        self.total += len(words)
        self._waiting, self._size = [], 0
        if len(self.counts) > 2 * self._max_words:
            self.counts = collections.Counter(dict(_most_common(self.counts, self._max_words)))

    def words(self) -> dict[str, int]:
        """Returns the words to learn from, the most frequent first."""
        self.flush()
        common = _most_common(self.counts, self._max_words)
        unknown = UNKNOWN_WORD.encode()
        return {
            word.decode("utf-8", "replace"): count
            for word, count in common
            if len(word) <= MAX_WORD_BYTES and unknown not in word
        }


def learn(
    counts: Mapping[str, int],
    vocab_size: int,
    coverage: float,
    report: Callable[[int], None] = lambda done: None,
) -> list[str]:
    """Learns the pieces.

    Args:
      counts: word → count.
      vocab_size: how many pieces to learn, special tokens counted.
      coverage: the share of all characters that the alphabet must have; the rarest are left out,
        and words with them will be unknown.
      report: called now and then with the number of pieces so far.

    Returns:
      Special tokens, characters (as they begin and as they continue a word), then pieces in the
      order of their making.

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
    pairs = _Pairs(counts, ids, frozenset(alphabet))
    while len(pieces) < vocab_size:
        pair = pairs.pop()
        if pair is None:
            raise UserError(
                f"--vocab_size={vocab_size} is more than the text supports: it has {len(pieces)} "
                f"pieces that occur {MIN_COUNT} times or more; take --vocab_size={len(pieces)} or "
                "more text"
            )
        left, right = pair
        text = pieces[left] + pieces[right].removeprefix(CONTINUES)
        # Two ways lead to one text: "a" + "##bc" after "ab" + "##c".
        if text not in ids:
            ids[text] = len(pieces)
            pieces.append(text)
        pairs.join(left, right, ids[text])
        if len(pieces) % 1000 == 0:
            report(len(pieces))
    return pieces


class _Pairs:
    """The pairs of neighbouring pieces in the words, with their counts, most frequent first."""

    def __init__(self, counts: Mapping[str, int], ids: Mapping[str, int], alphabet: frozenset):
        self._words: list[list[int]] = []
        self._weights: list[int] = []
        self._counts: dict[tuple[int, int], int] = collections.defaultdict(int)
        self._where: dict[tuple[int, int], list[int]] = collections.defaultdict(list)
        for word, count in counts.items():
            if len(word) == 1 or not alphabet.issuperset(word):
                continue
            spelled = [ids[word[0]], *(ids[CONTINUES + character] for character in word[1:])]
            for pair in zip(spelled, spelled[1:], strict=False):
                self._counts[pair] += count
                self._where[pair].append(len(self._words))
            self._words.append(spelled)
            self._weights.append(count)
        self._heap = [(-count, pair) for pair, count in self._counts.items()]
        heapq.heapify(self._heap)

    def pop(self) -> tuple[int, int] | None:
        """Returns the most frequent pair, of several the one made of the oldest pieces."""
        while self._heap:
            negative, pair = heapq.heappop(self._heap)
            count = self._counts.get(pair, 0)
            if count == -negative and count >= MIN_COUNT:
                return pair
            if MIN_COUNT <= count < -negative:  # it has become rarer since it was put in
                heapq.heappush(self._heap, (-count, pair))
        return None

    def join(self, left: int, right: int, joined: int) -> None:
        """Puts `joined` where `left` stands before `right`."""
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


def _alphabet(counts: Mapping[str, int], coverage: float) -> list[str]:
    characters: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    wanted = coverage * sum(characters.values())
    kept, covered = [], 0
    for character, count in _most_common(characters, len(characters)):
        if covered >= wanted:
            break
        kept.append(character)
        covered += count
    return sorted(kept)


def _most_common(counts: Mapping, number: int) -> list[tuple]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:number]
