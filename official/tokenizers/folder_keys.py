"""The table of all keys that files of a tokenizer's folder may have, and how each is treated.

transformers, tokenizers and sentence-transformers write these files. Each of their keys, and each
component and option of `tokenizer.json`, has a row here:

  done      the key is read, and has the effect that it has in those libraries
  harmless  the key has no effect on anything that is computed here
  refused   the key would change results in a way that is not supported here

`check` refuses a key or component without a row, and a value that the row does not list. The
classes of tokenizers are in `official.tokenizers.folder_classes`. `docs/tokenizer-folders.md` is
made of both.

A new component needs a row `DONE`. `official.tokenizers.tokenizer_json` decides which components
may be combined.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from official.utils.errors import UserError

SETTINGS = "tokenizer_config.json"
SPECIALS = "special_tokens_map.json"
ADDED = "added_tokens.json"
DESCRIBED = "tokenizer.json"
LENGTHS = "sentence_bert_config.json"
DONE, HARMLESS, REFUSED = "done", "harmless", "refused"
# The components of `tokenizer.json`: {key: the key of the steps if the component is a sequence}.
PARTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "model": "",
    "post_processor": "processors",
    "decoder": "decoders",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """How a key is treated.

    Attributes:
      file: the name of the file.
      key: the key; in `tokenizer.json` a path of parts, types and options, such as
        `normalizer.BertNormalizer.lowercase`.
      verdict: `DONE`, `HARMLESS` or `REFUSED`.
      why: what the key decides; why it has no effect here; or the way out.
      only: the values to which the verdict applies (others are refused); empty = all values.
    """

    file: str
    key: str
    verdict: str
    why: str
    only: tuple[Any, ...] = ()


def _rows(file: str, verdict: str, **whys: str) -> list[Row]:
    return [Row(file, key, verdict, why) for key, why in whys.items()]


def _parts(verdict: str, whys: Mapping[str, str]) -> list[Row]:
    return [Row(DESCRIBED, key, verdict, why) for key, why in whys.items()]


_TOKENS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
_ROLE = "the special token of this name"
_OWN = "only in folders of this project"
_FAST = "only the slow tokenizers of transformers 4 read it, which it does not load by default"
_NEVER_SPLIT = f"{_FAST}. A token that text becomes belongs to {SETTINGS}, added_tokens_decoder"
_CHAT = "of chats"
_PLACE = "the path of a file at the time of writing"

_SETTINGS = [
    *(Row(SETTINGS, key, DONE, _ROLE) for key in _TOKENS),
    *_rows(
        SETTINGS,
        DONE,
        tokenizer_class="the class, which decides the rules: see the next table",
        bos_token="the first token, if neither `cls_token` nor the vocabulary says it",
        eos_token="the last token, if neither `sep_token` nor the vocabulary says it",
        added_tokens_decoder="tokens that are found in text, with their ids and flags",
        extra_special_tokens="special tokens that are found in text",
        additional_special_tokens="the same, of transformers 4",
        do_lower_case="whether text is lower-cased",
        strip_accents="WordPiece: whether accents are removed; null = as `do_lower_case`",
        add_prefix_space="byte-level BPE, and T5 without `tokenizer.json`: whether a blank is put "
        "before a text",
        legacy=(
            "T5 without `tokenizer.json`: false = no blank is put before text that follows an "
            "added token, as in transformers 4; kept for conversion back"
        ),
        keep_accents="ALBERT, XLNet: whether accents are kept",
        remove_space="ALBERT, XLNet: whether runs of blanks become one",
        extra_ids="T5: the number of sentinels",
        model_max_length=(
            "longer texts are cut to this number of tokens, unless `sentence_bert_config.json` "
            "has another number"
        ),
        max_len="`model_max_length`, as older versions call it",
        truncation_side="whether the beginning or the end of a long text is cut",
        model_input_names="whether the model gets the types of tokens (`token_type_ids`)",
        max_tokens=f"{_OWN}: `model_max_length` as it was read",
        max_input_chars_per_word="WordPiece: longer words are unknown",
        fingerprint=f"{_OWN}: finds damaged files",
        pair_separators=f"{_OWN}: separators between the texts of a pair",
        pair_types=f"{_OWN}: whether the texts of a pair have types",
        pair_odd_text=f"{_OWN}: which text of a pair keeps an odd token",
        pair_odd_token=f"{_OWN}: the same, as versions of before call it",
        replace_quotes=f"{_OWN}: a rule of SentencePiece",
        split_digit_comma=f"{_OWN}: a rule of SentencePiece",
        remove_marks=f"{_OWN}: a rule of SentencePiece",
        blanks=f"{_OWN}: a rule of SentencePiece",
        compose=f"{_OWN}: a rule of SentencePiece",
        last_blank=f"{_OWN}: a rule of SentencePiece",
        prepend_scheme=f"{_OWN}: a rule of SentencePiece",
        strip_left=f"{_OWN}: a rule of SentencePiece",
        unicode_normalization=f"{_OWN}: the Unicode form (NFC) of WordPiece and byte-level BPE",
        split_punctuation=f"{_OWN}: whether punctuation signs are words",
    ),
    Row(
        SETTINGS,
        "split_by_punct",
        DONE,
        "DeBERTa: punctuation is not split before the model",
        (False,),
    ),
    Row(SETTINGS, "add_bos_token", HARMLESS, "`tokenizer.json` or the class decides it", (False,)),
    Row(SETTINGS, "add_eos_token", HARMLESS, "`tokenizer.json` or the class decides it", (False,)),
    Row(SETTINGS, "init_inputs", HARMLESS, "no arguments", ([], None)),
    Row(SETTINGS, "fast_tokenizer_files", HARMLESS, "no other files", ([], None)),
    Row(
        SETTINGS,
        "auto_map",
        REFUSED,
        "the tokenizer is Python code in the folder, which is not run. If a class that is known "
        "here gives the same ids, name it as tokenizer_class and remove auto_map",
    ),
    *_rows(
        SETTINGS,
        DONE,
        do_basic_tokenize="false: `vocab.txt` is read as by the slow tokenizer of transformers 4, "
        "at white space alone",
        tokenize_chinese_chars="WordPiece: whether ideographs are words",
        pattern=f"{_OWN}: how byte-level BPE finds words",
        normalization="BERTweet: refused if true; tweets must be normalized by another program",
    ),
    Row(SETTINGS, "tweetPreprocessor", HARMLESS, "belongs to a normalization that is off"),
    *_rows(
        SETTINGS,
        HARMLESS,
        sp_model_kwargs=_FAST,
        never_split=_NEVER_SPLIT,
        unk_id="the vocabulary says it",
        errors="how bytes that are not UTF-8 are decoded",
        trim_offsets="offsets of words never contain blanks here",
        clean_up_tokenization_spaces="how ids are decoded; here the kind of tokenizer decides it",
        split_special_tokens="here text never becomes a special token without `special=True`",
        padding_side="padding is masked here, on either side",
        pad_token_type_id="padding is never read here",
        pad_to_multiple_of="padding is never read here",
        max_length="of an earlier call; texts are cut to `model_max_length`",
        stride="an argument of an earlier call",
        truncation_strategy="an argument of an earlier call",
        backend="which library transformers 5 used",
        is_local="where the files came from",
        local_files_only="where the files came from",
        name_or_path=_PLACE,
        special_tokens_map_file=_PLACE,
        tokenizer_file=_PLACE,
        full_tokenizer_file=_PLACE,
        vocab_file=_PLACE,
        merges_file=_PLACE,
        files_loaded=_PLACE,
        use_fast="which of two classes transformers 4 loads",
        slow_tokenizer_class="which of two classes transformers 4 loads",
        device_map="concerns the weights",
        processor_class="concerns images and audio",
        verbose="of messages",
        chat_template=_CHAT,
        response_template=_CHAT,
        response_schema=_CHAT,
        chat_control_tokens=_CHAT,
        _commit_hash="where the files came from",
    ),
]

_SPECIALS = [
    *(
        Row(SPECIALS, key, DONE, f"{_ROLE}, unless {SETTINGS} has `added_tokens_decoder`")
        for key in (*_TOKENS, "bos_token", "eos_token")
    ),
    Row(SPECIALS, "extra_special_tokens", DONE, "special tokens that are found in text"),
    Row(SPECIALS, "additional_special_tokens", DONE, "the same, of transformers 4"),
]

_ADDED = [
    Row(ADDED, "*", DONE, "each key is the text of a token that is found in text, with its id")
]

_LENGTHS = [
    Row(LENGTHS, "max_seq_length", DONE, "longer texts are cut to this number of tokens"),
    Row(
        LENGTHS, "do_lower_case", DONE,
        "text is lower-cased; refused if the tokenizer does not lower-case",
    ),
    Row(
        LENGTHS, "transformer_task", DONE,
        "what the model computes; refused if the kind of the folder has another",
    ),
    *_rows(
        LENGTHS,
        HARMLESS,
        modality_config="here text has only one form of input",
        module_output_name="the name of the vectors of tokens",
        unpad_inputs="padding is never read here",
        model_args="how the weights are loaded",
        model_kwargs="how the weights are loaded",
        config_args="how the weights are loaded",
        config_kwargs="how the weights are loaded",
        cache_dir=_PLACE,
        backend="which library computes",
        tokenizer_args="how the tokenizer is loaded",
        processor_kwargs="how the tokenizer is loaded",
    ),
    Row(
        LENGTHS, "tokenizer_name_or_path", HARMLESS, "the tokenizer is that of the folder",
        (None,),
    ),
    Row(LENGTHS, "processing_kwargs", HARMLESS, "no arguments of calls", ({}, None)),
    Row(LENGTHS, "query_length", HARMLESS, "of models with several vectors a text", (None,)),
    Row(LENGTHS, "document_length", HARMLESS, "of models with several vectors a text", (None,)),
    Row(LENGTHS, "query_expansion", HARMLESS, "of models with several vectors a text", (None,)),
]  # fmt: skip

_DECODING = "how ids are decoded; here the kind of tokenizer decides it"
_DESCRIBED = [
    *_parts(
        DONE,
        {
            "added_tokens": "tokens that are found in text",
            "normalizer.Sequence": "its steps, in their order",
            "normalizer.BertNormalizer": "WordPiece",
            "normalizer.BertNormalizer.lowercase": "the class may say another: see below",
            "normalizer.BertNormalizer.strip_accents": "the class may say another: see below",
            "normalizer.BertNormalizer.clean_text": "whether control characters are removed",
            "normalizer.BertNormalizer.handle_chinese_chars": "whether ideographs are words",
            "normalizer.ByteLevel": "bytes as characters",
            "normalizer.NFC": "a form of Unicode",
            "normalizer.NFD": "a form of Unicode",
            "normalizer.NFKC": "a form of Unicode",
            "normalizer.NFKD": "a form of Unicode",
            "normalizer.Nmt": "control characters and blanks",
            "normalizer.Prepend": "a text before each text",
            "normalizer.Prepend.prepend": "that text",
            "normalizer.StripAccents": "marks are removed",
            "normalizer.Lowercase": "lower case",
            "normalizer.Precompiled": "SentencePiece's replacements",
            "normalizer.Precompiled.precompiled_charsmap": "the replacements of a model",
            "normalizer.Replace": "one text is replaced by another",
            "normalizer.Replace.pattern": "a text, or an expression that RE2 has",
            "normalizer.Replace.content": "what it becomes",
            "normalizer.Strip": "white space at the ends",
            "normalizer.Strip.strip_left": "at the beginning",
            "normalizer.Strip.strip_right": "at the end",
            "pre_tokenizer.CharDelimiterSplit": "words end at a character, which is removed",
            "pre_tokenizer.CharDelimiterSplit.delimiter": "that character",
            "pre_tokenizer.Digits": "digits are words",
            "pre_tokenizer.Digits.individual_digits": "each of them, or runs",
            "pre_tokenizer.Punctuation": "signs are words",
            "pre_tokenizer.Punctuation.behavior": "what becomes of them",
            "pre_tokenizer.Split": "words by an expression",
            "pre_tokenizer.Split.pattern": "a text, or an expression that RE2 has",
            "pre_tokenizer.Split.behavior": "what becomes of what is found",
            "pre_tokenizer.Split.invert": "whether what is not found is meant",
            "pre_tokenizer.Whitespace": "runs of letters, and of other signs",
            "pre_tokenizer.ByteLevel.use_regex": "whether words are those of GPT-2's pattern",
            "pre_tokenizer.Sequence": "its steps, in their order",
            "pre_tokenizer.BertPreTokenizer": "WordPiece",
            "pre_tokenizer.ByteLevel": "byte-level BPE",
            "pre_tokenizer.ByteLevel.add_prefix_space": "the class may say another: see below",
            "pre_tokenizer.Metaspace": "blanks as signs",
            "pre_tokenizer.Metaspace.prepend_scheme": "where a blank is put before text",
            "pre_tokenizer.Metaspace.add_prefix_space": "the same, of older files",
            "pre_tokenizer.WhitespaceSplit": "words end at white space",
            "model.WordPiece": "",
            "model.WordPiece.vocab": "the pieces",
            "model.WordPiece.unk_token": _ROLE,
            "model.WordPiece.max_input_chars_per_word": "longer words are unknown",
            "model.WordPiece.continuing_subword_prefix": "begins pieces that continue a word",
            "model.WordLevel": "each word is a piece",
            "model.WordLevel.vocab": "the pieces",
            "model.WordLevel.unk_token": _ROLE,
            "model.BPE": "of bytes or of characters",
            "model.BPE.continuing_subword_prefix": "begins pieces that continue a word",
            "model.BPE.end_of_word_suffix": "ends pieces that end a word",
            "model.BPE.byte_fallback": "whether unknown characters become bytes; without affixes",
            "model.BPE.fuse_unk": "whether unknown characters are one token",
            "model.BPE.ignore_merges": "whether a word that is a piece is that piece",
            "model.BPE.vocab": "the pieces",
            "model.BPE.merges": "the pairs",
            "model.BPE.unk_token": _ROLE,
            "model.Unigram": "",
            "model.Unigram.vocab": "the pieces and their scores",
            "model.Unigram.unk_id": "the unknown token",
            "model.Unigram.byte_fallback": "whether unknown characters become bytes",
            "post_processor.BertProcessing": "the special tokens",
            "post_processor.BertProcessing.cls": _ROLE,
            "post_processor.BertProcessing.sep": _ROLE,
            "post_processor.RobertaProcessing": "the special tokens, two between texts",
            "post_processor.RobertaProcessing.cls": _ROLE,
            "post_processor.RobertaProcessing.sep": _ROLE,
            "post_processor.TemplateProcessing": "the special tokens",
            "post_processor.TemplateProcessing.single": "those of a text",
            "post_processor.TemplateProcessing.pair": "those of a pair",
            "post_processor.TemplateProcessing.special_tokens": "their ids",
            "post_processor.Sequence": "its steps",
            "truncation.direction": "the side that is cut, unless the settings say it",
        },
    ),
    Row(DESCRIBED, "pre_tokenizer.Metaspace.replacement", DONE, "the sign of a blank", ("▁",)),
    Row(DESCRIBED, "pre_tokenizer.Metaspace.str_rep", DONE, "the same", ("▁",)),
    Row(DESCRIBED, "pre_tokenizer.Metaspace.split", DONE, "words are split apart", (True, False)),
    Row(DESCRIBED, "model.BPE.dropout", DONE, "no pair is left out", (None, 0.0)),
    *_parts(
        HARMLESS,
        {
            "version": "of the format",
            "truncation": "an argument of an earlier call, except for the side",
            "truncation.max_length": "of an earlier call; texts are cut to `model_max_length`",
            "truncation.strategy": "an argument of an earlier call",
            "truncation.stride": "an argument of an earlier call",
            "padding": "padding is never read here",
            "pre_tokenizer.ByteLevel.trim_offsets": "offsets of words never contain blanks here",
            "post_processor.RobertaProcessing.trim_offsets": "as above",
            "post_processor.RobertaProcessing.add_prefix_space": "of offsets",
            "post_processor.ByteLevel": "of offsets: it adds no tokens",
            "post_processor.ByteLevel.add_prefix_space": "of offsets",
            "post_processor.ByteLevel.trim_offsets": "of offsets",
            "post_processor.ByteLevel.use_regex": "of offsets",
            "decoder.BPEDecoder": _DECODING,
            "decoder.ByteFallback": _DECODING,
            "decoder.ByteLevel": _DECODING,
            "decoder.CTC": _DECODING,
            "decoder.Fuse": _DECODING,
            "decoder.Metaspace": _DECODING,
            "decoder.Replace": _DECODING,
            "decoder.Sequence": _DECODING,
            "decoder.Strip": _DECODING,
            "decoder.WordPiece": _DECODING,
        },
    ),
    *_parts(
        REFUSED,
        {
            "pre_tokenizer.FixedLength": "",
            "pre_tokenizer.UnicodeScripts": "",
        },
    ),
]  # fmt: skip

ROWS: tuple[Row, ...] = (*_SETTINGS, *_SPECIALS, *_ADDED, *_LENGTHS, *_DESCRIBED)
BY_KEY: dict[tuple[str, str], Row] = {(row.file, row.key): row for row in ROWS}


def check(file: str, content: Mapping[str, Any], where: str) -> None:
    """Checks that each key of a file is known and that its value is not refused.

    Args:
      file: the name of the file in the table.
      content: the parsed file.
      where: the path of the file, for messages.

    Raises:
      UserError: a key or a component is not in the table, or is refused.
    """
    if (file, "*") in BY_KEY:
        return
    for key, value in said(file, content):
        row = BY_KEY.get((file, key))
        if row is None:
            raise UserError(f"{where}: {key}: {_shown(value)}: {_unknown(file, key)}")
        allowed = not row.only or any(type(v) is type(value) and v == value for v in row.only)
        if row.verdict == REFUSED or not allowed:
            only = f"only {' or '.join(map(_shown, row.only))}"
            why = (row.why if row.verdict == REFUSED else only) or _PARTS_OUT
            raise UserError(f"{where}: {key} is {_shown(value)}, which is not supported: {why}")


def check_known(content: Mapping[str, Any], where: str) -> None:
    """Checks that each part, component and option of a `tokenizer.json` is in the table.

    Args:
      content: the parsed file.
      where: the path of the file, for messages.

    Raises:
      UserError: a part, component or option is not in the table. Rows `REFUSED` are refused when
        the file is read.
    """
    for key, value in said(DESCRIBED, content):
        component = BY_KEY.get((DESCRIBED, key.rpartition(".")[0]))
        if component is not None and component.verdict == REFUSED:
            continue
        if (DESCRIBED, key) not in BY_KEY:
            raise UserError(f"{where}: {key}: {_shown(value)}: {_unknown(DESCRIBED, key)}")


_PARTS_OUT = "it cannot be computed inside a graph here"


def _unknown(file: str, key: str) -> str:
    if file == DESCRIBED:
        return "this part of tokenizer.json is not known here"
    return (
        "this key is not known here, and might change the ids of texts. If it does not change "
        "them, remove it from the file"
    )


def said(file: str, content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the keys of a file, written as in the table, with their values."""
    if file != DESCRIBED:
        yield from content.items()
        return
    for part, value in content.items():
        if part in PARTS:
            yield from _of_part(part, value)
        else:
            yield part, value
            if part == "truncation" and isinstance(value, dict):
                yield from ((f"{part}.{key}", inner) for key, inner in value.items())


def _of_part(part: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the components of a part of tokenizer.json, and their options."""
    if not isinstance(value, dict) or not isinstance(kind := value.get("type"), str):
        return  # no component, or an older model without a type, which `tokenizer_json` handles
    yield f"{part}.{kind}", kind
    if part == "decoder":
        return
    for key, inner in value.items():
        if kind == "Sequence" and key == PARTS[part]:
            for step in inner if isinstance(inner, list) else ():
                yield from _of_part(part, step)
        elif key != "type":
            yield f"{part}.{kind}.{key}", inner


def _shown(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
