"""tf-models-official reads what `--format=tf_models` writes; its examples are cut as ours are."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from official.data import ShardDataset
from official.shards import parsing
from tests import small
from tfrecords_tools.pretraining import builder
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.writing.execution import Execution

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    documents = ["\n".join(sentences) for sentences in small.documents(600)]
    path.write_text("\n\n".join(documents) + "\n")
    return path


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return small.tokenizer_folder(tmp_path_factory.mktemp("made") / "tokenizer")


def build(run_config, text, tokenizer, output, format="examples"):
    settings = Settings.from_config(run_config, tokenizer, format=format)
    return builder.build(settings, str(text), output, Execution(2))


@pytest.mark.parametrize(
    ("unit", "format_"),
    [
        ("token", "tf_models"),
        pytest.param("word", "tf_models", marks=pytest.mark.long),
        ("word", "tf_models_v2"),
    ],
)
def test_their_loader_gives_the_tensors_of_ours(tfm, tmp_path, text, tokenizer, unit, format_):
    settings = small.config(
        corruption__unit=unit, segments__static_masks=True, segments__duplicates=2
    )
    build(settings, text, tokenizer, tmp_path / "theirs", format=format_)
    built = build(settings, text, tokenizer, tmp_path / "ours")
    out = tmp_path / "read.npz"
    tfm.run(HERE / "tfm_read_shards.py", tmp_path / "theirs" / "train-*", 32, 5, out, format_)
    theirs = dict(np.load(out))
    source = ShardDataset(tmp_path / "ours", settings, training=False)
    batches = list(source.dataset(16).as_numpy_iterator())
    ours = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    ours = {name: value[ours["example_weights"] > 0] for name, value in ours.items()}
    same = {
        "input_word_ids": ours["token_ids"],
        "input_type_ids": ours["segment_ids"],
        "input_mask": ours["padding_mask"],
        "masked_lm_positions": ours["masked_positions"],
        "masked_lm_ids": ours["masked_ids"],
        "masked_lm_weights": ours["masked_weights"],
        "next_sentence_labels": ours["next_sentence_label"][:, None],
    }
    assert theirs.keys() == same.keys()
    assert len(theirs["input_mask"]) == built.totals.examples > 1000
    for name, values in same.items():
        np.testing.assert_array_equal(theirs[name], values, err_msg=name)


def test_their_examples_have_the_lengths_of_ours(tfm, tmp_path, text, tokenizer):
    """The shares of lengths and labels; theirs come from another random generator."""
    settings = small.config(segments__duplicates=20)
    build(settings, text, tokenizer, tmp_path / "ours")
    paths = [str(path) for path in (tmp_path / "ours").glob("*.tfrecord")]
    (records,) = tf.data.TFRecordDataset(paths).batch(1_000_000)
    read = parsing.parse(records, ["segment_lengths", "next_sentence_label"])
    ours = read["segment_lengths"].to_tensor().numpy(), read["next_sentence_label"].numpy()
    out = tmp_path / "made.npz"
    flags = ["--max_seq_length=32", "--max_predictions_per_seq=5", "--dupe_factor=20"]
    tfm.run(HERE / "tfm_make_examples.py", text, tokenizer / "vocab.txt", out, *flags)
    theirs = np.load(out)["lengths"], np.load(out)["labels"]
    assert abs(len(ours[0]) / len(theirs[0]) - 1) < 0.02
    # Examples of a document share its target length, and a document of three sentences makes one
    # or two of them: so the shares vary a little more than independent draws would.
    assert abs(ours[1].mean() - theirs[1].mean()) < 0.01
    for name, select in {"both": lambda x: x.sum(axis=1), "A": lambda x: x[:, 0]}.items():
        mine, other = (
            np.bincount(select(pairs), minlength=33) / len(pairs) for pairs, _ in (ours, theirs)
        )
        assert np.abs(mine - other).max() < 0.01, name
