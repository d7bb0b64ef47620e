"""Rows that go on, walked through token by token in a corpus whose every token is marked."""

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.corruption.vocabulary import Vocabulary
from official.shards import manifest, parsing, shard_folder
from official.utils import host_seeding
from official.utils.errors import UserError
from tests import small
from tests.streams import CLS, FIRST, LENGTHS, SEP, Walk, config, marked, stream_folder
from tfrecords_tools.pretraining import builder, segments, stream_rows, streams
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.pretraining.streams import StoredDocument
from tfrecords_tools.text import corpus
from tfrecords_tools.writing.execution import Execution
from tfrecords_tools.writing.shuffle import ShardRecords


def read(folder):
    """The examples as dicts of arrays, step by step."""
    record = manifest.read(folder)
    paths = [str(folder / shard.name) for shard in record.shards]
    batch = next(iter(tf.data.TFRecordDataset(paths).batch(10**6)))
    parsed = parsing.parse(batch, record.features)
    arrays = {name: np.array(value.to_tensor() if isinstance(value, tf.RaggedTensor) else value)
              for name, value in parsed.items()}  # fmt: skip
    groups, rows = record.row_groups, record.segments.rows

    def by_step(array):  # from [groups, steps, rows of a group, …]
        steps = len(array) // rows
        parts = array.reshape(groups, steps, rows // groups, *array.shape[1:])
        return parts.swapaxes(0, 1).reshape(array.shape)

    return {name: by_step(array) for name, array in arrays.items()}


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("reuse", [0, 5])
def test_each_row_goes_on_where_it_left_off(tmp_path, reuse, backward):
    documents, words = marked(LENGTHS)
    settings = config(reuse_length=reuse, backward=backward)
    folder = stream_folder(tmp_path / "shards", settings, documents, words)
    rows = read(folder)
    total, stride = len(rows["token_ids"]), reuse or 16
    assert total % 4 == 0 and (rows["segment_lengths"].sum(axis=1) == 16).all()
    # Forward rows share the text, and so do backward ones.
    tokens = sum(LENGTHS) + len(LENGTHS)
    streams = 2 if backward else 4
    span = 13 if reuse else 17
    assert total // 4 == ((tokens - span) // stride + 1) // streams
    texts = []
    for b in range(4):
        row = rows["token_ids"][b::4]  # [steps, 16]
        walk = Walk(LENGTHS, backward and b >= 2)
        text = row[:, :stride].ravel()
        walk.check(text.tolist())
        texts.append(text)
        assert rows["continues"][b::4].tolist() == [0] + [1] * (len(row) - 1)
        if backward:
            assert (rows["backward"][b::4] == (b >= 2)).all()
        for tokens, lengths in zip(row, rows["segment_lengths"][b::4], strict=True):
            if reuse:
                first, second, last = lengths
                assert last == 1 and tokens[-1] == CLS and tokens[-2] == SEP
                assert tokens[first - 1] == SEP and first > reuse + 1 and second > 1
                whole = [*tokens[: first - 1], *tokens[first:-2]]
                assert len(whole) == 13
                walk.check(whole)
        if not reuse:
            walk.check([*text.tolist(), int(rows["next_id"][b::4][-1])])
            np.testing.assert_array_equal(rows["next_id"][b::4][:-1], row[1:, 0])
    # No token is in two streams, nor twice in one; each direction takes the same number of them.
    for half in (texts[:streams], texts[streams:]) if backward else (texts,):
        real = np.concatenate(half)
        real = real[real != SEP]
        assert len(set(real)) == len(real) > 0.7 * sum(LENGTHS)


def test_a_ends_where_a_sentence_does(tmp_path):
    documents, words = marked(LENGTHS)
    for backward in (False, True):
        settings = config(reuse_length=3, max_length=20, backward=backward, duplicates=6)
        rows = read(stream_folder(tmp_path / f"{backward}", settings, documents, words))
        starts = np.cumsum([0, *LENGTHS])
        lasts = {
            int(min(start + i + 6, stop - 1)) + FIRST
            for start, stop in zip(starts, starts[1:], strict=False)
            for i in range(0, stop - start, 7)
        }
        firsts = {
            int(start + i) + FIRST
            for start, stop in zip(starts, starts[1:], strict=False)
            for i in range(0, stop - start, 7)
        }
        seen = set()
        for b in range(4):
            reverse = backward and b >= 2
            for tokens, (first, _, _) in zip(
                rows["token_ids"][b::4], rows["segment_lengths"][b::4], strict=True
            ):
                # 14 tokens of A and B hold the end of a sentence of at most 7.
                last = int(tokens[first - 2])
                if reverse:  # a separator stands before the document that ended
                    assert last in firsts, tokens
                else:
                    assert last in lasts or last == SEP, tokens
                seen.add(int(first))
        assert len(seen) > 8  # and it is drawn which


@pytest.mark.parametrize("reuse", [0, 5])
def test_an_end_of_document_stands_between_documents(tmp_path, reuse):
    """XLNet's <eod>; [SEP] is left to end A and B, and an <eod> may be predicted."""
    documents, words = marked(LENGTHS)
    settings = config(reuse_length=reuse, backward=True)
    folder = stream_folder(tmp_path / "shards", settings, documents, [*words, "<eod>"])
    rows = read(folder)
    tokenizer = tokenizers.load(folder / "tokenizer")
    end = FIRST + len(words)
    assert tokenizer.eod_id == end and tokenizer.pieces[end] == "<eod>"
    assert tokenizer.encode(["<eod>"])[0].tolist() != [end]  # text never gives it
    assert end not in tokenizer.special_ids and Vocabulary.from_tokenizer(tokenizer).maskable[end]
    ends = 0
    for b in range(4):
        walk = Walk(LENGTHS, b >= 2, end)
        walk.check(rows["token_ids"][b::4, : reuse or 16].ravel().tolist())
        for tokens, lengths in zip(
            rows["token_ids"][b::4], rows["segment_lengths"][b::4], strict=True
        ):
            seps = np.flatnonzero(tokens == SEP).tolist()
            assert seps == ((np.cumsum(lengths)[:-1] - 1).tolist() if reuse else [])
            text = tokens[(tokens != SEP) & (tokens != CLS)].tolist()
            walk.check(text)
            ends += text.count(end)
    assert ends >= 2 * (len(LENGTHS) - 2)  # of both directions, but for what is cut off


def test_short_documents_are_dropped_and_contexts_kept_apart(tmp_path):
    documents, words = marked(LENGTHS)
    settings = config(reuse_length=5, short_documents="drop", rows=3)
    folder = stream_folder(tmp_path / "shards", settings, documents, words)
    rows = read(folder)
    starts = np.cumsum([0, *LENGTHS])
    of = np.repeat(np.arange(len(LENGTHS)), LENGTHS)  # document of each word
    long = {i for i, length in enumerate(LENGTHS) if length >= 13}
    seen = []
    for b in range(3):
        row, goes_on = rows["token_ids"][b::3], rows["continues"][b::3]
        for t, tokens in enumerate(row):
            text = tokens[(tokens != SEP) & (tokens != CLS)] - FIRST
            assert len(set(of[text])) == 1, "one document"
            assert (np.diff(text) == 1).all()
            number = of[text[0]]
            assert goes_on[t] == (t > 0 and text[0] != starts[number])
            if goes_on[t]:
                assert text[0] == row[t - 1][4] + 1 - FIRST
            if not goes_on[t] and t > 0:
                assert text[0] == starts[number]
            seen.append(number)
    assert set(seen) <= long and len(set(seen)) >= len(long) - 1
    for number in set(seen):
        assert seen.count(number) <= (LENGTHS[number] - 13) // 5 + 1
    assert manifest.read(folder).totals.longest_memory > 20


def test_a_random_b_is_of_another_document(tmp_path):
    documents, words = marked(LENGTHS)
    settings = config(reuse_length=5, relation="next_sentence", duplicates=10)
    rows = read(stream_folder(tmp_path / "shards", settings, documents, words))
    of = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    walk = Walk(LENGTHS, False)
    labels = rows["next_sentence_label"]
    assert abs(labels.mean() - 0.5) < 4 * np.sqrt(0.25 / len(labels))
    begins = 0
    for tokens, (first, second, _), label in zip(
        rows["token_ids"], rows["segment_lengths"], labels, strict=True
    ):
        a, b = tokens[: first - 1].tolist(), tokens[first : first + second - 1].tolist()
        walk.check(a)
        walk.check(b)
        if not label:
            walk.check(a + b)
            continue
        opening = tokens[5] if tokens[5] != SEP else tokens[4]  # of the document where A begins
        assert of[opening - FIRST] not in {of[token - FIRST] for token in b if token != SEP}
        inside = of[b[0] - FIRST] if b[0] != SEP else None
        start = np.cumsum([0, *LENGTHS])[inside] if inside is not None else None
        begins += start is not None and (b[0] - FIRST - start) % 7 == 0
    assert begins > 0.7 * labels.sum()


def test_shards_do_not_change_rows(tmp_path, monkeypatch):
    """Only a random B depends on the rows and steps that are made together."""
    documents, words = marked(LENGTHS)
    settings = config(reuse_length=5, backward=True, duplicates=80, rows=2)
    first = read(stream_folder(tmp_path / "a", settings, documents, words))
    again = read(stream_folder(tmp_path / "b", settings, documents, words, shard_count=1))
    monkeypatch.setattr(stream_rows, "SEQUENCES_AT_ONCE", 16)
    third = read(stream_folder(tmp_path / "c", settings, documents, words, shard_count=1))
    for other in (again, third):
        for name in ("continues", "backward"):
            np.testing.assert_array_equal(first[name], other[name], err_msg=name)
        np.testing.assert_array_equal(first["token_ids"][:, :5], other["token_ids"][:, :5])
    other = read(stream_folder(
        tmp_path / "d", configs.from_dict({**configs.to_dict(settings), "seed": 1}),
        documents, words,
    ))  # fmt: skip
    assert (other["token_ids"] != first["token_ids"]).mean() > 0.5


def test_one_of_draws_each_flagged_column_alike():
    flags = np.array([[0, 1, 0, 1, 1], [0, 0, 0, 0, 0]], bool).repeat(4000, axis=0)
    actual = stream_rows.draw_flagged(flags, host_seeding.numpy_rng(0))
    first, second = np.split(actual, 2)
    assert set(first) == {1, 3, 4} and set(second) == set(range(5))
    for counts, share in ((np.bincount(first)[[1, 3, 4]], 1 / 3), (np.bincount(second), 1 / 5)):
        assert (abs(counts / 4000 - share) < 4 * np.sqrt(share * (1 - share) / 4000)).all()


def test_elsewhere_reaches_every_place_and_no_other():
    """Three documents of 4, 6 and 5 tokens; each token is a sentence."""
    ids, begins, splits = np.arange(15, dtype=np.int32), np.ones(16, bool), np.array([0, 4, 10, 15])

    def places(here, length, identities=(0, 1, 2)):
        text = stream_rows.Text(ids, begins, splits, np.array(identities, np.uint64))
        rng = host_seeding.numpy_rng(here, length)
        drawn = stream_rows.draw_elsewhere(text, np.full(3000, here), np.full(3000, length), rng)
        found, counts = np.unique(drawn, return_counts=True)
        share = 1 / len(found)
        assert (abs(counts / 3000 - share) < 4.5 * np.sqrt(share * (1 - share) / 3000)).all()
        return set(found.tolist())

    assert places(5, 3) == {0, 1, 10, 11, 12}
    assert places(0, 2) == set(range(4, 14))
    assert places(14, 4) == set(range(7))
    assert places(5, 6) == set(range(10))  # no other document has room: anywhere
    # The last document is a copy of the first one.
    assert places(2, 3, (5, 1, 5)) == set(range(4, 8)) == places(12, 3, (5, 1, 5))
    assert places(2, 3, (5, 5, 5)) == set(range(13))


def test_texts_that_are_too_short_are_refused(tmp_path):
    documents, words = marked((20, 5))
    for name, settings, message in (
        ("a", {"reuse_length": 5}, r"27 tokens of text give 3 sequences of 16, but segments.rows: "
         r"4 needs 4: lower segments.rows or max_length, or use more text"),
        ("b", {"reuse_length": 5, "short_documents": "drop"},
         r"20 tokens of text, without 1 short documents, give 2 seq.* needs 4: lower"),
        ("c", {"backward": True}, r"27 .* give 1 seq.* needs 2, each in both directions: lower"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            stream_folder(tmp_path / name, config(**settings), documents, words)


def test_separators_of_pairs_count(tmp_path):
    plan = lambda between, reuse: streams.Plan(  # noqa: E731
        config(reuse_length=reuse).segments, 0, SEP, CLS, between
    )
    assert plan(1, 11).span == 13 and plan(2, 9).span == 12
    message = r"16 tokens .*reuse_length: 11 and 4 special tokens have no room .*_length to 10"
    with pytest.raises(UserError, match=message):
        plan(2, 11).check()
    text = stream_rows.Text(
        np.arange(10, 40, dtype=np.int32), np.ones(31, bool), np.array([0, 30]), np.zeros(1)
    )
    result = stream_rows.cut_sequences(
        text, np.array([0, 2]), plan(2, 5), host_seeding.numpy_rng(0)
    )
    for start, tokens, (first, second, last) in zip(
        (10, 12), result["token_ids"], result["segment_lengths"], strict=True
    ):
        assert tokens[first - 2 : first].tolist() == [SEP, SEP] and tokens[-2:].tolist() == [3, 2]
        assert [*tokens[: first - 2], *tokens[first:-2]] == list(range(start, start + 12))
        assert first + second + last == 16


@pytest.mark.slow
def test_the_command_makes_them_with_any_number_of_workers(tmp_path, monkeypatch):
    documents, words = marked(LENGTHS * 8)
    tokenizer = small.tokenizer_folder(tmp_path / "tokenizer", words)
    (tmp_path / "a.txt").write_text("\n\n".join("\n".join(d) for d in documents) + "\n")
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 200)
    actual, lines = [], []
    for workers in (1, 2):
        settings = config(reuse_length=5, backward=True, relation="next_sentence", duplicates=3)
        out = tmp_path / f"out{workers}"
        built = builder.build(
            Settings.from_config(settings, tokenizer), str(tmp_path / "a.txt"), out,
            Execution(workers), num_shards=3, report=lines.append,
        )  # fmt: skip
        actual.append({p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()})
    assert actual[0] == actual[1] and len(actual[0]) == 7
    assert shard_folder.problems(out, deep=True) == []
    assert built.totals.examples == sum(shard.records for shard in built.shards)
    assert built.totals.tokens == sum(LENGTHS) * 8 and built.totals.documents == 80
    assert built.totals.short_documents_joined == 24
    steps = built.totals.examples // 4
    assert built.totals.longest_memory == (steps - 1) * 5
    text = 3 * 8 * (sum(LENGTHS) + len(LENGTHS))
    assert built.totals.cut_tokens == text - ((2 * steps - 1) * 5 + 13)
    assert built.length_histogram == (*[0] * 16, built.totals.examples)
    assert built.features == (
        "token_ids", "segment_lengths", "next_sentence_label", "continues", "backward",
    )  # fmt: skip
    assert "0.0% of the rows is padding" in lines[-1]
    rows = read(out)
    for b in range(4):
        Walk(LENGTHS * 8, b >= 2).check(rows["token_ids"][b::4, :5].ravel().tolist())
    for options, message in (
        ({"format": "tf_models"}, "--format=tf_models stores pairs, but the config has segments.f"),
        ({"phrases": "x"}, "--phrases: phrases and entities are not supported for a stream: set"),
    ):
        with pytest.raises(UserError, match=message):
            Settings.from_config(settings, tokenizer, **options)
    raw = configs.to_dict(settings)
    raw["corruption"]["unit"] = "phrase"
    with pytest.raises(UserError, match="unit: phrase: phrases and entities are not supp"):
        Settings.from_config(configs.from_dict(raw), tokenizer)


def stored(folder, lengths, plan, parts=1):
    """Documents of these lengths, whose tokens are numbered, in parts of a stored text."""
    ids = np.split(np.arange(sum(lengths), dtype=np.int32), np.cumsum(lengths)[:-1])
    none = np.zeros(0, np.uint8)
    documents = [
        StoredDocument(i, 0, False, np.array([len(each)], np.int32), each, none, none)
        for i, each in enumerate(ids)
    ]
    records = [b"-" * 12 + document.pack() + b"-" * 4 for document in documents]
    split = [
        records[i * len(records) // parts : (i + 1) * len(records) // parts] for i in range(parts)
    ]
    return [
        stream_rows.write(ShardRecords(i, parts, each), folder, plan)
        for i, each in enumerate(split)
    ]


@pytest.mark.parametrize("parts", [1, 3, 7])
@pytest.mark.parametrize("backward", [False, True])
def test_windows_of_contexts(tmp_path, parts, backward):
    plan = streams.Plan(config(reuse_length=5, short_documents="drop").segments, 0, 3, 2, 1)
    lengths = [20, 12, 13, 31, 4, 18]  # 13 a row
    written = stored(tmp_path, lengths, plan, parts)
    text = stream_rows.StoredText(tmp_path, written, plan, backward)
    assert len(text) == sum(lengths)
    starts, expected = 0, []
    for length in lengths[:: -1 if backward else 1]:
        windows = range(0, length - 13 + 1, 5)
        expected += [(starts + begin, begin > 0) for begin in windows]
        starts += length
    assert text.num_windows == len(expected)
    actual = text.windows(np.arange(len(expected)))
    assert list(zip(*(array.tolist() for array in actual), strict=True)) == expected
    for count in range(1, len(expected) + 1):
        covered = {begin + i for begin, _ in expected[:count] for i in range(13)}
        assert text.uncovered(count) == sum(lengths) - len(covered)
    for steps, rows in ((1, 9), (2, 4), (3, 3), (8, 1)):
        flags = [goes_on and i % steps for i, (_, goes_on) in enumerate(expected[: steps * rows])]
        runs = "".join("x" if flag else " o" for flag in flags).split()
        assert text.longest_run(steps, rows) == max(map(len, runs))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("joined", [False, True])
def test_any_range_of_a_stored_text(tmp_path, joined, backward):
    kept = "join" if joined else "drop"
    plan = streams.Plan(config(reuse_length=5, short_documents=kept).segments, 0, 3, 2, 1, 99)
    lengths = [4, 1, 7, 2, 2, 9, 3]
    text = stream_rows.StoredText(tmp_path, stored(tmp_path, lengths, plan, 3), plan, backward)
    ids, documents = [], []
    for number, tokens in enumerate(np.split(np.arange(28), np.cumsum(lengths)[:-1])):
        own = [*tokens.tolist(), *[99] * joined]
        ids, documents = ids + own, documents + [number] * len(own)
    begins = [i == 0 or documents[i] != documents[i - 1] for i in range(len(ids))] + [True]
    if backward:
        ids, documents, begins = ids[::-1], documents[::-1], begins[::-1]
    for low in range(len(ids)):
        for high in range(low + 1, len(ids) + 1):
            part = text.read(low, high)
            assert part.ids.tolist() == ids[low:high]
            assert part.begins.tolist() == begins[low : high + 1]
            repeated = np.repeat(part.identities, np.diff(part.documents)).tolist()
            assert repeated == documents[low:high] and part.documents[0] == 0


def test_parts_of_a_document_are_one(tmp_path):
    plan = streams.Plan(config(reuse_length=5).segments, 0, 3, 2, 1, 99)
    none, sentences = np.zeros(0, np.uint8), np.array([2], np.int32)

    def make(identity, part, goes_on, first):
        ids = np.array([first, first + 1], np.int32)
        return StoredDocument(identity, part, goes_on, sentences, ids, none, none)

    parts = [(1, 0, False), (2, 0, True), (2, 3, True), (2, 4, False), (2, 0, True), (3, 1, False)]
    documents = [make(*part, 2 * i) for i, part in enumerate(parts)]
    records = [b"-" * 12 + document.pack() + b"-" * 4 for document in documents]
    written = stream_rows.write(ShardRecords(0, 1, records), tmp_path, plan)
    assert written == (0, 15, 4)
    text = stream_rows.StoredText(tmp_path, [written], plan).read(0, 15)
    assert text.ids.tolist() == [0, 1, 99, 2, 3, 4, 5, 6, 7, 99, 8, 9, 10, 11, 99]
    assert text.documents.tolist() == [0, 3, 10, 12, 15]


def test_taken_rows():
    assert segments.select_rows(np.array([0, 2, 5]), np.array([1]))[0].tolist() == [2, 3, 4]
