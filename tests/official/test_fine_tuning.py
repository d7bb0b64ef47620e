"""Fine-tuning in one call: from lists and tables to a model folder, by the loop of `train`."""

import dataclasses
import random

import numpy as np
import pytest

import official
from official import config as configs
from official import tokenizers, training
from official.fine_tuning import rows, settings
from official.saving import checkpoints, model_folder, named_arrays
from official.shards import manifest
from official.utils.errors import UserError
from tests import GOLDEN, commands, small
from tfrecords_tools.tasks import builder

FAST = {"learning_rate": 1e-2, "report": lambda line: None}
FIRST, SECOND = small.WORDS[:20], small.WORDS[20:40]


class Table:
    """What is read of a table of pandas."""

    def __init__(self, **columns):
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return np.array(self._columns[name], object)


@pytest.fixture(scope="module")
def init(tmp_path_factory):
    folder = tmp_path_factory.mktemp("init")
    tokenizer = tokenizers.load(small.tokenizer_folder(folder / "tokenizer"))
    config = small.config(encoder__initializer_range=0.2)
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    model_folder.write_new(config, tokenizer, variables, folder / "model")
    return folder / "model"


def texts(count, seed=0):
    """Texts of the words of one of two halves, and the halves."""
    draw = random.Random(seed)
    halves = [draw.randrange(2) for _ in range(count)]
    return [" ".join(draw.choices((FIRST, SECOND)[i], k=draw.randrange(2, 9))) for i in halves], [
        ("first", "second")[i] for i in halves
    ]


@pytest.mark.slow
@pytest.mark.long
def test_texts_with_labels(init, tmp_path):
    """It learns, says what it does, and goes on where a run was stopped."""
    data, lines = texts(120), []
    options = {
        "init": init, "model_dir": tmp_path / "model", "learning_rate": 1e-2, "epochs": 8,
        "override": ["objectives.0.pooling=mean"],
    }  # fmt: skip
    model = official.finetune(*data, **options, report=lines.append)
    said = "\n".join(lines)
    counts = [data[1].count(name) for name in ("first", "second")]
    assert "2 labels: first (" in said and "train: 108 examples" in said
    assert "validation: 12 examples" in said and sum(counts) == 120
    assert (
        "settings of configs/finetune/classification.yaml, with those of Mosbach et al. (2021) for "
        "few examples and the learning rate of a small model: 8 epochs, batches of 16, learning "
        "rate 0.01, texts of at most 32 tokens"
    ) in said
    assert "is the best on the validation examples: " in said and "accuracy" in lines[-2]
    assert lines[-1] == f"official.load({str(tmp_path / 'model')!r}).classify([...])"
    new, labels = texts(40, seed=1)
    assert np.mean([a.label == b for a, b in zip(model.classify(new), labels, strict=True)]) > 0.75
    best = checkpoints.best(tmp_path / "model")
    assert best["metric"] == "accuracy" and best["value"] > 0.75
    again = []
    official.finetune(*data, **options, report=again.append)
    assert any("trained already, to step" in line for line in again)
    with pytest.raises(UserError, match="other data|data"):
        official.finetune(data[0][::-1], data[1][::-1], **options, report=len)


@pytest.mark.slow
@pytest.mark.long
def test_any_number_of_labels(init, tmp_path):
    """The labels of a text are the halves that its words are of; some texts have none."""
    draw, third = random.Random(0), small.WORDS[40:]
    groups = {"first": FIRST, "second": SECOND}
    data, labels = [], []
    for _ in range(120):
        names = {name for name in groups if draw.random() < 0.5}
        words = [word for name in names for word in draw.choices(groups[name], k=4)]
        data.append(" ".join([*words, *draw.choices(third, k=2)]))
        labels.append(names)
    lines = []
    model = official.finetune(
        Table(text=data[20:], label=labels[20:]), init=init, model_dir=tmp_path / "model",
        learning_rate=1e-2, epochs=8, override=["objectives.0.pooling=mean"], report=lines.append,
    )  # fmt: skip
    said = "\n".join(lines)
    assert "2 labels: first (" in said and "settings of configs/finetune/multi_label.yaml" in said
    assert "micro_f1" in lines[-2] and lines[-1].endswith(".classify([...])")
    assert model.config.objectives[0].type == "multi_label"
    found = [set(answer.labels) for answer in model.classify(data[:20])]
    assert {frozenset(names) for names in labels[:20]} >= {frozenset(), frozenset(groups)}
    hits = [name in a and name in b for a, b in zip(found, labels, strict=False) for name in groups]
    counts = [len(a) + len(b) for a, b in zip(found, labels, strict=False)]
    assert 2 * sum(hits) / sum(counts) > 0.75


def built(init, output, splits, max_length, seed=0):
    """The shards that `finetune` makes of the columns of two splits."""
    train, validation = splits
    train = rows.labeled(train, None)
    validation = train.of(validation)
    task = train.task(validation)
    given = {"train": train.rows(task, "train"), "validation": validation.rows(task, "validation")}
    tokenizer = tokenizers.load(init / "tokenizer")
    builder.build_rows(task, given, tokenizer, output, max_length, seed=seed, report=len)
    return output


def published(init, kind, count, *override):
    chosen = settings.Settings(report=len, override=override)
    known = configs.load(init)
    name = settings.family(known) or kind
    return settings.published(name, kind, count, 16, known, chosen)


def test_lists_of_labels_become_shards(init, tmp_path):
    """In each form; numbers are in their order, and a label of `validation` alone counts."""
    pairs = {"text": ["ba", "bo", "be"], "text_b": ["da"] * 3, "label": [{10, 2}, (), [10]]}
    held_out = {"text": ["bi"], "text_b": ["da"], "label": [frozenset([7])]}
    data = built(init, tmp_path / "shards", (pairs, held_out), 16)
    task = manifest.read(data).task
    assert (task.kind, task.labels, task.pair) == ("multi_label", ("2", "7", "10"), True)
    chosen = settings.Settings(report=len)
    config = settings.published("roberta", "multi_label", 3, 16, configs.load(init), chosen)
    assert config.objectives[0].type == "multi_label" and config.recipe.optimizer.beta_2 == 0.98


def test_a_deberta_has_the_settings_of_its_family(tmp_path):
    """Also that of v3, with the objectives of an ELECTRA; its warm-up is for large data."""
    objectives = [{"type": "generator", "num_layers": 1}, {"type": "replaced_tokens"}]
    changes = {"encoder__disentangled": {}, "encoder__num_layers": 2, "objectives": objectives}
    configs.save(small.config(**changes), tmp_path / "config.yaml")
    assert settings.family(configs.load(tmp_path)) == "deberta"
    few, given, many = (
        published(tmp_path, "classification", 200),
        published(tmp_path, "classification", 200, "recipe.schedule.warmup_steps=30"),
        published(tmp_path, "classification", 400_000),
    )
    assert few.objectives[0].pooling == "pooled" and few.recipe.optimizer.layer_decay == 1
    # A tenth of 20 epochs of 13 steps.
    assert [c.recipe.schedule.warmup_steps for c in (few, given, many)] == [26, 30, 500]


def test_a_modernbert_has_the_head_of_its_family(tmp_path):
    """Its classes in transformers have no pooler."""
    configs.save(
        small.config(encoder__local_attention={}, encoder__positions="rotary"),
        tmp_path / "config.yaml",
    )
    (head,) = published(tmp_path, "regression", 200).objectives
    assert (settings.family(configs.load(tmp_path)), head.type, head.pooling, head.transform) == (
        "modernbert", "regression", "mean", True,
    )  # fmt: skip


def test_scores_and_answers_that_mean_something_else(init, tmp_path):
    """-1 may be no score; a class may be written as a float; an answer may be missing."""
    two = ["ba", "bo"]
    with pytest.raises(UserError, match="label 1: -1, and no other score is below 0"):
        official.finetune(two, [0.5, -1.0], init=init, model_dir=tmp_path / "model")
    scores = rows.labeled({"text": two, "label": [-0.5, -1]}, None)
    assert [row[2] for row in scores.rows(scores.task(), "train")] == [-0.5, -1.0]
    # The labels of `validation` may be the floats of a column with gaps.
    whole = rows.labeled({"text": two, "label": [3, 10]}, None)
    floats = whole.of({"text": two, "label": [10.0, 3.0]})
    task = whole.task(floats)
    assert task.labels == ("3", "10")
    assert [row[2] for row in floats.rows(task, "validation")] == [1, 0]
    with pytest.raises(UserError, match="validation: answer 1: there is none, and every question"):
        official.finetune_questions(
            two, two, two, validation=(two, two, ["ba", None]), init=init,
            model_dir=tmp_path / "model",
        )  # fmt: skip


@pytest.mark.slow
@pytest.mark.long
def test_a_table_and_a_loop_give_the_weights_of_lists(init, tmp_path):
    first, labels = texts(40)
    pair = (first, first[::-1], [0.5 * len(text) for text in first])
    held_out = tuple(column[:8] for column in pair)
    options = {**FAST, "init": init, "epochs": 2, "batch_size": 8, "max_length": 20, "seed": 3}
    official.finetune_pairs(*pair, **options, model_dir=tmp_path / "a", validation=held_out)
    tables = [
        Table(number=range(len(a)), one=a, two=b, score=c) for a, b, c in (pair, held_out)
    ]  # fmt: skip
    model = official.finetune_pairs(
        tables[0], **options, model_dir=tmp_path / "b", columns=("one", "two", "score"),
        validation=(tables[1],),
    )  # fmt: skip
    assert model.score(["ba"], ["bo"]).shape == (1,)
    # The same by `train`, with the config and the shards that the call made.
    names = ("text", "text_b", "label")
    splits = [rows.read(names, values, ()) for values in (pair, held_out)]
    shards = built(init, tmp_path / "shards", splits, 20, seed=3)
    config = configs.load(tmp_path / "a")
    training.train(config, shards, tmp_path / "c", init=init, report=len)
    assert manifest.read(shards).task.pair and config.recipe.batch_size == 8
    a, b, c = (checkpoints.load_variables(tmp_path / name, "last") for name in "abc")
    for name, value in a.items():
        np.testing.assert_array_equal(b[name], value)
        np.testing.assert_array_equal(c[name], value)


def test_shards_have_the_settings_of_the_call(init, tmp_path):
    """Those of `finetune` for the same rows: by the number of examples, and by the model."""
    first, labels = texts(40)
    path = tmp_path / "train.tsv"
    lines = [f"{text}\t{label}\n" for text, label in zip(first, labels, strict=True)]
    path.write_text("text\tlabel\n" + "".join(lines))
    tokenizer = str(init / "tokenizer")
    commands.run(
        "tfrecords_tools.build_task_shards", "--task=classification", "--text_column=text",
        "--label_column=label", f"--train_file={path}", f"--tokenizer={tokenizer}",
        f"--output={tmp_path / 'shards'}", "--max_length=20", status=0,
    )  # fmt: skip
    said, said_of_shards = [], []
    known = model_folder.config_of(init)
    given = settings.Settings(report=said.append, override=["recipe.steps=0"])
    expected = settings.published("classification", "classification", 40, 20, known, given)
    config = settings.of_shards(
        tmp_path / "shards", init, ["recipe.steps=0"], said_of_shards.append
    )
    assert config == expected and said == said_of_shards
    assert (config.recipe.epochs, config.recipe.batch_size) == (20, 16)
    assert "those of Mosbach et al. (2021) for few examples" in said[0]
    more = settings.of_shards(tmp_path / "shards", init, ["recipe.epochs=7"], len)
    assert more.recipe.epochs == 7


def test_a_published_task_has_its_own_settings(init, tmp_path, monkeypatch):
    first, labels = texts(4)
    examples = [rows.read(("text", "label"), values, ()) for values in ((first, labels),) * 2]
    content = manifest.read(built(init, tmp_path / "shards", examples, 20))
    shards = [dataclasses.replace(shard, records=20_000) for shard in content.shards]

    def found(**task):
        task = dataclasses.replace(content.task, **task)
        other = dataclasses.replace(content, task=task, shards=shards)
        monkeypatch.setattr(settings.manifest, "read", lambda folder: other)
        return settings.of_shards("SHARDS", init, report=len)

    mrpc = found(name="mrpc")
    assert (mrpc.name, mrpc.recipe.epochs) == (
        "mrpc",
        configs.load("configs/finetune/mrpc.yaml").recipe.epochs,
    )
    assert found(name="classification").recipe.epochs == 3
    for kind in ("ranking", "embedding"):
        with pytest.raises(UserError, match=f"SHARDS has shards of a task of the kind {kind}, "):
            found(name="other", kind=kind)


@pytest.mark.slow
@pytest.mark.long
def test_a_command_without_a_config_is_the_call(init, tmp_path):
    """The same shards, the same settings: the same weights to the bit."""
    first, labels = texts(24)
    options = ["--override=recipe.epochs=1", "--override=recipe.optimizer.learning_rate=0.01"]
    examples = [rows.read(("text", "label"), values, ()) for values in ((first, labels),) * 2]
    shards = built(init, tmp_path / "shards", examples, 20, seed=0)
    commands.run(
        "official.commands.garden", "train", f"--data={shards}", f"--init={init}",
        f"--model_dir={tmp_path / 'a'}", *options, status=0,
    )  # fmt: skip
    official.finetune(
        first, labels, init=init, model_dir=tmp_path / "b", validation=(first, labels),
        max_length=20, epochs=1, **FAST,
    )  # fmt: skip
    a, b = (checkpoints.load_variables(tmp_path / name, "last") for name in "ab")
    for name, value in a.items():
        np.testing.assert_array_equal(b[name], value)


def test_a_run_without_a_config_or_a_model_says_what_to_give(tmp_path):
    done = commands.run(
        "official.commands.garden", "train", f"--data={tmp_path}", f"--model_dir={tmp_path}/m"
    )
    assert done.returncode == 2 and "error: --config is missing: give one" in done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_tags(init, tmp_path):
    words = [text.split() for text in texts(60)[0]]
    tags = [["B-X" if word in FIRST else "O" for word in each] for each in words]
    options = {**FAST, "learning_rate": 3e-2, "init": init, "epochs": 8}
    model = official.finetune_tags(words, tags, **options, model_dir=tmp_path / "model")
    (entities,) = model.tag([["ba", "ka", "be"]])
    assert [(e.type, e.text) for e in entities] == [("X", "ba"), ("X", "be")]


@pytest.mark.slow
@pytest.mark.long
def test_questions(init, tmp_path):
    contexts = texts(24)[0]
    answers = [text.split()[1] for text in contexts]
    answers[:3] = [None, "", (answers[2], contexts[2].index(answers[2]))]
    options = {**FAST, "init": init, "epochs": 1, "validation": 0}
    model = official.finetune_questions(
        ["ba"] * 24, contexts, answers, **options, model_dir=tmp_path / "two"
    )
    assert model.task["no_answers"] and model.answer(["ba"], ["bo du fa"])[0].null_odds is not None
    given = Table(question=["ba"] * 21, context=contexts[3:], answer=answers[3:])
    options["answer_rule"] = "characters"
    model = official.finetune_questions(given, **options, model_dir=tmp_path / "one")
    assert model.task["answer_rule"] == "characters"
    assert not model.task["no_answers"] and checkpoints.best(tmp_path / "one") is None


@pytest.mark.slow
@pytest.mark.long
def test_a_folder_of_hugging_face(tmp_path):
    """It is converted; labels are numbers in their order; a model without a pooler has a head."""
    lines = []
    model = official.finetune(
        ["the cat", "the dog", "a mat", "the tree"] * 3, [10, 2, 1, 2] * 3, epochs=1,
        init=GOLDEN / "hf_files" / "bare", model_dir=tmp_path / "model", report=lines.append,
    )  # fmt: skip
    assert "a folder of Hugging Face" in lines[0]
    assert "1 epochs, batches of 11, learning rate 0.0001, texts" in "".join(lines)
    assert model.config.objectives[0].labels == ("1", "2", "10")


def test_data_that_cannot_be_used(init, tmp_path):
    def refused(call, *data, **options):
        with pytest.raises(UserError) as error:
            call(*data, init=init, model_dir=tmp_path / "model", **options)
        assert not (tmp_path / "model").exists()
        return str(error.value)

    two = ["ba", "bo"]
    for data, options, message in (
        (("ba", ["x"]), {}, "text: give a list"),
        ((two,), {}, "label: missing"),
        ((two, ["x"]), {}, "the lists must have the same length, got 2 text, 1 label"),
        (([], []), {}, "text: the list is empty"),
        ((["ba", " "], two), {}, "text 1: ' ' is not a text"),
        ((["ba", 3], two), {}, "text 1: 3 is not a text"),
        ((two, ["x", None]), {}, "label 1: None: every text needs a label"),
        ((two, [0.5, float("nan")]), {}, "label 1: nan: every text needs a label"),
        ((two, ["x", "x"]), {}, "label: all are 'x': expected at least two classes"),
        ((["ba"] * 3, [0, 1, -1]), {}, "label 2: -1 beside 0, 1 is what `datasets` writes for a"),
        ((["ba"] * 3, ["x", "y", -1]), {}, "label 2: -1 beside x, y is what `datasets` writes"),
        ((two, [1.0, 0.0]), {}, "label: 1.0 may be a class or a score: give task="),
        ((two, two), {"task": "ranking"}, "task: 'ranking' is none of 'classification', 'multi"),
        ((two, two), {"task": "multi_label"}, "label 0: 'ba' is not a list of labels: a text"),
        ((two, [["x"], None]), {}, "label 1: None: every text needs a label"),
        ((two, [["x"], "y"]), {}, "label 1: 'y' is not a list of labels"),
        ((two, [["x"], ["y", 0.5]]), {}, "label 1: 0.5 in ['y', 0.5] is neither a text nor a"),
        ((two, [["x"], ["y", "y"]]), {}, "label 1: ['y', 'y'] contains a label twice"),
        ((two, [[1, 0], [0, 1]]), {}, "label: these are zeros and ones, such as [1, 0]: give the"),
        ((two, [[], ()]), {}, "label: no text has a label"),
        ((two, [["x|y"], []]), {"validation": 0}, "'x|y' cannot be a label: '|' separates"),
        ((two, [["x"], []]), {"validation": (two, [["z"], []])}, "the label 'z' does not occur"),
        ((two, two), {"task": "regression"}, "label 0: 'ba' is not a number"),
        ((two, two), {"validation": 1}, "validation: 1 is not a share"),
        ((two, two), {"validation": (two, ["ba", "x"])}, "the label 'x' does not occur in"),
        ((two, two), {"max_length": 99}, "max_length: 99 is not from 4 to 32"),
        ((Table(text=two),), {}, "columns: the table has no column 'label': its columns are text"),
        ((Table(text=two), two), {}, "give a table alone"),
    ):
        assert message in refused(official.finetune, *data, **options)
    for words, tags, message in (
        ([["ba", "bo"]], [["O"]], "tags 0: 1 tags for 2 words"),
        (["ba bo"], [["O", "O"]], "words 0: 'ba bo' is not a list of texts"),
    ):
        assert message in refused(official.finetune_tags, words, tags)
    for answer, message in (
        ("fa", "answer 0: 'fa' is not in its context"),
        (("bo", 0), "answer 0: 'bo' is not at 0 of its context"),
    ):
        assert message in refused(official.finetune_questions, ["ba"], ["ba bo"], [answer])
    message = refused(official.finetune_questions, ["ba"], ["ba bo"], ["bo"], answer_rule="cmr")
    assert "answer_rule: 'cmr' is not known (did you mean 'cmrc'?): expected one of" in message
    with pytest.raises(TypeError, match="epoch"):
        official.finetune(two, two, init=init, model_dir=tmp_path / "model", epoch=3)
    with pytest.raises(AttributeError, match="no attribute 'fine_tune'"):
        official.fine_tune  # noqa: B018


@pytest.mark.slow
@pytest.mark.long
def test_long_texts_in_windows(init, tmp_path):
    """The settings reach the shards, and the model reads texts in the same windows."""
    data = texts(12)
    options = {**FAST, "init": init, "epochs": 1, "validation": 0, "max_length": 5}
    model = official.finetune(
        *data, model_dir=tmp_path / "model", windows=3, window_overlap=1,
        override=["objectives.0.join=max"], **options,
    )  # fmt: skip
    about = {key: model.task[key] for key in ("windows", "window_overlap", "max_length")}
    assert about == {"windows": 3, "window_overlap": 1, "max_length": 5}
    assert model.config.objectives[0].join == "max"
    words = FIRST[:7]  # three windows of three tokens that share one
    for before, reach in ((6, 1e-5), (7, 0)):  # the seventh word is read, and the eighth is not
        far = [" ".join([*words[:before], word]) for word in small.WORDS]
        moved = np.ptp([each.probabilities["first"] for each in model.classify(far)])
        assert moved > reach if reach else moved < 1e-6
    with pytest.raises(UserError, match="windows: for texts with labels or scores, not for a task"):
        official.finetune_tags([["a"]], [["O"]], model_dir=tmp_path / "x", windows=3, **options)
    with pytest.raises(UserError, match="few: a head on one vector reads no windows"):
        official.finetune(*data, model_dir=tmp_path / "x", windows=3, few=True, **options)
