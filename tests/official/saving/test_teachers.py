"""What a config takes from its teachers, which teachers are refused, and that they are loaded."""

import dataclasses

import numpy as np
import pytest

from official import config as configs
from official import tokenizers
from official.modeling.model import Model
from official.saving import model_folder, named_arrays, teachers
from official.utils.errors import UserError
from tests import small

MASKED_LM = {"type": "masked_lm"}
CLASSES = {"type": "classification", "labels": ["bad", "good"]}


def folder_of(path, *objectives, words=small.WORDS, seed=0, **changes):
    """A model folder with random weights, and its tokenizer."""
    tokenizer = tokenizers.load(small.tokenizer_folder(path.with_name(path.name + "-t"), words))
    given = {"objectives": list(objectives), "encoder__vocab_size": tokenizer.vocab_size}
    config = dataclasses.replace(
        small.config(segments=None, corruption=None, **{**given, **changes}), seed=seed
    )
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    model_folder.write_new(config, tokenizer, variables, path)
    return str(path), tokenizer


def student(folder, *objectives, encoder=(), **options):
    changes = {f"encoder__{key}": value for key, value in dict(encoder).items()}
    distillation = {"type": "distillation", "teachers": [folder], **options}
    return small.config(
        segments=None, corruption=None, objectives=[*objectives, distillation], **changes
    )


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("masked") / "m", MASKED_LM, encoder__num_layers=4)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("tuned") / "m", CLASSES)


def test_sizes_and_checksums_are_filled_in(masked):
    folder, _ = masked
    config = teachers.described(student(folder, hidden=1.0))
    objective = config.objectives[0]
    assert (objective.teacher_layers, objective.teacher_size) == (4, 16)
    assert objective.teacher_checksums == (teachers.checksum(folder),)
    assert configs.from_dict(configs.to_dict(config)) == config
    assert teachers.described(config) == config
    assert teachers.described(small.config()) == small.config()
    changed = dataclasses.replace(objective, teacher_checksums=("0" * 64,))
    with pytest.raises(UserError, match="have other weights than teacher_checksums name: put"):
        teachers.described(dataclasses.replace(config, objectives=(changed,)))


def test_teachers_are_loaded_beside_the_student(masked):
    folder, tokenizer = masked
    config = teachers.described(
        student(folder, MASKED_LM, cross_entropy=1.0, encoder={"num_layers": 2})
    )
    model = Model(config)
    paths = set(model.variables_by_path())
    teachers.attach(model, config, tokenizer, 32)
    assert set(model.variables_by_path()) == paths
    ids = np.array([[2, 7, 8, 9, 3, 0]], "int32")
    batch = model.prepare({"token_ids": ids, "padding_mask": ids > 0})
    _, _, teacher = model_folder.restore(folder)
    hidden = teacher.encode({"token_ids": ids, "padding_mask": ids > 0})["sequence_output"]
    expected = teacher.objectives[0].logits(hidden[0], teacher.encoder)
    np.testing.assert_allclose(batch["teacher_outputs"][0]["outputs"], expected, atol=1e-5)


@pytest.mark.parametrize(
    "options, encoder, message",
    [
        (
            {"cosine": 1.0}, {"hidden_size": 8},
            "distillation.cosine: compares states of the same width, but the student has "
            "hidden_size 8, the teacher 16",
        ),
        (
            {"hidden": 1.0}, {"num_layers": 5},
            "layers: the student has 5 layers, which is more than the 4 of its teacher",
        ),
        (
            {"scores": 1.0}, {"num_layers": 3},
            "layers: missing: the teacher's 4 layers are not a multiple of the student's 3",
        ),
        (
            {"scores": 1.0, "layers": [2, 5]}, {"num_layers": 2},
            "distillation.layers: 2, 5: the student has 2 layers and the teacher 4: name one of 1 "
            "to 4",
        ),
        (
            {"scores": 1.0}, {"num_heads": 4, "num_layers": 2},
            "distillation.scores: the student has 4 attention heads, but the teacher 2",
        ),
        (
            {"relation": 1.0}, {"num_heads": 4},
            "or relation_heads with relations: [query, key, value]",
        ),
        (
            {"relation": 1.0, "relations": ["value"], "relation_heads": 3}, {},
            "relation_heads: 3 heads do not divide the 16 numbers of a vector of the student",
        ),
        ({"relation": 1.0, "relation_layer": 5}, {}, "relation_layer: 5, but the teacher has 4"),
        (
            {"scores": 1.0}, {"num_layers": 2, "local_attention": {"window": 5, "global_every": 2}},
            "distillation.scores: layer 2 of the student attends to those at a distance of at most "
            "2, but layer 4 of the teacher to all tokens: name a layer that attends to the same "
            "tokens (layers)",
        ),
        (
            {"relation": 1.0}, {"num_layers": 2, "local_attention": {"window": 4}},
            "distillation.relation: layer 2 of the student attends to those at a distance of at "
            "most 2, but layer 4 of the teacher to all tokens: name a layer that attends to the "
            "same tokens (relation_layer), or relations: [query, key, value]",
        ),
        (
            {"hidden": 1.0, "projection": "none"}, {"hidden_size": 8},
            "projection: none, but the student has hidden_size 8, the teacher 16",
        ),
    ],
)  # fmt: skip
def test_teachers_that_do_not_suit_the_student(masked, options, encoder, message):
    with pytest.raises(UserError) as caught:
        teachers.described(student(masked[0], encoder=encoder, **options))
    assert message in str(caught.value) and masked[0] in str(caught.value)


def test_other_vocabularies_tasks_and_lengths(masked, tuned, tmp_path):
    folder, tokenizer = masked
    config = student(folder, MASKED_LM, cross_entropy=1.0, encoder={"vocab_size": 130})
    with pytest.raises(UserError, match="has encoder.vocab_size 125, and the student 130"):
        teachers.described(config)
    _, other = folder_of(tmp_path / "other", MASKED_LM, words=small.WORDS[::-1])
    config = teachers.described(student(folder, MASKED_LM, cross_entropy=1.0))
    with pytest.raises(
        UserError, match="has another vocabulary .* make the shards and the student"
    ):
        teachers.attach(Model(config), config, other, 32)
    with pytest.raises(UserError, match="positions for 32 tokens, and the data has rows of 33"):
        teachers.attach(Model(config), config, tokenizer, 33)

    head = {**CLASSES, "labels": ["good", "bad"]}
    with pytest.raises(UserError, match="knows the labels bad, good, and the student good, bad"):
        teachers.described(student(tuned[0], head, logits=1.0))
    config = teachers.described(student(folder, CLASSES, logits=1.0))
    with pytest.raises(UserError, match="a teacher has the objectives masked_lm: train it for"):
        teachers.attach(Model(config), config, tokenizer, 32)


def test_missing_teachers(tmp_path):
    with pytest.raises(UserError, match="teachers: missing: name the model folder of a teacher"):
        teachers.described(student("x", cosine=1.0, teachers=[]))
    with pytest.raises(UserError, match="none: not a model folder: there is no config.yaml in it"):
        teachers.described(student(str(tmp_path / "none"), cosine=1.0))
