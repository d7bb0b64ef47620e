"""Which form the pairs of another tool's model have: what its tokenizer says, or a refusal.

transformers puts special tokens around texts as `tokenizer.json` says, or as the class of the
tokenizer does where there is no such file. It asks for types of tokens where `model_input_names`
has `token_type_ids`; the class has its own value, which is another one in transformers 5 for some.
All classes of systems that are read here are fast ones, whose pairs keep an odd token as in
`odd_token: longer`; a release's tokenizer keeps it in the first text.

Only encoders with two types or more read types. For the others a form keeps its usual types.
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
# The forms of classes, where a pair is not [CLS] A [SEP] B [SEP] of two types.
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
    """Returns the tokenizer of a folder with the form of a pair that the folder says.

    Args:
      tokenizer: the tokenizer, with the usual form of its kind.
      folder: its folder.
      encoder: the encoder of the model.
      frames: whether transformers puts special tokens around its texts.

    Raises:
      UserError: the special tokens, or the types, are not those that this encoder reads here.
    """
    settings = file_formats.read_settings(folder)
    files = [folder / name for name in (*KINDS, sentencepiece.DEBERTA_FILE)]
    if file_formats.FINGERPRINT in settings and any(path.exists() for path in files):
        return tokenizer  # It was written here, and says the form itself.
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
    """Returns whether the model is asked for types."""
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
            f"{folder}: {known.name} gives {_ours(tokenizer, form, layout).words()}, and this "
            f"encoder reads {_ours(tokenizer, form, encoder.text_layout).words()}: name the class "
            f"of its own system as tokenizer_class in {file_formats.SETTINGS_FILE}, if the model "
            "was trained with that"
        )
    return _FORMS.get(known.name, PairForm())


def _described(
    path: AnyPath, processor: Any, tokenizer: Tokenizer, encoder: EncoderConfig, typed: bool
) -> PairForm:
    """Returns the form that a `tokenizer.json` has.

    Args:
      path: the file.
      processor: its post-processor, as the class has it.
      tokenizer: its tokenizer.
      encoder: the encoder of the model.
      typed: whether types are read.

    Raises:
      UserError: rows of this encoder have other special tokens here, or other types.
    """
    said = _post_processor(processor, path)
    form = said.form() if said is not None else None
    layout = encoder.text_layout
    ours = _ours(tokenizer, tokenizer.pairs, layout)
    if said is None or form is None or not _alike(form, ours, layout):
        found = "steps that are not known together" if said is None else said.words()
        if said is not None and not said.adds_tokens:
            found = f"none, so the model was given texts without special tokens ({said.words()})"
        raise UserError(
            f"{path}: post_processor: {found}, and this encoder reads {ours.words()} here: if the "
            "model was trained with that, write it as the post_processor"
        )
    if form.pairs is None and typed:
        raise UserError(
            f"{path}: post_processor: {said.words()} has other types than 0 and 1, or 0 alone, "
            "and the encoder reads them: if the model was trained with those, write them there"
        )
    return form.pairs or dataclasses.replace(tokenizer.pairs, separators=form.separators)


def _alike(form: Form, ours: PostProcessor, layout: str) -> bool:
    """Returns whether texts have the special tokens of a row here."""
    theirs = PostProcessor.of(form.cls or form.sep, form.sep, PairForm(types=ONE), form.layout)
    return form.layout == layout and theirs.single == ours.untyped().single


def _ours(tokenizer: Tokenizer, form: PairForm, layout: str) -> PostProcessor:
    cls, sep = (tokenizer.pieces[i] for i in (tokenizer.cls_id, tokenizer.sep_id))
    return PostProcessor.of(cls, sep, form, layout)


def _post_processor(found: Any, path: AnyPath) -> PostProcessor | None:
    """Reads a post-processor; None = it is of a type that is not known."""

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
            f"{path}: post_processor is not as the tokenizers package writes it "
            f"({type(error).__name__}: {error})"
        ) from error
