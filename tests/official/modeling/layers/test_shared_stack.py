import pytest

from official.modeling.layers.shared_stack import block_names


def test_no_groups():
    assert block_names(3) == ("layer_0", "layer_1", "layer_2")


@pytest.mark.parametrize("layers", [4, 6, 12, 24])
def test_a_layer_belongs_to_the_group_of_alberts_release(layers):
    for groups in (n for n in range(1, layers + 1) if layers % n == 0):
        actual = block_names(layers, groups)
        assert actual == tuple(f"group_{int(i / layers * groups)}_layer_0" for i in range(layers))


def test_the_inner_layers_of_a_group_run_one_after_the_other():
    assert block_names(4, 2, 2) == (
        "group_0_layer_0", "group_0_layer_1", "group_0_layer_0", "group_0_layer_1",
        "group_1_layer_0", "group_1_layer_1", "group_1_layer_0", "group_1_layer_1",
    )  # fmt: skip
