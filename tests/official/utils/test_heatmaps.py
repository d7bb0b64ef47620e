import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="pillow (requirements.txt) is not installed")
figures = pytest.importorskip("official.utils.heatmaps")
Panel = figures.Panel


def test_a_panel_has_a_square_for_each_value(tmp_path):
    values = np.array([[0, 1, 0.5], [1, 0, 0]])
    figures.save(figures.draw([[Panel("", values, cell=10)]]), tmp_path / "a.png")
    image = Image.open(tmp_path / "a.png")
    pixels = np.asarray(image)
    bottom, right = image.height - figures._GAP - 1, image.width - figures._GAP - 1
    middle = [[pixels[bottom - 15 + 10 * i, right - 25 + 10 * j] for j in range(3)] for i in (0, 1)]
    found = (255 - np.array(middle)) / (255 - figures._STRONG)
    np.testing.assert_allclose(found, values[..., None].repeat(3, -1), atol=0.01)


def test_panels_stand_in_rows_and_columns():
    panel = Panel("title", np.zeros((4, 4)), ["a", "long name", "▁c", ""], list("abcd"))
    one = figures.draw([[panel]])
    many = figures.draw([[panel, panel, panel], [panel]])
    size = np.array(one.size) - 2 * figures._GAP
    assert many.size == tuple(size * [3, 2] + figures._GAP * np.array([4, 3]))
    first = np.asarray(one)[figures._GAP :, figures._GAP :][: size[1], : size[0]]
    for x, y in ((0, 0), (2, 0), (0, 1)):
        left, top = figures._GAP + np.array([x, y]) * (size + figures._GAP)
        np.testing.assert_array_equal(
            np.asarray(many)[top : top + size[1], left : left + size[0]], first
        )
    # Names are there, and the grid is white.
    assert (np.asarray(one) < 100).any()
    assert figures.draw([[Panel("", np.zeros((4, 4)))]]).size < one.size


@pytest.mark.parametrize("mark", ["▁", "Ġ"])
def test_marks_of_word_beginnings_are_drawn_as_underlines(mark):
    draw = lambda name: np.asarray(figures.draw([[Panel("", np.zeros((1, 1)), [name])]]))  # noqa: E731
    np.testing.assert_array_equal(draw(f"{mark}a"), draw("_a"))
