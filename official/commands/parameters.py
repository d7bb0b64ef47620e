r"""Counts the weights of configs without making them.

  python -m official.commands.parameters configs/pretrain/*.yaml \
      [--vocab_size=N] \
      [--override=a.b=c]...

For each config the command prints the number of weights of the encoder (with the pooler if it has
one), which is the number that papers give, of each head, and of the whole model. A network that an
objective adds (ELECTRA's generator) is counted with the tables that it shares with the encoder.
These count once in the sum. A model folder may be given instead of a config. `--vocab_size` is for
configs that leave the size to the tokenizer. If there are several configs, those that cannot be
counted are skipped with a note.
"""

import dataclasses

from absl import flags

from official import config as configs
from official.utils import command_line
from official.utils.errors import UserError


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_integer(
        "vocab_size",
        None,
        "The size of the tokenizer, for configs that do not contain it.",
        lower_bound=1,
    )
    flags.DEFINE_multi_string("override", [], "key.subkey=value, read as YAML.")


def main(argv: list[str]) -> None:
    """Prints the numbers of weights of each config."""
    if len(argv) < 2:
        raise UserError("name configs: python -m official.commands.parameters CONFIG...")
    from official.modeling import weight_counts

    for path in argv[1:]:
        config = configs.load(path, flags.FLAGS.override)
        if config.encoder is not None and flags.FLAGS.vocab_size:
            size = config.encoder.vocab_size or flags.FLAGS.vocab_size
            encoder = dataclasses.replace(config.encoder, vocab_size=size)
            config = dataclasses.replace(config, encoder=encoder)
        if reason := _why_not(config):
            if len(argv) == 2:
                raise UserError(f"{path}: {reason}")
            print(f"{path}\n  not counted: {reason}")
            continue
        try:
            counts = weight_counts.count(configs.ResolvedConfig.of(config))
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        print("\n".join([path, *counts.lines()]))


def _why_not(config: configs.Config) -> str:
    """Returns the reason why the weights of a config cannot be counted, or an empty string."""
    if config.encoder is None:
        return (
            "encoder: the config has none (it comes with --init): name a pretraining config or a "
            "model folder"
        )
    if config.encoder.vocab_size is None:
        return "encoder.vocab_size: left to the tokenizer: give --vocab_size=N"
    return ""


run = command_line.Command(main, define_flags, usage="CONFIG... [FLAGS]")


if __name__ == "__main__":
    run()
