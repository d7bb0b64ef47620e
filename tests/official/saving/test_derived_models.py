"""A student has layers of its teacher bit for bit; an ELMo with a table of words reads alike."""

import dataclasses

import numpy as np
import pytest

import official
from official import config as configs
from official import tokenizers
from official.commands import students as command
from official.config.encoders import (
    Convolution,
    Disentangled,
    LocalAttention,
    TransformerConfig,
)
from official.config.objectives import (
    CausalLMConfig,
    GeneratorConfig,
    MaskedLMConfig,
    ReplacedTokensConfig,
    SentencePairConfig,
)
from official.modeling.layers import embeddings
from official.modeling.model import Model
from official.saving import derived_models, model_folder, named_arrays
from official.utils.errors import UserError
from tests import commands, sentences, small
from tests.official.serving.vectors.test_words_in_context import HEAD, write

ENCODER = TransformerConfig(
    vocab_size=125,
    hidden_size=8,
    num_layers=12,
    num_heads=2,
    intermediate_size=12,
    max_positions=10,
    initializer_range=0.3,
)
LAYERS = (0, 2, 4, 7, 9, 11)
IDS = np.array([[1, 5, 6, 7, 8, 2], [1, 9, 10, 11, 2, 0]], "int32")


def teacher(*objectives, **changes):
    """The config and the variables of a teacher, of which no two values are equal."""
    encoder = dataclasses.replace(ENCODER, **changes)
    config = configs.Config("teacher", encoder=encoder, objectives=objectives)
    model = Model(config, dtype="float32")
    rng = np.random.default_rng(0)
    for variable in model.variables:
        variable.assign(rng.normal(size=variable.shape))
    return config, named_arrays.values(model.variables_by_path())


BERT = teacher(MaskedLMConfig(), SentencePairConfig())


def test_every_copied_weight_is_the_teachers_bit_for_bit():
    config, variables = BERT
    student, arrays = derived_models.make_student(
        config, variables, derived_models.StudentPlan(LAYERS)
    )
    assert student.encoder == dataclasses.replace(
        config.encoder, num_layers=6, segment_types=0, pooler=False
    )
    assert student.objectives == (MaskedLMConfig(),)
    assert {path: a.shape for path, a in arrays.items()} == model_folder.shapes(student)
    expected = {}
    for i, layer in enumerate(LAYERS):
        for path, array in variables.items():
            if path.startswith(f"encoder/layer_{layer}/"):
                expected[path.replace(f"layer_{layer}", f"layer_{i}", 1)] = array
    embeddings = "encoder/embeddings/"
    for name in ("token_embedding/table", "norm/scale", "norm/offset"):
        expected[embeddings + name] = variables[embeddings + name]
    positions = variables[embeddings + "position_embedding/table"]
    segments = variables[embeddings + "segment_embedding/table"]
    expected[embeddings + "position_embedding/table"] = positions + segments[0]
    expected["masked_lm/output_bias"] = variables["masked_lm/output_bias"]
    fresh = set(arrays) - set(expected)
    assert {path.rpartition("/")[0] for path in fresh} == {"masked_lm/transform", "masked_lm/norm"}
    for path, array in expected.items():
        np.testing.assert_array_equal(arrays[path], array, err_msg=path)
    for path in fresh:
        assert not np.array_equal(arrays[path], variables[path]), path


def embedded(config, arrays):
    model = Model(config, dtype="float64")
    named_arrays.assign(model.variables_by_path(), arrays, "test")
    return model.encode({"token_ids": IDS}, output_all=True)["hidden_states"]


@pytest.mark.parametrize("segments", derived_models.SEGMENTS)
def test_embeddings_of_one_segment_are_the_teachers(segments):
    config, variables = BERT
    student, arrays = derived_models.make_student(
        config, variables, derived_models.StudentPlan(tuple(range(12)), segments=segments)
    )
    mine, theirs = embedded(student, arrays), embedded(config, variables)
    apart = [np.abs(np.asarray(a) - np.asarray(b)).max() for a, b in zip(mine, theirs, strict=True)]
    if segments == "drop":
        assert apart[0] > 0.1
    else:  # the sum of two float32 numbers is rounded once, when it is stored
        assert max(apart) <= (1e-5 if segments == "add" else 0) and apart[0] < 1e-6
    assert student.encoder.segment_types == (2 if segments == "keep" else 0)


def test_what_is_copied_only_if_it_is_asked_for():
    config, variables = BERT
    plan = derived_models.StudentPlan((11,), pooler=True, transform=True, segments="keep", seed=3)
    student, arrays = derived_models.make_student(config, variables, plan)
    assert student.encoder.pooler and student.seed == 3
    for path, array in arrays.items():
        theirs = path.replace("layer_0", "layer_11")
        np.testing.assert_array_equal(array, variables[theirs], err_msg=path)


def test_a_gpt2_keeps_its_final_norm():
    config, variables = teacher(
        CausalLMConfig(), norm="pre", causal=True, segment_types=0, pooler=False,
        pooled_position=None,
    )  # fmt: skip
    student, arrays = derived_models.make_student(
        config, variables, derived_models.StudentPlan((0, 11))
    )
    assert student.objectives == (CausalLMConfig(),)
    np.testing.assert_array_equal(
        arrays["encoder/final_norm/scale"], variables["encoder/final_norm/scale"]
    )
    np.testing.assert_array_equal(
        arrays["encoder/layer_1/feed_forward/inner/kernel"],
        variables["encoder/layer_11/feed_forward/inner/kernel"],
    )


def test_layers_of_a_modernbert_stay_local_or_global():
    config, variables = teacher(
        MaskedLMConfig(), norm="pre", positions="rotary", first_norm=False, norm_embeddings=True,
        local_attention=LocalAttention(4, 3), segment_types=0, pooler=False, gated=True,
    )  # fmt: skip
    student, arrays = derived_models.make_student(
        config, variables, derived_models.StudentPlan((0, 1, 5, 6, 10))
    )
    assert [student.encoder.is_local(i) for i in range(5)] == [False, True, True, False, True]
    assert "encoder/layer_0/attention_norm/scale" not in arrays
    for i, layer in enumerate((0, 1, 5, 6, 10)):
        for name in ("feed_forward/gate/kernel", "feed_forward_norm/scale"):
            ours, theirs = (f"encoder/layer_{number}/{name}" for number in (i, layer))
            np.testing.assert_array_equal(arrays[ours], variables[theirs])
    for layers, pair in (((0, 3), (1, 3)), ((3, 4), (0, 3)), ((0, 1, 3), (2, 3))):
        message = "layer {} of the student would be layer {} of teacher, which".format(*pair)
        with pytest.raises(UserError, match=message):
            derived_models.make_student(config, variables, derived_models.StudentPlan(layers))


def test_a_student_of_a_deberta_has_its_distances_and_the_sum_of_its_tables():
    config, variables = teacher(
        GeneratorConfig(size=1.0, num_layers=2, sharing="gdes"), ReplacedTokensConfig(),
        positions="none", disentangled=Disentangled(4, 9), segment_types=0,
        convolution=Convolution(), pooler=False,
    )  # fmt: skip
    whole = embeddings.finished(variables)
    student, arrays = derived_models.make_student(config, whole, derived_models.StudentPlan((0, 7)))
    assert student.objectives == ()
    table = "encoder/embeddings/token_embedding/table"
    np.testing.assert_array_equal(arrays[table], whole[table])
    for path in arrays:
        if path.startswith(("encoder/distance_table/", "encoder/convolution/")):
            np.testing.assert_array_equal(arrays[path], variables[path])
    message = "--layers: a student of T has the encoder: convolution: it comes between two layers"
    with pytest.raises(UserError, match=message):
        derived_models.make_student(config, whole, derived_models.StudentPlan((0,)), "T")


@pytest.mark.parametrize("positions", ["sinusoidal", "none", "learned"])
def test_a_table_of_positions_computes_the_same(positions):
    config, variables = teacher(positions=positions, num_layers=1, position_offset=2)
    tabled, arrays = derived_models.with_position_table(config, variables)
    assert tabled.encoder == dataclasses.replace(config.encoder, positions="learned")
    states = []
    for each, values in ((config, variables), (tabled, arrays)):
        model = Model(each, dtype="float32")
        named_arrays.assign(model.variables_by_path(), values, "the test")
        given = np.array([[0, 1, 2, 0, 1, 2]], "int32")
        states += [model.encoder(IDS, positions=p)["sequence_output"] for p in (None, given)]
    np.testing.assert_array_equal(states[0], states[2])
    np.testing.assert_array_equal(states[1], states[3])


@pytest.mark.parametrize(
    "plan, message",
    [
        (
            derived_models.StudentPlan(tuple(range(13))),
            "--layers: 13 layers, and the teacher T has 12: a student cannot be deeper",
        ),
        (
            derived_models.StudentPlan((0, 12)),
            "--layers: 12 is not a layer of the teacher: T has 12 layers, numbered from 0 to 11",
        ),
        (derived_models.StudentPlan((0, 3, 3)), "--layers: 3 is given twice"),
        (
            derived_models.StudentPlan((0,), hidden_size=4),
            "--hidden=4: the teacher T has hidden_size 8, and layers are copied as they are",
        ),
    ],
)
def test_bad_plans(plan, message):
    with pytest.raises(UserError) as caught:
        derived_models.make_student(*BERT, plan, "T")
    assert message in str(caught.value)


def test_layers_that_cannot_be_taken_apart():
    config = dataclasses.replace(
        BERT[0], encoder=dataclasses.replace(ENCODER, layer_groups=1, pooler=True)
    )
    with pytest.raises(UserError, match="encoder.layer_groups: 1: its layers share weights"):
        derived_models.make_student(config, {}, derived_models.StudentPlan((0,)), "T")
    config = dataclasses.replace(
        BERT[0], encoder=dataclasses.replace(ENCODER, positions="sinusoidal")
    )
    message = "--segments=add: the teacher T has encoder.positions: sinusoidal, and no table"
    with pytest.raises(UserError, match=message):
        derived_models.make_student(config, {}, derived_models.StudentPlan((0,)), "T")
    for text in ([], ["0", "x"], ["-1"]):
        with pytest.raises(UserError, match="name layers of the teacher by their numbers from 0"):
            derived_models.parse_layers(text)
    assert derived_models.parse_layers(["0", " 2"]) == (0, 2)


def test_the_command_writes_a_model_folder(tmp_path, monkeypatch, capsys):
    config = configs.from_dict(
        {**configs.to_dict(BERT[0]), "recipe": {"steps": 1}, "name": "teacher"}
    )
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    model_folder.write_new(config, tokenizer, BERT[1], tmp_path / "teacher")
    flags = dict(
        teacher=str(tmp_path / "teacher"), checkpoint="best", layers=["0", "7"], hidden=8,
        segments="add", keep_pooler=False, copy_transform=False, seed=0, word_table=False,
        static=False, output=str(tmp_path / "student"),
    )  # fmt: skip
    monkeypatch.setattr(command, "FLAGS", type("Flags", (), flags))
    monkeypatch.setattr(command.errors, "require", lambda *names: None)
    command.main([""])
    student, _, model = model_folder.restore(tmp_path / "student")
    assert student.encoder.num_layers == 2 and student.encoder.vocab_size == 125
    np.testing.assert_array_equal(
        model.variables_by_path()["encoder/layer_1/attention/output/kernel"],
        BERT[1]["encoder/layer_7/attention/output/kernel"],
    )
    assert "2 layers" in capsys.readouterr().out


@pytest.mark.slow
def test_words_of_the_vocabulary_have_the_vectors_of_their_characters(tmp_path):
    folder = write(tmp_path / "model")
    commands.run(
        "official.commands.students", f"--teacher={folder}", "--word_table",
        f"--output={tmp_path}/faster", status=0,
    )  # fmt: skip
    whole, faster = official.load(folder), official.load(tmp_path / "faster")
    assert faster.config.encoder.tokens == "words"
    texts = ["w1 né  w2", "", "東京 w39"]
    np.testing.assert_allclose(
        faster.encode(texts, layer="all"), whole.encode(texts, layer="all"), atol=1e-6
    )
    # Other words have the vector of the text "<UNK>".
    found = faster.tokens(["w1 other"], layer=0)[0].vectors
    np.testing.assert_allclose(found, whole.tokens(["w1 <UNK>"], layer=0)[0].vectors, atol=1e-6)
    assert np.abs(found - whole.tokens(["w1 other"], layer=0)[0].vectors).max() > 0.01


def test_weights_of_heads_and_layers_stay(tmp_path):
    larger = {"vocab_size": len(sentences.VOCABULARY) + 3}
    config, tokenizer, model = model_folder.restore(write(tmp_path / "model", HEAD, **larger))
    changed, arrays = derived_models.with_word_table(config, tokenizer, model, "model")
    assert changed.objectives == config.objectives
    for path, variable in model.variables_by_path().items():
        if not path.startswith("encoder/words/"):
            np.testing.assert_array_equal(arrays[path], variable)
    made = model_folder.build(changed).variables_by_path()
    assert {path: v.shape for path, v in made.items()} == {p: a.shape for p, a in arrays.items()}
    with pytest.raises(UserError, match="encoder.type: bilm: this encoder does not read the char"):
        derived_models.with_word_table(changed, tokenizer, model, "model")
