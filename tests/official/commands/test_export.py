import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official import tokenizers
from official.config.corruptions import TokenMasksConfig
from official.config.encoders import TransformerConfig, TransformerXLConfig
from official.config.heads import ClassificationConfig, RegressionConfig
from official.config.objectives import GeneratorConfig, MaskedLMConfig, ReplacedTokensConfig
from official.saving import checkpoints, model_folder, named_arrays
from official.serving import loaded_model
from official.serving.export import saved_model
from official.utils.errors import UserError
from tests import ROOT, commands

GOLDEN = ROOT / "tests" / "golden" / "hf_files" / "bare"
TEXTS = [
    "The cat sat.",
    "",
    "a",
    "\x00\t\x07 ",
    "dog " * 100,
    "The quick dog ran under the tree, and a cat sat on the mat!",
    "ünïcødé 猫 😀",
]
SECOND = ["The dog ran.", "", "cats", "?", "cat " * 50, "", "a mat"]
OBJECTIVES = {
    "classification": ClassificationConfig(labels=("bad", "good", "neither")),
    "regression": RegressionConfig(),
    "bare": None,
}

GDES = {"size": 1.0, "num_layers": 1, "sharing": "gdes"}

# What a server does, without anything of this project.
CLIENT = """
import json, sys
import numpy as np
import tensorflow as tf
import tensorflow_text
folder, requests, answers = sys.argv[1:]
loaded = tf.saved_model.load(folder)
out = {}
texts = lambda v: [texts(x) for x in v] if isinstance(v, list) else bytes.fromhex(v)
for i, request in enumerate(json.load(open(requests))):
    inputs = {}
    for name, value in request["inputs"].items():
        kind = tf.int32 if name.startswith("input_") else tf.string
        value = texts(value) if kind == tf.string else value
        inputs[name] = tf.constant(value, kind)
    for name, value in loaded.signatures[request["signature"]](**inputs).items():
        out[f"{i}/{name}"] = value.numpy()
np.savez(answers, **{k: v.astype("S") if v.dtype == object else v for k, v in out.items()})
assert not any(name.startswith("official") for name in sys.modules)
"""


def _hex(texts):
    if not isinstance(texts, str | bytes):
        return [_hex(text) for text in texts]
    return (texts if isinstance(texts, bytes) else texts.encode()).hex()


def ask(folder, requests, tmp_path):
    """Answers of a process that has only TensorFlow, one dict for each request."""
    plain = [
        {
            "signature": signature,
            "inputs": {
                name: np.asarray(value).tolist() if name.startswith("input_") else _hex(value)
                for name, value in inputs.items()
            },
        }
        for signature, inputs in requests
    ]
    (tmp_path / "requests.json").write_text(json.dumps(plain))
    (tmp_path / "client.py").write_text(CLIENT)
    files = [folder, tmp_path / "requests.json", tmp_path / "answers.npz"]
    commands.run(tmp_path / "client.py", *files, status=0)
    answers = [{} for _ in plain]
    for key, value in np.load(tmp_path / "answers.npz").items():
        number, name = key.split("/")
        answers[int(number)][name] = value
    return answers


def causal_encoder():
    """Of a causal LM."""
    return TransformerConfig(
        vocab_size=tokenizers.load(GOLDEN).vocab_size, hidden_size=12, num_layers=2, num_heads=3,
        intermediate_size=20, max_positions=24, initializer_range=0.5, causal=True, pooler=False,
    )  # fmt: skip


def make(folder, kind, max_length=12, pair=False, **changes):
    """A model folder with random weights."""
    tokenizer = tokenizers.load(GOLDEN)
    encoder = TransformerConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=12, num_layers=2, num_heads=3,
        intermediate_size=20, max_positions=24, initializer_range=0.5,
    )  # fmt: skip
    objective = OBJECTIVES[kind]
    objectives = (objective,) if objective else ()
    config = configs.Config(
        **{"name": kind, "encoder": encoder, "objectives": objectives, **changes}
    )
    config = dataclasses.replace(config, recipe=dataclasses.replace(config.recipe, steps=1))
    configs.save(config, folder / "config.yaml")
    tokenizer.save(folder / "tokenizer")
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    checkpoints.save(folder, 1, variables, {})
    (folder / "task.json").write_text(json.dumps({"pair": pair, "max_length": max_length}))
    return folder


@pytest.fixture(scope="module", params=OBJECTIVES)
def exported(request, tmp_path_factory):
    parent = tmp_path_factory.mktemp(request.param)
    make(parent / "model", request.param)
    saved_model.export(parent / "model", parent / "saved")
    return request.param, parent


def in_process(loaded, kind, texts, second=None, max_length=12):
    """The same answers, one text at a time, by the plain rule of BERT and the model itself."""
    answers = []
    for row, text in enumerate(texts):
        parts = [loaded.tokenizer.encode([text])[0].tolist()]
        if second is not None:
            parts.append(loaded.tokenizer.encode([second[row]])[0].tolist())
        while sum(map(len, parts)) + len(parts) + 1 > max_length:
            longest = parts[0] if len(parts) == 1 or len(parts[0]) > len(parts[1]) else parts[1]
            longest.pop()
        ids, types = [loaded.tokenizer.cls_id], [0]
        for number, part in enumerate(parts):
            ids += [*part, loaded.tokenizer.sep_id]
            types += [number] * (len(part) + 1)
        batch = {"token_ids": np.array([ids]), "segment_ids": np.array([types])}
        outputs = loaded.model.encode(batch) if kind == "bare" else loaded.model.predictions(batch)
        answers.append({name: np.asarray(value)[0] for name, value in outputs.items()})
    return answers


def compare(kind, expected, answer):
    names = {
        "classification": {"probabilities", "label"},
        "regression": {"score"},
        "bare": {"sequence_output", "pooled_output", "input_mask"},
    }[kind]
    assert answer.keys() == names
    for row, wanted in enumerate(expected):
        for name, value in wanted.items():
            actual = answer[name][row]
            if name == "sequence_output":
                assert answer["input_mask"][row].sum() == len(value)
                assert answer["input_mask"][row][: len(value)].all()
                actual = actual[: len(value)]
            np.testing.assert_allclose(actual, value, atol=1e-5)
        if kind == "classification":
            label = OBJECTIVES[kind].labels[wanted["probabilities"].argmax()]
            assert answer["label"][row] == label.encode()


@pytest.mark.slow
@pytest.mark.long
def test_a_process_with_tensorflow_alone_answers_the_same(exported, tmp_path):
    kind, parent = exported
    loaded = official.load(parent / "model")
    expected = in_process(loaded, kind, TEXTS)
    expected_pairs = in_process(loaded, kind, TEXTS, SECOND)
    bad = [b"The \xff\xfecat\x80", b"\xc3"]
    replaced = [text.decode("utf-8", "replace") for text in bad]
    answers = ask(
        parent / "saved",
        [
            ("serving_default", {"text": TEXTS}),
            ("single", {"text": TEXTS[4:5]}),
            ("single", {"text": TEXTS[1:2]}),
            ("pair", {"text": TEXTS, "text_b": SECOND}),
            ("pair", {"text": TEXTS[4:5], "text_b": SECOND[4:5]}),
            ("single", {"text": bad}),
        ],
        tmp_path,
    )
    compare(kind, expected, answers[0])
    compare(kind, expected[4:5], answers[1])
    compare(kind, expected[1:2], answers[2])
    compare(kind, expected_pairs, answers[3])
    compare(kind, expected_pairs[4:5], answers[4])
    compare(kind, in_process(loaded, kind, replaced), answers[5])


@pytest.mark.slow
def test_token_signature_takes_padded_rows_of_any_size(exported):
    kind, parent = exported
    signature = tf.saved_model.load(str(parent / "saved")).signatures["tokens"]
    names = {"input_word_ids", "input_mask", "input_type_ids"}
    specs = signature.structured_input_signature[1]
    assert set(specs) == names
    assert all(s.dtype == tf.int32 and s.shape.as_list() == [None, None] for s in specs.values())
    model = model_folder.restore(parent / "model")[2]
    rng = np.random.default_rng(0)
    for rows, length in ((1, 3), (4, 24)):
        lengths = rng.integers(2, length + 1, rows)
        mask = np.arange(length) < lengths[:, None]
        ids = rng.integers(5, 35, (rows, length)) * mask
        types = rng.integers(0, 2, (rows, length))
        batch = {"token_ids": ids, "segment_ids": types, "padding_mask": mask}
        answers = signature(
            input_word_ids=tf.constant(ids, tf.int32),
            input_mask=tf.constant(mask, tf.int32),
            input_type_ids=tf.constant(types, tf.int32),
        )
        if kind == "bare":
            assert answers.keys() == {"sequence_output", "pooled_output"}
            expected = {n: v for n, v in model.encode(batch).items() if n in answers}
        else:
            expected = model.predictions(batch)
        for name, value in expected.items():
            given, value = answers[name].numpy(), np.asarray(value)
            if name == "sequence_output":
                given, value = given[mask], value[mask]
            np.testing.assert_allclose(given, value, atol=1e-5)


@pytest.mark.slow
def test_token_signature_refuses_more_tokens_than_positions(exported):
    signature = tf.saved_model.load(str(exported[1] / "saved")).signatures["tokens"]
    long = tf.ones([1, 25], tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 24 tokens"):
        signature(input_word_ids=long, input_mask=long, input_type_ids=long)


@pytest.mark.slow
def test_pairs_must_be_of_the_same_number(exported):
    signature = tf.saved_model.load(str(exported[1] / "saved")).signatures["pair"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="different numbers of texts"):
        signature(text=tf.constant(["a", "b"]), text_b=tf.constant(["a"]))


def test_no_text_no_answer(exported):
    kind, parent = exported
    signature = tf.saved_model.load(str(parent / "saved")).signatures["serving_default"]
    for value in signature(text=tf.constant([], tf.string)).values():
        assert value.shape[0] == 0


def test_every_variable_is_stored_once(exported):
    _, parent = exported
    stored = tf.train.load_checkpoint(str(parent / "saved" / "variables" / "variables"))
    shapes = [
        tuple(shape)
        for name, shape in stored.get_variable_to_shape_map().items()
        if name != "_CHECKPOINTABLE_OBJECT_GRAPH"
    ]
    model = model_folder.restore(parent / "model")[2]
    assert sorted(shapes) == sorted(tuple(v.shape) for v in model.variables)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "options"),
    [
        ("float32", {"size": 1 / 3}),
        pytest.param("float32", GDES, marks=pytest.mark.long),
        pytest.param("int8", GDES, marks=pytest.mark.long),
    ],
)
def test_pretraining_heads_and_the_generator_are_not_exported(tmp_path, precision, options):
    """The generator of GDES has a part of the token table, which is the encoder's too."""
    objectives = (GeneratorConfig(**options), ReplacedTokensConfig())
    make(
        tmp_path / "model",
        "bare",
        objectives=objectives,
        segments=configs.Segments(max_length=12),
        corruption=TokenMasksConfig(),
    )
    saved_model.export(tmp_path / "model", tmp_path / "saved", precision=precision)
    stored = tf.train.load_checkpoint(str(tmp_path / "saved" / "variables" / "variables"))
    names = stored.get_variable_to_shape_map()
    model = model_folder.restore(tmp_path / "model")[2]
    if precision == "float32":
        assert len(names) - 1 == len(model.encoder.weights) < len(model.variables)
    signature = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    answers = signature(text=tf.constant(TEXTS))["sequence_output"]
    loaded = official.load(tmp_path / "model", precision=precision)
    expected = loaded.encode(TEXTS, pooling="first")
    np.testing.assert_allclose(answers[:, 0], expected, atol=1e-5)
    # By the model as it is trained, and not in integers.
    batch = {"token_ids": np.array([[loaded.tokenizer.cls_id, loaded.tokenizer.sep_id]])}
    trained = model.encode(batch)["sequence_output"][0, 0]
    np.testing.assert_allclose(expected[1], trained, atol=1e-5 if precision == "float32" else 0.2)


@pytest.mark.slow
def test_a_model_of_pairs_is_served_pairs(tmp_path):
    make(tmp_path / "model", "regression", pair=True)
    assert saved_model.export(tmp_path / "model", tmp_path / "saved") == ("pair", 12)
    signature = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    assert set(signature.structured_input_signature[1]) == {"text", "text_b"}
    loaded = official.load(tmp_path / "model")
    answers = signature(text=tf.constant(TEXTS), text_b=tf.constant(SECOND))
    compare("regression", in_process(loaded, "regression", TEXTS, SECOND), answers)


@pytest.mark.slow
def test_the_length_can_be_chosen(tmp_path):
    make(tmp_path / "model", "regression")
    done = saved_model.export(tmp_path / "model", tmp_path / "saved", max_length=20, inputs="pair")
    assert done == ("pair", 20)
    signature = tf.saved_model.load(str(tmp_path / "saved")).signatures["single"]
    loaded = official.load(tmp_path / "model")
    expected = in_process(loaded, "regression", TEXTS, max_length=20)
    compare("regression", expected, signature(text=tf.constant(TEXTS)))


@pytest.mark.slow
@pytest.mark.long
def test_the_checkpoint_can_be_chosen(tmp_path):
    make(tmp_path / "model", "regression")
    variables = checkpoints.load_variables(tmp_path / "model", "last")
    for path in ("regression/output/kernel", "regression/output/bias"):
        variables[path] = variables[path] * 0 + 3
    checkpoints.save(tmp_path / "model", 2, variables, {})
    checkpoints.mark_best(tmp_path / "model", 1, "loss", 1.0)
    scores = {}
    for which in ("best", "last", str(tmp_path / "model" / "checkpoints" / "step-00000002")):
        saved_model.export(tmp_path / "model", tmp_path / which[-4:], checkpoint=which)
        signature = tf.saved_model.load(str(tmp_path / which[-4:])).signatures["single"]
        scores[which[-4:]] = signature(text=tf.constant(["a cat"]))["score"].numpy()
    assert scores["last"] == scores["0002"]
    assert abs(scores["best"] - scores["last"]) > 1e-3


@pytest.mark.slow
def test_the_head_of_pretraining_is_left_out(tmp_path):
    make(tmp_path / "model", "bare")
    config = configs.load(tmp_path / "model")
    config = dataclasses.replace(
        config,
        segments=configs.Segments(max_length=16),
        corruption=configs.from_dict(
            {"name": "x", "segments": {}, "corruption": {"type": "token_masks"}}
        ).corruption,  # fmt: skip # noqa: E501
        objectives=(MaskedLMConfig(),),
    )
    configs.save(config, tmp_path / "model" / "config.yaml")
    (tmp_path / "model" / "task.json").unlink()
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    checkpoints.save(tmp_path / "model", 2, variables, {})
    assert saved_model.export(tmp_path / "model", tmp_path / "saved") == ("single", 16)
    outputs = tf.saved_model.load(str(tmp_path / "saved")).signatures["tokens"].structured_outputs
    assert set(outputs) == {"sequence_output", "pooled_output"}


@pytest.mark.slow
def test_a_memory_is_not_given(tmp_path):
    encoder = TransformerXLConfig(
        vocab_size=tokenizers.load(GOLDEN).vocab_size, hidden_size=12, num_layers=1, num_heads=3,
        intermediate_size=20, memory_length=5, pooler=True,
    )  # fmt: skip
    make(tmp_path / "model", "bare", encoder=encoder)
    saved_model.export(tmp_path / "model", tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["tokens"]
    assert set(serve.structured_outputs) == {"sequence_output", "pooled_output"}
    rows = {
        "input_word_ids": [[2, 7, 3, 0, 0], [2, 9, 8, 7, 3]],
        "input_mask": [[1, 1, 1, 0, 0], [1] * 5],
        "input_type_ids": [[0] * 5] * 2,
    }
    actual = serve(**{name: tf.constant(value) for name, value in rows.items()})
    model = loaded_model.load(tmp_path / "model").model
    batch = dict(zip(("token_ids", "padding_mask", "segment_ids"), rows.values(), strict=True))
    expected = model.encode({name: np.array(value) for name, value in batch.items()})
    for name, value in actual.items():
        real = np.array(rows["input_mask"]) > 0 if name == "sequence_output" else ...
        np.testing.assert_allclose(value.numpy()[real], expected[name][real], atol=1e-6)


def test_what_cannot_be_exported_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"not a model folder: there is no config\.yaml in it"):
        saved_model.export(tmp_path, tmp_path / "saved")
    model = make(tmp_path / "model", "classification")
    for length in (3, 25):
        with pytest.raises(UserError, match=f"--max_length={length} is not from 4 to 24"):
            saved_model.export(model, tmp_path / "saved", max_length=length)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine").write_text("keep")
    with pytest.raises(UserError, match="there is there already"):
        saved_model.export(model, tmp_path / "there")
    text = (model / "config.yaml").read_text().partition("\n")[2]  # without the checksum
    nameless = text.replace("labels:\n  - bad\n  - good\n  - neither\n", "labels: []\n")
    assert nameless != text
    nameless = nameless.replace("num_labels: null", "num_labels: 3")
    (model / "config.yaml").write_text(nameless)
    with pytest.raises(UserError, match=r"no `labels` in config\.yaml: write the names there"):
        saved_model.export(model, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


@pytest.mark.slow
def test_the_command_line(tmp_path):
    def run(*flags):
        return commands.run("official.export", *flags)

    make(tmp_path / "model", "regression")
    done = run(f"--model_dir={tmp_path / 'model'}", f"--output={tmp_path / 'saved'}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        f"wrote {tmp_path / 'saved'}: serving_default takes a text, cut at 12 tokens\n"
    )
    assert (tmp_path / "saved" / "saved_model.pb").exists()
    missing = run(f"--model_dir={tmp_path / 'model'}")
    assert missing.returncode == 2
    assert missing.stderr.endswith("error: --output is missing; --help says what it is\n")
