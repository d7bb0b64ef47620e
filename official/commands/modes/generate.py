r"""Continues texts, or reads them and writes others.

  garden generate --model_dir=MODEL --prompt='Once upon a time' \
      --temperature=0.8 --top_k=40

A model with the objective causal_lm continues texts, and one with seq2seq_lm reads them and writes
others.
"""

from official.commands import command_flags
from official.commands.modes import mode
from official.commands.modes.mode import Mode
from official.utils import errors, progress
from official.utils.flag_table import Flag, Values

_DEFAULT = command_flags.DEFAULT
_SETTINGS = (
    Flag(
        "max_new_tokens",
        int,
        None,
        f"the maximum number of new tokens. {_DEFAULT}64, or for a causal LM half of its positions "
        "if that is less.",
        least=1,
    ),
    Flag(
        "temperature",
        float,
        None,
        "divides the logits. 0 = always the most probable token. Default: that of generation.json, "
        "or 1 for a causal LM and 0 for an encoder-decoder.",
    ),
    Flag("top_k", int, 0, "sample from the k most probable tokens. 0 = all.", least=0),
    Flag(
        "top_p",
        float,
        1.0,
        "sample from the most probable tokens with this total probability.",
    ),
    Flag("seed", int, 0, "the seed of the samples."),
    *command_flags.SEARCH,
)
FLAGS = (
    mode.MODEL_DIR,
    Flag("prompt", str, [], "a text to continue or to read. May be repeated.", repeated=True),
    Flag("prompts", str, None, "a file with one prompt per line."),
    Flag("output", str, None, "file to write: .jsonl. Default: the texts are printed."),
    Flag(
        "task",
        str,
        None,
        "a task of generation.json in the model folder, such as summarization: its settings are "
        "the defaults, and its prefix stands before each text.",
    ),
    *_SETTINGS,
    mode.CHECKPOINT,
)


def run(options: Values) -> None:
    """Generates texts; prints them or writes a file."""
    from official.saving import generation_settings
    from official.serving import loaded_model
    from official.serving.generation.generator import check_output, save
    from official.utils import text_lines

    given = command_flags.given_values(options, _SETTINGS)
    # Refused before the model is loaded.
    generation_settings.Settings.of(
        generation_settings.read(options.model_dir).values(given, options.task)
    )
    if bool(options.prompt) == bool(options.prompts):
        raise errors.UserError("give either --prompt=TEXT (which may be empty) or --prompts=FILE")
    if options.output:
        check_output(options.output)
    prompts = options.prompt or text_lines.read(options.prompts, "prompts")
    model = loaded_model.load(options.model_dir, options.checkpoint)
    texts = model.generate(prompts, task=options.task, report=progress.say, **given)
    if options.output:
        save(options.output, prompts, texts)
    else:
        print("\n".join(texts))


MODE = Mode(FLAGS, ("model_dir",), run)
