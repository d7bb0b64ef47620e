"""The benchmark of static vectors: its texts and its table."""

import lzma

import pytest

from benchmarks import static_vectors


@pytest.mark.parametrize("suffix", [".txt", ".txt.xz"])
def test_texts_are_consecutive_words(suffix, tmp_path):
    words = [f"w{i}" for i in range(40)]
    text = " ".join(words[:20]) + "\n\n" + " ".join(words[20:]) + "\n"
    source = tmp_path / f"text{suffix}"
    source.write_bytes(lzma.compress(text.encode()) if suffix.endswith("xz") else text.encode())
    static_vectors.write_texts(source, tmp_path / "out", 9, 4)
    texts = (tmp_path / "out").read_text().splitlines()
    assert len(texts) == 9 and all(1 <= len(each.split()) <= 4 for each in texts)
    joined = " ".join(texts).split()
    assert joined == words[: len(joined)] and len({len(each.split()) for each in texts}) > 1


def test_the_table_compares_medians():
    answers = {
        static_vectors.OURS: [{"seconds": s, "cpu": 2.0, "splitting": 0.5} for s in (1, 9, 2)],
        static_vectors.THEIRS: [{"seconds": 4, "cpu": 3.0, "splitting": 2.4}],
    }
    assert static_vectors.table(answers, 3000)[2:] == [
        "| encoder garden | 1,500 | 2.00 | 1,500 | 1.50 | 25% |",
        "| model2vec | 750 | 1.00 | 1,000 | 1.00 | 80% |",
    ]
