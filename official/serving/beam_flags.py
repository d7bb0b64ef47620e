"""The flags of beam search, for the commands that generate or export."""

from typing import Any

from absl import flags

from official.serving import LENGTH_RULES


def define(use: str) -> None:
    """Defines the flags; `use` is what they are for, at the beginning of each description."""
    flags.DEFINE_integer(
        "num_beams",
        1,
        f"{use}: the number of beams of an encoder-decoder's search. 1 = no beam search.",
        lower_bound=1,
    )
    flags.DEFINE_float(
        "length_penalty",
        0.6,
        f"{use}, with --num_beams: the exponent of a text's length in its score.",
    )
    flags.DEFINE_enum(
        "length_rule",
        "t5",
        LENGTH_RULES,
        f"{use}, with --num_beams: how length and score are related, as in T5 or in transformers.",
    )


def values(given: flags.FlagValues) -> dict[str, Any]:
    """Returns the values of the flags by name, as in `official.serving.sampling.Settings`."""
    return {name: given[name].value for name in ("num_beams", "length_penalty", "length_rule")}
