"""The flags of the commands that generate or embed texts, fill masks or export a model."""

from collections.abc import Iterable
from typing import Any

from absl import flags

from official.saving import LENGTH_RULES
from official.serving import PRECISIONS, RUNTIMES
from official.utils import runner_flags

# The flags of `define_search`, as in `official.saving.generation_settings.Settings`.
SEARCH = (
    *("num_beams", "length_penalty", "length_rule", "early_stopping", "num_return_sequences"),
    *("min_new_tokens", "no_repeat_ngram_size", "repetition_penalty"),
)
_EARLY: dict[str, bool | str] = {"true": True, "false": False, "never": "never"}
_DEFAULT = "Default: that of generation.json, or "


def define_generation() -> None:
    """Defines the flags of the mode generate."""
    flags.DEFINE_multi_string(
        "prompt", [], "generate: a text to continue or to read. May be repeated."
    )
    flags.DEFINE_string("prompts", None, "generate: a file with one prompt per line.")
    flags.DEFINE_string(
        "task",
        None,
        "generate: a task of generation.json in the model folder, such as summarization: its "
        "settings are the defaults, and its prefix stands before each text.",
    )
    flags.DEFINE_integer(
        "max_new_tokens",
        None,
        f"generate: the maximum number of new tokens. {_DEFAULT}64, or for a causal LM half of its "
        "positions if that is less.",
        lower_bound=1,
    )
    flags.DEFINE_float(
        "temperature",
        None,
        "generate: divides the logits. 0 = always the most probable token. Default: that of "
        "generation.json, or 1 for a causal LM and 0 for an encoder-decoder.",
    )
    flags.DEFINE_integer(
        "top_k",
        0,
        "generate: sample from the k most probable tokens. predict, for rankings: the maximum "
        "number of documents of a query. 0 = all. fill_mask: the number of words for each mask; "
        "default: 5. search: the number of documents for each query; default: 100.",
        lower_bound=0,
    )
    flags.DEFINE_float(
        "top_p", 1.0, "generate: sample from the most probable tokens with this total probability."
    )
    flags.DEFINE_integer("seed", 0, "generate: the seed of the samples.")
    define_search("generate")


def define_embedding() -> None:
    """Defines the flags of the mode embed."""
    flags.DEFINE_string(
        "texts",
        None,
        "fill_mask: a file with one text per line. --output: .jsonl, an object for each text with "
        "the words for each mask. embed, search: the texts or the documents, in a file as "
        "--queries.",
    )
    flags.DEFINE_string(
        "queries",
        None,
        "search: a file of queries: .tsv with the columns id and text, .jsonl with `_id` and "
        "`text` (and perhaps `title`), .parquet with a column `text`, or a text on each line; the "
        "ids of these two are the numbers of the rows. .gz or .zst may follow.",
    )
    flags.DEFINE_string(
        "beir",
        None,
        "search: a folder of BEIR with corpus.jsonl, queries.jsonl and qrels/, in place of "
        "--queries and --texts. --split names the judgments; the metrics are printed.",
    )
    flags.DEFINE_string(
        "rerank",
        None,
        "search: a TREC run, of which the model scores the --top_k best documents of each query; "
        "it has the objective ranking. If not, all documents are compared by their vectors.",
    )
    flags.DEFINE_multi_string(
        "target",
        [],
        "fill_mask: a token that a mask may stand for. May be repeated. Default: all tokens.",
    )
    folder = "Default: that of embedding.json in the model folder"
    flags.DEFINE_string(
        "pooling",
        None,
        "embed, search: mean, max, mean_sqrt_len, weighted_mean, first or last over the tokens, or "
        f"pooled; several with commas are joined. {folder}, or mean.",
    )
    flags.DEFINE_bool(
        "normalize",
        None,
        f"embed, search: whether vectors are divided by their lengths. {folder}, or no.",
    )
    flags.DEFINE_integer(
        "max_length",
        None,
        "embed, search: texts are cut to this number of tokens. Default: the length of the model.",
        lower_bound=4,
    )
    flags.DEFINE_string(
        "prompt_name",
        None,
        "embed: a prompt of embedding.json, which stands before each text. Default: the default "
        "prompt there, if there is one.",
    )
    flags.DEFINE_integer(
        "layer",
        None,
        "embed: 0 = embeddings, 1 = first layer, -1 = last layer. Default: the last layer; for the "
        "vectors of texts of ELMo the mix of its head, or without one the mean of all layers.",
    )
    flags.DEFINE_enum(
        "state",
        "fresh",
        ["fresh", "carry"],
        "embed, of ELMo: carry = the lines of --texts are read one after another, each from the "
        "state of the LSTMs that the line before it left, as in ELMo's release. fresh = each "
        "begins with a fresh state.",
    )
    flags.DEFINE_enum(
        "layers",
        "one",
        ["one", "all"],
        "embed: one layer, which --layer names, or all with the embeddings. With --data, all "
        "layers of the tokens of task shards are written to the folder --output, for "
        "recipe.layer_states.",
    )
    flags.DEFINE_enum(
        "pieces",
        None,
        ["npy", "parquet"],
        "embed: write the vectors of --texts with their ids to a folder --output, in pieces of "
        "this format. If the command is stopped, the same command goes on.",
    )
    flags.DEFINE_integer(
        "piece_size", 16_384, "embed: the number of texts of each of --pieces.", lower_bound=1
    )
    flags.DEFINE_integer(
        "workers",
        0,
        "embed, with --pieces: the number of processes, each with one thread of a CPU. 0 = one "
        "with all threads.",
        lower_bound=0,
    )
    runner_flags.define(of="embed, with --pieces: ")
    flags.DEFINE_enum(
        "precision",
        "float32",
        PRECISIONS,
        "embed, search: how the encoder computes. bfloat16: on CPUs with bfloat16 products. int8: "
        "its matrices are 8-bit integers.",
    )
    flags.DEFINE_enum(
        "runtime",
        "tensorflow",
        RUNTIMES,
        "embed, search: what computes the vectors. litert: LiteRT, in --precision float32 or int8, "
        "in one process with all threads of the CPU. It is the fastest in int8. The model is "
        "converted first, which takes seconds.",
    )
    flags.DEFINE_bool("tokens", False, "embed: a vector for each token, with its characters.")


def define_search(use: str) -> None:
    """Defines the flags of beam search and of rules for tokens.

    Args:
      use: what they are for, at the beginning of each description.
    """
    flags.DEFINE_integer(
        "num_beams",
        None,
        f"{use}: the number of beams of the search. 1 = no beam search. {_DEFAULT}1.",
        lower_bound=1,
    )
    flags.DEFINE_float(
        "length_penalty",
        None,
        f"{use}, with --num_beams: the exponent of a text's length in its score. {_DEFAULT}0.6.",
    )
    flags.DEFINE_enum(
        "length_rule",
        None,
        LENGTH_RULES,
        f"{use}, with --num_beams: how length and score are related, as in T5 or in transformers. "
        f"{_DEFAULT}t5.",
    )
    flags.DEFINE_enum(
        "early_stopping",
        None,
        list(_EARLY),
        f"{use}, with --num_beams: when a search ends. true = with --num_beams texts, false = when "
        "a better one is unlikely, never = when none can be better. Default: as --length_rule has "
        "it: never for t5, false for huggingface.",
    )
    flags.DEFINE_integer(
        "num_return_sequences",
        None,
        f"{use}: the number of texts for each prompt: the best of --num_beams, or as many samples. "
        f"{_DEFAULT}1.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "min_new_tokens",
        None,
        f"{use}: the number of new tokens before a text may end. {_DEFAULT}0.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "no_repeat_ngram_size",
        None,
        f"{use}: n-grams of so many tokens occur once. 0 = all may be repeated. {_DEFAULT}0.",
        lower_bound=0,
    )
    flags.DEFINE_float(
        "repetition_penalty",
        None,
        f"{use}: divides the positive logits of tokens that are there already, and multiplies the "
        f"negative ones. 1 = no penalty. {_DEFAULT}1.",
    )


def define_max_bytes(use: str = "") -> None:
    """Defines the flag for the largest text of a request; `use` begins its description."""
    flags.DEFINE_integer(
        "max_bytes",
        None,
        f"{use}The largest number of bytes of a text in a request to a SavedModel, which bounds "
        "its memory. 0 = any. Default: 1,000,000.",
        lower_bound=0,
    )


def search_values(given: flags.FlagValues) -> dict[str, Any]:
    """Returns the settings that the flags of `define_search` give, by name."""
    return _values(given, SEARCH)


def generation_values(given: flags.FlagValues) -> dict[str, Any]:
    """Returns the settings that the flags of the mode generate give, by name."""
    return _values(given, ("max_new_tokens", "temperature", "top_k", "top_p", "seed", *SEARCH))


def _values(given: flags.FlagValues, names: Iterable[str]) -> dict[str, Any]:
    values = {name: given[name].value for name in names if given[name].present}
    if "early_stopping" in values:
        values["early_stopping"] = _EARLY[str(values["early_stopping"])]
    return values
