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

With --mesh=8x4, it also prints the bytes of the encoder on each of 32 devices that split it on
Keras' JAX backend (docs/distributed.md): 8 for rows of the batch, and 4 for the heads and inner
units of each of them. --fsdp splits kernels over the 8 as well. No device is needed.
"""

import dataclasses
import re
from collections.abc import Iterator

from absl import flags

from official import config as configs
from official.config.parts import EncoderConfig
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
    flags.DEFINE_string("mesh", None, "The devices that split the weights, such as 8x4.")
    flags.DEFINE_bool("fsdp", False, "With --mesh: split kernels over all devices.")


def main(argv: list[str]) -> None:
    """Prints the numbers of weights of each config."""
    if len(argv) < 2:
        raise UserError("name configs: python -m official.commands.parameters CONFIG...")
    if flags.FLAGS.fsdp and not flags.FLAGS.mesh:
        raise UserError("--fsdp is for devices: give --mesh, such as --mesh=8x4")
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
            resolved = configs.ResolvedConfig.of(config)
            lines = [path, *weight_counts.count(resolved).lines()]
            if flags.FLAGS.mesh:
                lines += _split(resolved.encoder, flags.FLAGS.mesh, flags.FLAGS.fsdp)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        print("\n".join(lines))


def _split(encoder: EncoderConfig, shape: str, fsdp: bool) -> Iterator[str]:
    """Yields the lines about a device of a mesh."""
    import keras

    from official.keras_layers import layouts

    if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", shape):
        raise UserError(f"--mesh={shape}: not the numbers of two axes, such as 8x4")
    data, model = map(int, shape.split("x"))
    mesh = keras.distribution.DeviceMesh(
        (data, model), ("batch", "model"), devices=range(data * model)
    )
    yield f"  {shape} devices{', fsdp' if fsdp else ''}"
    yield from layouts.device_weights(mesh, encoder, fsdp=fsdp).lines()


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
