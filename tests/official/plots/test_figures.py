"""Tests of figures and of grids of heat maps."""

import io

import matplotlib
import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.image import imread

from official.plots import figures
from official.plots.figures import HeatMap
from official.utils.errors import UserError


def figure(text=""):
    with figures.style():
        result = figures.new(2, 1)
        axes = result.add_axes((0, 0, 1, 1))
        axes.imshow([[0, 1]], cmap="Blues", aspect="auto")
        axes.set_title(text)
    return result


def test_the_picture_is_opaque_and_the_same_each_time(tmp_path):
    figures.save(figure(), tmp_path / "a.png")
    figures.save(figure(), tmp_path / "b.png")
    data = (tmp_path / "a.png").read_bytes()
    assert data == (tmp_path / "b.png").read_bytes() and data.startswith(b"\x89PNG")
    pixels = imread(io.BytesIO(data))
    # Nothing is transparent: the text is readable on a dark page, too.
    assert (pixels[..., 3:] == 1).all() and (pixels[0, 0, :3] == 1).all()
    height, width = pixels.shape[:2]
    middle = pixels[height // 2]
    left, right = (np.round(255 * middle[width * i // 4, :3]).astype(int) for i in (1, 3))
    assert (left.tolist(), right.tolist()) == ([247, 251, 255], [8, 48, 107])


def test_the_settings_of_matplotlib_stay_as_they_are(tmp_path):
    with matplotlib.rc_context({"savefig.dpi": 17, "figure.facecolor": "black"}):
        before = dict(matplotlib.rcParams)
        figures.save(figure(), tmp_path / "a.png")
        assert dict(matplotlib.rcParams) == before
    figures.save(figure(), tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_characters_that_the_font_lacks_are_reported(tmp_path, capsys, recwarn):
    figures.save(figure("\N{HIRAGANA LETTER A}"), tmp_path / "a.png")
    assert capsys.readouterr().err == (
        f"warning: {tmp_path / 'a.png'}: the font lacks some characters of the text and shows "
        "boxes instead\n"
    )
    assert not [warning for warning in recwarn if "font" in str(warning.message)]


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file"):
        figures.save(figure(), tmp_path / "file" / "a.png")


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


def test_images_are_the_values_and_share_their_colors():
    actual = images(figures.draw_heat_maps(grid(), "weight"))
    assert list(actual) == ["0 0", "0 1", "1 0", "1 1"]
    for title, image in actual.items():
        i, j = map(int, title.split())
        np.testing.assert_array_equal(image.get_array(), VALUES / (1 + i + j))
        assert (image.norm.vmin, image.norm.vmax) == (0, 2)
    # The largest value of all has the darkest color.
    color = actual["0 0"].to_rgba(np.array([[2.0]]))[0, 0]
    assert to_hex(color) == to_hex(colormaps["Blues"](1.0))


def test_names_are_at_the_edges_of_the_grid():
    figure = figures.draw_heat_maps(grid(), "weight", "a title")
    panels = {axes.get_title(): axes for axes in figure.axes}
    assert names(panels["0 0"].yaxis) == names(panels["1 0"].yaxis) == ["r", "s"]
    assert names(panels["1 0"].xaxis) == ["a", "b", "c"]
    assert names(panels["1 1"].xaxis) == ["x", "y", "z"]
    assert panels["1 0"].get_xticks().tolist() == [0, 1, 2]
    for bare in (panels["0 0"].xaxis, panels["0 1"].xaxis, panels["0 1"].yaxis):
        assert names(bare) == []
    assert figure.get_suptitle() == "a title"
    assert figure.axes[-1].get_ylabel() == "weight"  # the color bar


def test_only_some_names_are_shown_where_cells_are_small():
    many = [f"token{i}" for i in range(400)]
    figure = figures.draw_heat_maps([[HeatMap("", np.zeros((400, 400)), many, many)]], "weight")
    axes = figure.axes[0]
    ticks = axes.get_xticks().astype(int).tolist()
    step = ticks[1]
    assert step > 1 and ticks == list(range(0, 400, step))
    assert names(axes.xaxis) == names(axes.yaxis) == many[::step]
    assert max(figure.get_size_inches()) <= 12.001


def test_a_matrix_of_zeros_is_drawn():
    figure = figures.draw_heat_maps(
        [[HeatMap("zeros", np.zeros((1, 2)), ["r"], ["a", "b"])]], "weight"
    )
    image = images(figure)["zeros"]
    assert image.get_array().tolist() == [[0, 0]] and image.norm.vmax == 1


def test_control_characters_in_names_are_escaped():
    figure = figures.draw_heat_maps([[HeatMap("", np.ones((1, 1)), ["$a_b$"], ["\n"])]], "weight")
    axes = figure.axes[0]
    assert (names(axes.yaxis), names(axes.xaxis)) == (["$a_b$"], [r"'\n'"])
    assert not axes.get_yticklabels()[0].get_parse_math()
