"""Shows what a model gets to see of a text, what it looks at, or how its training went.

The order in which permutation language modelling predicts a text, both streams' masks, the targets
and what each is predicted from (Yang et al. 2019, figures 1 and 2):

  python -m official.explain --what=permutation --text='New York is a city' --k=2 --seed=1 \
      --output=permutation.png

Without --tokenizer the words between spaces are the tokens. --config names a config whose
corruption is taken; --unit, --k, --num_predict, --max_span and --perm_size change it.

The attention weights of a model, for each layer (from top to bottom) and head:

  python -m official.explain --what=attention --text='New York is a city' --model_dir=MODEL \
      --output=attention.png

The curves of one or several training runs, from `metrics.jsonl` of their model folders: loss,
learning rate, gradient norm and each metric of the evaluations, by step:

  python -m official.explain --what=training --model_dir=RUN,RUN --output=curves.png

Shapes: T tokens, N heads.
"""

import dataclasses
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from absl import flags

from official.config.corruption import PermutationConfig
from official.utils import errors
from official.utils.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from official.modeling.model import Model
    from official.tokenizers import Tokenizer

FLAGS = flags.FLAGS
_CHANGES = ("unit", "k", "num_predict", "max_span", "perm_size")


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_enum(
        "what", "permutation", ["permutation", "attention", "training"], "What to show."
    )
    flags.DEFINE_string("text", None, "The text, for permutation and attention.")
    flags.DEFINE_integer("seed", 0, "Of the draws.", lower_bound=0)
    flags.DEFINE_string("output", None, "PNG to write; attention and training need it.")
    flags.DEFINE_string("tokenizer", None, "Tokenizer folder. Default: words between spaces.")
    flags.DEFINE_string("config", None, "YAML file of a config with a permutation.")
    flags.DEFINE_string("unit", None, "token, token_span or word_span.")
    flags.DEFINE_integer("k", None, "One token in so many is a target.")
    flags.DEFINE_integer("num_predict", None, "The most targets.")
    flags.DEFINE_integer("max_span", None, "The most tokens or words of a span.")
    flags.DEFINE_integer("perm_size", None, "Tokens of a block.")
    flags.DEFINE_string(
        "model_dir",
        None,
        "Model folder, for attention; model folders of training runs, separated by commas, for "
        "training.",
    )
    flags.DEFINE_string("checkpoint", "best", "Which checkpoint of it: best, last, a step, a path.")


@dataclasses.dataclass(frozen=True)
class Permutation:
    """How a text is predicted.

    Attributes:
      tokens: T texts.
      order: positions that are not visible from the start, as they come in the order.
      targets: positions that are predicted, as they come in the order.
      content: which columns each row sees in the content stream, bool [T, T].
      query: the same in the query stream, which only the targets' rows are computed of.
    """

    tokens: tuple[str, ...]
    order: tuple[int, ...]
    targets: tuple[int, ...]
    content: np.ndarray
    query: np.ndarray


def permute(
    text: str,
    config: "PermutationConfig",
    seed: int = 0,
    tokenizer: "Tokenizer | None" = None,
) -> Permutation:
    """Draws targets and an order for a text as the training of a row does.

    Args:
      text: of at least one token.
      config: of the corruption.
      seed: of the draws.
      tokenizer: None = the words between spaces are the tokens.

    Raises:
      UserError: the text has no token.
    """
    import tensorflow as tf

    from official.corruption import permutation
    from official.corruption.vocabulary import Vocabulary
    from official.tokenizers.packing import pack_arrays
    from official.utils import seeding

    if tokenizer is None:
        tokens = text.split()
        ids = np.arange(len(tokens))
        vocabulary = Vocabulary(len(tokens), -1, (), np.ones(len(tokens), bool))
    else:
        ids = tokenizer.encode([text])[0]
        if len(ids):
            ids = pack_arrays([ids], tokenizer, len(ids) + 2)[0]
        tokens = [tokenizer.pieces[i] for i in ids]
        vocabulary = Vocabulary.from_tokenizer(tokenizer, corruption=config)
    if not tokens:
        raise UserError(f"--text: {text!r} has no token: give a text of a few words")
    batch = {
        "token_ids": tf.constant(np.asarray(ids)[None], tf.int32),
        "padding_mask": tf.ones([1, len(tokens)], tf.bool),
    }
    seeds = seeding.row_seeds(seed, 0, tf.range(1, dtype=tf.int64))
    made = permutation.corrupt(config, vocabulary, batch, seeds)
    mask = made["permutation_mask"][0].numpy()
    chosen = made["masked_positions"].numpy()[made["masked_weights"].numpy() > 0].tolist()
    places = permutation.orders(seeds, len(tokens))[0].numpy()
    text = vocabulary.maskable[ids]
    ordered = [i for i in range(len(tokens)) if not text[i] or i in chosen]
    size = config.perm_size or len(tokens)
    ordered.sort(key=lambda i: (i // size, places[i]))
    return Permutation(
        tokens=tuple(tokens),
        order=tuple(ordered),
        targets=tuple(i for i in ordered if i in chosen),
        content=mask | np.eye(len(tokens), dtype=bool),
        query=mask,
    )


def as_text(found: Permutation) -> str:
    """Order, targets with their contexts, and masks, as lines of text."""
    tokens = found.tokens
    visible = [token for i, token in enumerate(tokens) if i not in found.order]
    lines = [
        f"visible from the start  {' '.join(visible) or '(nothing)'}",
        f"order                   {' → '.join(tokens[i] for i in found.order) or '(none)'}",
        "",
        f"{len(found.targets)} of {len(tokens)} tokens are predicted:",
    ]
    for i in found.targets:
        seen = " ".join(token for token, sees in zip(tokens, found.query[i], strict=True) if sees)
        lines.append(f"  log p({tokens[i]}{' | ' if seen else ''}{seen})")
    lines += ["", "content stream: each token's row, x where it may attend to a column"]
    lines += _grid(tokens, found.content, range(len(tokens)))
    lines += ["", "query stream: the targets' rows"]
    lines += _grid(tokens, found.query, sorted(found.targets))
    return "\n".join(lines)


def _grid(tokens: Sequence[str], mask: np.ndarray, rows: Sequence[int]) -> list[str]:
    wide = max(map(len, tokens))
    digits = len(str(len(tokens) - 1))
    columns = "  ".join(f"{j:>{digits}}" for j in range(len(tokens)))
    lines = [f"  {'':{digits + 1 + wide}}  {columns}"]
    for i in rows:
        cells = "  ".join(f"{'x' if seen else '.':>{digits}}" for seen in mask[i])
        lines.append(f"  {i:>{digits}} {tokens[i]:{wide}}  {cells}")
    return lines


def main(argv: list[str]) -> None:
    """Shows what was asked for."""
    del argv
    if FLAGS.what == "training":
        _training()
        return
    if not FLAGS.text:
        raise UserError("--text is missing: give the text to show")
    if FLAGS.what == "attention":
        _attention()
    else:
        _permutation()


def _permutation() -> None:
    from official import tokenizers

    tokenizer = tokenizers.load(FLAGS.tokenizer) if FLAGS.tokenizer else None
    found = permute(FLAGS.text, _corruption(), FLAGS.seed, tokenizer)
    print(as_text(found))
    if FLAGS.output:
        from official.plots import figures

        figures.save(masks(found), FLAGS.output)
        print(f"\n{FLAGS.output}: both masks")


def masks(found: Permutation) -> "Figure":
    """Draws both streams' masks; of the query stream the targets' rows alone."""
    from official.plots import heat_maps

    names = [f"{token} {i}" for i, token in enumerate(found.tokens)]
    grid = [[heat_maps.HeatMap("content stream", found.content, names, names)]]
    if rows := sorted(found.targets):
        targets = [names[i] for i in rows]
        grid.append([heat_maps.HeatMap("query stream", found.query[rows], targets, names)])
    order = " → ".join(found.tokens[i] for i in found.order) or "(none)"
    return heat_maps.draw(
        grid, "1 = may attend to", textwrap.fill(f"order: {order}", max(30, 3 * len(names)))
    )


def _corruption() -> "PermutationConfig":
    from official import config as configs

    corruption = PermutationConfig()
    if FLAGS.config:
        corruption = configs.load(FLAGS.config).corruption
        if not isinstance(corruption, PermutationConfig):
            raise UserError(f"{FLAGS.config}: corruption: its type is not permutation")
    changes = {name: FLAGS[name].value for name in _CHANGES if FLAGS[name].value is not None}
    try:
        return dataclasses.replace(corruption, **changes)
    except ValueError as error:
        raise UserError(f"--{error}") from None


def _attention() -> None:
    from official.plots import figures
    from official.saving import model_folder

    _require("model_dir", "output")
    config, tokenizer, model = model_folder.restore(FLAGS.model_dir, FLAGS.checkpoint)
    longest = model_folder.max_length(FLAGS.model_dir, config)
    tokens, weights = attention(FLAGS.text, tokenizer, model, longest)
    figures.save(attention_weights(tokens, weights), FLAGS.output)
    print(f"{FLAGS.output}: {len(weights)} layers × {len(weights[0])} heads, {len(tokens)} tokens")


def _require(*names: str) -> None:
    for name in names:
        if not FLAGS[name].value:
            raise UserError(f"--{name} is missing (--what={FLAGS.what}); see --help")


def attention_weights(tokens: Sequence[str], weights: Sequence[np.ndarray]) -> "Figure":
    """Draws the weights that `attention` returns: a row of heads for each layer."""
    from official.plots import heat_maps

    grid = [
        [
            heat_maps.HeatMap(f"layer {i} head {j}", head, tokens, tokens)
            for j, head in enumerate(layer)
        ]
        for i, layer in enumerate(weights)
    ]
    return heat_maps.draw(grid, "attention weight")


def attention(
    text: str, tokenizer: "Tokenizer", model: "Model", max_length: int | None = None
) -> tuple[list[str], list[np.ndarray]]:
    """Reads a text and says where each head looked.

    Args:
      text: it is cut to `max_length` tokens.
      tokenizer: of the model.
      model: that reads it.
      max_length: special tokens counted; None = any number.

    Returns:
      The tokens, and for each layer the attention weights [N, T, T].

    Raises:
      UserError: the text has no token.
    """
    import tensorflow as tf

    from official.tokenizers.packing import pack

    ids = tokenizer.encode([text])[0]
    if not len(ids):
        raise UserError(f"--text: {text!r} has no token: give a text of a few words")
    rows = tf.RaggedTensor.from_row_lengths(ids, [len(ids)])
    batch = pack([rows], tokenizer, max_length or len(ids) + 2, model.encoder.config.layout)
    encoded = model.encode(batch, output_all=True)
    layers = [np.asarray(weights[0], np.float32) for weights in encoded["attentions"]]
    return [tokenizer.pieces[i] for i in batch["token_ids"][0].numpy()], layers


def _training() -> None:
    from official.plots import curves, figures
    from official.saving import metrics_log

    _require("model_dir", "output")
    runs = {folder: metrics_log.read(folder) for folder in folders(FLAGS.model_dir)}
    figures.save(curves.draw(runs), FLAGS.output)
    for folder, records in runs.items():
        print(f"{folder}: {len(records)} records, to step {records[-1].step}")
    print(f"{FLAGS.output}: the curves")


def folders(names: str) -> list[str]:
    """Parts the names of folders, which may hold commas: a sweep makes `seed=0,epochs=3`.

    Raises:
      UserError: a name is that of no folder, or stands there twice.
    """
    parts = names.split(",")
    found = []
    while parts:
        candidates = (",".join(parts[:count]) for count in range(1, len(parts) + 1))
        name = next((name for name in candidates if name and Path(name).is_dir()), None)
        if name is None:
            raise UserError(f"--model_dir: {parts[0]!r} is no folder")
        if name in found:
            raise UserError(f"--model_dir: {name!r} stands there twice")
        found.append(name)
        parts = parts[name.count(",") + 1 :]
    return found


def run() -> None:
    """The console entry."""
    define_flags()
    errors.run(main)


if __name__ == "__main__":
    run()
