"""`garden COMMAND`: each mode of `official.main` with its own flags alone, and the same work."""

import json
import re
import types

import numpy as np
import pytest
from absl import flags

from official.commands import garden
from official.commands import main as main_command
from official.commands.modes import evaluate
from official.evaluation import run as evaluation
from official.saving import checkpoints
from official.utils import flag_table
from official.utils.flag_table import Flag, Values
from tests import commands, small
from tests.official.serving.generation import test_generator_of_prompts as generator
from tests.official.training.test_frozen_encoder import task_shards
from tests.official.utils import test_command_help
from tests.official.utils.test_command_help import GARDEN

MODES = {"train": "train_and_eval", "fill-mask": "fill_mask"}


def test_the_help_of_each_command_has_its_own_flags_alone():
    """In one process each, as a user sees them; the page has the same."""
    shown = commands.run(GARDEN, "--help", status=0).stdout
    assert test_command_help.check(shown, "garden", "garden COMMAND") == []
    for name, line in re.findall(r"^  ([a-z-]+) +([A-Z][a-z].*)$", shown, re.MULTILINE):
        assert garden.COMMANDS[name].help().text(80).startswith(line)
    own = {}
    for name, command in garden.COMMANDS.items():
        call = f"garden {name}"
        own[name] = set(test_command_help.check(command.help().text(80), call, call))
    assert "length_penalty" in own["generate"] and "length_penalty" not in own["train"]
    assert own["fill-mask"] == {"model_dir", "texts", "output", "top_k", "target", "checkpoint"}
    assert {"port", "host", "key_file"} < own.pop("serve")
    of_tpus = {"topology", "find_batch"}
    assert own.pop("memory") == {"config", "data", "init", "override"} | of_tpus
    for name, flags_of in own.items():
        mode = main_command.MODES[MODES.get(name, name)]
        assert flags_of - {"evaluate"} == {flag.name for flag in mode.flags}


def test_what_a_user_types_wrong_is_named():
    for words, message in (
        (["serch", "--texts=x"], "there is no command 'serch' (did you mean 'search'?)"),
        (["search", "--querys=x"], "Unknown command line flag 'querys'. Did you mean: queries ?"),
        (["train", "--prompt=x"], "Unknown command line flag 'prompt';"),
        (["embed"], "--model_dir is missing; --help says what it is"),
        (["eval", "more"], "unexpected argument 'more'"),
    ):
        assert f"error: {message}" in commands.run(GARDEN, *words, status=2).stderr
    listed = commands.run(GARDEN, "train", "--list_configs", status=0).stdout
    assert "configs/smoke/bert.yaml" in listed
    assert "  fill-mask  Fills" in commands.run(GARDEN, status=0).stdout


def test_flags_of_several_tables_keep_their_defaults():
    """A flag that is not given has the default of its own table."""
    tables = {
        "a": [Flag("k", int, 0, "of x: how many."), Flag("both", str, "x", "which.")],
        "b": [Flag("k", int, None, "the most"), Flag("both", str, "x", "which.")],
    }
    merged = flag_table.merged(tables)
    assert [(flag.name, flag.default, flag.meaning) for flag in merged] == [
        ("k", 0, "a, of x: how many. b: the most"), ("both", "x", "which."),
    ]  # fmt: skip
    given = flags.FlagValues()
    flag_table.define(merged, given)
    flags.DEFINE_alias("count", "k", flag_values=given)
    given(["x"])
    assert [Values(table, given).k for table in tables.values()] == [0, None]
    given(["x", "--count=3"])
    assert [Values(table, given).k for table in tables.values()] == [3, 3]
    with pytest.raises(AttributeError, match="no flag --other"):
        Values(tables["a"], given).other  # noqa: B018


def same(folder, name, output, *words):
    """Runs a command and its mode; returns what both print, and write to `output`."""
    results = []
    for side, call in (
        ("a", (GARDEN, name)),
        ("b", ("official.main", f"--mode={MODES.get(name, name)}")),
    ):
        place = folder / side / output
        place.parent.mkdir(parents=True, exist_ok=True)
        done = commands.run(*call, *(word.format(output=place) for word in words), status=0)
        said = done.stdout.replace(str(place), "OUTPUT")
        content = place.read_bytes() if place.is_file() else b""
        results.append((re.sub(r"[0-9.,]+ ?(m?s|[a-z]*/s)\b", "", said), content))
    assert results[0] == results[1]
    return results[0]


@pytest.mark.slow
@pytest.mark.long
def test_each_command_does_what_its_mode_does(tmp_path):
    config = tmp_path / "config.yaml"
    made = small.config(segments__format="full_sentences", objectives=[{"type": "masked_lm"}])
    from official import config as configs

    configs.save(made, config)
    shards = small.shard_folder(tmp_path / "shards", made)
    for side, call in (("a", (GARDEN, "train")), ("b", ("official.main", "--mode=train_and_eval"))):
        commands.run(
            *call, f"--config={config}", f"--data={shards}", f"--validation_data={shards}",
            f"--model_dir={tmp_path / side / 'model'}", status=0,
        )  # fmt: skip
    a, b = (checkpoints.load_variables(tmp_path / side / "model", "last") for side in "ab")
    for name, value in a.items():
        np.testing.assert_array_equal(b[name], value)
    model = f"--model_dir={tmp_path / 'a' / 'model'}"
    said, _ = same(tmp_path, "eval", "none", f"--data={shards}", "--split=train", model)
    assert "masked_lm " in said
    texts = tmp_path / "texts.txt"
    texts.write_text("ba [MASK] bo\nda [MASK] du\n")
    to = "--output={output}"
    _, filled = same(
        tmp_path, "fill-mask", "filled.jsonl", model, f"--texts={texts}", to, "--top_k=3"
    )
    assert filled.count(b"\n") == 2
    _, vectors = same(tmp_path, "embed", "vectors.npy", model, f"--texts={texts}", to)
    _, found = same(
        tmp_path, "search", "found.run", model, f"--queries={texts}", f"--texts={texts}", to
    )
    assert vectors and len(found.splitlines()) == 4
    folder = tmp_path / "task"
    folder.mkdir()
    tuned, settings = tmp_path / "tuned", tmp_path / "tuned.yaml"
    recipe = {"recipe__steps": 2, "objectives": [{"type": "classification", "pooling": "mean"}]}
    configs.save(small.config(segments=None, corruption=None, **recipe), settings)
    task = f"--data={task_shards(folder)}"
    commands.run(GARDEN, "train", f"--config={settings}", task, f"--model_dir={tuned}", status=0)
    _, rows = same(
        tmp_path, "predict", "rows.tsv", task, "--split=test", f"--model_dir={tuned}", to
    )
    assert len(rows.splitlines()) == 9 + 1
    speaker = f"--model_dir={generator.make(tmp_path / 'generator')}"
    said, _ = same(tmp_path, "generate", "none", speaker, "--prompt=the", "--max_new_tokens=6")
    assert said.strip()


def test_a_table_has_each_figure_once_and_the_file_all_names(tmp_path, monkeypatch, capsys):
    metrics = {"loss": 2.5, "masked_lm": 2.5, "masked_lm_accuracy": 0.25}
    monkeypatch.setattr(evaluation, "evaluate", lambda *args, **options: {"validation": metrics})
    output = tmp_path / "metrics.json"
    options = types.SimpleNamespace(
        output=str(output), model_dir="m", data="d", split=None, checkpoint="best", override=[],
        pseudo_perplexity=False, distribution_strategy="one_device", tpu="", num_replicas=0,
    )  # fmt: skip
    evaluate.run(options)
    table, _ = capsys.readouterr().out.split("wrote")
    assert [line.split() for line in table.splitlines()] == [
        ["masked_lm", "2.500000"],
        ["masked_lm_accuracy", "0.250000"],
    ]
    assert json.loads(output.read_text()) == {"validation": metrics}
