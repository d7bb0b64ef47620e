"""Reads the settings of a tokenizer's folder that another tool has written.

`look` reads all files but the vocabulary and refuses unknown keys and classes (`folder_keys`,
`folder_classes`). If two files disagree, the one that transformers follows counts.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from official.tokenizers import added_tokens, class_rules, file_formats, folder_classes, folder_keys
from official.tokenizers.folder_classes import TokenizerClass
from official.utils import json_files
from official.utils.errors import UserError
from official.utils.paths import AnyPath

CONFIG = "config.json"
_PROGRAM = "auto_map"
_LENGTHS = ("model_max_length", "max_len")
_NO_LENGTH = 1 << 30
# Keys of `special_tokens_map.json` that replace those of the settings, if these list no tokens.
_ROLES = (*file_formats.SPECIALS, "bos_token", "eos_token")


@dataclasses.dataclass(frozen=True)
class Look:
    """The settings of a folder.

    Attributes:
      settings: the settings of `tokenizer_config.json` and of the other files, with the listed
        tokens.
      tokenizer_class: the class that reads the folder; None = no file names it.
      how: the file and key that name the class, or the kind of model; empty if nothing does.
      writer: the major version of transformers that wrote the folder.
      described: the content of `tokenizer.json` after the changes of the class; None = no such
        file.
    """

    settings: dict[str, Any]
    tokenizer_class: TokenizerClass | None
    how: str
    writer: int
    described: dict[str, Any] | None

    @property
    def title(self) -> str:
        """The name of the class, and where it comes from."""
        if self.tokenizer_class is None:
            return "none is named"
        return f"{self.tokenizer_class.name} ({self.how})"

    def lower_case(self, kind: str) -> bool | None:
        """Returns whether the class lower-cases text if no file says it; None = unknown.

        Args:
          kind: the kind of the vocabulary, as in `TokenizerClass`. A class of another kind does not
            read this vocabulary.
        """
        if self.tokenizer_class is None or self.tokenizer_class.kind != kind:
            return None
        return bool(self.tokenizer_class.lower_case)


def look(folder: AnyPath, settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> Look:
    """Reads the files of a folder of another tool, except its vocabulary.

    Args:
      folder: the folder.
      settings: those of `tokenizer_config.json`.
      defaults: settings that apply if no file has them.

    Raises:
      UserError: a file is not valid, or has a key or value that is refused or unknown.
    """
    where = str(folder / file_formats.SETTINGS_FILE)
    config = json_files.read(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    # A tokenizer in Python code of the folder is refused first, before any of its keys.
    program = {key: settings[key] for key in (_PROGRAM,) if key in settings}
    folder_keys.check(folder_keys.SETTINGS, program, where)
    name, how = _class(settings, config, defaults, folder)
    found = folder_classes.named(name, f"{folder}: {how}") if name else None
    folder_keys.check(folder_keys.SETTINGS, settings, where)
    by_name = folder / folder_keys.SPECIALS
    result = {**settings, **defaults, **{k: v for k, v in settings.items() if v is not None}}
    if by_name.is_file():
        names = json_files.read(by_name)
        folder_keys.check(folder_keys.SPECIALS, names, str(by_name))
        if added_tokens.DECODER not in settings:
            result |= {key: _content(names[key], key, by_name) for key in _ROLES if key in names}
    writer = class_rules.version(settings, config)
    if name and not settings.get("tokenizer_class") and config.get("tokenizer_class"):
        result["tokenizer_class"] = name
    described = None
    path = folder / folder_keys.DESCRIBED
    if path.is_file():
        content = json_files.read(path, "is this the file of a tokenizer?")
        folder_keys.check_known(content, str(path))
        try:
            described = class_rules.effective(content, found, result, writer)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        result = _with_direction(result, content)
    result |= _length(settings, where)
    result[added_tokens.LISTED] = added_tokens.read(folder, result)
    return Look(result, found, how, writer, described)


def _class(
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    defaults: Mapping[str, Any],
    folder: AnyPath,
) -> tuple[str | None, str]:
    """Returns the name of the class, and the file and key that name it."""
    for file, values in ((file_formats.SETTINGS_FILE, settings), (CONFIG, config)):
        if (name := values.get("tokenizer_class")) is not None:
            if not isinstance(name, str):
                raise UserError(f"{folder / file}: tokenizer_class is {name!r}, expected a name")
            return name, f"tokenizer_class in {file}"
    kind = config.get("model_type")
    if isinstance(kind, str) and (name := folder_classes.OF_MODELS.get(kind)):
        return name, f"model_type {kind}"
    if name := defaults.get("tokenizer_class"):
        return name, "the system"
    return None, ""


def _length(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Returns the maximum length in tokens as the setting `MAX_TOKENS`; empty = no maximum.

    Raises:
      UserError: the value is not a number of at least 4.
    """
    found = [(key, settings[key]) for key in _LENGTHS if settings.get(key) is not None]
    if not found:
        return {}
    key, length = found[0]
    # transformers writes 1e30 if there is no maximum, in older versions as a float.
    if isinstance(length, bool) or not isinstance(length, int | float) or not length >= 4:
        raise UserError(f"{where}: {key} is {length!r}, but must be a number of at least 4 tokens")
    return {file_formats.MAX_TOKENS: int(length)} if length < _NO_LENGTH else {}


def _content(value: Any, key: str, source: AnyPath) -> str | None:
    text = value.get("content") if isinstance(value, dict) else value
    if not isinstance(text, str | None):
        raise UserError(f"{source}: {key} is {value!r}, but must be the text of a token")
    return text


def _with_direction(settings: dict[str, Any], described: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings with `truncation_side` from `tokenizer.json`, if they do not have it."""
    cut = described.get("truncation")
    if isinstance(cut, dict) and settings.get("truncation_side") is None and "direction" in cut:
        settings = {**settings, "truncation_side": str(cut["direction"]).lower()}
    return settings
