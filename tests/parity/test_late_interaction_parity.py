"""Losses of late interaction, a training and folders, against sentence-transformers.

Shapes: B examples, C texts of an example, T tokens, D size of a state, V size of a vector.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official.config.late_interaction import Expansion, LateInteractionConfig, TokenIds
from official.conversion import converted_model, huggingface
from official.distribution import numerics, strategies
from official.modeling.objectives.late_interaction import Objective
from official.tokenizers.pair_packing import pack
from official.training import optimizers, train_step
from tests.official.modeling.objectives.test_late_interaction import ENCODER

B, T, D, V = 5, 6, 9, 7
# The options of the objective, and the number of texts of an example.
CASES = {
    "pairs": ({}, 2),
    "negatives": ({"scale": 2.0}, 4),
    "mean": ({"mean": True}, 3),
    "cached": ({"cached_rows": 2}, 3),
    "distillation": ({"loss": "distillation"}, 4),
    "warm": ({"loss": "distillation", "temperature": 2.0, "mean": True}, 3),
    "margins": ({"loss": "margin_mse"}, 4),
}
STEPS, ROWS = 20, 4
WORDS = "the cat dog sat on a mat ran far cats dogx . , ! ?".split()


@pytest.fixture(scope="module")
def both(hf5, tmp_path_factory):
    folder, draw = tmp_path_factory.mktemp("losses"), np.random.default_rng(0)
    given = {"cases": json.dumps({name: options for name, (options, _) in CASES.items()})}
    for name, (_, count) in CASES.items():
        given[f"states/{name}"] = draw.standard_normal((B, count, T, D))
        real = np.arange(T) < draw.integers(1, T + 1, (B, count, 1))
        real[1::2] = real[1::2, :, ::-1]  # padding before the tokens
        given[f"real/{name}"] = real
        expanded = ~real[:, 0]
        expanded[2:] = False
        given[f"expanded/{name}"] = expanded
        given[f"kernel/{name}"] = draw.standard_normal((D, V))
        given[f"teacher/{name}"] = draw.standard_normal((B, count - 1))
    np.savez(folder / "in.npz", **given)
    hf5.run("st_late_interaction.py", "losses", folder / "in.npz", folder / "out.npz")
    return given, dict(np.load(folder / "out.npz"))


@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_sentence_transformers(name, both):
    given, theirs = both
    options, count = CASES[name]
    config = LateInteractionConfig(size=V, ids=TokenIds(), **options)
    encoder = configs.to_dict(configs.Config("x", encoder=ENCODER))["encoder"]
    encoder = configs.from_dict(
        {"name": "x", "encoder": encoder | {"hidden_size": D, "num_heads": 3}}
    )
    layer = Objective(config, encoder.encoder, dtype="float64")
    layer.build()
    layer.projection.kernel.assign(given[f"kernel/{name}"])
    states, scored = tf.constant(given[f"states/{name}"]), given[f"real/{name}"].copy()
    scored[:, 0] |= given[f"expanded/{name}"]
    batch = {
        "scored": tf.constant(scored.reshape(-1, T)),
        "example_rows": tf.reshape(tf.range(B * count), (B, count)),
        "example_weights": tf.ones(B, "float64"),
        "teacher_scores": tf.constant(given[f"teacher/{name}"]),
    }
    with tf.GradientTape() as tape:
        tape.watch(states)
        encoded = {"sequence_output": tf.reshape(states, (-1, T, D))}
        (loss,) = layer.terms_of_vectors(layer.vectors(batch, encoded), batch).losses.values()
        loss /= B
    # It sums the scores in float32.
    assert float(loss) == pytest.approx(float(theirs[f"loss/{name}"]), abs=1e-6)
    gradient = tape.gradient(loss, states).numpy()
    assert np.abs(gradient).max() > 1e-3 and np.all(gradient[~scored] == 0)
    np.testing.assert_allclose(gradient, theirs[f"gradient/{name}"], rtol=1e-5, atol=1e-6)


def texts():
    """Queries, documents and negatives that begin with the same word, or with another one."""
    draw = np.random.default_rng(0)
    said = lambda: " ".join(draw.choice(WORDS, draw.integers(0, 14)))  # noqa: E731
    return [
        [[f"{word} {said()}" for word in draw.choice(WORDS[:9], ROWS)] for _ in range(3)]
        for _ in range(STEPS)
    ]


@pytest.fixture
def float64():
    numerics.set_precision("float64")
    yield
    numerics.set_precision("float32")


def test_a_training_is_that_of_sentence_transformers(hf5, tmp_path, float64):
    (tmp_path / "texts.json").write_text(json.dumps(texts()))
    hf5.run("st_late_interaction.py", "train", tmp_path / "texts.json", tmp_path)
    theirs = dict(np.load(tmp_path / "out.npz"))
    bert = huggingface.read(tmp_path / "bert")
    objective = LateInteractionConfig(
        size=7,
        query_prefix="[Q] ",
        document_prefix="[D] ",
        document_length=13,
        expansion=Expansion(9),
        skipped_words=tuple("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    ).for_tokenizer(bert.tokenizer)
    assert objective.ids.query_prefix == (20,) and len(objective.ids.skipped) == 4
    recipe = configs.Recipe(
        steps=STEPS,
        batch_size=ROWS,
        optimizer=configs.Optimizer(
            learning_rate=1e-3, epsilon=1e-4, weight_decay=0.0, clip_norm=0.0
        ),
        schedule=configs.Schedule(type="constant"),
    )
    config = configs.ResolvedConfig.of(bert.config, objectives=(objective,), recipe=recipe)
    strategy = tf.distribute.get_strategy()
    model = strategies.build_model(config, strategy)
    for path, variable in model.variables_by_path().items():
        variable.assign(bert.variables.get(path, theirs["first"]))
    optimizer = optimizers.make(recipe, STEPS, model)
    trained = train_step.TrainStep(model, optimizer, strategy, seed=0)
    fields = []
    for columns in texts():
        flat = [text for example in zip(*columns, strict=True) for text in example]
        ids = tf.ragged.constant([x.tolist() for x in bert.tokenizer.encode(flat)], tf.int32)
        batch = pack([ids], bert.tokenizer, 19, pad=True)
        fields.append({k: tf.reshape(v, (ROWS, 3, 19)) for k, v in batch.items()})
    data = {name: np.stack([each[name] for each in fields]) for name in fields[0]}
    data["example_weights"] = np.ones((STEPS, ROWS), np.float32)
    batches = iter(tf.data.Dataset.from_tensor_slices(data))
    sums = trained.run(batches, STEPS).sums
    losses = [trained.statistics.summarize(row[None], model.term_weights)["loss"] for row in sums]
    np.testing.assert_allclose(losses, theirs["losses"], rtol=1e-5)
    found = {path: variable.numpy() for path, variable in model.variables_by_path().items()}
    kernel = found.pop("late_interaction/projection/kernel")
    np.testing.assert_allclose(kernel, theirs["kernel"], atol=1e-5)
    assert np.abs(kernel - theirs["first"]).max() > 5e-3
    converted = huggingface.read(tmp_path / "after")
    for path, value in converted.variables.items():
        np.testing.assert_allclose(found[path], value, atol=1e-5, err_msg=path)


QUERIES = [
    "In Spain ?",
    "The dogs ran to the river and to the sea , and the cat sat there .",
    "sea",
]
DOCUMENTS = [
    "The cat sat on the river .", "In Spain ?", "sea", "In Spain the river ran to the sea . " * 3,
    "Dogs  ran\tto", "a mat , far far",
]  # fmt: skip


@pytest.fixture(scope="module")
def folders(hf5, tmp_path_factory):
    """The parent of the folders, the answers to theirs, and our models of them."""
    parent = tmp_path_factory.mktemp("folders")
    for name in ("theirs", "back"):
        (parent / name).mkdir()
        texts = {"queries": QUERIES, "documents": DOCUMENTS}
        (parent / name / "texts.json").write_text(json.dumps(texts))
    hf5.run("st_late_interaction.py", "folders", parent / "theirs")
    theirs = json.loads((parent / "theirs" / "answers.json").read_text())
    for name in theirs:
        converted_model.write(huggingface.read(parent / "theirs" / name), parent / name)
    return parent, theirs, {name: official.load(parent / name) for name in theirs}


def agree_with(model, right):
    """Compares the vectors and scores of a model with an answer."""
    queries = model.token_vectors(QUERIES, "query")
    documents = model.token_vectors(DOCUMENTS)
    for found, expected in ((queries, right["queries"]), (documents, right["documents"])):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    numbers, scores = model.search(QUERIES, DOCUMENTS, top_k=len(DOCUMENTS))
    np.testing.assert_allclose(
        scores, np.take_along_axis(np.array(right["scores"]), numbers, 1), atol=1e-5
    )
    assert np.ptp(right["scores"]) > 0.02


def test_folders_that_came_in_have_the_vectors_there(folders):
    _, theirs, ours = folders
    assert theirs.keys() == {"bert", "roberta", "modernbert_left", "electra"}
    for name, right in theirs.items():
        agree_with(ours[name], right)
    assert [len(x) for x in theirs["bert"]["queries"]] == [9] * 3


def test_folders_that_went_out_have_the_vectors_here(hf5, folders):
    parent, theirs, _ = folders
    for name in theirs:
        huggingface.write(parent / name, parent / "back" / name, "last")
    hf5.run("st_late_interaction.py", "answer", parent / "back")
    back = json.loads((parent / "back" / "answers.json").read_text())
    for name, right in theirs.items():
        np.testing.assert_allclose(back[name]["scores"], right["scores"], atol=1e-5)
        for one, other in zip(back[name]["documents"], right["documents"], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
