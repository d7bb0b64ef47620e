"""The features of words that the CRF of the tagging baseline reads."""

from experiments import tagging_baseline


def test_shapes():
    words = ["McDonald", "U.S.", "2019-11", "", "iPhone7"]
    assert [tagging_baseline.shape(word) for word in words] == ["XxXx", "X.X.", "0-0", "", "xXx0"]


def test_features_have_the_neighbors():
    first, last = tagging_baseline.features(["New", "york"])
    assert {"w=new", "s=Xx", "first=True", "1w=york", "-1w=", "e3=new"} <= set(first)
    assert {"w=york", "first=False", "-1w=new", "-1s=Xx", "1w="} <= set(last)
