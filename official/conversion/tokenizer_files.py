"""Writes a tokenizer's files so that transformers 4 and 5 return the same ids and types.

`tokenizer.json` describes the whole tokenizer. transformers 4 follows it. Version 5 follows it if
`tokenizer_class` is `PreTrainedTokenizerFast`. With the class of a system, it takes only the
vocabulary from the file; the rules, the layout of a pair and the inputs are those of the class: no
types of tokens for an ALBERT or an XLNet, two separators for a DeBERTa v1, words of at most 100
characters. So the written folders name `PreTrainedTokenizerFast`, and set the keys that a class
would otherwise decide:

  model_input_names     whether the model is asked for types
  model_max_length      the length at which texts are cut here
  padding_side          that of XLNet
  bos_token, eos_token  where the class of the system has them
  added_tokens_decoder  all tokens that are found in text, with their flags

The vocabulary is also written, under the file name of the system's class, for the readers of this
project and for tools that do not read `tokenizer.json`.
"""

import json
from typing import Any

from official.config.encoders import EncoderConfig
from official.conversion.system import System
from official.tokenizers import (
    SentencePiece,
    Tokenizer,
    added_tokens,
    file_formats,
    sentencepiece,
    tokenizer_json,
)
from official.tokenizers.pair_forms import SEPARATORS, TWO
from official.tokenizers.tokenizer_json import AS_DESCRIBED
from official.utils import json_files
from official.utils.paths import AnyPath


def save(
    tokenizer: Tokenizer,
    folder: AnyPath,
    system: System,
    encoder: EncoderConfig,
    max_length: int,
    start_id: int | None = None,
) -> None:
    """Writes the files of a tokenizer.

    Args:
      tokenizer: the tokenizer.
      folder: the folder to write to.
      system: the system of the model.
      encoder: the encoder of the model.
      max_length: longer texts are cut to this number of tokens.
      start_id: the id of the token before a text that the model continues; None = the model
        continues no texts.

    Raises:
      UserError: the disk is full.
    """
    tokenizer.save(folder)
    if isinstance(tokenizer, SentencePiece) and system.vocabulary == sentencepiece.DEBERTA_FILE:
        model = folder / tokenizer.FILE
        if not tokenizer.rules.compose:  # otherwise only tokenizer.json describes all steps
            plain = sentencepiece.without_mask(model.read_bytes())
            (folder / system.vocabulary).write_bytes(plain)
        model.unlink()
    settings = json_files.read(folder / file_formats.SETTINGS_FILE)
    settings |= _settings(tokenizer, system, encoder)
    settings |= {"model_max_length": max_length, file_formats.MAX_TOKENS: max_length}
    settings[SEPARATORS] = tokenizer.pairs.separators
    described = tokenizer_json.described(tokenizer, encoder.text_layout, encoder.segment_types)
    if described is not None:
        if start_id is not None and tokenizer.cls_id != tokenizer.sep_id:
            described["post_processor"] = _prompts(tokenizer.pieces[start_id], start_id)
        _write(folder / tokenizer_json.FILE, described, indent=1)
        settings["tokenizer_class"] = AS_DESCRIBED
        settings[added_tokens.DECODER] = {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"}
            for token in described["added_tokens"]
        }
    elif system.tokenizer_class and system.vocabulary == tokenizer.FILE:
        settings["tokenizer_class"] = system.tokenizer_class
    _write(folder / file_formats.SETTINGS_FILE, settings, indent=2, sort_keys=True)


def input_names(tokenizer: Tokenizer, encoder: EncoderConfig) -> list[str]:
    """Returns the names of the inputs in transformers; types are among them where it reads them."""
    typed = encoder.segment_types > 1 and tokenizer.pairs.types == TWO
    return ["input_ids", *["token_type_ids"] * typed, "attention_mask"]


def _settings(tokenizer: Tokenizer, system: System, encoder: EncoderConfig) -> dict[str, Any]:
    """Returns the settings that a class would otherwise decide."""
    settings: dict[str, Any] = {"model_input_names": input_names(tokenizer, encoder)}
    if encoder.text_layout == "cls_last":
        settings["padding_side"] = "left"
    return settings | system.ends_of(tokenizer)


def _prompts(name: str, start_id: int) -> dict[str, Any]:
    """Returns the post-processor of a language model: a start token before the text.

    It is empty for a GPT-2, whose tokenizers do not add its token.
    """
    start = {"SpecialToken": {"id": name, "type_id": 0}}
    text, other = ({"Sequence": {"id": each, "type_id": 0}} for each in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [start, text],
        "pair": [start, text, other],
        "special_tokens": {name: {"id": name, "ids": [start_id], "tokens": [name]}},
    }


def _write(path: AnyPath, content: dict[str, Any], **form: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, **form) + "\n", "utf-8")
