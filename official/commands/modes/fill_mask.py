r"""Fills the masks of texts with a masked LM, and the sentinels of T5.

  garden fill-mask --model_dir=MODEL --texts=texts.txt \
      --output=filled.jsonl --top_k=5

The output has a line for each text, with the words for each of its masks.
"""

from official.commands.modes import mode
from official.commands.modes.mode import Mode
from official.utils import progress
from official.utils.flag_table import Flag, Values

FLAGS = (
    mode.MODEL_DIR,
    Flag("texts", str, None, "a file with one text per line."),
    Flag(
        "output",
        str,
        None,
        "file to write: .jsonl, an object for each text with the words for each mask.",
    ),
    Flag("top_k", int, None, "the number of words for each mask; default: 5.", least=0),
    Flag(
        "target",
        str,
        [],
        "a token that a mask may stand for. May be repeated. Default: all tokens.",
        repeated=True,
    ),
    mode.CHECKPOINT,
)


def run(options: Values) -> None:
    """Writes what fills the masks of texts."""
    from official.serving import loaded_model
    from official.serving.generation import mask_filler
    from official.utils import text_lines

    mask_filler.check_output(options.output)
    top_k = mask_filler.TOP_K if options.top_k is None else options.top_k
    texts = text_lines.read(options.texts, "texts")
    filler = loaded_model.load(options.model_dir, options.checkpoint).filler
    mask_filler.write(filler, texts, options.output, top_k, options.target or None, progress.say)
    print(f"wrote {options.output}")


MODE = Mode(FLAGS, ("model_dir", "texts", "output"), run)
