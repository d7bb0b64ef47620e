"""The rules by which classes of transformers change what a `tokenizer.json` says.

transformers 4 (4.57) reads the file, and then replaces some options by the settings of
`tokenizer_config.json`, or by the defaults of the class for settings that are missing. It does so
only for a component that is not in a sequence.

transformers 5 (5.24) takes the vocabulary and the replacements of a SentencePiece model from the
file, and builds all other components by the rules of the class; two classes keep the
post-processor. `PreTrainedTokenizerFast` and `TokenizersBackend` keep the whole file. A folder is
read by the rules of the version that wrote it.
"""

import copy
from collections.abc import Mapping
from typing import Any

from official.tokenizers.folder_classes import TokenizerClass
from official.utils.errors import UserError

_SPACE = "▁"
_QUOTES: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": quotes}, "content": '"'} for quotes in ("``", "''")
]
_COMPOSES: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "},
    {"type": "NFC"},
    {"type": "Strip", "strip_left": False, "strip_right": True},
]
# Options of a component that settings replace if no file names a class.
_NAMED = (
    ("normalizer.BertNormalizer.lowercase", "do_lower_case"),
    ("normalizer.BertNormalizer.strip_accents", "strip_accents"),
    ("pre_tokenizer.ByteLevel.add_prefix_space", "add_prefix_space"),
)
# The rows of a text and of a pair in transformers 5, with the type of each token. Classes that are
# not listed keep the post-processor of the file.
_BERT = ("cls:0 A:0 sep:0", "cls:0 A:0 sep:0 B:1 sep:1")
_ROBERTA = ("cls:0 A:0 sep:0", "cls:0 A:0 sep:0 sep:0 B:0 sep:0")
_XLNET = ("A:0 sep:0 cls:2", "A:0 sep:0 B:1 sep:1 cls:2")
_PROCESSORS = {
    "MPNetTokenizer": _ROBERTA,
    "RobertaTokenizer": _ROBERTA,
    "BartTokenizer": _ROBERTA,
    "LEDTokenizer": _ROBERTA,
    "LongformerTokenizer": _ROBERTA,
    "DebertaTokenizer": _ROBERTA,
    "XLMRobertaTokenizer": _ROBERTA,
    "CamembertTokenizer": _ROBERTA,
    "DebertaV2Tokenizer": _BERT,
    "XLNetTokenizer": _XLNET,
    "T5Tokenizer": ("A:0 sep:0", "A:0 sep:0 B:0 sep:0"),
}
# The id of the unknown token in classes that do not take it from the file.
_UNKNOWN = {"AlbertTokenizer": 1, "T5Tokenizer": 2, "XLMRobertaTokenizer": 3}
# The first and last special token, by class or kind of tokenizer, if no file names them.
_SPECIALS = {
    "WordPiece": ("[CLS]", "[SEP]"),
    "DebertaTokenizer": ("[CLS]", "[SEP]"),
    "DebertaV2Tokenizer": ("[CLS]", "[SEP]"),
    "XLNetTokenizer": ("<cls>", "<sep>"),
}


def version(settings: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    """Returns the major version of transformers that wrote a folder, 4 or 5.

    Version 5 writes `backend`, and 4 the flags of added tokens, which 5 has in `tokenizer.json`.

    Args:
      settings: those of `tokenizer_config.json`.
      config: `config.json`; may be empty.
    """
    if "added_tokens_decoder" in settings:
        return 4
    later = str(config.get("transformers_version") or "").partition(".")[0]
    return 5 if "backend" in settings or (later.isdecimal() and int(later) >= 5) else 4


def effective(
    described: Mapping[str, Any],
    tokenizer_class: TokenizerClass | None,
    settings: Mapping[str, Any],
    writer: int,
) -> dict[str, Any]:
    """Returns the content of a `tokenizer.json` with the changes that a class makes to it.

    Args:
      described: the parsed file.
      tokenizer_class: the class; None = no file names a class, so that only settings change
        options.
      settings: those of `tokenizer_config.json`.
      writer: the major version of transformers that wrote the folder.

    Raises:
      UserError: transformers would ignore a value of the file that changes ids.
    """
    result = copy.copy(dict(described))
    if tokenizer_class is None:
        for path, key in _NAMED:
            if settings.get(key) is not None:
                _replace(result, path, settings[key])
    elif writer == 4:
        for path, key, default in tokenizer_class.replaces:
            given = settings.get(key)
            _replace(result, path, default if given is None else given)
    elif tokenizer_class.rebuilds:
        model = described.get("model")
        if isinstance(model, dict):
            result |= _rebuilt(tokenizer_class, described, model, settings)
            result |= _processor(tokenizer_class, described, model, settings)
    return result


def prepend_scheme(tokenizer_class: TokenizerClass | None, settings: Mapping[str, Any]) -> str:
    """Returns where a class puts a blank before text, for a folder with only a SentencePiece model.

    transformers 4 converts the model to a `tokenizer.json`. Among the classes here, only T5's reads
    the two settings `legacy` and `add_prefix_space`.

    Args:
      tokenizer_class: the class; None = no file names a class.
      settings: those of `tokenizer_config.json`.

    Returns:
      "always", "first" (not after a token that is found in text) or "never".
    """
    if tokenizer_class is None or tokenizer_class.name != "T5Tokenizer":
        return "always"
    if not settings.get("add_prefix_space", True):
        return "never"
    return "first" if settings.get("legacy") is False else "always"


def _replace(described: dict[str, Any], path: str, value: Any) -> None:
    """Sets an option of a component that is not in a sequence."""
    part, kind, option = path.split(".")
    component = described.get(part)
    if isinstance(component, dict) and component.get("type") == kind:
        described[part] = {**component, option: value}


def _rebuilt(
    tokenizer_class: TokenizerClass,
    described: Mapping[str, Any],
    model: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns the components that transformers 5 builds by the rules of a class."""
    name = tokenizer_class.name

    def given(key: str, default: Any) -> Any:
        value = settings.get(key)
        return default if value is None else value

    if tokenizer_class.kind == "WordPiece":
        return {
            "normalizer": {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": given("tokenize_chinese_chars", True),
                "strip_accents": settings.get("strip_accents"),
                "lowercase": given("do_lower_case", True),
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": {
                "type": "WordPiece",
                "unk_token": given("unk_token", "[UNK]"),
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": model.get("vocab"),
            },
        }
    if tokenizer_class.kind == "byte-level BPE":
        prefix = given("add_prefix_space", False)
        step = {"type": "ByteLevel", "add_prefix_space": prefix, "use_regex": True}
        kept = {"type": "BPE", "vocab": model.get("vocab"), "merges": model.get("merges")}
        return {"normalizer": None, "pre_tokenizer": step, "model": kept}
    steps: list[dict[str, Any]] = []
    if name in ("AlbertTokenizer", "XLNetTokenizer"):
        albert = name == "AlbertTokenizer"
        steps = [*_QUOTES]
        if not (albert and given("keep_accents", False)):
            steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
        if given("do_lower_case", albert):
            steps.append({"type": "Lowercase"})
    if name == "DebertaV2Tokenizer":
        lower = [{"type": "Lowercase"}] if given("do_lower_case", False) else []
        steps = [*lower, *_COMPOSES]
    else:
        steps += _replacements(described.get("normalizer"))
    if model.get("unk_id") != (unknown := _UNKNOWN.get(name, model.get("unk_id"))):
        raise UserError(
            f"model.unk_id is {model.get('unk_id')!r}, and {name} of transformers 5 takes "
            f"{unknown} whatever the file says: name TokenizersBackend as tokenizer_class to have "
            "that of the file"
        )
    always = name in ("T5Tokenizer", "XLNetTokenizer") or given("add_prefix_space", True)
    without = "first" if name == "DebertaV2Tokenizer" else "never"
    space = {
        "type": "Metaspace",
        "replacement": _SPACE,
        "prepend_scheme": "always" if always else without,
        "split": True,
    }
    before: list[dict[str, Any]] = [{"type": "WhitespaceSplit"}]
    if name == "DebertaV2Tokenizer":
        split = given("split_by_punct", False)
        before = [{"type": "Punctuation", "behavior": "Isolated"}] if split else []
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*before, space]},
    }


def _processor(
    tokenizer_class: TokenizerClass,
    described: Mapping[str, Any],
    model: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns the post-processor of a class in transformers 5; empty = the file's is kept."""
    name, kind = tokenizer_class.name, tokenizer_class.kind
    forms = _PROCESSORS.get(name) or (_BERT if kind == "WordPiece" else None)
    if forms is None:
        return {}
    usual = _SPECIALS.get(name) or _SPECIALS.get(kind) or ("<s>", "</s>")
    usual = ("<s>", "</s>") if name == "MPNetTokenizer" else usual
    # These classes name the special tokens of a text bos_token and eos_token.
    keys = ("bos_token", "eos_token") if kind == "SentencePiece" else ("cls_token", "sep_token")
    keys = ("cls_token", "sep_token") if name in ("XLNetTokenizer", "DebertaV2Tokenizer") else keys
    cls, sep = (settings.get(k) or default for k, default in zip(keys, usual, strict=True))
    texts = {"cls": cls, "sep": sep}

    def part(piece: str) -> dict[str, Any]:
        what, _, number = piece.partition(":")
        if what in texts:
            return {"SpecialToken": {"id": texts[what], "type_id": int(number)}}
        return {"Sequence": {"id": what, "type_id": int(number)}}

    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        ids = dict(vocabulary)
    else:
        ids = {entry[0]: i for i, entry in enumerate(vocabulary or ())}
    for token in described.get("added_tokens") or ():
        ids.setdefault(token["content"], token["id"])
    tokens = {
        text: {"id": text, "ids": [ids[text]], "tokens": [text]}
        for what, text in texts.items()
        if what in forms[0] and text in ids
    }
    single, pair = ([part(piece) for piece in form.split()] for form in forms)
    processor = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": tokens,
    }
    return {"post_processor": processor}


def _replacements(normalizer: Any) -> list[dict[str, Any]]:
    """Returns the first table of replacements of a normalizer, as a list."""
    if not isinstance(normalizer, dict):
        return []
    steps = normalizer.get("normalizers") if normalizer.get("type") == "Sequence" else [normalizer]
    found = [s for s in steps or () if isinstance(s, dict) and s.get("type") == "Precompiled"]
    return found[:1]
