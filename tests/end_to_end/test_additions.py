"""The code of docs/extending.md, added to a copy of the packages, trains."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests import ROOT

# The line of a file before which a class or an entry is added; other files are new.
PLACES = {
    "config": "PARTS = (",
    "config/blocks.py": "NAMED = (",
    "conversion": "# `model_type` of config.json",
    "config/recipe.py": "# Settings that must keep",
    "training/optimizers": "def make(",
    "tokenizers": "def load(",
    "tasks": "GENERIC = ",
}
PAGE = ROOT / "docs" / "extending.md"
NUMBERS = {word: n for n, word in enumerate(("three", "four", "five", "six"), start=3)}
FIELDS = "    adapter_size: int | None = omitted()\n"  # before it, fields of a transformer
PROGRAM = """
import dataclasses, json, pathlib, sys
import keras
import numpy as np
import official
import tensorflow as tf
from official import data, tasks, tokenizers
from official.config import registry
from official.training.run import train
from tests import small
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.tasks import builder

root = pathlib.Path.cwd()
assert pathlib.Path(official.__file__).parents[1] == root

# The encoder, on two rows with different padding.
part = registry.ENCODERS["bag"](vocab_size=9, hidden_size=4, activation="relu")
encoder = registry.module_of(part).Encoder(part)
ids, mask = np.array([[3, 5, 5, 8], [7, 1, 0, 0]]), np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)
states = np.asarray(encoder(ids, padding_mask=mask)["sequence_output"])
table, kernel = np.asarray(encoder.token_table.table), np.asarray(encoder.mix.kernel)
for row, real, found in zip(ids, mask, states):
    mean = sum(table[i] for i in row[real]) / real.sum()
    for i, state in zip(row, found):
        expected = np.maximum(np.concatenate([table[i], mean]) @ kernel, 0)
        np.testing.assert_allclose(state, expected, atol=1e-6)


# The corruption: pretraining with it, and with that encoder.
sizes = {"type": "bag", "hidden_size": 16, "vocab_size": None}
config = small.config(
    corruption={"type": "suffix_masks"}, encoder=sizes, objectives=[{"type": "masked_lm"}],
    recipe__steps=5, recipe__report_every=1,
)
shards = small.shard_folder(root / "shards", config)
plain = data.ShardDataset(shards, small.config(corruption=None, objectives=[]), training=True)
hidden = data.ShardDataset(shards, config, training=True)
specials = set(hidden.tokenizer.special_ids)
for before, after in zip(plain.dataset(8).take(2), hidden.dataset(8).take(2)):
    for i, (row, real) in enumerate(zip(before["token_ids"].numpy(), before["padding_mask"])):
        n = int(np.sum(real))
        at = [j for j in range(n - 4, n) if row[j] not in specials]
        count = int(after["masked_weights"][i].numpy().sum())
        assert after["masked_positions"][i].numpy()[:count].tolist() == at and at
        assert after["masked_ids"][i].numpy()[:count].tolist() == row[at].tolist()
        row = [hidden.tokenizer.mask_id if j in at else x for j, x in enumerate(row)]
        assert after["token_ids"][i].numpy().tolist() == row
train(config, shards, root / "pretrained", evaluate=False, report=lambda line: None)

# The optimizer: two updates of a matrix, and of a bias, which has no weight decay.
from official.training.optimizers.lion import Lion
values = [np.array([[0.5, -1.0]], np.float32), np.array([2.0], np.float32)]
variables = [keras.Variable(x, name=name) for x, name in zip(values, ("kernel", "bias"))]
lion = Lion(0.1, beta_1=0.9, beta_2=0.5, weight_decay=0.25, no_decay=("bias",))
lion.build(variables)
means = [np.zeros_like(x) for x in values]
for gradients in ([[[1.0, -2.0]], [0.25]], [[[-8.0, 0.5]], [-3.0]]):
    lion.apply([tf.constant(g) for g in gradients])
    for i, (g, decay) in enumerate(zip(gradients, (0.25, 0.0))):
        update = np.sign(0.9 * means[i] + 0.1 * np.array(g)) + decay * values[i]
        values[i], means[i] = values[i] - 0.1 * update, 0.5 * (means[i] + np.array(g))
for variable, expected in zip(variables, values):
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6)

# The form of a layer: the weights of its attention.
from official.config.encoders import TransformerConfig
part = TransformerConfig(
    vocab_size=9, hidden_size=8, num_layers=1, num_heads=2, intermediate_size=8, positions="alibi",
    alibi_base=4.0,
)
encoder = registry.module_of(part).Encoder(part)
plain = registry.module_of(part).Encoder(dataclasses.replace(part, positions="none"))
given = {"token_ids": ids, "padding_mask": mask, "output_all": True}
(biased,), (equal,) = (each(**given)["attention_parts"] for each in (encoder, plain))
for n, slope in enumerate((2.0**-2, 2.0**-4)):
    fall = [[-slope * abs(t - s) for s in range(4)] for t in range(4)]
    moved = np.asarray(biased.scores)[:, n] - np.asarray(equal.scores)[:, n]
    np.testing.assert_allclose(moved, [fall, fall], atol=1e-6)
some = encoder(ids, padding_mask=mask, read_positions=np.array([[2], [1]]))["sequence_output"]
whole = np.asarray(encoder(**given)["sequence_output"])
np.testing.assert_allclose(some[:, 0], whole[[0, 1], [2, 1]], atol=1e-6)

# The converter: a stored RoBERTa under other names has its outputs, and is written as a RoBERTa.
from official.conversion import converted_model, huggingface
from official.saving import model_folder
from tests.official.conversion import systems
stored, parts, hidden_states = systems.load("roberta_masked_lm")
renamed = {
    name.replace("roberta.", "data2vec_text."): x for name, x in parts["weight"].items()
}
systems.write(root / "theirs", {**stored, "model_type": "data2vec-text"}, renamed)
(root / "theirs" / "vocab.txt").unlink()
systems.write_vocabulary(root / "theirs", "roberta")
read = huggingface.read(root / "theirs")
converted_model.write(read, root / "converted")
assert systems.compare(model_folder.restore(root / "converted")[2], parts, hidden_states) == {}
huggingface.write(root / "converted", root / "written", "last")
assert json.loads((root / "written" / "config.json").read_text())["model_type"] == "roberta"

# The tokenizer, as the rule says in Python, from a saved folder; and pretraining with it, with the
# form of a layer and with the optimizer.
letters = [*small.SPECIALS, " ", *sorted(set("".join(small.WORDS)))]
(root / "letters").mkdir()
(root / "letters" / "letters.txt").write_text("".join(f"{each}\\n" for each in letters))
tokenizers.load(root / "letters").save(root / "saved")
tokenizer = tokenizers.load(root / "saved")
texts = ["ba é[MASK]", "", "ta  ko", "ß"]
wanted = [[letters.index(c) if c in letters else 1 for c in text] for text in texts]
assert tf.function(tokenizer.tokenize)(tf.constant(texts)).to_list() == wanted
for text, row, (ids, starts, ends) in zip(texts, wanted, tokenizer.encode_with_offsets(texts)):
    assert ids.tolist() == row and [text[a:b] for a, b in zip(starts, ends)] == list(text)
marked = tokenizer.encode(texts[:1], special=True)[0].tolist()
assert marked == [*wanted[0][:4], tokenizer.mask_id]
assert tokenizer.decode(wanted[2]) == texts[2]
spelled = small.config(
    encoder__positions="alibi", encoder__alibi_base=4.0, encoder__vocab_size=None,
    corruption={"type": "suffix_masks"}, recipe__steps=5, recipe__report_every=1,
    recipe__optimizer={"type": "lion", "learning_rate": 1e-3, "beta_2": 0.99},
)
built = small.built_here(
    root / "spelled", Settings.from_config(spelled, root / "saved"), small.documents(30)
)
assert built.tokenizer_fingerprint == tokenizer.fingerprint
train(spelled, root / "spelled", root / "spelling", evaluate=False, report=lambda line: None)

# The kind of task: its shards, and fine-tuning.
texts = [" ".join(small.WORDS[i : i + 1 + i % 4]) for i in range(16)]
(root / "train.tsv").write_text("text\\n" + "".join(f"{text}\\n" for text in texts))
task = tasks.generic("length", "text")
files = {"train": root / "train.tsv"}
builder.build(task, files, hidden.tokenizer, root / "lengths", 16, report=lambda line: None)
config = small.config(
    segments=None, corruption=None, encoder=sizes, objectives=[{"type": "length"}],
    recipe__steps=5, recipe__report_every=1,
)
source = data.ShardDataset(root / "lengths", config)
counts = {int(r): float(n) for b in source.dataset(8) for r, n in zip(b["row"], b["score"])}
assert counts == {i: float(len(text.split())) for i, text in enumerate(texts)}
train(config, root / "lengths", root / "tuned", evaluate=False, report=lambda line: None)
names = ("pretrained", "spelling", "tuned")
print(json.dumps([(root / name / "metrics.jsonl").read_text() for name in names]))
"""


def sections():
    """The sections of the page that add a part, by their headings."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    return {
        heading: text
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
        if heading.startswith("Add a")
    }


def path_of(name):
    """The path of a file as the first line of a block names it."""
    new = re.fullmatch(r"New file (\S+) of (\S+)", name)
    return f"{new[2].replace('.', '/')}/{new[1]}" if new else name


def listings(text):
    """The code blocks that name their file in the first line, with the file."""
    blocks = re.findall(r"```python\n# (\S+\.py|New file [^\n]*)\n(.*?)```", text, re.S)
    return [(path_of(name), code) for name, code in blocks]


def add(folder, name, code):
    """Adds a block to the copy: a new file, or a class before the place where it is listed."""
    path = folder / name
    if not path.exists():
        path.write_text(code)
        return
    text, (_, package, *rest) = path.read_text(), name.split("/")
    if code.startswith(" "):
        assert FIELDS in text
        path.write_text(text.replace(FIELDS, code + FIELDS, 1))
        return
    place = next(
        PLACES[each]
        for each in ("/".join((package, *rest)), f"{package}/{rest[0]}", package)
        if each in PLACES
    )
    before, found, after = text.partition(f"\n{place}")
    assert found, f"{name} has no {place!r}"
    listed = "".join(f"{cls}, " for cls in re.findall(r"^class (\w+)", code, re.M))
    path.write_text(f"{before}\n{code}\n\n{place}{listed}{after}")


def test_an_addition_has_the_files_that_the_page_counts():
    """Source files of the listings, and tests. A kind of task has the files of its head too."""
    text, sources = PAGE.read_text(encoding="utf-8"), {}
    for heading, section in sections().items():
        # Also the blocks that show what is there already.
        names = re.findall(r"```python\n# (New file [^\n]*|\S+\.py)", section)
        sources[heading] = len({path_of(name) for name in names})
    sources["Add a kind of task in five files"] += sources["Add a head in three files"]
    tests = {"Add a converter in six files": 4}  # which compare with transformers
    for heading, count in sources.items():
        files = count + tests.get(heading, 1)
        word = re.fullmatch(r"Add .* in (\w+) files", heading)[1]
        assert files == NUMBERS[word], heading
        row = re.search(rf"\(#{heading.lower().replace(' ', '-')}\).*\| (\d) \| (\d) \|", text)
        assert (int(row[1]), int(row[2])) == (count, files), heading


@pytest.mark.slow  # Not `long`: the page changes whenever a base class does.
def test_what_the_page_adds_trains(tmp_path):
    for package in ("official", "tfrecords_tools"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for section in sections().values():
        for name, code in listings(section):
            add(tmp_path, name, code)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name, text in zip(
        ("masked_lm", "masked_lm", "length"),
        json.loads(done.stdout.splitlines()[-1]),
        strict=True,
    ):
        lines = [json.loads(line) for line in text.splitlines()]
        assert max(line["step"] for line in lines) == 5
        losses = [line[name] for line in lines if name in line]
        assert len(losses) == 5 and all(0 < abs(loss) < 100 for loss in losses)
