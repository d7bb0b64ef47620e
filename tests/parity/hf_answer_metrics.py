"""Scores predictions with transformers' copy of SQuAD's evaluation: FILES.json FIGURES.json."""

import json
import sys
import types

from transformers.data.metrics import squad_metrics


def main(files, output):
    figures = []
    for right, answers, odds, threshold in json.load(open(files)):
        examples = [
            types.SimpleNamespace(qas_id=key, answers=[{"text": text} for text in texts])
            for key, texts in right.items()
        ]
        figures.append(squad_metrics.squad_evaluate(examples, answers, odds, threshold))
    json.dump(figures, open(output, "w"))


if __name__ == "__main__":
    main(*sys.argv[1:])
