"""Makes static vectors of the pieces of an encoder, as model2vec's `distill` does.

Each piece is read alone, with the special tokens around it, and its vector is the mean of all
states. The vectors are centered and turned to the axes with the most variance, without whitening.
Then frequent pieces count less: the factor of a piece with the probability p is a / (a + p) (Arora
et al., 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings"). Without a text, the
piece at place i of n, from 0, has p = 1 / (i + 2), divided by the sum over all places, because
vocabularies are ordered by frequency.

Shapes: V pieces of the vocabulary, n of them with a vector, H hidden size of the encoder, D size of
the static vectors.
"""

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np

from official import config as configs
from official.config.encoders import StaticConfig
from official.config.sentence_embedding import SentenceEmbeddingConfig
from official.saving.embedding_settings import EmbeddingSettings
from official.tokenizers import Tokenizer, extension
from official.tokenizers.pair_packing import num_specials
from official.utils.batched import batched
from official.utils.errors import UserError

COEFFICIENT = 1e-4
ALL = "all"
TABLE = "encoder/token_embedding/table"
# Tokens of a text that are read, as in model2vec.
MAX_TOKENS = 512
_AT_ONCE = 4096  # texts whose tokens are counted


@dataclasses.dataclass(frozen=True)
class Student:
    """A model of static vectors.

    Attributes:
      config: its config.
      table: float32 [V, D]; 0 for pieces that no text has.
      settings: how it makes the vectors of texts.
      pieces: n.
      share: the share of the variance that the D dimensions keep.
    """

    config: configs.ResolvedConfig
    table: np.ndarray
    settings: EmbeddingSettings
    pieces: int
    share: float


def make(
    vectors: Callable[[np.ndarray], np.ndarray],
    config: configs.ResolvedConfig,
    tokenizer: Tokenizer,
    dimensions: float | str = 256,
    coefficient: float = COEFFICIENT,
    texts: Iterable[str] | None = None,
) -> Student:
    """Makes the static vectors of an encoder.

    Args:
      vectors: returns the vectors [n, H] of n pieces, given their ids.
      config: the config of the model with the encoder.
      tokenizer: its tokenizer.
      dimensions: D; a number below 1 = as many as keep this share of the variance; `ALL` = H.
      coefficient: a; 0 = all pieces count alike.
      texts: texts in which the pieces are counted; None = their places in the vocabulary say how
        frequent they are.

    Raises:
      UserError: D exceeds H, or no piece is in the texts.
    """
    ids = with_vectors(tokenizer)
    rows, share = projected(vectors(ids), dimensions)
    if coefficient:
        rows *= factors(probabilities(ids, tokenizer, texts), coefficient)[:, None]
    table = np.zeros((config.encoder.known_vocab_size, rows.shape[1]), np.float32)
    table[ids] = rows
    encoder = StaticConfig(
        vocab_size=len(table),
        hidden_size=table.shape[1],
        skipped_ids=tuple(tokenizer.special_ids),
    )
    return Student(
        config_of(f"{config.name}_static", encoder, normalize=True),
        table,
        settings_of(tokenizer, normalize=True),
        len(ids),
        share,
    )


def config_of(name: str, encoder: StaticConfig, normalize: bool) -> configs.ResolvedConfig:
    """Returns the config of a model of static vectors, which can be evaluated and be a teacher."""
    objective = SentenceEmbeddingConfig(pooling="pooled", normalize=normalize, weight=0.0)
    config = configs.Config(name)
    return configs.ResolvedConfig.of(config, encoder=encoder, objectives=(objective,))


def settings_of(
    tokenizer: Tokenizer, normalize: bool, max_tokens: int | None = MAX_TOKENS
) -> EmbeddingSettings:
    """Returns the settings of the vectors of texts; `max_tokens` is without special tokens."""
    length = None if max_tokens is None else max_tokens + room(tokenizer)
    return EmbeddingSettings(pooling=("pooled",), normalize=normalize, max_length=length)


def room(tokenizer: Tokenizer) -> int:
    """Returns the number of special tokens that stand around a text."""
    return num_specials(1, tokenizer, StaticConfig.layout)


def parse(dimensions: str) -> float | str:
    """Reads a number of dimensions or a share; `ALL` stays as it is.

    Raises:
      UserError: it is none of these.
    """
    try:
        return ALL if dimensions == ALL else float(dimensions)
    except ValueError:
        raise UserError(
            f"dimensions: {dimensions!r} is neither a number nor {ALL}: give 256, or 0.95"
        ) from None


def with_vectors(tokenizer: Tokenizer) -> np.ndarray:
    """Returns the ids of the pieces that get a vector, ascending: int [n].

    Special tokens get none, except those of padding and of unknown words, and neither do the unused
    lines of a vocabulary.
    """
    kept = {tokenizer.pad_id, tokenizer.unk_id}
    special = {*tokenizer.special_ids, *tokenizer.special_tokens, *tokenizer.sentinel_ids} - kept
    pieces = enumerate(tokenizer.pieces)
    return np.array(
        [i for i, p in pieces if i not in special and not extension.UNUSED.fullmatch(p)]
    )


def projected(vectors: np.ndarray, dimensions: float | str) -> tuple[np.ndarray, float]:
    """Returns the principal components of vectors, and the share of the variance in them.

    The components of vectors x [n, H] are those with the largest variance, first. The sign of each
    axis makes the largest component on it positive. Vectors of no more pieces than dimensions
    stay as they are.

    Args:
      vectors: float32 [n, H].
      dimensions: see `make`.

    Returns:
      float32 [n, D], and the share.

    Raises:
      UserError: D exceeds H.
    """
    count, size = vectors.shape
    wanted = size if dimensions == ALL else dimensions
    if isinstance(wanted, str) or not 0 < wanted <= size or (wanted > 1 and wanted % 1):
        raise UserError(
            f"dimensions: {dimensions}: the encoder has vectors of {size}: give a whole number up "
            f"to that, a share of the variance below 1, or {ALL}"
        )
    if wanted >= count:
        return vectors.copy(), 1.0
    x = np.nan_to_num(vectors.astype(np.float64), nan=0.0)
    x -= x.mean(axis=0)
    variances, axes = np.linalg.eigh(x.T @ x / (count - 1))
    variances, axes = variances[::-1], axes[:, ::-1]
    shares = np.cumsum(variances) / np.sum(variances)
    if wanted < 1:
        wanted = min(int(np.searchsorted(shares, wanted, side="right")) + 1, size)
    wanted = int(wanted)
    found = x @ axes[:, :wanted]
    found *= np.sign(found[np.abs(found).argmax(axis=0), np.arange(wanted)])
    return found.astype(np.float32), float(shares[wanted - 1])


def probabilities(
    ids: np.ndarray, tokenizer: Tokenizer, texts: Iterable[str] | None = None
) -> np.ndarray:
    """Returns the probability of each piece: float64 [n].

    Args:
      ids: the pieces, ascending.
      tokenizer: splits the texts.
      texts: see `make`.

    Raises:
      UserError: no piece is in the texts.
    """
    if texts is None:
        counts = 1 / (np.arange(len(ids)) + 2.0)
    else:
        counts = np.zeros(tokenizer.vocab_size)
        for group in batched(texts, _AT_ONCE):
            found, _ = tokenizer.encode_ragged(group)
            counts += np.bincount(found, minlength=len(counts))
        counts = counts[ids]
        if not counts.any():
            raise UserError("frequencies: the texts have none of the pieces of the vocabulary")
    return counts / counts.sum()


def factors(probabilities: np.ndarray, coefficient: float = COEFFICIENT) -> np.ndarray:
    """Returns the factor a / (a + p) of pieces with these probabilities, float64 [n]."""
    return coefficient / (coefficient + probabilities)
