"""Makes pretraining examples with tf-models-official, and tells their lengths and labels.

python tfm_make_examples.py TEXT VOCABULARY OUT.npz FLAG...
"""

import runpy
import sys
import tempfile

import numpy as np
import tensorflow as tf


def main(text: str, vocabulary: str, target: str, flags: list[str]) -> None:
    """Runs create_pretraining_data; writes lengths of A and B [E, 2] and labels [E]."""
    with tempfile.NamedTemporaryFile() as records:
        files = [f"--input_file={text}", f"--vocab_file={vocabulary}"]
        sys.argv = ["create", *files, f"--output_file={records.name}", *flags]
        try:
            runpy.run_module("official.nlp.data.create_pretraining_data", run_name="__main__")
        except SystemExit as ended:
            if ended.code:
                raise
        lengths, labels = [], []
        for record in tf.data.TFRecordDataset(records.name).as_numpy_iterator():
            actual = tf.train.Example.FromString(record).features.feature
            second = sum(actual["segment_ids"].int64_list.value)
            lengths.append([sum(actual["input_mask"].int64_list.value) - second, second])
            labels += actual["next_sentence_labels"].int64_list.value
    np.savez(target, lengths=lengths, labels=labels)


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[4:])
