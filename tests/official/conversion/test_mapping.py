import numpy as np
import pytest

from official.conversion.mapping import Row, bring_in, take_out
from official.utils.errors import UserError


def arrays(**shapes):
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


FUSED = Row("qkv/kernel", ("q", "k", "v"), transposed=True)
PLAIN = Row("norm/scale", ("w",))


def test_joined_parts_stand_in_order_along_the_last_axis():
    theirs = arrays(q=(2, 3), k=(2, 3), v=(2, 3))  # torch: [out, in]
    ours = FUSED.join([theirs[name] for name in FUSED.names], (3, 6))
    assert ours.shape == (3, 6)
    x = arrays(x=(5, 3))["x"]
    for i, name in enumerate("qkv"):
        np.testing.assert_allclose((x @ ours)[:, 2 * i : 2 * i + 2], x @ theirs[name].T, rtol=1e-5)


def test_out_and_in_again_is_bit_exact_and_memory_is_contiguous():
    ours = arrays(**{"qkv/kernel": (3, 6), "norm/scale": (4,)})
    ours["norm/scale"][:2] = np.array([0x00000123, 0x80000000], np.uint32).view(np.float32)
    theirs = take_out([FUSED, PLAIN], ours)
    assert set(theirs) == {"q", "k", "v", "w"}
    assert all(array.flags.c_contiguous for array in theirs.values())
    shapes = {path: array.shape for path, array in ours.items()}
    back, leftover = bring_in([FUSED, PLAIN], theirs, shapes, "file")
    assert leftover == []
    for path in ours:
        assert back[path].tobytes() == ours[path].tobytes()


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (np.ones(4, np.int8), "file: tensor w is of type int8, but weights must be floating-point"),
        (np.ones(4, bool), "tensor w is of type bool"),
        (np.ones(4, np.complex64), "tensor w is of type complex64"),
        (np.array(["a"] * 4, object), "tensor w is of type object"),
        (np.array([1, np.nan, 1, 1], np.float16), "file: tensor w contains NaN or infinity"),
        (np.array([1, 1, 1, -np.inf], np.float64), "tensor w contains NaN or infinity"),
    ],
)
def test_only_finite_floating_point_numbers_are_weights(tensor, message):
    with pytest.raises(UserError, match=message):
        bring_in([PLAIN], {"w": tensor}, {"norm/scale": (4,)}, "file")


def test_heads_apart_there_and_together_here():
    # Three heads of two: a kernel [D, N * H] of ours is [D, N, H], an output's [D, N, H] too.
    query = Row("q/kernel", ("q", "k"), axes=(4, 3, 2))
    output = Row("o/kernel", ("o",), transposed=True, axes=(4, 3, 2))
    theirs = arrays(q=(4, 3, 2), k=(4, 3, 2), o=(4, 3, 2))
    shapes = {"q/kernel": (4, 12), "o/kernel": (6, 4)}
    ours, leftover = bring_in([query, output], theirs, shapes, "file")
    assert leftover == []
    x = arrays(x=(5, 4))["x"]
    for i, name in enumerate("qk"):
        expected = np.einsum("bd,dnh->bnh", x, theirs[name]).reshape(5, 6)
        actual = (x @ ours["q/kernel"])[:, 6 * i : 6 * i + 6]
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    context = arrays(c=(5, 3, 2))["c"]
    expected = np.einsum("bnh,dnh->bd", context, theirs["o"])
    actual = context.reshape(5, 6) @ ours["o/kernel"]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    back = take_out([query, output], ours)
    for name, array in theirs.items():
        assert back[name].flags.c_contiguous
        np.testing.assert_array_equal(back[name], array)
    with pytest.raises(UserError, match=r"q has the shape \[4, 2, 3\], the config expects \[4, 3"):
        bring_in([query, output], {**theirs, "q": theirs["q"].reshape(4, 2, 3)}, shapes, "file")


def test_one_tensor_for_all_layers():
    rows = [Row(f"layer_{i}/bias", ("all",), layer=i) for i in range(2)]
    shapes = {row.path: (3, 4) for row in rows}
    theirs = arrays(all=(2, 3, 4))
    ours, leftover = bring_in(rows, theirs, shapes, "file")
    assert leftover == []
    for i in range(2):
        np.testing.assert_array_equal(ours[f"layer_{i}/bias"], theirs["all"][i])
    with pytest.raises(UserError, match=r"all has the shape \[1, 3, 4\], the config expects \[3"):
        bring_in(rows, {"all": theirs["all"][:1]}, shapes, "file")


def test_tensors_nobody_asks_for_are_named():
    theirs = arrays(w=(4,), other=(2,), another=(1,))
    _, leftover = bring_in([PLAIN], theirs, {"norm/scale": (4,)}, "file")
    assert leftover == ["another", "other"]


def test_missing_tensors_are_named():
    with pytest.raises(UserError, match=r"model\.file lacks the tensors k, v: the file is incomp"):
        bring_in([FUSED], arrays(q=(2, 3)), {"qkv/kernel": (3, 6)}, "model.file")
    with pytest.raises(UserError, match="lacks the tensor w:"):
        bring_in([PLAIN], {}, {"norm/scale": (4,)}, "model.file")
    many = [Row(f"p{i}", (f"n{i}",)) for i in range(9)]
    with pytest.raises(UserError, match="the tensors n0, n1, n2, n3, n4 and 4 more tensors"):
        bring_in(many, {}, {}, "model.file")


def test_another_shape_names_the_tensor_and_both_shapes():
    theirs = arrays(q=(2, 3), k=(3, 2), v=(2, 3))
    with pytest.raises(
        UserError, match=r"tensor k has the shape \[3, 2\], the config expects \[2, 3\]"
    ):
        bring_in([FUSED], theirs, {"qkv/kernel": (3, 6)}, "model.file")


def test_half_precision_becomes_float32_and_float64_stays():
    half = np.array([1.5, -0.1], np.float16)
    result, _ = bring_in([PLAIN], {"w": half}, {"norm/scale": (2,)}, "file")
    assert result["norm/scale"].dtype == np.float32
    np.testing.assert_array_equal(result["norm/scale"], half.astype(np.float32))
    result, _ = bring_in([PLAIN], {"w": half.astype(np.float64)}, {"norm/scale": (2,)}, "file")
    assert result["norm/scale"].dtype == np.float64
