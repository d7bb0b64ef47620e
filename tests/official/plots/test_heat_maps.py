import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from official.plots import heat_maps
from official.plots.heat_maps import HeatMap

VALUES = np.array([[0.0, 0.25, 0.5], [1.0, 2.0, 0.0]])


def images(figure):
    """The image of each panel by its title."""
    return {axes.get_title(): axes.images[0] for axes in figure.axes if axes.get_title()}


def names(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def grid():
    columns = [["a", "b", "c"], ["x", "y", "z"]]
    return [
        [HeatMap(f"{i} {j}", VALUES / (1 + i + j), ["r", "s"], columns[j]) for j in range(2)]
        for i in range(2)
    ]


def test_images_are_the_values_and_share_their_colours():
    actual = images(heat_maps.draw(grid(), "weight"))
    assert list(actual) == ["0 0", "0 1", "1 0", "1 1"]
    for title, image in actual.items():
        i, j = map(int, title.split())
        np.testing.assert_array_equal(image.get_array(), VALUES / (1 + i + j))
        assert (image.norm.vmin, image.norm.vmax) == (0, 2)
    # The largest value of all has the darkest colour.
    colour = actual["0 0"].to_rgba(np.array([[2.0]]))[0, 0]
    assert to_hex(colour) == to_hex(colormaps["Blues"](1.0))


def test_names_are_at_the_edges_of_the_grid():
    figure = heat_maps.draw(grid(), "weight", "a title")
    panels = {axes.get_title(): axes for axes in figure.axes}
    assert names(panels["0 0"].yaxis) == names(panels["1 0"].yaxis) == ["r", "s"]
    assert names(panels["1 0"].xaxis) == ["a", "b", "c"]
    assert names(panels["1 1"].xaxis) == ["x", "y", "z"]
    assert panels["1 0"].get_xticks().tolist() == [0, 1, 2]
    for bare in (panels["0 0"].xaxis, panels["0 1"].xaxis, panels["0 1"].yaxis):
        assert names(bare) == []
    assert figure.get_suptitle() == "a title"
    assert figure.axes[-1].get_ylabel() == "weight"  # the colour bar


def test_only_some_names_are_shown_where_cells_are_small():
    many = [f"token{i}" for i in range(400)]
    figure = heat_maps.draw([[HeatMap("", np.zeros((400, 400)), many, many)]], "weight")
    axes = figure.axes[0]
    ticks = axes.get_xticks().astype(int).tolist()
    step = ticks[1]
    assert step > 1 and ticks == list(range(0, 400, step))
    assert names(axes.xaxis) == names(axes.yaxis) == many[::step]
    assert max(figure.get_size_inches()) <= 12.001


def test_a_matrix_of_zeros_is_drawn():
    figure = heat_maps.draw([[HeatMap("zeros", np.zeros((1, 2)), ["r"], ["a", "b"])]], "weight")
    image = images(figure)["zeros"]
    assert image.get_array().tolist() == [[0, 0]] and image.norm.vmax == 1


def test_control_characters_in_names_are_escaped():
    figure = heat_maps.draw([[HeatMap("", np.ones((1, 1)), ["$a_b$"], ["\n"])]], "weight")
    axes = figure.axes[0]
    assert (names(axes.yaxis), names(axes.xaxis)) == (["$a_b$"], [r"'\n'"])
    assert not axes.get_yticklabels()[0].get_parse_math()
