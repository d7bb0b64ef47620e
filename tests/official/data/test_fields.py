"""A batch is a list of field makers, each of which has what it needs."""

import pytest
import tensorflow as tf

from official.data.fields import BatchBuilder, Examples, FieldMaker, Heads, Numbers, Tags


class Twice(FieldMaker):
    """Doubles a field."""

    needs = frozenset({"label"})
    gives = frozenset({"twice"})

    def make(self, examples, batch):
        return {"twice": 2 * batch["label"]}


def builder(*makers):
    return BatchBuilder(frozenset({"label"}), None, seed=0, length=4, makers=makers)


def test_a_maker_reads_features_and_the_fields_before_it():
    made = builder(Numbers(frozenset({"label"})), Twice())
    assert made.fields == {"label", "twice"}
    with pytest.raises(ValueError, match="Tags needs padding_mask, word_ids, which nothing gives"):
        builder(Twice(), Tags(frozenset({"word_ids"}), "cls_first"))


def test_heads_of_other_tasks_read_zeros():
    """A head of the task of the examples has the fields that there are, the others have zeros."""
    names = {"a": ["a/label", "a/example_weights"], "b": ["b/score", "b/example_weights"]}
    maker = Heads(names, "a", known=frozenset({"example_weights"}))  # no label in this split
    assert maker.gives == {"a/example_weights", "b/score", "b/example_weights"}
    weights = tf.constant([1.0, 0.0])
    examples = Examples({}, 2, 4, index=tf.constant([3, -1]), seeds=tf.zeros([2]))
    assert examples.weights.numpy().tolist() == [1, 0]
    made = maker.make(examples, {"example_weights": weights})
    assert {name: value.numpy().tolist() for name, value in made.items()} == {
        "a/example_weights": [1, 0], "b/score": [0, 0], "b/example_weights": [0, 0],
    }  # fmt: skip
