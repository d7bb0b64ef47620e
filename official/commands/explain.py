r"""Shows what a model sees of a text, what it attends to, or how its training went.

The order in which permutation language modeling predicts a text, the masks of both streams, the
targets, and the context of each target (Yang et al. 2019, figures 1 and 2):

  python -m official.commands.explain --what=permutation \
      --text='New York is a city' \
      --k=2 --seed=1 --output=permutation.png

Without --tokenizer the tokens are the words between spaces. --config names a config whose
corruption is used; --unit, --k, --num_predict, --max_span and --perm_size change a permutation.

The input and the target that span corruption makes of a text, or another corruption for an
encoder-decoder that --config names (Raffel et al. 2020, figure 2):

  python -m official.commands.explain --what=span_corruption \
      --text='Thank you for inviting me' --seed=1

The attention weights of a model, for each layer (from top to bottom) and head:

  python -m official.commands.explain --what=attention \
      --text='New York is a city' \
      --model_dir=MODEL --output=attention.png

The attention of a decoder to its encoder, for each token of a target:

  python -m official.commands.explain --what=cross_attention \
      --text='New York is a city' --target='a city' --model_dir=MODEL \
      --output=attention.png

What each head attends to, as means over the tokens of texts: the shares of the token itself, of its
neighbors, of all earlier and later tokens, of the first and of the special tokens, and the entropy
in nats. Several models are compared (Yang et al. 2019, appendix A.6):

  python -m official.commands.explain --what=attention_patterns \
      --texts=texts.txt \
      --model_dir=BERT,XLNET --output=patterns.tsv

The L2 distance and the angle between the input and the output of each layer, as means over the
tokens of texts (Lan et al. 2020, figure 1):

  python -m official.commands.explain --what=layer_distances --texts=texts.txt \
      --model_dir=BERT,ALBERT --output=distances.png

The words of the sparse vectors of texts with their weights, the largest first:

  python -m official.commands.explain --what=words --text='New York is a city' \
      --model_dir=MODEL

The curves of one or several training runs, from `metrics.jsonl` of their model folders: loss,
learning rate, gradient norm and each metric of the evaluations, by step:

  python -m official.commands.explain --what=training --model_dir=RUN,RUN \
      --output=curves.png
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from official.config.corruptions import PermutationConfig, SentinelsConfig, TextToTextConfig
from official.utils import atomic, command_help, command_line, paths
from official.utils.errors import UserError

FLAGS = flags.FLAGS
_TABLES = ("attention_patterns", "layer_distances")
# What each value of --what needs. The tables and words need --text or --texts.
_REQUIRED: dict[str, tuple[str, ...]] = {
    "permutation": ("text",),
    "span_corruption": ("text",),
    "attention": ("text", "model_dir", "output"),
    "cross_attention": ("text", "model_dir", "output", "target"),
    "attention_patterns": ("model_dir",),
    "layer_distances": ("model_dir",),
    "words": ("model_dir",),
    "training": ("model_dir", "output"),
}
_CHANGES = ("unit", "k", "num_predict", "max_span", "perm_size")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_enum(
        "what",
        "permutation",
        list(_REQUIRED),
        "What to show.",
    )
    flags.DEFINE_string("text", None, "The text; training has none.")
    flags.DEFINE_string(
        "texts",
        None,
        "attention_patterns, layer_distances, words: file with a text on each line, in place of "
        "--text.",
    )
    flags.DEFINE_string("target", None, "cross_attention: the text of the decoder.")
    flags.DEFINE_integer("seed", 0, "The seed of the draws.", lower_bound=0)
    flags.DEFINE_string(
        "output",
        None,
        "The PNG file to write. For attention_patterns and layer_distances it may be a .tsv or "
        ".jsonl file with the values.",
    )
    flags.DEFINE_string(
        "tokenizer",
        None,
        "permutation, span_corruption: tokenizer folder. Default: words between spaces.",
    )
    flags.DEFINE_string(
        "config",
        None,
        "permutation, span_corruption: YAML file of a config whose corruption is shown.",
    )
    flags.DEFINE_string("unit", None, "permutation: token, token_span or word_span.")
    flags.DEFINE_integer("k", None, "permutation: one token out of k is a target.")
    flags.DEFINE_integer("num_predict", None, "permutation: the maximum number of targets.")
    flags.DEFINE_integer(
        "max_span", None, "permutation: the maximum number of tokens or words of a span."
    )
    flags.DEFINE_integer("perm_size", None, "permutation: the number of tokens of a block.")
    flags.DEFINE_string(
        "model_dir",
        None,
        "Model folder. For attention_patterns, layer_distances and training (the folders of runs) "
        "one or several, separated by commas.",
    )
    flags.DEFINE_string(
        "checkpoint",
        "best",
        "attention, cross_attention, attention_patterns, layer_distances, words: the checkpoint of "
        "--model_dir: best, last, a step or a path.",
    )
    flags.DEFINE_integer(
        "window",
        2,
        "attention_patterns: how far the tokens are at most that count as near.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "batch_size",
        32,
        "attention_patterns, layer_distances: texts of a batch.",
        lower_bound=1,
    )


def main(argv: list[str]) -> None:
    """Shows what --what names."""
    del argv
    if FLAGS.output:
        _check_output()
    for name in _REQUIRED[FLAGS.what]:
        if not FLAGS[name].value:
            raise UserError(f"--{name} is missing (--what={FLAGS.what}); see --help")
    if FLAGS.what == "training":
        _training()
        return
    if FLAGS.what in _TABLES:
        _measure_layers()
        return
    if FLAGS.what == "words":
        _words()
        return
    if FLAGS.what == "attention":
        _attention()
    elif FLAGS.what == "cross_attention":
        _cross_attention()
    elif FLAGS.what == "span_corruption":
        _span_corruption()
    else:
        _permutation()


def _check_output() -> None:
    """Raises UserError if --output is not a file that --what writes."""
    if FLAGS.what in ("span_corruption", "words"):
        raise UserError(f"--output: --what={FLAGS.what} writes no file: remove it")
    if FLAGS.what in _TABLES:
        paths.check_suffix(FLAGS.output, "values", (".png", ".tsv", ".jsonl"))
    else:
        paths.check_suffix(FLAGS.output, "figures", (".png",))


def _permutation() -> None:
    from official import tokenizers
    from official.plots import corrupted_text, figures

    tokenizer = tokenizers.load(FLAGS.tokenizer) if FLAGS.tokenizer else None
    sampled = corrupted_text.sample_permutation(FLAGS.text, _corruption(), FLAGS.seed, tokenizer)
    print(corrupted_text.permutation_text(sampled))
    if FLAGS.output:
        figures.save(corrupted_text.draw_permutation(sampled), FLAGS.output)
        print(f"\n{FLAGS.output}: both masks")


def _corruption() -> PermutationConfig:
    """Returns the corruption of --config with the values of the other flags."""
    from official import config as configs

    corruption = configs.load(FLAGS.config).corruption if FLAGS.config else PermutationConfig()
    if not isinstance(corruption, PermutationConfig):
        raise UserError(f"{FLAGS.config}: corruption: its type is not permutation")
    changes: dict[str, Any] = {
        name: FLAGS[name].value for name in _CHANGES if FLAGS[name].value is not None
    }
    try:
        return dataclasses.replace(corruption, **changes)
    except ValueError as error:
        raise UserError(f"--{error}") from None


def _span_corruption() -> None:
    from official import config as configs
    from official import tokenizers
    from official.plots import corrupted_text

    corruption = configs.load(FLAGS.config).corruption if FLAGS.config else SentinelsConfig()
    if not isinstance(corruption, TextToTextConfig):
        raise UserError(f"{FLAGS.config}: corruption: its type is neither sentinels nor denoising")
    tokenizer = tokenizers.load(FLAGS.tokenizer) if FLAGS.tokenizer else None
    sampled = corrupted_text.sample_target(FLAGS.text, corruption, FLAGS.seed, tokenizer)
    print(corrupted_text.target_text(sampled))


def _attention() -> None:
    from official.plots import attention, figures
    from official.saving.model_folder import ModelFolder

    folder = ModelFolder.open(FLAGS.model_dir, FLAGS.checkpoint)
    tokens, layers = attention.weights(
        FLAGS.text, folder.tokenizer, folder.model(), folder.max_length
    )
    figures.save(attention.draw(tokens, layers), FLAGS.output)
    print(f"{FLAGS.output}: {len(layers)} layers × {len(layers[0])} heads, {len(tokens)} tokens")


def _cross_attention() -> None:
    from official.plots import attention, figures
    from official.saving.model_folder import ModelFolder

    folder = ModelFolder.open(FLAGS.model_dir, FLAGS.checkpoint)
    inputs, targets, layers = attention.cross_weights(
        FLAGS.text, FLAGS.target, folder.tokenizer, folder.model(), folder.max_length
    )
    figures.save(attention.draw_cross(inputs, targets, layers), FLAGS.output)
    print(
        f"{FLAGS.output}: {len(layers)} layers × {len(layers[0])} heads, {len(targets)} tokens of "
        f"the target × {len(inputs)} of the text"
    )


def _texts() -> list[str]:
    """Returns the texts of --text or --texts."""
    from official.utils import text_lines

    if bool(FLAGS.text) == bool(FLAGS.texts):
        raise UserError(
            f"give either --text=TEXT or --texts=FILE (--what={FLAGS.what}); see --help"
        )
    return text_lines.read(FLAGS.texts, "texts") if FLAGS.texts else [FLAGS.text]


def _words() -> None:
    from official.serving import loaded_model

    texts = _texts()
    model = loaded_model.load(FLAGS.model_dir, FLAGS.checkpoint)
    vectors = model.encode(texts, sparse=True)
    for text, words in zip(texts, model.words(vectors), strict=True):
        print(f"{text}: {len(words)} of {vectors.size:,} words")
        for word, weight in words:
            print(f"  {weight:8.4f}  {word}")


def _measure_layers() -> None:
    """Prints what the layers of models do, and draws it or writes it to a file."""
    from official.plots import attention_patterns, figures, layer_distances

    texts = _texts()
    measure, draw, options = layer_distances.measure, layer_distances.draw, {}
    if FLAGS.what == "attention_patterns":
        measure, draw = attention_patterns.measure, attention_patterns.draw
        options = {"window": FLAGS.window}
    folders = paths.split_folders(FLAGS.model_dir)
    models = {folder: _measured(folder, texts, measure, options) for folder in folders}
    rows = [{"model": folder, **row} for folder in folders for row in models[folder]]
    table = [list(rows[0]), *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        cells = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        print("  ".join([line[0].ljust(widths[0]), *cells]))
    if not FLAGS.output:
        return
    if paths.path(FLAGS.output).suffix == ".png":
        figures.save(draw(models), FLAGS.output)
    else:
        _write_rows(rows)
    print(f"\n{FLAGS.output}: {len(models):,} models, {len(texts):,} texts")


def _measured(
    folder: str, texts: Sequence[str], measure: Callable, options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the rows of the table of a model."""
    from official.saving.model_folder import ModelFolder
    from official.utils import progress

    source = ModelFolder.open(folder, FLAGS.checkpoint)
    return measure(
        texts,
        source.tokenizer,
        source.model(),
        max_length=source.max_length,
        batch_size=FLAGS.batch_size,
        report=progress.say,
        **options,
    )


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [f"{x:.4f}" if isinstance(x, float) else str(x) for x in row.values()]


def _write_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes the rows of a table as TSV with a header, or as JSON Lines."""
    with atomic.file(FLAGS.output) as stream:
        if paths.path(FLAGS.output).suffix == ".tsv":
            for values in (rows[0], *(row.values() for row in rows)):
                stream.write("\t".join(map(str, values)) + "\n")
        else:
            stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _training() -> None:
    from official.plots import curves, figures
    from official.saving import metrics_log

    runs = {folder: metrics_log.read(folder) for folder in paths.split_folders(FLAGS.model_dir)}
    figures.save(curves.draw(runs), FLAGS.output)
    for folder, records in runs.items():
        print(f"{folder}: {len(records)} records, to step {records[-1].step}")
    print(f"{FLAGS.output}: the curves")


run = command_line.Command(main, define_flags, _REQUIRED, command_help.Topics("what"))


if __name__ == "__main__":
    run()
