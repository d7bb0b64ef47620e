import dataclasses
import math
from pathlib import Path

import pytest
import yaml

from official import config
from official.config import segments
from official.config.corruptions import TokenMasksConfig
from official.utils.errors import UserError

SMALL = {
    "name": "small",
    "segments": {"max_length": 32},
    "corruption": {"type": "token_masks", "unit": "word"},
    "encoder": {
        "type": "transformer",
        "hidden_size": 8,
        "num_layers": 1,
        "num_heads": 2,
        "intermediate_size": 16,
    },
    "objectives": [{"type": "masked_lm"}, {"type": "sentence_pair"}],
    "recipe": {"steps": 5},
}


# Ten aliases of ten aliases ...: a gigabyte and more, written out.
BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)


def write(tmp_path: Path, raw: dict | str) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(raw if isinstance(raw, str) else yaml.safe_dump(raw))
    return path


def changed(key: str, value) -> dict:
    raw = yaml.safe_load(yaml.safe_dump(SMALL))
    *parents, last = key.split(".")
    place = raw
    for parent in parents:
        place = place[int(parent)] if parent.isdigit() else place.setdefault(parent, {})
    place[last] = value
    return raw


def test_reads_values_and_defaults(tmp_path):
    settings = config.load(write(tmp_path, SMALL))
    assert settings.segments.max_length == 32 and settings.segments.short_seq_prob == 0.1
    assert settings.corruption.unit == "word" and settings.corruption.type == "token_masks"
    assert [o.type for o in settings.objectives] == ["masked_lm", "sentence_pair"]
    assert settings.recipe.steps == 5 and settings.recipe.optimizer.epsilon == 1e-6


def test_relation_that_a_format_has_if_none_is_given():
    rows = {"stream": {"rows": 4}}
    actual = {f: config.Segments(format=f, **rows.get(f, {})) for f in segments.FORMATS}
    assert {format: s.relation for format, s in actual.items()} == {
        "pairs": "next_sentence", "sentence_pairs": "next_sentence", "halves": "none",
        "full_sentences": "none", "doc_sentences": "none", "blocks": "none", "stream": "none",
        "joined": "none", "documents": "none",
    }  # fmt: skip
    tokens = {"token_ids", "segment_ids", "padding_mask"}
    assert actual["pairs"].fields == tokens | {"next_sentence_label"}
    assert actual["full_sentences"].fields == tokens
    ordered = config.Segments(relation="sentence_order")
    assert ordered.fields == tokens | {"sentence_order_label"}


def test_saved_config_reads_back_the_same(tmp_path):
    settings = config.load(write(tmp_path, SMALL))
    config.save(settings, tmp_path / "saved.yaml")
    assert config.load(tmp_path / "saved.yaml") == settings


def test_a_saved_config_that_changed_is_noticed(tmp_path):
    path = tmp_path / "saved.yaml"
    config.save(config.load(write(tmp_path, SMALL)), path)
    whole = path.read_text()
    edited = whole.replace("num_heads: 2", "num_heads: 4")
    cut = whole[: whole.index("  precision:")]
    assert edited != whole != cut
    for text in (edited, cut):
        path.write_text(text)
        with pytest.raises(UserError, match="saved.yaml: the text below its first line does not"):
            config.load(path)
    path.write_text(edited.partition("\n")[2])  # changed on purpose
    assert config.load(path).encoder.num_heads == 4


# `test_study_page` reads the pages of studies.
PUBLISHED = sorted(p for p in Path("configs").rglob("*.yaml") if p.parent.name != "studies")


@pytest.mark.parametrize("path", PUBLISHED, ids=str)
def test_every_config_of_the_repository_reads(path):
    settings = config.load(path)
    assert config.from_dict(config.to_dict(settings)) == settings


def test_numbers_that_yaml_reads_as_text(tmp_path):
    text = yaml.safe_dump(SMALL).replace("steps: 5", "steps: 5\n  optimizer: {epsilon: 1e-8}")
    assert config.load(write(tmp_path, text)).recipe.optimizer.epsilon == 1e-8


def test_overrides(tmp_path):
    settings = config.load(
        write(tmp_path, SMALL),
        ["recipe.optimizer.learning_rate=5e-5", "objectives.masked_lm.weight=2", "seed=7"],
    )
    assert settings.recipe.optimizer.learning_rate == 5e-5
    assert settings.objectives[0].weight == 2.0 and settings.seed == 7


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("recipe.optimizer.lerning_rate=1", "recipe.optimizer.lerning_rate: unknown key (did you "
         "mean 'learning_rate'?"),
        ("recipe.steps", "--override=recipe.steps: expected key.subkey=value"),
        ("recipe.steps.more=1", "steps is a value and has no keys below it"),
        ("objectives.masked_llm.weight=1", "no item 'masked_llm': there are masked_lm"),
        ("recipe.steps=many", "recipe.steps: expected a whole number, got 'many'"),
        ("recipe.steps={a", "the value is not YAML"),
    ],
)  # fmt: skip
def test_bad_overrides(tmp_path, override, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?").replace("(", r"\(")):
        config.load(write(tmp_path, SMALL), [override])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("encodr", {}, "encodr: unknown key (did you mean 'encoder'"),
        ("segments.max_lenght", 1, "segments.max_lenght: unknown key (did you mean 'max_length'"),
        ("segments.max_length", "long", "segments.max_length: expected a whole number, got 'long'"),
        ("segments.max_length", True, "segments.max_length: expected a whole number, got True"),
        ("segments.max_length", 2, "segments.max_length: 2 is less than 8"),
        ("segments.format", "pears", "segments.format: 'pears' is not one of pairs"),
        (
            "segments.format",
            "full_sentences",
            "objectives.1: sentence_pair needs next_sentence_lab",
        ),
        (
            "segments.relation",
            "order",
            "relation: 'order' is not one of next_sentence, sentence_or",
        ),
        ("segments.relation", "sentence_order", "sentence_pair needs next_sentence_label"),
        ("objectives.1.relation", "sentence_order", "sentence_pair needs sentence_order_label"),
        (
            "segments",
            {"format": "doc_sentences", "relation": "sentence_order"},
            "relation: sentence_order needs two segments, and the format doc_sentences has one",
        ),
        ("segments.packing", 0, "segments.packing: 0 is less than 1"),
        (
            "segments",
            {"packing": 2, "row_length": 96},
            "segments.row_length: 96 does not hold a sequence of max_length: 128",
        ),
        (
            "segments.row_length",
            256,
            "row_length: 256 is not supported without packing: raise packing",
        ),
        ("segments.random_negatives", True, "not supported for relation: next_sentence, only for"),
        ("segments.short_seq_prob", 2, "short_seq_prob: 2.0 is not between 0 and 1"),
        ("segments.static_masks", "yes?", "static_masks: expected true or false"),
        ("encoder.type", "transformr", "unknown type 'transformr' (did you mean 'transformer'"),
        ("encoder", {"hidden_size": 8}, "encoder: no `type` is given"),
        (
            "encoder",
            {"tpye": "transformer"},
            "unknown key 'tpye' (did you mean 'type'?) (known: tr",
        ),
        ("encoder.type", ["transformer"], "encoder: unknown type ['transformer']"),
        ("encoder.norm", "psot", "norm: 'psot' is not one of post, pre (did you mean 'post'?)"),
        ("encoder.num_layers", 2**40, "num_layers: 1099511627776 is more than 1000"),
        ("encoder.norm_epsilon", -1.0, "encoder.norm_epsilon: -1.0 is negative"),
        ("corruption.unit", "wrod", "entity, ngram, span (did you mean 'word'"),
        ("objectives.1.relation", "next_sent", "sentence_order (did you mean 'next_sentence'?)"),
        ("encoder", [1], "encoder: expected a mapping with a `type`"),
        ("objectives", {}, None),
        ("objectives", "masked_lm", "objectives: expected a list"),
        ("objectives.0.type", "mlm", "objectives.0: unknown type 'mlm'"),
        ("recipe.epochs", 3, "give either steps or epochs"),
        ("recipe.bucket_lengths", [64, 32], "bucket_lengths: expected lengths in ascending order"),
        ("recipe.bucket_lengths", 64, "bucket_lengths: expected a list"),
        ("recipe.bucket_lengths", ["x"], "bucket_lengths.0: expected a whole number"),
        ("recipe.optimizer.learning_rate", math.nan, "learning_rate: expected a number, got nan"),
        ("recipe.optimizer.learning_rate", math.inf, "learning_rate: expected a number, got inf"),
        ("encoder.dropout", 10**400, "encoder.dropout: expected a number, got 1000"),
        ("recipe.precision", "float16", "precision: 'float16' is not one of auto"),
        ("recipe.optimizer", 3, "recipe.optimizer: expected a mapping"),
        (
            "recipe.optimizer",
            {"type": "sgd"},
            "optimizer.type: 'sgd' is not one of adamw, stable_adamw",
        ),
        ("recipe.optimizer", {"layer_decay": 1.5}, "layer_decay: 1.5 is not between 0 and 1"),
        ("recipe.optimizer", {"layer_decay": 0}, "layer_decay: 0 stops every layer but the head"),
        ("recipe.optimizer", {"no_decay": ["(norm"]}, "no_decay: '(norm' is not a regular express"),
        (
            "recipe.optimizer",
            {"no_adaptation": ["bias"]},
            "no_adaptation: not supported for the type",
        ),
        ("recipe.schedule", {"warmup_steps": 1, "warmup_fraction": 0.1}, "not both"),
        ("corruption", None, "objectives.0: masked_lm needs masked_ids, masked_positions"),
        ("segments.max_length", 1024, "1024 tokens do not fit encoder.max_positions: 512"),
        ("segments", None, "corruption: needs `segments`"),
    ],
)
def test_refused_values(tmp_path, key, value, message):
    path = write(tmp_path, changed(key, value))
    if message is None:
        assert config.load(path).objectives == ()
        return
    with pytest.raises(UserError) as caught:
        config.load(path)
    assert str(path) in str(caught.value) and message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not YAML"),
        ("just text", "a config is a mapping"),
        ("name: a\nname: b", "key 'name' is given twice"),
        ("seed: 1", "name: missing, and it has no default"),
        ("name: !!python/object:os.system {}", "not YAML"),
        ("[" * 100_000, "nested too deep"),
        ("name: " + "9" * 5000, "a value cannot be read"),
        ("name: 2001-99-99", "a value cannot be read"),
        ("? {a: 1}\n: b", "not YAML"),
        ("name: !!int ''", "a value cannot be read"),
        ("a: &a [*a]", "aliases expand to more than 100,000 values"),
        (BOMB, "aliases expand to more than 100,000 values"),
        (BOMB.replace("[", "{<<: [").replace("]", "]}"), "more than 100,000 values"),
        ("name: " + "x" * (1 << 20), "1,048,582 bytes, where at most 1,048,576"),
    ],
)
def test_files_that_are_no_config(tmp_path, text, message):
    with pytest.raises(UserError) as caught:
        config.load(write(tmp_path, text))
    assert message in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match="no such config file"):
        config.load(tmp_path / "none.yaml")


def test_packing_is_for_objectives_that_keep_parts_apart(tmp_path):
    path = write(tmp_path, changed("segments.packing", 4))
    parts = {"part_ids", "positions", "part_starts", "part_weights"}
    assert config.load(path).segments.fields >= parts
    shared = {"max_length": 512, "packing": 4, "row_length": 1024}
    path = write(tmp_path, changed("segments", shared))
    assert config.load(path).segments.row_tokens == 1024  # above encoder.max_positions
    assert config.from_dict(SMALL).segments.row_tokens == 32
    raw = changed("segments.packing", 4)
    raw["objectives"].append({"type": "classification", "num_labels": 2})
    with pytest.raises(UserError) as caught:
        config.load(write(tmp_path, raw))
    assert "segments.packing: objectives.2: classification cannot be packed" in str(caught.value)


def test_packing_is_for_corruptions_that_can_be_of_parts(monkeypatch):
    monkeypatch.setattr(TokenMasksConfig, "packs", False)
    config.from_dict(SMALL)
    with pytest.raises(UserError, match="corruption: token_masks cannot be packed: take .*: 1"):
        config.from_dict(changed("segments.packing", 4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"objectives": [{"type": "generator", "size": 2.0}]},
            "objectives.0: generator: size: 2.0 makes it 16 wide, wider than the encoder, 8, whose "
            "tables it has with sharing: embeddings: set size to at most 1.0, or sharing to none",
        ),
        (
            {"objectives": [{"type": "masked_lm"}, {"type": "generator", "sharing": "all"}]},
            "objectives.1: generator: size: 0.25 makes its hidden_size 2, but with sharing: all it "
            "is the encoder itself, whose hidden_size is 8",
        ),
        (
            {
                "encoder": {**SMALL["encoder"], "type": "transformer_xl"},
                "objectives": [{"type": "generator"}],
            },
            "objectives.0: generator: encoder.type: its embeddings have the hidden size",
        ),
        (
            {"encoder": {**SMALL["encoder"], "pooler": False}},
            "objectives.1: sentence_pair: reads the pooled output: set encoder.pooler to true",
        ),
        (
            {"objectives": [{"type": "masked_lm"}, {"type": "masked_lm", "weight": 2}]},
            "objectives: two have the name masked_lm",
        ),
        (
            {
                **{key: None for key in ("segments", "corruption")},
                "objectives": [
                    {"type": "regression", "pooling": "mean", "mix": {"layers": [0, 7]}}
                ],
            },
            "objectives.0: regression: mix.layers: 7: this encoder has the layers 0 (tokens) to",
        ),
    ],
)
def test_encoders_that_an_objective_cannot_be_asked_of(tmp_path, changes, message):
    path = write(tmp_path, {**SMALL, **changes})
    with pytest.raises(UserError) as caught:
        config.load(path)
    error = str(caught.value)
    assert error.startswith(f"{path}:")
    line, _, rest = error.removeprefix(f"{path}:").partition(": ")
    assert line.isdigit() and rest.startswith(message)


def test_differences():
    a = config.from_dict(SMALL)
    b = dataclasses.replace(a, recipe=dataclasses.replace(a.recipe, steps=9), seed=1)
    assert config.differences(a, b) == [("seed", 0, 1), ("recipe.steps", 5, 9)]
    assert config.differences(a, a) == []


def test_an_encoder_with_heads_alone_is_no_run_and_may_be_read():
    encoder = {"type": "transformer", "vocab_size": 9}
    heads = [{"type": "masked_lm"}]
    read = config.from_dict({"name": "x", "encoder": encoder, "objectives": heads})
    assert [objective.type for objective in read.objectives] == ["masked_lm"]
    with pytest.raises(UserError, match="masked_lm needs masked_ids"):
        config.from_dict({"name": "x", "objectives": heads})
