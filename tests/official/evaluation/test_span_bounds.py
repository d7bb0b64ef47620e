"""Answers begin and end where graphemes do, where the task says so; offsets of tokens may not."""

import json

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official import tokenizers
from official.data import ShardDataset
from official.evaluation import span_answers
from official.saving import checkpoints, model_folder, named_arrays
from official.tokenizers import text_words
from official.tokenizers.byte_vocabulary import ALPHABET
from tests import squads
from tests.official.serving.test_predictor import BERT, server
from tfrecords_tools.tasks import builder as task_builder

PIECES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *ALPHABET.values()]
CONTEXTS = ["หลี่ กำลังที่นี่ ภาษา", "हिन्दी किताब में है", "de\u0301ja\u0300 vu 👍🏽", "ខ្មែរ", "a plain text"]


def whole(context: str) -> set[tuple[int, int]]:
    """The bounds that a span of a context may have: where a grapheme or a blank begins and ends."""
    spans = text_words.spans([context], "graphemes")[0]
    spans += [(i, i + 1) for i, character in enumerate(context) if character.isspace()]
    return {start for start, _ in spans}, {end for _, end in spans}


def shards(folder, tokenizer):
    paragraphs = [
        (context, [(str(i), "q", [(context[:2], 0)])]) for i, context in enumerate(CONTEXTS)
    ]
    (folder / "validation.json").write_text(json.dumps(squads.document(*paragraphs)))
    task = official.tasks.TASKS["squad1"]
    files = {"validation": folder / "validation.json"}
    sizes = {"max_length": 80, "doc_stride": 64, "max_query_length": 4}
    task_builder.build(task, files, tokenizer, folder / "shards", **sizes, report=lambda line: None)
    return folder / "shards"


def spans_of_tokens(folder, tokenizer):
    """The span of each token of each context as an evaluation shows it."""
    config = configs.from_dict(
        {"name": "x", "objectives": [{"type": "span_answer", "n_best": 99}], "recipe": {"steps": 1}}
    )
    source = ShardDataset(folder, config, "validation")
    scorer = span_answers.Scorer(config, source)
    found = []
    for row, context in enumerate(CONTEXTS):
        count = len(tokenizer.encode([context])[0])
        outputs = {
            "row": np.array([row]), "example_weights": np.ones(1),
            "span_scores": -np.arange(count, dtype=np.float32)[None],
            "span_starts": np.arange(count)[None], "span_ends": np.arange(count)[None],
            "null_scores": np.zeros(1),
        }  # fmt: skip
        (result,) = scorer.results(outputs)
        assert all(span.text == context[span.start : span.end] for span in result.spans)
        found.append(result.spans)
    return found


def test_evaluations_show_whole_graphemes(tmp_path):
    tokenizer = tokenizers.ByteBPE(PIECES, [])
    folder = shards(tmp_path, tokenizer)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["task"]["span_bounds"] == "graphemes"
    for context, spans in zip(CONTEXTS, spans_of_tokens(folder, tokenizer), strict=True):
        starts, ends = whole(context)
        assert {span.start for span in spans} <= starts and {span.end for span in spans} <= ends
        assert "".join(dict.fromkeys(span.text for span in spans)) != ""
    # An earlier folder shows tokens, as it did.
    del manifest["task"]["span_bounds"], manifest["checksum"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for context, spans in zip(CONTEXTS[:4], spans_of_tokens(folder, tokenizer), strict=False):
        assert not {span.end for span in spans} <= whole(context)[1]


def loaded(folder, **task):
    folder.mkdir()
    tokenizer = tokenizers.ByteBPE(PIECES, [])
    objective = {"type": "span_answer", "max_answer_length": 4}
    encoder = {**BERT, "vocab_size": tokenizer.vocab_size, "max_positions": 80, "num_layers": 1}
    config = configs.from_dict(
        {"name": "x", "encoder": encoder, "objectives": [objective], "recipe": {"steps": 1}}
    )
    configs.save(config, folder / "config.yaml")
    tokenizer.save(folder / "tokenizer")
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    checkpoints.save(folder, 1, variables, {})
    sizes = {"max_length": 80, "doc_stride": 64, "max_query_length": 4}
    (folder / "task.json").write_text(json.dumps({**sizes, **task}))
    return official.load(folder)


QUESTIONS = [f"q{i}" for i in range(3) for _ in CONTEXTS]


@pytest.fixture
def model(tmp_path):
    return loaded(tmp_path / "model", span_bounds="graphemes")


@pytest.mark.slow
@pytest.mark.long
def test_models_answer_with_whole_graphemes(model):
    """Eagerly, beside the answers of an earlier folder."""
    sizes = {"doc_stride": 64, "max_query_length": 4}
    tensors = tf.constant(QUESTIONS), tf.constant(CONTEXTS * 3)
    earlier, answers = (
        {key: value.numpy().tolist() for key, value in found.items()}
        for found in (
            server(model, **sizes, **task)["answer"].python_function(*tensors)
            for task in ({}, {"span_bounds": "graphemes"})
        )
    )
    inside = 0
    for i, context in enumerate(CONTEXTS * 3):
        starts, ends = whole(context)
        start, end = (answers[name][i] for name in ("start", "end"))
        assert answers["answer"][i].decode() == context[start:end]
        assert start in starts and end in ends
        old = [earlier[name][i] for name in ("start", "end")]
        assert start <= old[0] < old[1] <= end
        inside += old[0] not in starts or old[1] not in ends
    assert inside >= 5


@pytest.mark.slow
@pytest.mark.long
def test_exports_answer_with_whole_graphemes(model, tmp_path):
    contexts = CONTEXTS * 3
    answers = model.answer(QUESTIONS, contexts)
    for context, answer in zip(contexts, answers, strict=True):
        assert answer.text == context[answer.start : answer.end]
        assert answer.start in whole(context)[0] and answer.end in whole(context)[1]
    official.export(tmp_path / "model", tmp_path / "saved")
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["answer"](
        question=tf.constant(QUESTIONS), context=tf.constant(contexts)
    )
    assert [text.decode() for text in served["answer"].numpy()] == [a.text for a in answers]
    assert served["end"].numpy().tolist() == [answer.end for answer in answers]
