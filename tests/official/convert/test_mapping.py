import numpy as np
import pytest

from official.convert.mapping import Row, bring_in, take_out
from official.errors import UserError


def arrays(**shapes):
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


FUSED = Row("qkv/kernel", ("q", "k", "v"), transposed=True)
PLAIN = Row("norm/scale", ("w",))


def test_joined_parts_stand_in_order_along_the_last_axis():
    theirs = arrays(q=(2, 3), k=(2, 3), v=(2, 3))  # torch: [out, in]
    ours = FUSED.join(theirs[name] for name in FUSED.names)
    assert ours.shape == (3, 6)
    x = arrays(x=(5, 3))["x"]
    for i, name in enumerate("qkv"):
        np.testing.assert_allclose((x @ ours)[:, 2 * i : 2 * i + 2], x @ theirs[name].T, rtol=1e-5)


def test_out_and_in_again_is_bit_exact_and_memory_is_contiguous():
    ours = arrays(**{"qkv/kernel": (3, 6), "norm/scale": (4,)})
    ours["norm/scale"][:2] = np.array([0x7FC00123, 0x80000000], np.uint32).view(np.float32)
    theirs = take_out([FUSED, PLAIN], ours)
    assert set(theirs) == {"q", "k", "v", "w"}
    assert all(array.flags.c_contiguous for array in theirs.values())
    shapes = {path: array.shape for path, array in ours.items()}
    back, leftover = bring_in([FUSED, PLAIN], theirs, shapes, "file")
    assert leftover == []
    for path in ours:
        assert back[path].tobytes() == ours[path].tobytes()


def test_tensors_nobody_asks_for_are_named():
    theirs = arrays(w=(4,), other=(2,), another=(1,))
    _, leftover = bring_in([PLAIN], theirs, {"norm/scale": (4,)}, "file")
    assert leftover == ["another", "other"]


def test_missing_tensors_are_named():
    with pytest.raises(UserError, match=r"model\.file lacks the tensors k, v: the file is not"):
        bring_in([FUSED], arrays(q=(2, 3)), {"qkv/kernel": (3, 6)}, "model.file")
    with pytest.raises(UserError, match="lacks the tensor w:"):
        bring_in([PLAIN], {}, {"norm/scale": (4,)}, "model.file")
    many = [Row(f"p{i}", (f"n{i}",)) for i in range(9)]
    with pytest.raises(UserError, match="the tensors n0, n1, n2, n3, n4 and 4 more tensors"):
        bring_in(many, {}, {}, "model.file")


def test_another_shape_names_the_tensor_and_both_shapes():
    theirs = arrays(q=(2, 3), k=(3, 2), v=(2, 3))
    with pytest.raises(
        UserError, match=r"tensor k has the shape \[3, 2\], the config asks for \[2, 3\]"
    ):
        bring_in([FUSED], theirs, {"qkv/kernel": (3, 6)}, "model.file")


def test_half_precision_becomes_float32_and_float64_stays():
    half = np.array([1.5, -0.1], np.float16)
    made, _ = bring_in([PLAIN], {"w": half}, {"norm/scale": (2,)}, "file")
    assert made["norm/scale"].dtype == np.float32
    np.testing.assert_array_equal(made["norm/scale"], half.astype(np.float32))
    made, _ = bring_in([PLAIN], {"w": half.astype(np.float64)}, {"norm/scale": (2,)}, "file")
    assert made["norm/scale"].dtype == np.float64
