"""Learns a SentencePiece model, unigram or BPE, from a sample of the lines.

The sample is uniform over all lines, so the memory needed does not grow with the text. It is drawn
here, with a fixed seed, because the trainer's own sampling differs from run to run.
"""

import io
import random
import re
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece

from official.utils.errors import UserError

# The trainer silently ignores longer lines, so they are cut first.
MAX_LINE_CHARACTERS = 4000
# A sample may grow to this many times its final size before it is pruned.
_SLACK = 1.25
# The result depends on the number of threads, so it is fixed.
_THREADS = 4
# Unlike user-defined symbols, control symbols are never found in text.
_MASKED_TEXT = {
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "pad_piece": "[PAD]",
    "unk_piece": "[UNK]",
    "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
}
# Raffel et al. 2020: the defaults of the names are <pad>, </s> and <unk>.
_TEXT_TO_TEXT = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


# (key, id of the chunk, index in the chunk, line).
_Kept = tuple[float, tuple[int, int], int, str]


class Sample:
    """A uniform sample of lines: the lines with the smallest random keys.

    The keys of a chunk of text depend on the seed and the id of the chunk, so the sample of a text
    does not depend on how samples of its chunks are merged.

    Attributes:
      seen: the number of lines so far.
    """

    def __init__(self, size: int, seed: int = 0, chunk: tuple[int, int] = (0, 0)):
        """Starts a sample of at most `size` lines of the chunk with the id `chunk`."""
        self.seen = 0
        self._size, self._chunk = size, chunk
        self._random = random.Random(f"{seed} {chunk[0]} {chunk[1]}")
        self._kept: list[_Kept] = []
        self._limit = 1.0

    @property
    def lines(self) -> list[str]:
        """The sample, in the order of the text."""
        self._cut_down()
        return [line for *_, line in sorted(self._kept, key=lambda each: each[1:3])]

    def add(self, texts: Iterable[str]) -> None:
        """Offers lines to the sample."""
        for text in texts:
            for line in _cut(text):
                self._take([(self._random.random(), self._chunk, self.seen, line)])
                self.seen += 1

    def state(self) -> tuple[int, list[_Kept]]:
        """Returns the number of lines and the sample, for the `merge` of another sample."""
        self._cut_down()
        return self.seen, self._kept

    def merge(self, state: tuple[int, list[_Kept]]) -> None:
        """Adds the sample of another chunk."""
        self.seen += state[0]
        self._take(state[1])

    def _take(self, lines: Iterable[_Kept]) -> None:
        self._kept += [each for each in lines if each[0] < self._limit]
        if len(self._kept) > self._size * _SLACK + 1:
            self._cut_down()

    def _cut_down(self) -> None:
        if len(self._kept) > self._size:
            self._kept = sorted(self._kept)[: self._size]
            self._limit = self._kept[-1][0]


def learn(
    lines: Sequence[str],
    kind: str,
    vocab_size: int,
    coverage: float,
    lower_case: bool,
    text_to_text: bool = False,
) -> bytes:
    """Learns a model whose first pieces are [PAD] [UNK] [CLS] [SEP] [MASK].

    Args:
      lines: text.
      kind: "unigram" or "bpe".
      vocab_size: the number of pieces to learn, special tokens counted.
      coverage: the share of all characters that the alphabet covers.
      lower_case: whether the normalization of the model (NFKC, blanks) also folds case.
      text_to_text: whether the first pieces are <pad> </s> <unk> instead, as in T5.

    Returns:
      The content of `spiece.model`.

    Raises:
      UserError: `vocab_size` is too small for the alphabet, or too large for the text.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=kind,
            vocab_size=vocab_size,
            character_coverage=coverage,
            normalization_rule_name="nmt_nfkc_cf" if lower_case else "nmt_nfkc",
            max_sentence_length=8 * MAX_LINE_CHARACTERS,
            num_threads=_THREADS,
            **(_TEXT_TO_TEXT if text_to_text else _MASKED_TEXT),
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserError(_explain(str(error), vocab_size)) from error
    return model.getvalue()


def _explain(message: str, vocab_size: int) -> str:
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return (
            f"--vocab_size={vocab_size} is too small: the alphabet and the special tokens alone "
            f"take {match[1]} pieces; make it larger, or --character_coverage smaller"
        )
    if match := re.search(r"set it to a value <= (\d+)", message):
        return (
            f"--vocab_size={vocab_size} is more than the text supports: lower it "
            f"to {match[1]}, or use more text"
        )
    return f"the SentencePiece trainer cannot use this text with these options: {message}"


def _cut(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > MAX_LINE_CHARACTERS:
        end = text.rfind(" ", start + 1, start + MAX_LINE_CHARACTERS)
        end = start + MAX_LINE_CHARACTERS if end < 0 else end
        yield text[start:end]
        start = end
    yield text[start:]
