"""Writes the records of tf-models-official for SST-2, with every row padded to the limit.

`create_finetuning_data` downloads SST-2 and cannot read local files. This module runs the same code
with their processor of the task, and reads the rows from files.
"""

import csv
from pathlib import Path

import finetune_work as work
from official.nlp.data import classifier_data_lib
from official.nlp.tools import tokenization


class Processor(classifier_data_lib.SstProcessor):
    """SST-2 from train.tsv and dev.tsv."""

    def get_train_examples(self, data_dir):
        """Returns the rows of train.tsv."""
        return self._rows(data_dir, "train")

    def get_dev_examples(self, data_dir):
        """Returns the rows of dev.tsv."""
        return self._rows(data_dir, "dev")

    def _rows(self, data_dir, split):
        with open(Path(data_dir) / f"{split}.tsv", encoding="utf-8") as lines:
            _, *rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            classifier_data_lib.InputExample(
                guid=f"{split}-{number}", text_a=self.process_text_fn(text), label=label
            )
            for number, (text, label) in enumerate(rows)
        ]


def main() -> None:
    """Writes train.tfrecord and dev.tfrecord."""
    settings = work.settings()
    tokenizer = tokenization.FullTokenizer(settings["vocabulary"], do_lower_case=True)
    classifier_data_lib.generate_tf_record_from_data_file(
        Processor(),
        settings["rows"],
        tokenizer,
        train_data_output_path=f"{settings['output']}/train.tfrecord",
        eval_data_output_path=f"{settings['output']}/dev.tfrecord",
        max_seq_length=settings["length"],
    )


if __name__ == "__main__":
    main()
