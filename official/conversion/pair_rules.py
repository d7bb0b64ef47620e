"""Finds the form of pairs that another tool's model was trained with, or refuses it.

transformers puts special tokens around texts by the post-processor of `tokenizer.json` or, without
this file, by the rules of the tokenizer's class. Its tokenizers return types of tokens if
`model_input_names` has `token_type_ids`; the default depends on the class and, for some classes,
differs in transformers 5. All supported classes are fast tokenizers, whose pairs keep an odd token
as in `odd_token: longer`; the tokenizers of releases keep it in the first text.

Only encoders with at least two types read types. For other encoders, a form keeps its default
types.
"""

import dataclasses
from typing import Any

from official.config.parts import EncoderConfig
from official.tokenizers import (
    KINDS,
    Tokenizer,
    file_formats,
    folder_classes,
    folders,
    post_processors,
    sentencepiece,
    tokenizer_json,
)
from official.tokenizers.folder_classes import TokenizerClass
from official.tokenizers.folders import Look
from official.tokenizers.pair_forms import LONGER, ONE, PairForm
from official.tokenizers.post_processors import Form, PostProcessor
from official.utils.errors import UserError
from official.utils.paths import AnyPath

NAMES, TYPES = "model_input_names", "token_type_ids"
# The forms of classes whose pairs are not [CLS] A [SEP] B [SEP] with two types.
_FORMS = {
    "MPNetTokenizer": PairForm(2),
    "T5Tokenizer": PairForm(types=ONE),
    **dict.fromkeys(
        ("RobertaTokenizer", "BartTokenizer", "LEDTokenizer", "LongformerTokenizer")
        + ("CamembertTokenizer", "XLMRobertaTokenizer"),
        PairForm(2, ONE),
    ),
}
_LAYOUTS = {"XLNetTokenizer": "cls_last", "T5Tokenizer": "no_cls"}


def with_form(
    tokenizer: Tokenizer, folder: AnyPath, encoder: EncoderConfig, frames: bool = True
) -> Tokenizer:
    """Returns the tokenizer of a folder with the form of pairs of this folder.

    Args:
      tokenizer: the tokenizer, with the default form of its kind.
      folder: its folder.
      encoder: the encoder of the model.
      frames: whether tokenizers of transformers put special tokens around texts of this system.

    Raises:
      UserError: the special tokens or the types differ from the rows of this encoder here.
    """
    settings = file_formats.read_settings(folder)
    files = [folder / name for name in (*KINDS, sentencepiece.DEBERTA_FILE)]
    if file_formats.FINGERPRINT in settings and any(path.exists() for path in files):
        return tokenizer  # This project wrote the folder, and its settings contain the form.
    seen = folders.look(folder, settings, {})
    read = encoder.segment_types > 1
    typed = read and _gives_types(seen)
    if not frames:
        form = tokenizer.pairs
    elif seen.described is not None:
        processor = seen.described.get("post_processor")
        form = _described(folder / tokenizer_json.FILE, processor, tokenizer, encoder, typed)
    else:
        form = _of_class(seen.tokenizer_class, folder, tokenizer, encoder)
    types = tokenizer.pairs.types if not read else form.types if typed else ONE
    side = tokenizer.pairs.cut_side
    form = dataclasses.replace(form, types=types, odd_token=LONGER, cut_side=side)
    return tokenizer if form == tokenizer.pairs else tokenizer.with_pairs(form)


def _gives_types(seen: Look) -> bool:
    """Returns whether the tokenizer returns types of tokens."""
    names = seen.settings.get(NAMES)
    if names is not None:
        return TYPES in names
    return seen.tokenizer_class is None or seen.tokenizer_class.types[seen.writer > 4]


def _of_class(
    known: TokenizerClass | None, folder: AnyPath, tokenizer: Tokenizer, encoder: EncoderConfig
) -> PairForm:
    """Returns the form of the class of a tokenizer."""
    if known is None or known.name in folder_classes.ALONE:
        return tokenizer.pairs
    layout = _LAYOUTS.get(known.name, "cls_first")
    if layout != encoder.text_layout:
        form = _FORMS.get(known.name, PairForm())
        raise UserError(
            f"{folder}: {known.name} gives {_ours(tokenizer, form, layout).words()}, but this "
            f"encoder reads {_ours(tokenizer, form, encoder.text_layout).words()}: name the class "
            f"of its own system as tokenizer_class in {file_formats.SETTINGS_FILE}, if the model "
            "was trained with that"
        )
    return _FORMS.get(known.name, PairForm())


def _described(
    path: AnyPath, processor: Any, tokenizer: Tokenizer, encoder: EncoderConfig, typed: bool
) -> PairForm:
    """Returns the form in a `tokenizer.json`.

    Args:
      path: the file.
      processor: its post-processor, after the changes of the class.
      tokenizer: its tokenizer.
      encoder: the encoder of the model.
      typed: whether the tokenizer returns types of tokens.

    Raises:
      UserError: the special tokens or the types differ from the rows of this encoder here.
    """
    said = _post_processor(processor, path)
    form = said.form() if said is not None else None
    layout = encoder.text_layout
    ours = _ours(tokenizer, tokenizer.pairs, layout)
    if said is None or form is None or not _alike(form, ours, layout):
        found = "an unsupported combination of steps" if said is None else said.words()
        if said is not None and not said.adds_tokens:
            found = (
                f"none, so the model was trained on texts without special tokens ({said.words()})"
            )
        raise UserError(
            f"{path}: post_processor: {found}, but this encoder reads {ours.words()} here: if the "
            "model was trained with these tokens, write them as the post_processor"
        )
    if form.pairs is None and typed:
        raise UserError(
            f"{path}: post_processor: {said.words()} has other types than 0 and 1, or 0 alone, and "
            "the encoder reads types: if the model was trained with types 0 and 1, or only 0, "
            "write them into post_processor"
        )
    return form.pairs or dataclasses.replace(tokenizer.pairs, separators=form.separators)


def _alike(form: Form, ours: PostProcessor, layout: str) -> bool:
    """Returns whether a form has the same special tokens as the rows here."""
    theirs = PostProcessor.of(form.cls or form.sep, form.sep, PairForm(types=ONE), form.layout)
    return form.layout == layout and theirs.single == ours.untyped().single


def _ours(tokenizer: Tokenizer, form: PairForm, layout: str) -> PostProcessor:
    cls, sep = (tokenizer.pieces[i] for i in (tokenizer.cls_id, tokenizer.sep_id))
    return PostProcessor.of(cls, sep, form, layout)


def _post_processor(found: Any, path: AnyPath) -> PostProcessor | None:
    """Reads a post-processor; None = its type is not known."""

    def steps(found: Any) -> list[dict[str, Any]]:
        if found is None:
            return []
        if found["type"] != "Sequence":
            return [found]
        return [step for part in found["processors"] for step in steps(part)]

    try:
        return post_processors.read(steps(found))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: post_processor is malformed ({type(error).__name__}: {error})"
        ) from error
