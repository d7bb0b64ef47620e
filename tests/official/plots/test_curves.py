import math

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from official.plots import curves
from official.saving.metrics_log import Record
from official.utils.errors import UserError

ONE = [
    Record(2, "train", {"loss": 3.0, "learning_rate": 0.1, "gradient_norm": 1.5, "mlm": 2.5}),
    Record(4, "train", {"loss": 2.0, "learning_rate": 0.2, "gradient_norm": math.nan}),
    Record(4, "validation", {"loss": 2.25, "accuracy": 0.5}),
    Record(6, "train", {"loss": 1.0, "learning_rate": 0.3, "gradient_norm": 0.5}),
    Record(8, "validation", {"loss": 1.25, "accuracy": 0.75}),
]
TWO = [Record(5, "train", {"loss": 4.0, "learning_rate": 0.4})]


def panels(figure):
    return {axes.get_title(): axes for axes in figure.axes}


def lines(axes):
    """The points of each line by its label."""
    return {line.get_label(): np.transpose(line.get_data()).tolist() for line in axes.get_lines()}


def test_lines_are_the_values_of_the_records():
    actual = panels(curves.draw({"one": ONE, "two": TWO}))
    # `mlm` is of training alone, and no evaluation has it.
    assert list(actual) == ["loss", "learning rate", "gradient norm", "accuracy"]
    assert lines(actual["loss"]) == {
        "one (train)": [[2, 3.0], [4, 2.0], [6, 1.0]],
        "one (validation)": [[4, 2.25], [8, 1.25]],
        "two (train)": [[5, 4.0]],
    }
    assert lines(actual["learning rate"]) == {
        "one (train)": [[2, 0.1], [4, 0.2], [6, 0.3]],
        "two (train)": [[5, 0.4]],
    }
    assert lines(actual["accuracy"]) == {"one (validation)": [[4, 0.5], [8, 0.75]]}
    (norms,) = actual["gradient norm"].get_lines()
    np.testing.assert_array_equal(norms.get_ydata(), [1.5, math.nan, 0.5])
    assert {axes.get_xlabel() for axes in actual.values()} == {"step"}


def test_colors_are_runs_and_line_styles_are_splits():
    figure = curves.draw({"one": ONE, "two": TWO})
    drawn = {line.get_label(): line for line in panels(figure)["loss"].get_lines()}
    styles = {label: line.get_linestyle() for label, line in drawn.items()}
    assert styles == {"one (train)": "-", "one (validation)": "--", "two (train)": "-"}
    # A single point has a marker, and so has each evaluation.
    markers = {label: line.get_marker() for label, line in drawn.items()}
    assert markers == {"one (train)": "None", "one (validation)": "o", "two (train)": "o"}
    colors = {label: to_rgb(line.get_color()) for label, line in drawn.items()}
    assert colors["one (train)"] == colors["one (validation)"] != colors["two (train)"]
    (legend,) = figure.legends
    shown = {
        text.get_text(): line
        for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    assert list(shown) == ["one", "two", "train", "validation"]
    assert to_rgb(shown["two"].get_color()) == colors["two (train)"]
    assert shown["validation"].get_linestyle() == "--"


def test_the_legend_has_no_split_without_records():
    (legend,) = curves.draw({"two": TWO}).legends
    assert [text.get_text() for text in legend.get_texts()] == ["two", "train"]


@pytest.mark.parametrize("count", [10, 23])
def test_every_run_has_its_own_color(count):
    figure = curves.draw({f"run {i}": TWO for i in range(count)})
    colors = {to_rgb(line.get_color()) for line in panels(figure)["loss"].get_lines()}
    assert len(colors) == count


def test_empty_places_of_the_grid_are_removed():
    metrics = {name: 1.0 for name in "abcd"}
    figure = curves.draw({"one": [Record(1, "validation", metrics)]})
    assert list(panels(figure)) == list("abcd") and len(figure.axes) == 4


def test_runs_without_a_known_metric_are_refused():
    with pytest.raises(UserError, match="^one: there is no loss and no metric to draw$"):
        curves.draw({"one": [Record(1, "train", {"mlm": 1.0})]})
