r"""BPE of PhoBERT and BERTweet: `vocab.txt` with counts, and `bpe.codes`.

The files are those of fairseq and subword-nmt. A line of `vocab.txt` is a piece, a blank and its
count; a piece that goes on ends with "@@". A line of `bpe.codes` is a pair of parts and its count;
a part that ends a word ends with "</w>". The ids are those of `PhobertTokenizer` and
`BertweetTokenizer` of transformers, which have no fast form: four special tokens, the pieces, and
the mask token.

Words are separated by white space. PhoBERT reads Vietnamese that another program (VnCoreNLP) has
split into words, with "_" between the syllables of a word; BERTweet reads tweets that another
program has normalized (`normalization` of its settings is not supported). A line feed belongs to
the word before it, as in transformers, so each text should be one line.

Python and graphs have the same ids. The parts are those of `components`.

Shapes: N texts; a ragged dimension is written None.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from official.tokenizers import added_tokens, file_formats, offsets, word_models
from official.tokenizers.base import Tokenizer
from official.tokenizers.components import ComponentSplitter
from official.tokenizers.file_formats import SPECIALS, find_specials, switch
from official.tokenizers.pair_forms import ONE, PairForm
from official.tokenizers.patterns import Pattern
from official.tokenizers.word_steps import REMOVED, Split
from official.utils import paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

FILE, VOCABULARY = "bpe.codes", "vocab.txt"
CLASSES = ("PhobertTokenizer", "BertweetTokenizer")
GOES_ON, _ENDS = "@@", "</w>"
# The special tokens with the lowest ids, by their keys in the settings.
_FIRST = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
_ROLES = {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
_WORDS = Pattern(rf"[^{offsets.WHITE_SPACE[1:-1]}]+\n?", False)


class CodesBPE(Tokenizer):
    """BPE of characters, by its codes.

    Attributes:
      merges: pairs of parts, in the order in which they are joined.
    """

    FILE = FILE
    pairs = PairForm(separators=2, types=ONE)  # <s> A </s></s> B </s>

    def __init__(
        self,
        vocabulary: bytes,
        codes: bytes,
        settings: dict[str, Any] | None = None,
        source: str = "the vocabulary",
    ):
        """Makes a tokenizer from the contents of both files.

        Args:
          vocabulary: the bytes of `vocab.txt`.
          codes: the bytes of `bpe.codes`.
          settings: names of special tokens other than `<s> <pad> </s> <unk> <mask>`.
          source: the name of the vocabulary in messages.

        Raises:
          UserError: a line is malformed, or a piece or a pair is listed twice; or a pair comes
            before the pairs that make its parts.
        """
        names = {**_FIRST, **_ROLES}
        given = {key: value for key, value in (settings or {}).items() if value is not None}
        settings = {**names, **given}
        self._files = {VOCABULARY: vocabulary, FILE: codes}
        pieces = [*(settings[key] for key in _FIRST), *_pieces(vocabulary, source)]
        if settings["mask_token"] not in pieces:
            pieces.append(settings["mask_token"])
        file_formats.check_pieces(pieces, source)
        base, pieces = pieces, added_tokens.appended(pieces, settings, source)
        self.merges = _pairs(codes, source)
        ids = {piece: i for i, piece in enumerate(base)}
        unk_id = ids[settings["unk_token"]]
        # The vocabulary marks pieces that continue ("@@"), and the codes mark parts that end a word
        # ("</w>").
        tokens = {piece + _ENDS: i for piece, i in ids.items()}
        tokens |= {
            piece.removesuffix(GOES_ON): i for piece, i in ids.items() if piece.endswith(GOES_ON)
        }
        for left, right in self.merges:
            for part in (left, right, left + right):
                tokens.setdefault(part, unk_id)
        tokens.pop("", None)
        splitter = ComponentSplitter(
            [],
            [Split(_WORDS, REMOVED, invert=True)],
            word_models.PairModel(tokens, self.merges, source, unk_id=unk_id, suffix=_ENDS),
        )
        specials = find_specials(pieces, settings, source, SPECIALS)
        super().__init__(pieces, specials, splitter, settings, len(base))

    @classmethod
    def read(cls, path: AnyPath, settings: dict[str, Any]) -> "CodesBPE":
        """Reads a tokenizer from a `bpe.codes`, the `vocab.txt` beside it, and settings.

        Raises:
          UserError: see the constructor; or a file is missing, or `normalization` is true.
        """
        if switch(settings, "normalization", False):
            raise UserError(
                f"{path.with_name(file_formats.SETTINGS_FILE)}: normalization: true is not "
                "supported: normalize the tweets first (normalizeTweet of BertweetTokenizer), and "
                "set it to false"
            )
        vocabulary = path.with_name(VOCABULARY)
        return cls(paths.read_bytes(vocabulary), paths.read_bytes(path), settings, str(vocabulary))

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns the text of ids; special tokens appear as in the vocabulary."""
        return "".join(self.spellings[i].decode() for i in ids).strip()

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the text of ids [N, None]: string [N]."""
        return tf.strings.strip(offsets.joined(tf.gather(tf.constant(self.spellings), ids)))

    def _spelled_added(self, content: str) -> bytes:
        return f"{content} ".encode()

    def _spelled(self, piece: str) -> bytes:
        goes_on = piece.endswith(GOES_ON)
        return (piece.removesuffix(GOES_ON) + " " * (not goes_on)).encode()

    def _begins_word(self, piece: str, rule: str) -> bool:
        return False  # the piece before it says whether a word begins

    def _ends_word(self, piece: str) -> bool:
        return not piece.endswith(GOES_ON)

    def _vocabulary_files(self) -> dict[str, bytes]:
        return dict(self._files)

    def _decides(self) -> dict[str, Any]:
        return {}

    def _for_others(self) -> dict[str, Any]:
        return {"tokenizer_class": CLASSES[0]}


def _lines(data: bytes, source: str) -> list[str]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{source}: not UTF-8: {error}") from error
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def _pieces(data: bytes, source: str) -> list[str]:
    """Returns the pieces of a `vocab.txt` with counts."""
    pieces = []
    for number, line in enumerate(_lines(data, source), 1):
        piece, blank, count = line.strip().rpartition(" ")
        if not blank or not piece:
            raise UserError(
                f"{source}:{number}: {line!r}: expected a piece and its count, such as `học 10`"
            )
        pieces.append(piece)
    return pieces


def _pairs(data: bytes, source: str) -> list[tuple[str, str]]:
    """Returns the pairs of a `bpe.codes`.

    If a pair is listed twice, its last position counts.
    """
    pairs: Mapping[tuple[str, str], int] = {}
    found = []
    for number, line in enumerate(_lines(data, source), 1):
        parts = line.split()
        if len(parts) != 3:
            raise UserError(
                f"{source.removesuffix(VOCABULARY)}{FILE}:{number}: {line!r}: expected two parts "
                "and a count, such as `h ọ 9`"
            )
        found.append((parts[0], parts[1]))
    pairs = {pair: rank for rank, pair in enumerate(found)}
    return sorted(pairs, key=pairs.__getitem__)
