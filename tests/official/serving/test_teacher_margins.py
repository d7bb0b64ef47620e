"""Margins of a teacher for pairs with negatives."""

import gzip
import json

import numpy as np
import pytest

from official.serving import teacher_margins
from official.utils.errors import UserError


class Lengths:
    """A ranker that scores a document by its length, less that of the query."""

    def __init__(self):
        self.pairs = []

    def rank(self, queries, documents, raw):
        assert raw
        self.pairs.append(len(documents))
        pairs = zip(queries, documents, strict=True)
        return np.array([len(document) - len(query) for query, document in pairs], np.float32)


def rows(count):
    return [
        {"query": "q" * (1 + i % 3), "positive": "p" * (2 + i), "negatives": ["n", "n" * (i + 4)]}
        for i in range(count)
    ]


def test_each_negative_has_a_line_with_its_margin(tmp_path):
    count = teacher_margins.ROWS + 3
    with gzip.open(tmp_path / "in.jsonl.gz", "wt") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows(count))
    model, output = Lengths(), tmp_path / "out.jsonl"
    margins = teacher_margins.write(model, tmp_path / "in.jsonl.gz", output, scale=0.5)
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert model.pairs == [3 * teacher_margins.ROWS, 9]
    expected = [
        {"query": r["query"], "positive": r["positive"], "negative": negative}
        | {"margin": 0.5 * (len(r["positive"]) - len(negative))}
        for r in rows(count)
        for negative in r["negatives"]
    ]
    assert lines == expected
    assert margins.tolist() == [line["margin"] for line in lines]


@pytest.mark.parametrize(
    "row", [{"query": "a", "positive": "b"}, {"query": "a", "negatives": ["c"]},
            {"query": "a", "positive": "b", "negatives": "c"},
            {"query": "a", "positive": "b", "negatives": ["c", 3]}],
)  # fmt: skip
def test_other_rows_are_refused(tmp_path, row):
    given = tmp_path / "in.jsonl"
    given.write_text(json.dumps(rows(1)[0]) + "\n" + json.dumps(row))
    with pytest.raises(UserError, match="in.jsonl, line 2: expected the texts `query` and `pos"):
        teacher_margins.write(Lengths(), given, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="margins are written as .jsonl: name such"):
        teacher_margins.write(Lengths(), tmp_path / "in.jsonl", tmp_path / "out.tsv")
    (tmp_path / "in.jsonl").write_text("\n")
    with pytest.raises(UserError, match="in.jsonl has no rows"):
        teacher_margins.write(Lengths(), tmp_path / "in.jsonl", tmp_path / "out.jsonl")
