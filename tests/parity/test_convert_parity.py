"""transformers loads what `official.convert --target=hf` writes, and answers the same."""

import json
from pathlib import Path

import numpy as np
import pytest

from official import config as configs
from official import tokenizers
from official.config.encoders import TransformerConfig
from official.config.heads import ClassificationConfig, RegressionConfig
from official.config.objectives import MaskedLMConfig, SentencePairConfig
from official.conversion import bert, converted_model, huggingface
from official.saving import checkpoints, model_folder

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden"
TEXTS = ["The cat sat on a mat.", "Dogs [MASK]", "\u00c9t\u00e9 \u732b a-b"]
SECOND = ["", "The dog ran.", "cats and dogs?"]

CLASSES = {
    "BertModel": (),
    "BertForMaskedLM": (MaskedLMConfig(),),
    "BertForPreTraining": (MaskedLMConfig(), SentencePairConfig()),
    "BertForNextSentencePrediction": (SentencePairConfig(),),
    "BertForSequenceClassification": (
        ClassificationConfig(labels=("a", "b", "c", "d"), dropout=0.3),
    ),
    "regression": (RegressionConfig(),),
}


def make(folder, objectives, **sizes):
    tokenizer = tokenizers.load(GOLDEN / "hf_files" / "bare")
    encoder = TransformerConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=12, num_layers=3, num_heads=2,
        intermediate_size=22, max_positions=30, initializer_range=0.5, norm_epsilon=1e-6, **sizes,
    )  # fmt: skip
    config = converted_model.config_of(folder.name, encoder, objectives, bert.BERT)
    configs.save(config, folder / "config.yaml")
    tokenizer.save(folder / "tokenizer")
    rng = np.random.default_rng(0)
    variables = {
        path: (0.5 * rng.standard_normal(variable.shape)).astype(np.float32)
        for path, variable in model_folder.build(config).variables_by_path().items()
    }
    checkpoints.save(folder, 1, variables, {})
    return folder


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        *((name, {"activation": "gelu"}) for name in CLASSES),
        ("BertModel", {"activation": "gelu_tanh", "segment_types": 3}),
        ("BertForPreTraining", {"activation": "relu"}),
    ],
)
def test_transformers_loads_what_we_write(hf, tmp_path, name, sizes):
    # A masked LM alone has no pooler there.
    sizes = {**sizes, "pooler": name != "BertForMaskedLM"}
    folder = make(tmp_path / "model", CLASSES[name], **sizes)
    huggingface.write(folder, tmp_path / "written", "last")
    rng = np.random.default_rng(1)
    lengths = np.array([9, 4, 2])
    mask = np.arange(9) < lengths[:, None]
    batch = {
        "token_ids": rng.integers(5, 35, mask.shape) * mask,
        "segment_ids": rng.integers(0, 2, mask.shape),
        "padding_mask": mask,
    }
    np.savez(
        tmp_path / "inputs.npz",
        input_ids=batch["token_ids"],
        token_type_ids=batch["segment_ids"],
        attention_mask=mask.astype(np.int64),
    )
    (tmp_path / "texts.json").write_text(json.dumps([TEXTS, SECOND]))
    hf.run(
        HERE / "hf_from_pretrained.py",
        tmp_path / "written",
        "BertForSequenceClassification" if name == "regression" else name,
        tmp_path / "inputs.npz",
        tmp_path / "outputs.npz",
        tmp_path / "texts.json",
    )
    theirs = np.load(tmp_path / "outputs.npz")
    config, tokenizer, model = model_folder.restore(folder)
    encoded = model.encode(batch)
    ours = {}
    if name == "BertModel":
        ours["last_hidden_state"] = np.asarray(encoded["sequence_output"]) * mask[..., None]
        ours["pooler_output"] = encoded["pooled_output"]
    for objective in model.objectives:
        if objective.name == "masked_lm":
            states = np.asarray(encoded["sequence_output"])
            logits = objective.logits(states.reshape(-1, 12), model.encoder)
            ours["masked"] = np.asarray(logits).reshape(*mask.shape, -1) * mask[..., None]
        elif objective.name == "regression":
            ours["logits"] = np.asarray(objective.scores(encoded))[:, None]
        else:
            ours["logits"] = objective.logits(encoded)
    if name == "BertForPreTraining":
        ours["prediction_logits"] = ours.pop("masked")
        ours["seq_relationship_logits"] = ours.pop("logits")
    elif "masked" in ours:
        ours["logits"] = ours.pop("masked")
    for key, value in ours.items():
        actual = theirs[key]
        if actual.ndim == 3:
            actual = actual * mask[..., None]
        np.testing.assert_allclose(actual, value, atol=2e-5, err_msg=key)
    if name == "BertForSequenceClassification":
        assert list(theirs["labels"]) == list(config.objectives[0].labels)
    for row, (text, pair) in enumerate(zip(TEXTS, SECOND, strict=True)):
        if "[MASK]" in text:
            continue  # transformers reads it as the special token, this project as text
        first, second = tokenizer.encode([text, pair])
        cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
        ids = np.concatenate([cls, first, sep, second, sep])
        np.testing.assert_array_equal(ids, theirs["ids"][row][: len(ids)])
