"""What a model sees of a text and predicts of it, as lines of text or heat maps.

A permutation language model predicts tokens in the order of a permutation; an encoder-decoder
writes the target that a corruption makes of a text.

Shapes: T tokens.
"""

import dataclasses
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from official import config as configs
from official.config.corruptions import PermutationConfig, TextToTextConfig
from official.corruption import permutation
from official.corruption.vocabulary import Vocabulary, check_tokens
from official.plots import figures
from official.tokenizers import Tokenizer
from official.tokenizers.base import sentinels
from official.tokenizers.pair_packing import pack_arrays
from official.utils import seeding
from official.utils.errors import UserError

_SPECIALS = ("<pad>", "</s>")


@dataclasses.dataclass(frozen=True)
class Permutation:
    """The targets of a text, their order, and what each token may attend to.

    Attributes:
      tokens: the T tokens.
      order: the positions that are hidden at first, in the order of the permutation.
      targets: the positions that are predicted, in the same order.
      content: the attention mask of the content stream, bool [T, T]: row i may attend to column j.
      query: the attention mask of the query stream, bool [T, T]. Only the rows of targets are used.
    """

    tokens: tuple[str, ...]
    order: tuple[int, ...]
    targets: tuple[int, ...]
    content: np.ndarray
    query: np.ndarray

    def ordered_tokens(self) -> str:
        """Returns the tokens of `order` with arrows between them."""
        return " → ".join(self.tokens[i] for i in self.order) or "(none)"


def sample_permutation(
    text: str, config: PermutationConfig, seed: int = 0, tokenizer: Tokenizer | None = None
) -> Permutation:
    """Draws targets and an order for a text in the same way as training does for a row.

    Args:
      text: a text with at least one token.
      config: the corruption.
      seed: the seed of the draws.
      tokenizer: None splits the text at white space.

    Raises:
      UserError: the text has no token.
    """
    tokens, ids, vocabulary = _tokens(text, config, tokenizer)
    batch = {
        "token_ids": tf.constant(ids[None], tf.int32),
        "padding_mask": tf.ones([1, len(tokens)], tf.bool),
    }
    seeds = seeding.row_seeds(seed, 0, tf.range(1, dtype=tf.int64))
    corrupted = permutation.corrupt(config, vocabulary, batch, seeds)
    mask = corrupted["permutation_mask"][0].numpy()
    weights = corrupted["masked_weights"].numpy()
    targets = corrupted["masked_positions"].numpy()[weights > 0].tolist()
    # Special tokens have a place in the order. Other tokens are visible unless they are targets.
    maskable = vocabulary.maskable[ids]
    ranks = permutation.orders(seeds, len(tokens))[0].numpy()
    block_size = config.perm_size or len(tokens)
    order = sorted(
        (i for i in range(len(tokens)) if not maskable[i] or i in targets),
        key=lambda i: (i // block_size, ranks[i]),
    )
    return Permutation(
        tokens=tuple(tokens),
        order=tuple(order),
        targets=tuple(i for i in order if i in targets),
        content=mask | np.eye(len(tokens), dtype=bool),
        query=mask,
    )


def _tokens(
    text: str, config: PermutationConfig, tokenizer: Tokenizer | None
) -> tuple[list[str], np.ndarray, Vocabulary]:
    """Splits a text into tokens; returns them, their ids [T], and the vocabulary of the ids."""
    if tokenizer is None:
        tokens = text.split()
        ids = np.arange(len(tokens))
        vocabulary = Vocabulary(len(tokens), -1, (), np.ones(len(tokens), bool))
    else:
        ids = np.asarray(tokenizer.encode([text])[0])
        if len(ids):
            ids = np.asarray(pack_arrays([ids], tokenizer, len(ids) + 2)[0])
        tokens = [tokenizer.pieces[i] for i in ids]
        vocabulary = Vocabulary.from_tokenizer(tokenizer, corruption=config)
    if not tokens:
        raise UserError(f"--text: {text!r} has no token: give a text of a few words")
    return tokens, ids, vocabulary


def permutation_text(sampled: Permutation) -> str:
    """Returns the order, the context of each target, and both masks as lines of text."""
    tokens = sampled.tokens
    unmasked = [token for i, token in enumerate(tokens) if i not in sampled.order]
    lines = [
        f"visible from the start  {' '.join(unmasked) or '(nothing)'}",
        f"order                   {sampled.ordered_tokens()}",
        "",
        f"{len(sampled.targets)} of {len(tokens)} tokens are predicted:",
    ]
    for i in sampled.targets:
        context = " ".join(
            token for token, visible in zip(tokens, sampled.query[i], strict=True) if visible
        )
        lines.append(f"  log p({tokens[i]}{' | ' if context else ''}{context})")
    lines += ["", "content stream: each token's row, x where it may attend to a column"]
    lines += _grid(tokens, sampled.content, range(len(tokens)))
    lines += ["", "query stream: the targets' rows"]
    lines += _grid(tokens, sampled.query, sorted(sampled.targets))
    return "\n".join(lines)


def _grid(tokens: Sequence[str], mask: np.ndarray, rows: Iterable[int]) -> list[str]:
    """Returns rows of a mask as lines of text, with the numbers of the columns above them."""
    width = max(map(len, tokens))
    digits = len(str(len(tokens) - 1))
    columns = "  ".join(f"{j:>{digits}}" for j in range(len(tokens)))
    lines = [f"  {'':{digits + 1 + width}}  {columns}"]
    for i in rows:
        cells = "  ".join(f"{'x' if sees else '.':>{digits}}" for sees in mask[i])
        lines.append(f"  {i:>{digits}} {tokens[i]:{width}}  {cells}")
    return lines


def draw_permutation(sampled: Permutation) -> Figure:
    """Draws the masks of both streams. The query stream has a row for each target."""
    names = [f"{token} {i}" for i, token in enumerate(sampled.tokens)]
    grid = [[figures.HeatMap("content stream", sampled.content, names, names)]]
    if rows := sorted(sampled.targets):
        targets = [names[i] for i in rows]
        grid.append([figures.HeatMap("query stream", sampled.query[rows], targets, names)])
    title = textwrap.fill(f"order: {sampled.ordered_tokens()}", max(30, 3 * len(names)))
    return figures.draw_heat_maps(grid, "1 = may attend to", title)


class InputAndTarget(NamedTuple):
    """The pieces of an input and of its target, with their end tokens."""

    inputs: list[str]
    targets: list[str]


def sample_target(
    text: str, corruption: TextToTextConfig, seed: int, tokenizer: Tokenizer | None = None
) -> InputAndTarget:
    """Corrupts a text.

    Args:
      text: the text.
      corruption: the config of the corruption.
      seed: the seed of the draws.
      tokenizer: a tokenizer with sentinels; None = the tokens are the words between spaces.

    Raises:
      UserError: the text has fewer than two tokens, or the tokenizer has too few sentinels.
    """
    if tokenizer is None:
        words = text.split()
        pieces = [*_SPECIALS, *words, *sentinels(corruption.sentinels)]
        first = len(pieces) - 1
        vocabulary = Vocabulary(
            size=len(pieces),
            mask_id=-1,
            special_ids=(0, 1),
            word_starts=np.ones(len(pieces), bool),
            pad_id=0,
            end_id=1,
            sentinel_ids=tuple(range(first, first - corruption.sentinels, -1)),
        )
        ids = np.arange(2, 2 + len(words), dtype=np.int32)
    else:
        check_tokens(corruption, tokenizer, "--tokenizer")
        pieces, vocabulary = tokenizer.pieces, Vocabulary.from_tokenizer(tokenizer)
        (ids,) = tokenizer.encode([text])
    if len(ids) < 2:
        raise UserError(f"--text={text!r} has {len(ids)} tokens: two or more are corrupted")
    batch = {"token_ids": tf.constant(ids[None]), "padding_mask": tf.ones((1, len(ids)), tf.bool)}
    corrupt = configs.module_of(corruption).corrupt
    out = corrupt(corruption, vocabulary, batch, seeding.row_seeds(seed, 0, tf.range(1)))
    rows = (("token_ids", "padding_mask"), ("target_ids", "target_mask"))
    return InputAndTarget(
        *([pieces[i] for i in out[name][0].numpy()[out[mask][0].numpy()]] for name, mask in rows)
    )


def target_text(sampled: InputAndTarget) -> str:
    """Returns the two lines of an input and its target."""
    return f"input   {' '.join(sampled.inputs)}\ntarget  {' '.join(sampled.targets)}"
