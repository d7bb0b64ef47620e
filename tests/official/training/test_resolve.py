import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.data.checks import check_labels, task_labels
from official.distribution import strategies
from official.saving import checkpoints, named_arrays, task_file, warm_start
from official.shards import manifest
from official.tasks import Description, MixtureDescription, find
from official.training import resolve, resuming
from official.utils import strict
from official.utils.errors import UserError
from tests import small

ONE = tf.distribute.get_strategy()
Manifest = collections.namedtuple("Manifest", "task")


TRANSFORMER = {
    "type": "transformer", "memory_length": None, "reuse_length": None, "max_positions": 9,
    "pooler": False,
}  # fmt: skip


def tuned(**changes):
    return configs.from_dict(
        {
            "name": "tuned",
            "objectives": [{"type": "classification"}],
            "recipe": {"epochs": 1},
            **changes,
        }
    )


def test_the_encoder_comes_from_init_and_the_labels_from_the_data():
    initial = small.config()
    actual = resolve.inherit(tuned(), initial)
    actual = resolve.fill_in(actual, initial.encoder.vocab_size, {"x": ("bad", "good")})
    assert actual.encoder == initial.encoder and actual.objectives[0].labels == ("bad", "good")


def test_only_objectives_with_labels_get_those_of_the_data():
    heads = [{"type": "classification"}, {"type": "distillation", "cross_entropy": 1.0}]
    config = configs.from_dict({"name": "x", "objectives": heads, "recipe": {"steps": 1}})
    config = dataclasses.replace(config, encoder=small.config().encoder)
    head, distillation = resolve.fill_in(config, 30, {"": ("a", "b")}).objectives
    assert head.labels == ("a", "b")
    assert distillation == config.objectives[1]


def test_the_config_may_change_the_dropout_of_init():
    initial = small.config()
    encoder = {**configs.to_dict(initial)["encoder"], "dropout": 0.5}
    actual = resolve.inherit(tuned(encoder=encoder), initial)
    assert actual.encoder == dataclasses.replace(initial.encoder, dropout=0.5)


def test_the_recipe_may_set_all_dropout_rates_of_a_stage():
    initial = small.config(encoder__dropout=0.0, encoder__attention_dropout=0.2)
    recipe = {"epochs": 1, "dropout": 0.3}
    rates = {"dropout": 0.3, "attention_dropout": 0.3}
    wanted = dataclasses.replace(initial.encoder, **rates)
    assert resolve.inherit(tuned(recipe=recipe), initial).encoder == wanted
    alone = tuned(recipe=recipe, encoder=configs.to_dict(initial)["encoder"])
    assert resolve.inherit(alone).encoder == wanted
    assert resolve.inherit(tuned(), initial).encoder == initial.encoder
    # That of ModernBERT's attention is a rate of its own, and None follows the others.
    modern = small.config(encoder__attention_output_dropout=0.1)
    rates["attention_output_dropout"] = 0.3
    wanted = dataclasses.replace(modern.encoder, **rates)
    assert resolve.inherit(tuned(recipe=recipe), modern).encoder == wanted
    with pytest.raises(UserError, match=r"recipe.dropout: 1.0 is not in \[0, 1\)"):
        tuned(recipe={"epochs": 1, "dropout": 1})


@pytest.mark.parametrize("kind", ["encoder_decoder", "bilm"])
def test_an_encoder_that_cannot_have_a_pooler_is_refused(kind):
    initial = configs.from_dict({"name": "x", "encoder": {"type": kind, "vocab_size": 9}})
    initial = configs.ResolvedConfig.of(initial)
    labels = {"x": ("a", "b")}
    with pytest.raises(UserError, match="objectives.0: classification: reads the pooled output"):
        resolve.fill_in(resolve.inherit(tuned(), initial), 9, labels)
    mean = tuned(objectives=[{"type": "classification", "pooling": "mean"}])
    resolve.fill_in(resolve.inherit(mean, initial), 9, labels)


def test_sizes_other_than_those_of_init_are_refused():
    initial = small.config()
    encoder = {**configs.to_dict(initial)["encoder"], "num_layers": 3}
    with pytest.raises(UserError, match="encoder.num_layers: 3 in the config and 1 in the model"):
        resolve.inherit(tuned(encoder=encoder), initial)


def test_the_vocabulary_size_comes_from_the_tokenizer():
    config = small.config(encoder__vocab_size=None)
    assert resolve.fill_in(config, 77).encoder.vocab_size == 77
    with pytest.raises(UserError, match="encoder.vocab_size: 125 is less than the 126 pieces"):
        resolve.fill_in(small.config(), 126)


def test_no_encoder_anywhere():
    with pytest.raises(
        UserError, match="encoder: the config has none .tuned.: name .* with --init=MODEL"
    ):
        resolve.inherit(tuned())


def test_task_labels_another_task():
    config = tuned(objectives=[{"type": "classification", "labels": ["a", "b"]}])
    config = resolve.inherit(config, small.config())
    with pytest.raises(UserError, match="labels a, b in the config, b, a in the data"):
        resolve.fill_in(config, 10, {"x": ("b", "a")})


def test_a_model_folder_of_another_config_is_refused(tmp_path):
    config = small.config()
    resuming.check_same_run(config, tmp_path)
    configs.save(config, tmp_path / "config.yaml")
    resuming.check_same_run(small.replace(config, report_every=7), tmp_path)
    with pytest.raises(UserError) as caught:
        resuming.check_same_run(small.replace(config, steps=7), tmp_path)
    assert "config.yaml: this model folder was made with another config" in str(caught.value)
    assert "recipe.steps: 6 there, 7 now" in str(caught.value)


def test_weights_from_another_model(tmp_path):
    config = small.config()
    model = strategies.build_model(config, ONE)
    variables = model.variables_by_path()
    arrays = {path: np.full(v.shape, 0.5, np.float32) for path, v in variables.items()}
    checkpoints.save(tmp_path, 1, arrays, {"figures": {}})
    count, fresh = warm_start.start_from(model, str(tmp_path), "last", "encoder")
    for path, variable in variables.items():
        assert (variable.numpy() == 0.5).all() == path.startswith("encoder/"), path
    assert count == sum(path.startswith("encoder/") for path in variables)
    assert fresh == ["masked_lm", "next_sentence"]
    assert warm_start.start_from(model, str(tmp_path), "last", "all") == (len(variables), [])
    assert all((variable.numpy() == 0.5).all() for variable in variables.values())
    assert warm_start.start_from(model, "nowhere", "last", "none") == (
        0,
        ["encoder", "masked_lm", "next_sentence"],
    )


@pytest.mark.parametrize("offset", [0, 2])
def test_more_positions_are_copies_of_those_of_init(tmp_path, offset):
    initial = small.config(encoder__position_offset=offset, encoder__max_positions=32)
    arrays = named_arrays.values(strategies.build_model(initial, ONE).variables_by_path())
    checkpoints.save(tmp_path, 1, arrays, {"figures": {}})
    longer = small.config(encoder__position_offset=offset, encoder__max_positions=75)
    config = resolve.inherit(longer, initial)
    assert config.encoder == longer.encoder
    model = strategies.build_model(config, ONE)
    warm_start.start_from(model, str(tmp_path), "last", "encoder")
    path = "encoder/embeddings/position_embedding/table"
    given, actual = arrays[path], model.variables_by_path()[path].numpy()
    expected = [given[row] for row in range(offset)]
    for position in range(75):
        expected.append(given[offset + position % 32])
    np.testing.assert_array_equal(actual, expected)
    with pytest.raises(UserError, match="encoder.max_positions: 32 in the config and 75 in the"):
        resolve.inherit(initial, longer)


XL = {
    "type": "transformer_xl", "vocab_size": 30, "hidden_size": 8, "num_layers": 2, "num_heads": 2,
    "intermediate_size": 12, "memory_length": 6, "reuse_length": 4,
}  # fmt: skip


def pretrained(**encoder):
    encoder = {key: value for key, value in {**XL, **encoder}.items() if value is not None}
    return configs.from_dict({"name": "pretrained", "encoder": encoder})


def test_a_task_adds_the_pooler_that_it_reads_and_leaves_memory_out():
    initial = pretrained()
    expected = dataclasses.replace(
        initial.encoder, pooler=True, memory_length=0, reuse_length=0, dropout=0.3
    )
    given = dataclasses.replace(initial.encoder, dropout=0.3)
    for kind in ("classification", "regression"):
        for encoder in (given, expected):  # The config's, which may say it or not.
            config = tuned(objectives=[{"type": kind}], encoder=plain(encoder))
            assert resolve.inherit(config, initial).encoder == expected
    kept = resolve.inherit(tuned(), pretrained(dropout=0.3)).encoder
    assert kept == expected
    config = tuned(objectives=[{"type": "classification", "pooling": "first"}])
    assert not resolve.inherit(config, initial).encoder.pooler
    with pytest.raises(UserError, match="encoder.num_layers: 3 in the config and 2 in the model"):
        resolve.inherit(tuned(encoder={**XL, "num_layers": 3}), initial)


def plain(encoder):
    return configs.to_dict(configs.Config("x", encoder=encoder))["encoder"]


def test_pretraining_that_goes_on_changes_nothing_of_the_encoder():
    initial = small.config(encoder__pooler=False, objectives=[{"type": "masked_lm"}])
    assert resolve.inherit(initial, initial).encoder == initial.encoder


@pytest.mark.parametrize("kind", ["transformer_xl", "roberta", "gpt2"])
def test_a_pooler_that_was_not_there_is_fresh_and_named(tmp_path, kind):
    initial = {
        "transformer_xl": pretrained(),
        "roberta": pretrained(**TRANSFORMER),
        "gpt2": pretrained(**TRANSFORMER, causal=True, norm="pre"),
    }[kind]
    objectives = [{"type": "classification", "num_labels": 2}]
    result = strategies.build_model(initial, ONE).variables_by_path()
    arrays = {path: np.full(v.shape, 0.5, np.float32) for path, v in result.items()}
    checkpoints.save(tmp_path, 1, arrays, {"figures": {}})
    model = strategies.build_model(resolve.inherit(tuned(objectives=objectives), initial), ONE)
    before = {path: v.numpy() for path, v in model.variables_by_path().items()}
    count, fresh = warm_start.start_from(model, str(tmp_path), "last", "encoder")
    assert (count, fresh) == (len(result), ["encoder/pooler", "classification"])
    for path, variable in model.variables_by_path().items():
        expected = arrays[path] if path in arrays else before[path]
        np.testing.assert_array_equal(variable, expected, err_msg=path)
    assert np.std(before["encoder/pooler/kernel"]) > 0.01
    assert model.encoder.config.pooled_position == ("first" if kind == "roberta" else "last")


def test_half_a_pooler_is_an_error(tmp_path):
    config = resolve.inherit(tuned(objectives=[{"type": "regression"}]), pretrained())
    model = strategies.build_model(config, ONE)
    arrays = {path: v.numpy() for path, v in model.variables_by_path().items()}
    checkpoints.save(tmp_path, 1, arrays, {"figures": {}})
    del arrays["encoder/pooler/bias"]
    checkpoints.save(tmp_path, 2, arrays, {"figures": {}})
    assert warm_start.start_from(model, str(tmp_path), "1", "encoder")[1] == ["regression"]
    with pytest.raises(
        UserError, match="has no encoder/pooler/bias: the weights belong to another config"
    ):
        warm_start.start_from(model, str(tmp_path), "2", "encoder")


def test_the_same_seed_gives_the_same_weights():
    one, two = (strategies.build_model(small.config(), ONE).variables_by_path() for _ in range(2))
    other = strategies.build_model(small.config(seed=1), ONE).variables_by_path()
    for path, variable in one.items():
        np.testing.assert_array_equal(variable.numpy(), two[path].numpy())
    kernel = "encoder/pooler/kernel"
    assert (one[kernel].numpy() != other[kernel].numpy()).any()


def test_the_task_is_noted_for_serving(tmp_path):
    task = find("sst2").description()
    record = manifest.Manifest("task", (), {}, "", 64, 0, (), task=task)
    task_file.save(record, tmp_path)
    assert task_file.read(tmp_path) == {**strict.to_dict(task), "max_length": 64}
    text = (tmp_path / "task.json").read_text()
    (tmp_path / "task.json").write_text(text.replace("64", "60"))
    with pytest.raises(UserError, match="task.json is not as it was written"):
        task_file.read(tmp_path)


def test_data_with_other_classes_than_the_model_is_refused(capsys):
    encoder = {"type": "transformer"}
    config = resolve.fill_in(tuned(encoder=encoder), 9, {"abc": ("a", "b", "c")})

    def check(*labels):
        check_labels(
            config, Manifest(Description("abc", "classification", labels=labels)), "shards"
        )

    check("a", "b", "c")
    check()
    assert capsys.readouterr().err == ""
    check("LABEL_0", "LABEL_1", "LABEL_2")
    assert capsys.readouterr().err == (
        "warning: shards: the classes of the model are those of the data by their order: "
        "a = LABEL_0, b = LABEL_1, c = LABEL_2\n"
    )
    check_labels(config, Manifest(None), "shards")
    message = "shards: its labels are {}, and the model knows a, b, c: name the shards of the model"
    for labels in (("a", "b"), ("b", "a", "c"), ("x", "a", "c")):
        with pytest.raises(UserError, match=message.format(", ".join(labels))):
            check(*labels)


def test_heads_of_several_tasks_get_the_task_labels_theirs():
    heads = [{"type": "classification", "task": name} for name in ("abc", "xy")]
    heads.append({"type": "regression", "task": "score"})
    learned = (
        Description("abc", "classification", labels=("a", "b", "c")),
        Description("xy", "classification", labels=("x", "y")),
        Description("score", "regression"),
    )
    data = Manifest(MixtureDescription(("average",), {task.name: task for task in learned}))
    labels = task_labels(data)
    config = resolve.fill_in(tuned(encoder={"type": "transformer"}, objectives=heads), 9, labels)
    assert [o.labels for o in config.objectives[:2]] == [("a", "b", "c"), ("x", "y")]
    check_labels(config, data, "shards")
    check_labels(config, Manifest(Description("xy", "classification", labels=("x", "y"))), "shards")
    with pytest.raises(UserError, match="shards: its labels are x, z, u, and the model knows x, y"):
        check_labels(
            config, Manifest(Description("xy", "classification", labels=("x", "z", "u"))), "shards"
        )
