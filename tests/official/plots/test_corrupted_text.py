import numpy as np
import pytest

from official import tokenizers
from official.config.corruptions import PermutationConfig
from official.plots import corrupted_text
from official.utils.errors import UserError
from tests import small

CITY = "New York is a city"


@pytest.fixture(scope="module")
def new_york():
    """The paper's example: the first seed whose targets are New and York, in this order."""
    for seed in range(1000):
        sampled = corrupted_text.sample_permutation(CITY, PermutationConfig(k=2, max_span=2), seed)
        if sampled.order == (0, 1):
            return sampled
    raise AssertionError("no such seed")


def test_new_york_is_explained_as_in_the_paper(new_york):
    assert new_york.tokens == ("New", "York", "is", "a", "city") and new_york.targets == (0, 1)
    query = [[0, 0, 1, 1, 1], [1, 0, 1, 1, 1], *[[0, 0, 1, 1, 1]] * 3]
    assert new_york.query.astype(int).tolist() == query
    content = [[1, 0, 1, 1, 1], [1, 1, 1, 1, 1], *[[0, 0, 1, 1, 1]] * 3]
    assert new_york.content.astype(int).tolist() == content
    assert (
        corrupted_text.permutation_text(new_york)
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


def test_the_masks_are_drawn(new_york):
    figure = corrupted_text.draw_permutation(new_york)
    content, query, bar = figure.axes
    assert (content.get_title(), query.get_title()) == ("content stream", "query stream")
    np.testing.assert_array_equal(content.images[0].get_array(), new_york.content)
    np.testing.assert_array_equal(query.images[0].get_array(), new_york.query[:2])
    texts = lambda axis: [label.get_text() for label in axis.get_ticklabels()]  # noqa: E731
    names = ["New 0", "York 1", "is 2", "a 3", "city 4"]
    assert texts(content.yaxis) == texts(query.xaxis) == names
    assert texts(query.yaxis) == names[:2]
    assert figure.get_suptitle() == "order: New → York"
    assert bar.get_ylabel() == "1 = may attend to"


def test_a_text_without_targets_has_no_query_stream():
    eye = np.eye(2, dtype=bool)
    sampled = corrupted_text.Permutation(("a", "b"), (), (), eye, ~eye)
    figure = corrupted_text.draw_permutation(sampled)
    assert [axes.get_title() for axes in figure.axes] == ["content stream", ""]
    assert figure.get_suptitle() == "order: (none)"


def test_blocks_and_specials_with_a_tokenizer(tmp_path):
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    sampled = corrupted_text.sample_permutation(
        "ba be bibo bu", PermutationConfig(unit="token", k=3, perm_size=4), 1, tokenizer
    )
    assert sampled.tokens == ("[CLS]", "ba", "be", "bi", "##bo", "bu", "[SEP]")
    assert len(sampled.targets) == 2 and set(sampled.order) == {0, 6, *sampled.targets}
    # Blocks come one after the other, and the second sees all of the first.
    assert [i // 4 for i in sampled.order] == sorted(i // 4 for i in sampled.order)
    assert sampled.content[4:, :4].all() and not sampled.content[:4, 4:].any()
    rank = {i: n for n, i in enumerate(sampled.order)}
    for i in sampled.order:
        for j in sampled.order:
            assert sampled.query[i, j] == (rank[j] < rank[i])


@pytest.mark.parametrize("text", ["", "  "])
def test_no_text(text, tmp_path):
    message = "has no token: give a text of a few words"
    with pytest.raises(UserError, match=message):
        corrupted_text.sample_permutation(text, PermutationConfig())
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    with pytest.raises(UserError, match=message):
        corrupted_text.sample_permutation(text, PermutationConfig(), 0, tokenizer)
