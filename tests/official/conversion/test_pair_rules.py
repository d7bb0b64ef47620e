"""Which form pairs have: what transformers 4.57.6 gives for folders with these files.

`tests/parity/test_pair_forms_parity.py` asks it. Here its answers are written as forms.
"""

import dataclasses
import json

import pytest

from official import tokenizers
from official.config.encoders import EncoderDecoderConfig, TransformerConfig, TransformerXLConfig
from official.conversion import pair_rules
from official.tokenizers import tokenizer_json
from official.tokenizers.pair_forms import LONGER, ONE, TWO, PairForm
from official.utils.errors import UserError
from tests import small

BERT = TransformerConfig(hidden_size=8, num_layers=1, num_heads=2, segment_types=2)
ROBERTA = dataclasses.replace(BERT, segment_types=1)
XLNET = TransformerXLConfig(hidden_size=8, num_layers=1, num_heads=2)
T5 = EncoderDecoderConfig()
GPT2 = dataclasses.replace(BERT, causal=True, norm="pre", pooled_position="last", segment_types=0)
ALL = ["input_ids", "token_type_ids", "attention_mask"]


def special(name, kind=0):
    return {"SpecialToken": {"id": name, "type_id": kind}}


def text(name, kind=0):
    return {"Sequence": {"id": name, "type_id": kind}}


CLS, SEP, A, B = special("[CLS]"), special("[SEP]"), text("A"), text("B")


def template(single, pair, **tokens):
    names = {"[CLS]": ["[CLS]"], "[SEP]": ["[SEP]"], **tokens}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": {
            name: {"id": name, "ids": [2] * len(each), "tokens": each}
            for name, each in names.items()
        },
    }


ZEROS = template([CLS, A, SEP], [CLS, A, SEP, B, SEP])
TYPED = template([CLS, A, SEP], [CLS, A, SEP, text("B", 1), special("[SEP]", 1)])
TWICE = template([CLS, A, SEP], [CLS, A, SEP, SEP, text("B", 1), special("[SEP]", 1)])
BERT_PROCESSING = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
ROBERTA_PROCESSING = {**BERT_PROCESSING, "type": "RobertaProcessing", "trim_offsets": True}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
ABSENT = object()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    small.tokenizer_folder(path)
    return path


def form(folder, encoder, settings=None, post_processor=ABSENT, **config):
    """The form of a folder with `vocab.txt`, these settings and this post-processor."""
    for name in ("tokenizer_config.json", "tokenizer.json"):
        (folder / name).unlink(missing_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = tokenizers.load(folder)
    if post_processor is not ABSENT:
        described = tokenizer_json.described(tokenizer)
        (folder / "tokenizer.json").write_text(
            json.dumps({**described, "post_processor": post_processor})
        )
    return pair_rules.with_form(tokenizer, folder, encoder, frames=encoder is not GPT2).pairs


@pytest.mark.parametrize(
    "settings, post_processor, separators, types",
    [
        ({}, ABSENT, 1, TWO),
        ({"tokenizer_class": "BertTokenizer"}, ABSENT, 1, TWO),
        ({"tokenizer_class": "BertTokenizerFast"}, TYPED, 1, TWO),
        ({"tokenizer_class": "BertTokenizer"}, BERT_PROCESSING, 1, TWO),
        # A class that gives no types, or names that have none.
        ({"tokenizer_class": "DistilBertTokenizer"}, ABSENT, 1, ONE),
        ({"tokenizer_class": "DistilBertTokenizerFast"}, TYPED, 1, ONE),
        ({"tokenizer_class": "XLMRobertaTokenizer"}, ABSENT, 2, ONE),
        ({"tokenizer_class": "MPNetTokenizer"}, ABSENT, 2, ONE),
        ({"tokenizer_class": "BertTokenizer", "model_input_names": ALL[::2]}, ABSENT, 1, ONE),
        ({"tokenizer_class": "BertTokenizer", "model_input_names": ALL[::2]}, TYPED, 1, ONE),
        # Names that have types: those of the class, or of the template.
        ({"tokenizer_class": "DistilBertTokenizer", "model_input_names": ALL}, ABSENT, 1, TWO),
        ({"tokenizer_class": "MPNetTokenizer", "model_input_names": ALL}, ABSENT, 2, TWO),
        ({"tokenizer_class": "XLMRobertaTokenizer", "model_input_names": ALL}, ABSENT, 2, ONE),
        ({"tokenizer_class": "XLMRobertaTokenizer", "model_input_names": ALL}, TWICE, 2, TWO),
        # The template, whatever class reads it.
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, ZEROS, 1, ONE),
        ({"tokenizer_class": "BertTokenizer"}, ZEROS, 1, ONE),
        ({}, ZEROS, 1, ONE),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, TWICE, 2, TWO),
        ({"tokenizer_class": "BertTokenizer"}, ROBERTA_PROCESSING, 2, ONE),
        (
            {"tokenizer_class": "BertTokenizer"},
            {"type": "Sequence", "processors": [BYTE_LEVEL, TYPED]},
            1,
            TWO,
        ),
        # Classes that ask for types in transformers 4 and not in 5, which says that it wrote them.
        ({"tokenizer_class": "AlbertTokenizer"}, ABSENT, 1, TWO),
        ({"tokenizer_class": "AlbertTokenizer", "backend": "tokenizers"}, ABSENT, 1, ONE),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, TYPED, 1, TWO),
        ({"tokenizer_class": "TokenizersBackend", "backend": "tokenizers"}, TYPED, 1, ONE),
        ({"tokenizer_class": "BertTokenizer", "backend": "tokenizers"}, TYPED, 1, TWO),
    ],
)
def test_the_form_of_a_bert(folder, settings, post_processor, separators, types):
    found = form(folder, BERT, settings, post_processor, model_type="bert")
    assert found == PairForm(separators, types, LONGER)
    # Whether the model has two types decides whether they are recorded.
    found = form(folder, ROBERTA, settings, post_processor, model_type="bert")
    assert found == PairForm(separators, TWO, LONGER)


def test_the_class_of_a_config_and_of_a_model_type(folder):
    found = form(folder, BERT, model_type="bert", tokenizer_class="XLMRobertaTokenizer")
    assert found == PairForm(2, ONE, LONGER)
    assert form(folder, BERT, model_type="mpnet") == PairForm(2, ONE, LONGER)
    own = {"tokenizer_class": "BertTokenizer"}
    assert form(folder, BERT, own, tokenizer_class="T5Tokenizer") == PairForm(1, TWO, LONGER)


def test_a_folder_of_this_project_says_it_itself(folder, tmp_path):
    tokenizer = tokenizers.load(folder)
    for pairs in (PairForm(), PairForm(2, ONE)):
        tokenizer.with_pairs(pairs).save(tmp_path)
        (tmp_path / "tokenizer.json").write_text(
            json.dumps({**tokenizer_json.described(tokenizer), "post_processor": ZEROS})
        )
        read = tokenizers.load(tmp_path)
        assert pair_rules.with_form(read, tmp_path, BERT).pairs == pairs


END = template([A, SEP], [A, SEP, text("B", 1), special("[SEP]", 1)])
LAST = template(
    [A, SEP, special("[CLS]", 2)], [A, SEP, text("B", 1), special("[SEP]", 1), special("[CLS]", 2)]
)
ROWS = r"but this encoder reads \[CLS\] A \[SEP\] and \[CLS\] A \[SEP\] B:1 \[SEP\]:1 here"


@pytest.mark.parametrize(
    "post_processor, found",
    [
        (None, r"none, so the model was trained on texts without special tokens \(A and A B:1\)"),
        (BYTE_LEVEL, r"none, so the model was trained on texts without special tokens"),
        (END, r"A \[SEP\] and A \[SEP\] B:1 \[SEP\]:1"),
        (LAST, r"A \[SEP\] \[CLS\]:2 and A \[SEP\] B:1 \[SEP\]:1 \[CLS\]:2"),
        (template([CLS, A], [CLS, A, B]), r"\[CLS\] A and \[CLS\] A B"),
        (template([CLS, A, SEP], [CLS, A, SEP, B]), r"\[CLS\] A \[SEP\] and \[CLS\] A \[SEP\] B"),
        (template([CLS, A, SEP], [CLS, B, SEP, A, SEP]), r"\[CLS\] A \[SEP\] and \[CLS\] B"),
        (template([SEP, A, CLS], [SEP, A, CLS, B, CLS]), r"\[SEP\] A \[CLS\] and"),
        (
            template([CLS, A, SEP], [CLS, A, SEP, B, SEP], **{"[CLS]": ["[CLS]", "a"]}),
            r"\[CLS\] a A \[SEP\] and",
        ),
        (
            {"type": "Sequence", "processors": [TYPED, BERT_PROCESSING]},
            "an unsupported combination",
        ),
        (
            template([CLS, A, SEP], [CLS, A, SEP, text("B", 2), special("[SEP]", 2)]),
            r"\[CLS\] A \[SEP\] and \[CLS\] A \[SEP\] B:2 \[SEP\]:2 has other types than 0 and 1",
        ),
        (
            template([CLS, A, SEP], [CLS, A, SEP, text("B", 1), SEP]),
            r"\[CLS\] A \[SEP\] and \[CLS\] A \[SEP\] B:1 \[SEP\] has other types",
        ),
    ],
)
def test_other_rows_are_refused_by_name(folder, post_processor, found):
    settings = {"tokenizer_class": "BertTokenizer"}
    with pytest.raises(UserError, match=f"tokenizer.json: post_processor: {found}") as raised:
        form(folder, BERT, settings, post_processor)
    if "other types" in str(raised.value):
        # An encoder that reads no types has nothing against them.
        assert form(folder, ROBERTA, settings, post_processor) == PairForm(1, TWO, LONGER)
    else:
        raised.match(ROWS)


def test_orders_of_other_encoders(folder):
    alone = {"tokenizer_class": "PreTrainedTokenizerFast"}
    assert form(folder, XLNET, alone, LAST) == PairForm(1, TWO, LONGER)
    assert form(folder, XLNET, {**alone, "model_input_names": ALL[::2]}, LAST).types == ONE
    with pytest.raises(UserError, match=r"\[CLS\] A \[SEP\] and .* reads A \[SEP\] \[CLS\]:2 and"):
        form(folder, XLNET, alone, TYPED)
    assert form(folder, T5, alone, END).separators == 1
    with pytest.raises(UserError, match=r"this encoder reads A \[SEP\] and A \[SEP\] B:1"):
        form(folder, T5, alone, TYPED)
    for encoder, name in ((BERT, "XLNetTokenizer"), (BERT, "T5Tokenizer"), (XLNET, "T5Tokenizer")):
        with pytest.raises(UserError, match=f"{name} gives A .* but this encoder reads"):
            form(folder, encoder, {"tokenizer_class": name})
    # transformers puts no special tokens around the texts of a GPT-2.
    assert form(folder, GPT2, {"tokenizer_class": "GPT2Tokenizer"}, BYTE_LEVEL) == PairForm(
        odd_token=LONGER
    )


def test_a_post_processor_that_is_none(folder):
    with pytest.raises(UserError, match="post_processor is malformed"):
        form(folder, BERT, {}, {"type": "TemplateProcessing"})
