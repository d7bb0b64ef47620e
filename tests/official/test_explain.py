import subprocess
import sys

import numpy as np
import pytest

from official import explain
from official.config.corruption import PermutationConfig
from official.convert import converted_model, huggingface
from official.saving import model_folder
from official.utils.errors import UserError
from tests import ROOT, small

GOLDEN = ROOT / "tests" / "golden" / "hf_files"
CITY = "New York is a city"


def command(*options):
    done = subprocess.run(
        [sys.executable, "-m", "official.explain", *options],
        capture_output=True, text=True, cwd=ROOT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def new_york():
    """The paper's example: the first seed whose targets are New and York, in this order."""
    for seed in range(1000):
        found = explain.permute(CITY, PermutationConfig(k=2, max_span=2), seed)
        if found.order == (0, 1):
            return seed, found
    raise AssertionError("no such seed")


def test_new_york_is_explained_as_in_the_paper():
    seed, found = new_york()
    assert found.tokens == ("New", "York", "is", "a", "city") and found.targets == (0, 1)
    query = [[0, 0, 1, 1, 1], [1, 0, 1, 1, 1], *[[0, 0, 1, 1, 1]] * 3]
    assert found.query.astype(int).tolist() == query
    content = [[1, 0, 1, 1, 1], [1, 1, 1, 1, 1], *[[0, 0, 1, 1, 1]] * 3]
    assert found.content.astype(int).tolist() == content
    assert (
        explain.as_text(found)
        == """\
visible from the start  is a city
order                   New → York

2 of 5 tokens are predicted:
  log p(New | is a city)
  log p(York | New is a city)

content stream: each token's row, x where it may attend to a column
          0  1  2  3  4
  0 New   x  .  x  x  x
  1 York  x  x  x  x  x
  2 is    .  .  x  x  x
  3 a     .  .  x  x  x
  4 city  .  .  x  x  x

query stream: the targets' rows
          0  1  2  3  4
  0 New   .  .  x  x  x
  1 York  x  .  x  x  x"""
    )


def test_blocks_and_specials_with_a_tokenizer(tmp_path):
    from official import tokenizers

    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    found = explain.permute(
        "ba be bibo bu", PermutationConfig(unit="token", k=3, perm_size=4), 1, tokenizer
    )
    assert found.tokens == ("[CLS]", "ba", "be", "bi", "##bo", "bu", "[SEP]")
    assert len(found.targets) == 2 and set(found.order) == {0, 6, *found.targets}
    # Blocks come one after the other, and the second sees all of the first.
    assert [i // 4 for i in found.order] == sorted(i // 4 for i in found.order)
    assert found.content[4:, :4].all() and not found.content[:4, 4:].any()
    rank = {i: n for n, i in enumerate(found.order)}
    for i in found.order:
        for j in found.order:
            assert found.query[i, j] == (rank[j] < rank[i])


@pytest.mark.parametrize("text", ["", "  "])
def test_no_text(text):
    with pytest.raises(UserError, match="has no token: give a text of a few words"):
        explain.permute(text, PermutationConfig())


def test_attention_is_the_models_own(tmp_path):
    converted_model.write(huggingface.read(GOLDEN / "pretraining"), tmp_path / "model")
    config, tokenizer, model = model_folder.restore(tmp_path / "model")
    tokens, layers = explain.attention("the cat sat on a mat", tokenizer, model)
    assert tokens[0] == "[CLS]" and tokens[-1] == "[SEP]"
    encoder = config.encoder
    assert len(layers) == encoder.num_layers
    ids = np.array([[tokenizer.pieces.index(token) for token in tokens]], np.int32)
    expected = model.encode({"token_ids": ids}, output_all=True)["attentions"]
    for layer, values in zip(layers, expected, strict=True):
        assert layer.shape == (encoder.num_heads, len(tokens), len(tokens))
        np.testing.assert_allclose(layer, values[0], atol=1e-6)
        np.testing.assert_allclose(layer.sum(axis=-1), 1, atol=1e-5)
    assert explain.attention("the cat sat on a mat", tokenizer, model, 4)[0][-1] == "[SEP]"
    with pytest.raises(UserError, match="has no token"):
        explain.attention("", tokenizer, model)


@pytest.mark.slow
def test_commands(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="pillow (requirements.txt) is not installed")
    seed, found = new_york()
    image = tmp_path / "permutation.png"
    options = [f"--text={CITY}", f"--seed={seed}", "--k=2", "--max_span=2", f"--output={image}"]
    code, out, _ = command("--what=permutation", *options)
    assert code == 0 and out == f"{explain.as_text(found)}\n\n{image}: both masks\n"
    pixels = np.asarray(Image.open(image))
    dark = (pixels == [23, 70, 135]).all(axis=2).sum()
    # As many dark squares as there are x in the two grids.
    assert dark / 21**2 == pytest.approx(found.content.sum() + found.query[:2].sum(), rel=0.03)

    converted_model.write(huggingface.read(GOLDEN / "pretraining"), tmp_path / "model")
    image = tmp_path / "attention.png"
    code, out, _ = command(
        "--what=attention", "--text=the cat", f"--model_dir={tmp_path / 'model'}",
        f"--output={image}",
    )  # fmt: skip
    assert code == 0 and out.startswith(f"{image}: ") and out.endswith(" tokens\n")
    assert Image.open(image).width > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, message",
    [
        ([], "--text is missing: give the text to show"),
        (["--text=a b", "--k=0"], "--k: 0 is less than 1"),
        (["--text=a b", "--what=attention"], "--model_dir is missing (--what=attention); see"),
        (
            ["--text=a b", "--config=configs/smoke/bert.yaml"],
            "configs/smoke/bert.yaml: corruption: its type is not permutation",
        ),
    ],
)
def test_command_errors(options, message):
    code, _, err = command(*options)
    assert code == 2 and f"error: {message}" in err
