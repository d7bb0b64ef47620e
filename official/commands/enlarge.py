r"""Starts a larger model from the weights of a smaller one.

  python -m official.commands.enlarge --model_dir=BASE \
      --config=configs/pretrain/modernbert_large.yaml --output=LARGE

LARGE is a model folder, which `official.main --init=LARGE` trains. The config has the sizes of the
larger model: `hidden_size`, `num_layers`, `num_heads` and `intermediate_size`. All else is as in
BASE. Layers are repeated, and widths are tiled from the middle, as in ModernBERT-large.
"""

import dataclasses

from absl import flags

from official.utils import atomic, command_line, errors

FLAGS = flags.FLAGS
_REQUIRED = ("model_dir", "config", "output")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("model_dir", None, "Model folder of the smaller model.")
    flags.DEFINE_string("checkpoint", "best", "Its checkpoint: best, last, a step or a path.")
    flags.DEFINE_string("config", None, "Config of the larger model.")
    flags.DEFINE_multi_string("override", [], "Changes one value of it: key.of.value=VALUE.")
    flags.DEFINE_string("output", None, "Model folder to write. It must not exist.")


def main(argv: list[str]) -> None:
    """Reads a model folder and writes one of a larger model."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    atomic.check_new(FLAGS.output)
    from official import config as configs
    from official.saving import larger_models, model_folder

    given = configs.load(FLAGS.config, FLAGS.override)
    if given.encoder is None:
        raise errors.UserError(f"{FLAGS.config}: encoder: there is none: give the larger sizes")
    small, tokenizer, model = model_folder.restore(FLAGS.model_dir, FLAGS.checkpoint)
    encoder = given.encoder
    if encoder.vocab_size is None:
        encoder = dataclasses.replace(encoder, vocab_size=small.encoder.vocab_size)
    large = configs.ResolvedConfig.of(given, encoder=encoder)
    variables = {path: variable.numpy() for path, variable in model.variables_by_path().items()}
    arrays = larger_models.enlarged(small, variables, large, FLAGS.model_dir)
    model_folder.write_new(large, tokenizer, arrays, FLAGS.output)
    before, after = (sum(array.size for array in each.values()) for each in (variables, arrays))
    print(f"wrote {FLAGS.output}: {before:,} -> {after:,} parameters")


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
