"""Converts the generation settings of a Hugging Face folder to those of a model folder.

They are in `generation_config.json` or, in old folders, in `config.json`, whose
`task_specific_params` has more settings for each task. Lengths here count only new tokens. A length
of a causal LM that includes the prompt is left out, and so are settings without a counterpart.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from official.saving.generation_settings import GenerationDefaults, Settings
from official.tokenizers import Tokenizer
from official.utils import json_files, strict
from official.utils.errors import UserError
from official.utils.names import nearest
from official.utils.paths import AnyPath

FILE = "generation_config.json"
TASKS = "task_specific_params"

# Settings with the same name and meaning, and their types in JSON.
_SAME = {
    "max_new_tokens": int,
    "min_new_tokens": int,
    "num_beams": int,
    "num_return_sequences": int,
    "no_repeat_ngram_size": int,
    "repetition_penalty": float,
    "length_penalty": float,
}
# Settings of sampling and their defaults in transformers.
_DRAWS = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}
_OTHER = ("do_sample", "early_stopping", "max_length", "min_length", "prefix", *_DRAWS)
# Settings that do not change the generated texts.
_NEUTRAL = frozenset(
    "transformers_version bos_token_id pad_token_id decoder_start_token_id use_cache "
    "cache_implementation cache_config return_legacy_cache return_dict_in_generate output_scores "
    "output_logits output_attentions output_hidden_states disable_compile compile_config "
    "prefill_chunk_size remove_invalid_values".split()
)
# Unsupported settings, and the values with which they have no effect.
_MISSING = {
    "eos_token_id": None,
    "num_beam_groups": 1,
    "diversity_penalty": 0,
    "penalty_alpha": None,
    "dola_layers": None,
    "constraints": None,
    "force_words_ids": None,
    "min_p": None,
    "typical_p": 1,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "encoder_repetition_penalty": 1,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "forced_decoder_ids": None,
    "exponential_decay_length_penalty": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "token_healing": False,
    "renormalize_logits": False,
    "guidance_scale": None,
    "low_memory": None,
    "watermarking_config": None,
    "max_time": None,
    "stop_strings": None,
    "prompt_lookup_num_tokens": None,
    "max_matching_ngram_size": None,
    "is_assistant": False,
    "num_assistant_tokens": None,
    "num_assistant_tokens_schedule": None,
    "assistant_confidence_threshold": None,
    "assistant_early_exit": None,
    "assistant_lookbehind": None,
    "target_lookbehind": None,
}
_KNOWN = (*_SAME, *_OTHER, *_NEUTRAL, *_MISSING)


@dataclasses.dataclass(frozen=True)
class Found:
    """The settings of a folder.

    Attributes:
      defaults: the content of `generation.json`; empty if the folder has no settings.
      left_out: the names of the settings that are left out.
    """

    defaults: Mapping[str, Any]
    left_out: tuple[str, ...]


def read(folder: AnyPath, config: Mapping[str, Any], tokenizer: Tokenizer, decoder: bool) -> Found:
    """Reads the settings of a folder.

    Args:
      folder: the folder.
      config: the parsed config.json.
      tokenizer: the tokenizer of the model.
      decoder: whether the model is an encoder-decoder, and not a causal LM.

    Raises:
      UserError: a setting is unknown, has the wrong type, or is out of range.
    """
    path = folder / FILE
    if path.exists():
        general, source = json_files.read(path), str(path)
    else:
        names = {*_SAME, *_OTHER, *_MISSING} - {"prefix", "eos_token_id"}
        general = {name: config[name] for name in names if name in config}
        source = str(folder / "config.json")
    reader = _Reader(tokenizer.sep_id, decoder)
    settings = reader.settings(general, source, "")
    tasks = {}
    place = f"{folder / 'config.json'}: {TASKS}"
    hint = Mapping[str, Mapping[str, Any]] | None
    for task, special in (strict.typed(hint, config.get(TASKS), TASKS, source) or {}).items():
        values = reader.settings({**general, **special}, f"{place}.{task}", f"{task}.")
        prefix = strict.typed(str, special.get("prefix") or "", "prefix", f"{place}.{task}")
        tasks[task] = {"settings": values, "prefix": prefix}
    defaults = {"settings": settings, "tasks": tasks} if settings or tasks else {}
    return Found(defaults, tuple(dict.fromkeys(reader.left_out)))


def written(
    defaults: GenerationDefaults, described: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the content of `generation_config.json`, and `task_specific_params` of config.json.

    Args:
      defaults: the generation defaults of the model folder.
      described: config.json. Its token ids are repeated in the result, because transformers does
        not read them from config.json.

    Raises:
      UserError: beam search has a length rule that transformers does not have.
    """
    ids = {name: described[name] for name in sorted(described) if name.endswith("_token_id")}
    tasks = {
        name: {**_theirs(task.settings), **({"prefix": task.prefix} if task.prefix else {})}
        for name, task in defaults.tasks.items()
    }
    return {**ids, **_theirs(defaults.settings)}, tasks


def _theirs(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings under their names in transformers."""
    if settings.get("num_beams", 1) > 1 and settings.get("length_rule") != "huggingface":
        raise UserError(
            "generation.json: num_beams: beam search of transformers has only length_rule: "
            "huggingface: set it, or remove num_beams"
        )
    result = {name: settings[name] for name in (*_SAME, "early_stopping") if name in settings}
    if (temperature := settings.get("temperature")) is not None:
        result["do_sample"] = temperature > 0
    if temperature:
        ours = Settings()
        draws = {"top_k": ours.top_k, "top_p": ours.top_p, **settings}
        result |= {name: draws[name] for name in _DRAWS}
    return result


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Converts settings to ours, and collects the names of those that are left out."""

    end_id: int
    decoder: bool
    left_out: list[str] = dataclasses.field(default_factory=list)

    def settings(self, values: Mapping[str, Any], source: str, place: str) -> dict[str, Any]:
        """Returns our settings by name for the settings in `values`."""
        values = {name: v for name, v in values.items() if v is not None and name[:1] != "_"}
        for name, value in values.items():
            if name not in _KNOWN:
                raise UserError(
                    f"{source}: {name}: not a setting of generation{nearest(name, _KNOWN)}"
                )
            ends = name == "eos_token_id" and value in (self.end_id, [self.end_id])
            if name in _MISSING and value != _MISSING[name] and not ends:
                self.left_out.append(place + name)
        ours = {
            name: strict.typed(hint, values[name], name, source)
            for name, hint in _SAME.items()
            if name in values
        }
        if "early_stopping" in values:
            ours["early_stopping"] = values["early_stopping"]
        for name in ("max", "min"):
            self._add_length(ours, values, name, source, place)
        self._add_draws(ours, values, source)
        beams = ours.get("num_beams", 1) > 1
        if beams or "length_penalty" in ours or "early_stopping" in ours:
            ours = {"length_penalty": 1.0, "early_stopping": False, **ours}
            ours["length_rule"] = "huggingface"
        try:
            Settings.of(ours)
        except UserError as error:
            raise UserError(f"{source}: {error}") from None
        return ours

    def _add_length(self, ours, values, name: str, source: str, place: str) -> None:
        """Adds `max_new_tokens` or `min_new_tokens`, from a length that counts the start token."""
        theirs, new = f"{name}_length", f"{name}_new_tokens"
        length = strict.typed(int | None, values.get(theirs), theirs, source)
        if not length or new in ours:
            return
        if self.decoder:
            ours[new] = max(length - 1, 0)
        else:
            self.left_out.append(place + theirs)

    def _add_draws(self, ours, values, source: str) -> None:
        """Adds the settings of sampling, if tokens are sampled."""
        draws = strict.typed(bool | None, values.get("do_sample"), "do_sample", source)
        if draws is False:
            ours["temperature"] = 0.0
        if not draws or ours.get("num_beams", 1) > 1:
            return
        for name, default in _DRAWS.items():
            ours[name] = strict.typed(type(default), values.get(name, default), name, source)
