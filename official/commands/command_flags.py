"""Flags that several commands have: those of beam search, and of requests to a SavedModel."""

from collections.abc import Iterable
from typing import Any

from official.saving import LENGTH_RULES
from official.utils.flag_table import Flag, Values

_EARLY: dict[str, bool | str] = {"true": True, "false": False, "never": "never"}
DEFAULT = "Default: that of generation.json, or "
# Beam search and rules for tokens, as in `official.saving.generation_settings.Settings`.
SEARCH = (
    Flag(
        "num_beams",
        int,
        None,
        f"the number of beams of the search. 1 = no beam search. {DEFAULT}1.",
        least=1,
    ),
    Flag(
        "length_penalty",
        float,
        None,
        f"with --num_beams: the exponent of a text's length in its score. {DEFAULT}0.6.",
    ),
    Flag(
        "length_rule",
        str,
        None,
        "with --num_beams: how length and score are related, as in T5 or in transformers. "
        f"{DEFAULT}t5.",
        values=LENGTH_RULES,
    ),
    Flag(
        "early_stopping",
        str,
        None,
        "with --num_beams: when a search ends. true = with --num_beams texts, false = when a "
        "better one is unlikely, never = when none can be better. Default: as --length_rule has "
        "it: never for t5, false for huggingface.",
        values=tuple(_EARLY),
    ),
    Flag(
        "num_return_sequences",
        int,
        None,
        "the number of texts for each prompt: the best of --num_beams, or as many samples. "
        f"{DEFAULT}1.",
        least=1,
    ),
    Flag(
        "min_new_tokens",
        int,
        None,
        f"the number of new tokens before a text may end. {DEFAULT}0.",
        least=0,
    ),
    Flag(
        "no_repeat_ngram_size",
        int,
        None,
        f"n-grams of so many tokens occur once. 0 = all may be repeated. {DEFAULT}0.",
        least=0,
    ),
    Flag(
        "repetition_penalty",
        float,
        None,
        "divides the positive logits of tokens that are there already, and multiplies the negative "
        f"ones. 1 = no penalty. {DEFAULT}1.",
    ),
)


MAX_BYTES = Flag(
    "max_bytes",
    int,
    None,
    "The largest number of bytes of a text in a request to a SavedModel, which bounds its memory. "
    "0 = any. Default: 1,000,000.",
    least=0,
)


def given_values(options: Values, table: Iterable[Flag]) -> dict[str, Any]:
    """Returns the values of the flags of a table that are given, by name."""
    given = {
        flag.name: getattr(options, flag.name) for flag in table if options.is_given(flag.name)
    }
    if "early_stopping" in given:
        given["early_stopping"] = _EARLY[given["early_stopping"]]
    return given
