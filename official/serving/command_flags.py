"""The flags of the commands that generate texts, embed texts or export a model."""

from typing import Any

from absl import flags

from official.serving import LENGTH_RULES


def define_generation() -> None:
    """Defines the flags of the mode generate."""
    flags.DEFINE_multi_string(
        "prompt", [], "generate: a text to continue or to read. May be repeated."
    )
    flags.DEFINE_string("prompts", None, "generate: a file with one prompt per line.")
    flags.DEFINE_integer("max_new_tokens", 64, "generate: the maximum number of new tokens.")
    flags.DEFINE_float(
        "temperature",
        None,
        "generate: divides the logits. 0 = always the most probable token. Default: 1 for a causal "
        "LM, 0 for an encoder-decoder.",
    )
    flags.DEFINE_integer(
        "top_k",
        0,
        "generate: sample from the k most probable tokens. predict, for rankings: the maximum "
        "number of documents of a query. 0 = all.",
        lower_bound=0,
    )
    flags.DEFINE_float(
        "top_p", 1.0, "generate: sample from the most probable tokens with this total probability."
    )
    flags.DEFINE_integer("seed", 0, "generate: the seed of the samples.")
    define_beam_search("generate")


def define_embedding() -> None:
    """Defines the flags of the mode embed."""
    flags.DEFINE_string(
        "texts", None, "embed: a file with one text per line. --output: .npy or .jsonl."
    )
    flags.DEFINE_string("pooling", "mean", "embed: mean, first or last over the tokens, or pooled.")
    flags.DEFINE_integer("layer", -1, "embed: 0 = embeddings, 1 = first layer, -1 = last layer.")
    flags.DEFINE_enum(
        "layers",
        "one",
        ["one", "all"],
        "embed: one layer, which --layer names, or all with the embeddings. With --data, all "
        "layers of the tokens of task shards are written to the folder --output, for "
        "recipe.layer_states.",
    )
    flags.DEFINE_bool("tokens", False, "embed: a vector for each token, with its characters.")


def define_beam_search(use: str) -> None:
    """Defines the flags of beam search; each description begins with `use`, what they are for."""
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


def beam_search_values(given: flags.FlagValues) -> dict[str, Any]:
    """Returns the values of beam search's flags, as in `official.serving.sampling.Settings`."""
    return {name: given[name].value for name in ("num_beams", "length_penalty", "length_rule")}
