"""Small models for the page, with random weights; of masks, tokens and cross-attention, stored."""

import json

import official
from official.conversion import converted_model, huggingface
from tests import GOLDEN
from tests.official.serving import test_predictor

# The tabs of every model, and of every encoder with attention.
ALWAYS = ["compare", "search"]
ENCODER = [*ALWAYS, "attention"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
# Objectives, and the tabs of a model with them.
HEADS = {
    "classification": ([{"type": "classification", "labels": ["bad", "good"]}], ["classify"]),
    "multi_label": (
        [{"type": "multi_label", "labels": ["dry", "wet", "<b>"], "thresholds": [0.4, 0.5, 0.6]}],
        ["classify"],
    ),
    "regression": ([{"type": "regression"}], ["score"]),
    "span_answer": ([{"type": "span_answer", "max_answer_length": 4}], ["answer"]),
    "multiple_choice": ([{"type": "multiple_choice"}], ["choose"]),
    "token_classification": ([{"type": "token_classification", "labels": TAGS}], ["tag"]),
    "ranking": ([{"type": "ranking", "output": "sigmoid"}], ["rank"]),
    "tasks": (
        [
            {"type": "classification", "task": "one", "labels": ["no", "yes"]},
            {"type": "classification", "task": "two", "labels": ["0", "1", "2"]},
        ],
        ["classify"],
    ),
}


def head(name, folder, **task):
    """A model with one of `HEADS`."""
    return test_predictor.load(folder, *HEADS[name][0], **task)


def masked_lm(folder):
    """A BERT with stored weights, in a model folder; returns the folder."""
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "pretraining"), folder)
    return folder


def t5(folder):
    """A T5 with stored weights, and a task of its generation.json."""
    converted_model.write(huggingface.read(GOLDEN / "t5" / "v1_0"), folder)
    settings = {"tasks": {"short": {"settings": {"max_new_tokens": 2}, "prefix": "cat "}}}
    (folder / "generation.json").write_text(json.dumps(settings))
    return official.load(folder)


def causal_lm(folder):
    """A causal LM."""
    encoder = {**test_predictor.BERT, "causal": True}
    return test_predictor.load(folder, {"type": "causal_lm"}, encoder=encoder)


def elmo(folder):
    """An ELMo, which has no attention and fills no masks."""
    encoder = {
        "type": "bilm", "character_size": 4, "filters": [[1, 4], [2, 6]], "highway_layers": 1,
        "cell_size": 12, "projection_size": 8,
    }  # fmt: skip
    return test_predictor.load(folder, {"type": "bilm", "samples": 0}, encoder=encoder)
