"""Learns the pieces and merges of a byte-level BPE from word counts.

Starting from single bytes, the most frequent pair of neighbouring pieces is joined first (Sennrich
et al. 2016; Radford et al. 2019, section 2.2). Words are split as the tokenizer splits them. The
same text gives the same bytes.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from official.tokenizers import byte_bpe
from official.tokenizers.byte_vocabulary import ALPHABET
from official.utils.errors import UserError
from tfrecords_tools.vocabulary.merges import grow
from tfrecords_tools.vocabulary.word_counts import MAX_WORDS, WordCounts

# The padding id is 1, as in RoBERTa.
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def word_counts(max_words: int = MAX_WORDS) -> WordCounts:
    """Returns a counter of the words that the tokenizer sees, white space among them."""

    def words(texts: Sequence[str]) -> Iterator[str]:
        return itertools.chain.from_iterable(map(byte_bpe.find, texts))

    return WordCounts(words, max_words, str.encode)


def learn(
    counts: Mapping[bytes, int],
    vocab_size: int,
    report: Callable[[int], None] = lambda done: None,
) -> tuple[list[str], list[tuple[str, str]]]:
    """Learns the pieces.

    Args:
      counts: word → count.
      vocab_size: the number of pieces to learn, special tokens and the 256 bytes counted.
      report: is called at intervals with the number of pieces so far.

    Returns:
      The pieces (the special tokens, the bytes, and the others in the order in which they were
      learned), and the merges in their order.

    Raises:
      UserError: `vocab_size` is too small for the bytes, or too large for the text.
    """
    pieces = [*SPECIAL, *ALPHABET.values()]
    if len(pieces) > vocab_size:
        raise UserError(
            f"--vocab_size={vocab_size} is too small: the 256 bytes and {len(SPECIAL)} special "
            f"tokens alone take {len(pieces)} pieces"
        )
    ids = {piece: i for i, piece in enumerate(pieces)}
    byte_ids = [ids[ALPHABET[byte]] for byte in range(256)]
    words = (([byte_ids[byte] for byte in word], count) for word, count in counts.items())
    merges = grow(pieces, vocab_size, words, str.__add__, report)
    return pieces, merges
