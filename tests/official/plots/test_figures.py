import io

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from official.plots import figures
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
