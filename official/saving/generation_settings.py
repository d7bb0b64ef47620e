"""The settings of generation, and the defaults that a model folder has for them: `generation.json`.

`official.convert` writes the file from `generation_config.json` and `task_specific_params` of
Hugging Face. Its settings are for all texts or for those of a task, which also has a prefix that
stands before each text.
"""

import dataclasses
import numbers
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.config.objectives import CausalLMConfig
from official.saving import LENGTH_RULES
from official.utils import json_files, paths, strict
from official.utils.errors import UserError
from official.utils.names import nearest
from official.utils.paths import AnyPath

# The settings that are whole numbers.
_WHOLE = (
    *("max_new_tokens", "min_new_tokens", "top_k", "seed", "num_beams"),
    *("num_return_sequences", "no_repeat_ngram_size"),
)
# Their largest values. Memory grows with each of them, and files of other tools may say any number.
_MOST = {"max_new_tokens": 100_000, "num_beams": 1000, "num_return_sequences": 1000}
# Settings of other libraries, and what to set instead.
_OTHERS = {
    "do_sample": "temperature: above 0 it draws tokens, and 0 takes the likeliest ones",
    "max_length": "max_new_tokens, the number of tokens without the prompt",
    "min_length": "min_new_tokens, the number of tokens without the prompt",
}
_DRAWS = ("temperature", "top_k", "top_p")
# The ends of messages, after the value.
_TEMPERATURE = "is not a finite number of at least 0; 0 takes the likeliest token"
_TOP_K = "is negative; 0 stands for all tokens"
_TOP_P = "is not in (0, 1]; 1 stands for all tokens"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of generation.

    Attributes:
      max_new_tokens: the maximum number of new tokens. A row ends earlier with the end token.
      temperature: divides the logits; 0 = always the most probable token (greedy search). None = 1
        for a causal LM, and 0 for an encoder-decoder.
      top_k: the number of most probable tokens to sample from; 0 = all.
      top_p: the total probability, after `top_k`, of the most probable tokens to sample from;
        1 = all.
      seed: the seed of the draws. A draw depends on the seed and the numbers of prompt and token.
      num_beams: the number of beams; 1 = no beam search.
      length_penalty: the exponent of a text's length in the score of beam search.
      length_rule: the rule for scores and for the end of beam search, 't5' or 'huggingface': see
        `official.serving.generation.beam_search`.
      early_stopping: when the search of a text ends: True = with `num_beams` finished texts, False
        = when a better one is unlikely, 'never' = when none can be better. None = as `length_rule`
        has it: 'never' for 't5', False for 'huggingface'.
      num_return_sequences: the number of texts for each prompt: the best ones of beam search, or as
        many draws.
      min_new_tokens: the number of new tokens before a text may end.
      no_repeat_ngram_size: the length of the n-grams of tokens that occur once; 0 = all may be
        repeated. A prompt of a causal LM counts.
      repetition_penalty: divides the positive logits of tokens that are there already, and
        multiplies the negative ones; 1 = no penalty. A prompt of a causal LM counts.
    """

    max_new_tokens: int = 64
    temperature: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    num_beams: int = 1
    length_penalty: float = 0.6
    length_rule: str = "t5"
    early_stopping: bool | str | None = None
    num_return_sequences: int = 1
    min_new_tokens: int = 0
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0

    def __post_init__(self):
        """Raises UserError if a value is out of range."""
        for name in _WHOLE:
            if not isinstance(getattr(self, name), numbers.Integral):
                raise UserError(f"{name}: {getattr(self, name)!r} is not a whole number")
        for name in ("temperature", "top_p", "length_penalty", "repetition_penalty"):
            value = getattr(self, name)
            if not (isinstance(value, numbers.Real) or name == "temperature" and value is None):
                raise UserError(f"{name}: {value!r} is not a number")
        for name, most in _MOST.items():
            if not 1 <= getattr(self, name) <= most:
                raise UserError(f"{name}: {getattr(self, name)} is not from 1 to {most:,}")
        for name in ("min_new_tokens", "no_repeat_ngram_size"):
            if getattr(self, name) < 0:
                raise UserError(f"{name}: {getattr(self, name)} is negative; 0 stands for no rule")
        if self.min_new_tokens > self.max_new_tokens:
            raise UserError(
                f"min_new_tokens: {self.min_new_tokens} is above max_new_tokens: "
                f"{self.max_new_tokens}"
            )
        if not 0 < self.repetition_penalty < float("inf"):
            raise UserError(
                f"repetition_penalty: {self.repetition_penalty} is not a finite number above 0; 1 "
                "stands for no penalty"
            )
        if self.temperature is not None and not 0 <= self.temperature < float("inf"):
            raise UserError(f"temperature: {self.temperature} {_TEMPERATURE}")
        if self.top_k < 0:
            raise UserError(f"top_k: {self.top_k} {_TOP_K}")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p: {self.top_p} {_TOP_P}")
        if self.temperature == 0 and (self.top_k or self.top_p < 1):
            raise UserError(
                f"top_k: {self.top_k}, top_p: {self.top_p}: not supported with temperature 0, "
                "which takes the likeliest token; remove them, or give another temperature"
            )
        self._check_beams()

    def _check_beams(self) -> None:
        early, copies = self.early_stopping, self.num_return_sequences
        if not (early is None or isinstance(early, bool) or early == "never"):
            raise UserError(f"early_stopping: {early!r} is not true, false or 'never'")
        if copies > 1 and self.num_beams == 1 and self.temperature == 0:
            raise UserError(
                f"num_return_sequences: {copies}: greedy search finds one text; remove it, or "
                "give num_beams or a temperature above 0"
            )
        if copies > self.num_beams > 1:
            raise UserError(
                f"num_return_sequences: {copies}: beam search returns at most num_beams: "
                f"{self.num_beams} texts"
            )
        if self.length_rule not in LENGTH_RULES:
            raise UserError(
                f"length_rule: {self.length_rule!r} is not one of {', '.join(LENGTH_RULES)}"
            )
        lowest = 0 if self.length_rule == "t5" else -float("inf")
        if not (lowest <= self.length_penalty and abs(self.length_penalty) < float("inf")):
            raise UserError(
                f"length_penalty: {self.length_penalty} is not a finite number, or is negative "
                "with length_rule t5"
            )
        if self.num_beams > 1 and (self.temperature or self.top_k or self.top_p < 1):
            raise UserError(
                f"num_beams: {self.num_beams}: beam search draws no tokens; remove temperature, "
                "top_k and top_p, or num_beams"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Settings":
        """Returns the settings with these values.

        Raises:
          UserError: a setting is not known, or a value is out of range.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                instead = f": give {_OTHERS[name]}" if name in _OTHERS else nearest(name, names)
                raise UserError(
                    f"{name}: not a setting of generation{instead} (known: {', '.join(names)})"
                )
        return cls(**values)

    def with_temperature(self, default: float) -> "Settings":
        """Returns the settings with a temperature, which is `default` if there is none yet.

        Raises:
          UserError: the default is 0, and `top_k` or `top_p` is there.
        """
        if self.temperature is not None:
            return self
        return dataclasses.replace(self, temperature=0.0 if self.num_beams > 1 else default)


def ends(config: configs.ResolvedConfig, tokenizer: tokenizers.Tokenizer) -> tuple[int, int]:
    """Returns the first and the last token of a text of a causal LM, in reading order.

    These are [CLS] and [SEP]. Blocks and streams have no [CLS]: their documents are separated by
    [SEP], which is both the first and the last token of a text.
    """
    if config.segments is not None and config.segments.format in ("blocks", "stream"):
        return tokenizer.sep_id, tokenizer.sep_id
    objective = next(o for o in config.objectives if isinstance(o, CausalLMConfig))
    both = tokenizer.cls_id, tokenizer.sep_id
    return both[::-1] if objective.direction == "backward" else both


def new_tokens(positions: int) -> int:
    """Returns the default of `max_new_tokens` where new tokens follow a prompt in these positions.

    It leaves half of them to the prompt.
    """
    return min(Settings.max_new_tokens, positions // 2)


def checked(
    temperature: tf.Tensor, top_k: tf.Tensor, top_p: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the settings of a request after the checks of `Settings`.

    If a check fails, the graph raises InvalidArgumentError with the setting and its value.
    """
    finite = (temperature >= 0) & (temperature < np.inf)
    checks = [
        tf.debugging.Assert(finite, ["temperature:", temperature, _TEMPERATURE]),
        tf.debugging.Assert(top_k >= 0, ["top_k:", top_k, _TOP_K]),
        tf.debugging.Assert((top_p > 0) & (top_p <= 1), ["top_p:", top_p, _TOP_P]),
    ]
    with tf.control_dependencies(checks):
        return tf.identity(temperature), tf.identity(top_k), tf.identity(top_p)


@dataclasses.dataclass(frozen=True)
class Task:
    """The defaults of a task.

    Attributes:
      settings: the settings of the task by name, the general ones among them.
      prefix: stands before each text.
    """

    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    prefix: str = ""


@dataclasses.dataclass(frozen=True)
class GenerationDefaults:
    """The defaults of a model folder.

    Attributes:
      settings: the settings of generation by name.
      tasks: the defaults of each task by its name.
    """

    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tasks: Mapping[str, Task] = dataclasses.field(default_factory=dict)

    def of(self, task: str | None) -> Task:
        """Returns the defaults of a task; None = the general ones.

        Raises:
          UserError: the folder has no such task.
        """
        if task is None:
            return Task(self.settings)
        if task not in self.tasks:
            known = ", ".join(self.tasks) or "none"
            raise UserError(
                f"task: {task!r} is not a task of this model's generation.json"
                f"{nearest(task, self.tasks)} (known: {known})"
            )
        return self.tasks[task]

    def values(self, given: Mapping[str, Any], task: str | None = None) -> dict[str, Any]:
        """Returns the settings that are given, and the defaults of the others.

        A default that a given setting excludes is left out: beam search draws no tokens, and greedy
        search has no choice of them.
        """
        defaults = dict(self.of(task).settings)
        draws = given.get("temperature") or given.get("top_k") or given.get("top_p", 1) != 1
        if draws and "num_beams" not in given:
            defaults.pop("num_beams", None)
        if given.get("num_beams", 1) > 1 or given.get("temperature", 1) == 0:
            defaults = {name: value for name, value in defaults.items() if name not in _DRAWS}
        if "max_new_tokens" in given and "min_new_tokens" in defaults:
            least = defaults["min_new_tokens"]
            defaults["min_new_tokens"] = min(least, given["max_new_tokens"])
        return {**defaults, **given}


def read(model_dir: str | os.PathLike) -> GenerationDefaults:
    """Reads the defaults of a model folder; there are none without the file.

    Raises:
      UserError: the file is damaged, or has a setting that is not known or out of range.
    """
    return of_values(json_files.optional(file(model_dir)), str(file(model_dir)))


def of_values(values: Mapping[str, Any], source: str) -> GenerationDefaults:
    """Returns the defaults of what a file has.

    Args:
      values: the content of the file.
      source: the name of the file, for messages.

    Raises:
      UserError: there is a setting that is not known or out of range.
    """
    defaults = strict.build(GenerationDefaults, values, source)
    for place, settings in [
        ("settings", defaults.settings),
        *((f"tasks.{name}.settings", task.settings) for name, task in defaults.tasks.items()),
    ]:
        try:
            Settings.of(settings)
        except UserError as error:
            raise UserError(f"{source}: {place}: {error}") from None
    return defaults


def file(model_dir: str | os.PathLike) -> AnyPath:
    """Returns the file of the defaults of a model folder."""
    return paths.path(model_dir) / "generation.json"
