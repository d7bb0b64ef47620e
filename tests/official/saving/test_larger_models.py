"""A larger model from a smaller one: each value by a loop, and what is refused."""

import dataclasses

import numpy as np
import pytest
from absl import flags

from official import config as configs
from official import tokenizers
from official.commands import enlarge
from official.config.encoders import (
    Convolution,
    Disentangled,
    LocalAttention,
    TransformerConfig,
)
from official.config.objectives import MaskedLMConfig, SentencePairConfig
from official.saving import checkpoints, larger_models, model_folder
from official.utils.errors import UserError
from tests import small
from tests.official.modeling.encoders.test_transformer import MODERN

# Heads of 4.
OLD = {"hidden_size": 12, "num_layers": 3, "num_heads": 3, "intermediate_size": 7}
NEW = {"hidden_size": 20, "num_layers": 5, "num_heads": 5, "intermediate_size": 12}
ODD = {"hidden_size": 16, "num_layers": 4, "num_heads": 4, "intermediate_size": 8}
REST = {"vocab_size": 11, "max_positions": 6}
FORMS = {
    "modern": {
        **MODERN, **REST, "pooler": False,
        "local_attention": LocalAttention(**MODERN["local_attention"]),
    },
    "bert": {**REST, "relative_buckets": 6},
    "deberta": {
        **REST, "convolution": Convolution(), "positions": "none",
        "disentangled": Disentangled(0, 4, own_projections=True),
    },
}  # fmt: skip


def config_of(form, sizes, name="m", **changes):
    encoder = TransformerConfig(**{**FORMS[form], **sizes, **changes})
    objectives = (MaskedLMConfig(), *([SentencePairConfig()] if encoder.pooler else []))
    return configs.ResolvedConfig(name=name, encoder=encoder, objectives=objectives)


def ring(i, old, new):
    """The old element of element i: the first one of the copy in the middle is 0."""
    i -= (new - old) // 2
    while i < 0:
        i += old
    while i >= old:
        i -= old
    return i


def old_index(path, axis, i, old, new):
    """The element of the smaller model that an element of an axis is."""
    width, kind = new["hidden_size"], path.rsplit("/", 2)
    hidden = lambda i: ring(i, old["hidden_size"], width)  # noqa: E731

    def of_heads(i):
        head = ring(i // 4, old["num_heads"], new["num_heads"])
        return 4 * head + i % 4

    if "/attention/" in path and "/output/" not in path:
        if axis == 1 or kind[-1] == "bias":
            block, place = divmod(i, width)
            return block * old["hidden_size"] + of_heads(place)
        return hidden(i)
    if path.endswith("attention/output/kernel") and axis == 0:
        return of_heads(i)
    if path.endswith(("inner/kernel", "gate/kernel")) and axis == 1:
        return ring(i, old["intermediate_size"], new["intermediate_size"])
    if path.endswith("inner/bias") or (path.endswith("outer/kernel") and axis == 0):
        return ring(i, old["intermediate_size"], new["intermediate_size"])
    if path.endswith("taps/kernel") and axis == 0:
        tap, place = divmod(i, width)
        return tap * old["hidden_size"] + hidden(place)
    if path.endswith("relative_bias/table"):
        return ring(i, old["num_heads"], new["num_heads"]) if axis == 1 else i
    if path.endswith("_embedding/table") or path.endswith("distance_table/table"):
        return hidden(i) if axis == 1 else i
    if path.startswith("next_sentence/"):
        return hidden(i) if path.endswith("kernel") and axis == 0 else i
    return i if path == "masked_lm/output_bias" else hidden(i)


@pytest.mark.parametrize("form, new", [("modern", ODD), ("bert", NEW), ("deberta", ODD)])
def test_each_value_by_a_loop(form, new):
    before, after = config_of(form, OLD), config_of(form, new, dropout=0.3, initializer_range=0.5)
    draw = np.random.default_rng(0)
    variables = {
        path: draw.permutation(np.prod(shape, dtype=int)).reshape(shape).astype(np.float32)
        for path, shape in model_folder.shapes(before).items()
    }
    found = larger_models.enlarged(before, variables, after)
    assert {path: array.shape for path, array in found.items()} == model_folder.shapes(after)
    layers = {5: [0, 1, 1, 2, 2], 4: [0, 1, 2, 2]}[new["num_layers"]]
    for path, array in found.items():
        source = path
        if path.startswith("encoder/layer_"):
            number, rest = path.removeprefix("encoder/layer_").split("/", 1)
            source = f"encoder/layer_{layers[int(number)]}/{rest}"
        expected = np.empty_like(array)
        for place in np.ndindex(array.shape):
            old = [old_index(path, axis, i, OLD, new) for axis, i in enumerate(place)]
            expected[place] = variables[source][tuple(old)]
        np.testing.assert_array_equal(array, expected, path)


def test_modernbert_large_of_base():
    assert larger_models.layer_map(22, 28) == [
        0, 1, 2, 2, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12, 13, 13, 14, 15, 16, 16, 17, 18, 19, 20,
        20, 21,
    ]  # fmt: skip
    assert larger_models.layer_map(1, 4) == [0] * 4 and larger_models.layer_map(3, 3) == [0, 1, 2]
    hidden = [*range(640, 768), *range(768), *range(128)]
    assert larger_models.from_middle(768, 1024).tolist() == hidden
    inner = larger_models.from_middle(1152, 2624).tolist()
    assert inner == [*range(416, 1152), *range(1152), *range(736)]
    assert larger_models.from_middle(3, 8).tolist() == [1, 2, 0, 1, 2, 0, 1, 2]


LARGE = config_of("modern", NEW, "large")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"norm_type": "rms", "norm_bias": True}, "^encoder.norm_type: rms in the config of large"),
        ({"gated": False}, "^encoder.gated: .* models that differ in more than their sizes"),
        ({"vocab_size": 12}, "^encoder.vocab_size: 12 in the config of large and 11 in base"),
        ({"first_norm": True, "layer_groups": 1}, "^large: encoder.layer_groups: not supported"),
        ({"num_key_value_heads": 1}, "^large: encoder.num_key_value_heads: not supported here"),
        ({"hidden_size": 8, "num_heads": 2}, "^encoder.hidden_size: 8 is below that of base, 12"),
        ({"num_heads": 10}, "^encoder.num_heads: 10 heads have the size 2, .* take 5$"),
        ({"num_layers": 6}, "^encoder.num_layers: 6: layer 1 would be layer 0 of base, .* than 6$"),
    ],
)
def test_models_that_differ_in_more_than_their_sizes(changes, message):
    large = dataclasses.replace(LARGE, encoder=dataclasses.replace(LARGE.encoder, **changes))
    with pytest.raises(UserError, match=message):
        larger_models.enlarged(config_of("modern", OLD, "base"), {}, large, "base")


def test_objectives_that_cannot_be_tiled():
    electra = configs.ResolvedConfig(
        name="e", encoder=LARGE.encoder, objectives=small.config(
            objectives=[{"type": "generator"}, {"type": "replaced_tokens"}], encoder__pooler=False
        ).objectives,
    )  # fmt: skip
    with pytest.raises(UserError, match="large: objectives|e: objectives: generator is not one of"):
        larger_models.enlarged(config_of("modern", OLD), {}, electra)
    other = dataclasses.replace(LARGE, objectives=(MaskedLMConfig(form="linear"),))
    with pytest.raises(UserError, match="^objectives.0.form: linear in the config of large and"):
        larger_models.enlarged(config_of("modern", OLD), {}, other)


@pytest.mark.slow
def test_command(tmp_path, monkeypatch, capsys):
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    base = small.config(objectives=[{"type": "masked_lm"}], encoder__pooler=False)
    draw = np.random.default_rng(0)
    shapes = model_folder.shapes(base)
    arrays = {path: draw.normal(size=s).astype(np.float32) for path, s in shapes.items()}
    model_folder.write_new(base, tokenizer, arrays, tmp_path / "base")
    configs.save(base, tmp_path / "large.yaml")
    sizes = {"hidden_size": 2 * base.encoder.hidden_size, "num_heads": 2 * base.encoder.num_heads}
    wider = [f"encoder.{key}={value}" for key, value in {**sizes, "vocab_size": "null"}.items()]

    def run(*overrides):
        given = flags.FlagValues()
        folders = {"model_dir": "base", "config": "large.yaml", "output": "large"}
        for name, value in folders.items():
            flags.DEFINE_string(name, str(tmp_path / value), "", flag_values=given)
        flags.DEFINE_string("checkpoint", "best", "", flag_values=given)
        flags.DEFINE_multi_string("override", [*wider, *overrides], "", flag_values=given)
        given.mark_as_parsed()
        monkeypatch.setattr(enlarge, "FLAGS", given)
        enlarge.main([])

    with pytest.raises(UserError, match="encoder.norm: pre in the config of"):
        run("encoder.norm=pre")
    assert not (tmp_path / "large").exists()
    run()
    large = model_folder.config_of(tmp_path / "large")
    assert tokenizers.load(tmp_path / "large" / "tokenizer").fingerprint == tokenizer.fingerprint
    assert {key: getattr(large.encoder, key) for key in sizes} == sizes
    expected = larger_models.enlarged(base, arrays, large)
    written = checkpoints.load_variables(tmp_path / "large", "last")
    assert written.keys() == expected.keys()
    for path, array in written.items():
        np.testing.assert_array_equal(array, expected[path])
    assert f"{sum(a.size for a in arrays.values()):,} -> " in capsys.readouterr().out
    with pytest.raises(UserError, match="large is there already"):
        run()
