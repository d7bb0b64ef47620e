"""Tests of tfrecords_tools.text.filters and tfrecords_tools.text.dropped."""

import collections
import gzip
import json
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from absl import flags

from official.shards.text_filters import TextFilters
from tests import ROOT
from tests.tfrecords_tools.text.test_words import split
from tfrecords_tools.text import corpus, documents, dropped, duplicates, filters
from tfrecords_tools.text.corpus import Corpus, Reading

FEW, MANY, EQUAL, ALIKE = dropped.REASONS


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 400)
    monkeypatch.setattr(corpus, "MAX_RANGE_BYTES", 400)


def passed(path, chosen, folder, seed=0):
    """The texts that pass, in the order of the corpus, the counts of all, and the lines said."""
    files = Corpus.find(str(path))
    lines = []
    reading = filters.passed(chosen, files, Reading(files.range_bytes), map, folder, lines.append)
    texts, read_counts = collections.defaultdict(list), documents.ReadCounts()
    for group in files.groups(seed):
        for chunk in corpus.read_chunks(group, reading, shared=False):
            read_counts.add(chunk.read_counts)
            for each in chunk.documents:
                file, number, place = each.identity
                place = len(files.files) << 30 if place == documents.LAST else place
                texts[file, number, place, each.identity[2]].append((each.part, each.text))
    joined = ["".join(text for _, text in sorted(texts[key])) for key in sorted(texts)]
    return joined, read_counts, lines


def random_texts(rng, count):
    """Texts of words, symbols and lines, some of which have many symbols."""
    texts = []
    for _ in range(count):
        share = rng.choice([0.02, 0.3, 1])
        words = [
            "#*" if rng.random() < share else "".join(rng.choice(list("abcde"), 4))
            for _ in range(rng.integers(1, 60))
        ]
        lines = np.array_split(words, rng.integers(1, 4))
        texts.append("\n".join(" ".join(line) for line in lines if len(line)))
    # Documents that are read in parts: of words, of symbols, and of both.
    for word in ("word", "*", "wo *", "*****"):
        texts.insert(int(rng.integers(len(texts))), "\n".join([f"{word} {word}"] * 150))
    return texts


def failing(text, chosen):
    words, symbols, characters = split(text)
    if len(words) < (chosen.min_words or 0):
        return FEW
    if chosen.max_symbol_share is not None and len(symbols) > chosen.max_symbol_share * characters:
        return MANY
    return None


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz"])
@pytest.mark.parametrize(
    "chosen",
    [
        TextFilters(min_words=20),
        TextFilters(max_symbol_share=0.25),
        TextFilters(min_words=10, max_symbol_share=0.4, deduplicate="exact"),
    ],
    ids=["min_words", "max_symbol_share", "all"],
)
def test_what_passes_as_a_loop_has_it(tmp_path, name, chosen):
    rng = np.random.default_rng(0)
    texts = random_texts(rng, 150)
    # Copies, of which some have other white space, and the first ones fail where theirs do.
    texts += [texts[i].replace("\n", " \n ") for i in rng.integers(0, len(texts), 40)]
    content = "\n\n".join(texts)
    if name == "a.jsonl":
        content = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    data = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    expected, counts, seen = [], collections.Counter(), set()
    for text in texts:
        reason = failing(text, chosen)
        if chosen.deduplicate and reason is None:
            reason = EQUAL if " ".join(text.split()) in seen else None
            seen.add(" ".join(text.split()))
        if reason:
            counts[reason] += 1
        else:
            expected.append(text)
    found, read_counts, lines = passed(tmp_path / name, chosen, tmp_path / "filters")
    assert found == expected
    assert read_counts.skipped == counts and min(counts.values()) > 5
    assert read_counts.documents == len(expected)
    assert lines[-1].endswith(f", {len(texts)} documents, {len(texts) - len(expected)} left out")
    # The pass is not made again where its file is, and the order of the groups changes nothing.
    again = passed(tmp_path / name, chosen, tmp_path / "filters", seed=5)
    assert again[0] == expected and not again[2]


def test_the_first_of_near_duplicates_stays(tmp_path):
    rng = np.random.default_rng(1)
    words = [f"w{i}" for i in range(2000)]
    texts = [" ".join(rng.choice(words, rng.integers(40, 90))) for _ in range(60)]
    texts[7] = "\n".join(" ".join(rng.choice(words, 10)) for _ in range(60))  # in parts
    expected = list(texts)
    for i in (3, 7, 20):
        changed = texts[i].upper().split(" ")
        changed[25] = "changed"
        texts.append("\n".join(f"{' '.join(changed[:40])},\n{' '.join(changed[40:])}".split("\n")))
    texts.append(texts[3])
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    near = TextFilters(deduplicate="near")
    found, read_counts, _ = passed(tmp_path / "a.txt", near, tmp_path / "near")
    assert found == expected and read_counts.skipped == {ALIKE: 4}
    exact = TextFilters(deduplicate="exact")
    found, read_counts, _ = passed(tmp_path / "a.txt", exact, tmp_path / "exact")
    assert found == texts[:-1] and read_counts.skipped == {EQUAL: 1}


def test_odd_documents(tmp_path):
    """Documents of symbols alone, of one word, of no word that a filter counts, and giants."""
    giant = "\n".join(f"{i} {i * i}" for i in range(500))
    dots = "\n".join(["... ..."] * 200)
    other = "\n".join(["..? ..."] * 200)
    texts = [
        "!!!",
        "\u200b",
        "a",
        giant,
        dots,
        other,
        "!!!",
        "\u6211\u7231\u5317\u4eac",
        giant,
        "A",
    ]
    rows = [*texts, "", " ", "\x01"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    empty = {"empty documents": 3}
    for chosen, expected, skipped in (
        (TextFilters(deduplicate="near"), [*texts[:6], texts[7]], {ALIKE: 3}),
        (TextFilters(deduplicate="exact"), [*texts[:6], texts[7], "A"], {EQUAL: 2}),
        (TextFilters(min_words=1), ["a", giant, texts[7], giant, "A"], {FEW: 5}),
        (TextFilters(min_words=4), [giant, texts[7], giant], {FEW: 7}),
        (TextFilters(max_symbol_share=0.0), [*texts[1:4], *texts[7:]], {MANY: 4}),
        (TextFilters(max_symbol_share=1.0), texts, {}),
    ):
        folder = tmp_path / repr(chosen)
        found, read_counts, _ = passed(tmp_path / "a.jsonl", chosen, folder)
        assert found == expected
        assert read_counts.skipped == {**skipped, **empty}
    (tmp_path / "a.txt").write_text("\n\n".join([dots, giant, other, dots, giant]))
    near = TextFilters(deduplicate="near")
    found, read_counts, _ = passed(tmp_path / "a.txt", near, tmp_path / "near")
    # The parts of a giant of symbols alone are not those of its copy.
    assert found[:3] == [dots, giant, other] and len(found) in (3, 4)


def decided(blocks, size, copies, kind="near"):
    """What is decided of blocks of random rows, of which the last ones are copies."""
    decisions = filters.Decisions(TextFilters(deduplicate=kind))
    width = duplicates.HASHES if kind == "near" else duplicates.DIGEST_BYTES
    for block in range(blocks):
        rng = np.random.default_rng(block % (blocks - copies))
        rows = rng.integers(0, 256, (size, width), np.uint8)
        if block >= blocks - copies and kind == "near":
            rows[:, ::10] = np.random.default_rng(block).integers(0, 256, rows[:, ::10].shape)
        places = np.stack([np.full(size, block), np.arange(size)], axis=1)
        decisions.add([filters.Whole(places, np.ones((size, 3), np.int64), rows)])
    return decisions.table()


@pytest.mark.parametrize("kind, bound", [("exact", 110), ("near", 360)])
def test_memory_of_a_document(kind, bound):
    """The arrays of all documents together; bytearrays have an eighth more than is in use."""
    duplicates.find_alike(np.zeros((2, duplicates.HASHES), np.uint8))
    tracemalloc.start()
    table = decided(20, 2000, 2, kind)
    size = tracemalloc.get_traced_memory()[1] / 40_000
    tracemalloc.stop()
    assert table.shape == (3, 4000) and set(table[0]) == {18, 19}
    assert size < bound + 4 * 1024 * 1024 / 40_000, size  # the pairs that are compared at once


@pytest.mark.slow
@pytest.mark.long
def test_a_million_documents_are_in_less_than_a_gigabyte():
    program = (
        "from tests.tfrecords_tools.text.test_filters import decided;"
        "print(decided(500, 2000, 50).shape[1]);"
        "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found, kilobytes = map(int, done.stdout.split())
    assert found == 100_000
    assert kilobytes * 1024 < 1e9


def test_flags():
    values = flags.FlagValues()
    corpus.define_flags("output", values)
    values(["build"])
    assert corpus.filters_of(values) is None
    values(["build", "--min_words=3", "--max_symbol_share=0", "--deduplicate=near"])
    assert corpus.filters_of(values) == TextFilters(3, 0.0, "near")
    for wrong in ("--min_words=0", "--max_symbol_share=1.5", "--deduplicate=fuzzy"):
        with pytest.raises(flags.IllegalFlagValueError):
            values(["build", wrong])
    for wrong in ({"min_words": 0}, {"max_symbol_share": 2}, {"deduplicate": "fuzzy"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            TextFilters(**wrong)
