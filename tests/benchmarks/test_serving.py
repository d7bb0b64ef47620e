import dataclasses
import json

import numpy as np
import pytest

from benchmarks import serving
from official import tokenizers
from official.config.heads import ClassificationConfig
from official.conversion import converted_model
from official.saving import model_folder
from tests import commands, small

OURS = "encoder garden, float32"
THEIRS = "ONNX Runtime, float32"


def test_lengths():
    rng = np.random.default_rng(0)
    assert serving.lengths("short", 3, rng) == [32] * 3
    assert serving.lengths("long", 2, rng) == [128] * 2
    mixed = np.array(serving.lengths("mixed", 4000, rng))
    assert mixed.min() == 8 and mixed.max() == 128
    # From 8 to 16 as many as from 64 to 128; the mean of 1/x over (8, 129) is 121 / ln(129 / 8).
    assert np.mean(mixed < 16) == pytest.approx(np.mean(mixed >= 64), abs=0.03)
    assert mixed.mean() == pytest.approx(121 / np.log(129 / 8) - 0.5, rel=0.03)


def test_texts_are_cut_to_length():
    words = iter([("a", [5]), ("long", [6, 7, 8]), ("b", [9]), ("c", [10]), ("d", [11])])
    assert serving.cut(words, 5) == ("a b c", [5, 9, 10])


def test_requests_are_texts_with_their_ids(tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(map("\n".join, small.documents(20))))
    small.tokenizer_folder(tmp_path / "tokenizer")
    serving.write_requests(tmp_path / "text.txt", tmp_path, 5)
    requests = json.loads((tmp_path / "requests.json").read_text())
    tokenizer = tokenizers.load(tmp_path / "tokenizer")
    assert list(requests) == list(serving.LENGTHS)
    for kind, (least, most) in serving.LENGTHS.items():
        pairs = requests[kind]
        assert len(pairs["texts"]) == len(pairs["ids"]) == 5
        assert all(least <= len(ids) <= most for ids in pairs["ids"])
        for ids, read in zip(
            pairs["ids"], tokenizer.tokenize(pairs["texts"]).to_list(), strict=True
        ):
            assert ids == [tokenizer.cls_id, *read, tokenizer.sep_id]


def test_the_tokenizer_is_filled_up_with_unused_pieces(tmp_path):
    learned = small.tokenizer_folder(tmp_path / "learned")
    tokenizers.load(learned).save(tmp_path / "saved")  # with a fingerprint of the smaller one
    vocabulary = tmp_path / "saved" / "vocab.txt"
    known = len(vocabulary.read_text().splitlines())
    serving.write_tokenizer(vocabulary, tmp_path / "tokenizer", known + 3)
    tokenizer = tokenizers.load(tmp_path / "tokenizer")
    assert tokenizer.vocab_size == known + 3
    assert tokenizer.tokenize(["ba"]).to_list()[0][0] != tokenizer.unk_id


@pytest.mark.parametrize(
    "sides, written",
    [
        ([OURS], []),
        (["OpenVINO, float32"], ["serving.write"]),
        (
            ["CTranslate2, int8", "OpenVINO, int8", "CTranslate2, float32", OURS],
            ["serving.write", "serving.write_openvino", "serving.write_ctranslate"],
        ),
    ],
)
def test_what_the_chosen_sides_read_is_written(tmp_path, monkeypatch, sides, written):
    (tmp_path / "requests.json").touch()
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "vocab.txt").write_text("a\nb\n")
    (tmp_path / "converted").mkdir()
    ran, peers = [], []
    monkeypatch.setattr(serving.environments, "run", lambda *words: ran.append(words))
    monkeypatch.setattr(serving.environments, "run_peer", lambda *given: peers.append(given))
    monkeypatch.setattr("sys.argv", ["serving", "--sides", *sides])
    serving.prepare(tmp_path, serving._options())
    assert [side for side, _, _ in peers] == written
    assert all(settings["folder"] == str(tmp_path) for _, _, settings in peers)
    exported = [words for words in ran if words[0] == "official.export"]
    assert len(exported) == sides.count(OURS)
    assert all("--precision=float32" in words for words in exported)
    (tmp_path / "int8.onnx").touch()
    (tmp_path / "openvino_int8.xml").touch()
    (tmp_path / "ctranslate2").mkdir()
    (tmp_path / "saved_float32").mkdir()
    before = len(ran), len(peers)
    serving.prepare(tmp_path, serving._options())
    assert before == (len(ran), len(peers))  # a second run makes nothing again


class Server:
    """What the tables want of a server."""

    loaded = {"seconds": 1.0, "before_mib": 100.0, "mib": 500.0}
    peak = 600.0
    calls, rate = serving.Server.calls, serving.Server.rate

    def __init__(self, name, seconds, rates):
        self.name = name
        self.seconds = seconds
        self.rates = rates


def test_figures(capsys):
    cell = ("text", "short", 2)
    ours = [
        Server(OURS, {cell: [[0.1, 0.1], [0.1, 0.3], [0.1, 0.2]]}, {cell: [20.0, 10.0, 13.3]}),
        Server(OURS, {cell: [[0.5] * 4] * 3}, {cell: [16.0, 9.0, 17.0]}),
    ]
    theirs = [
        Server(THEIRS, {cell: [[0.2, 0.4], [0.3, 0.3], [0.6, 0.6]]}, {cell: [6.7, 6.6, 8.0]}),
        Server(THEIRS, {cell: [[0.9] * 4] * 3}, {cell: [5.0, 5.0, 5.0]}),
    ]
    assert ours[0].rate(cell) == 13.3  # the round in the middle
    serving.table({OURS: ours, THEIRS: theirs}, [cell], [1, 2])
    printed = capsys.readouterr().out
    assert "Text in, 32 tokens:" in printed
    assert "| batch 2: p50, p99 ms | texts/s, 1 at once | texts/s, 2 at once |" in printed
    assert f"| {OURS} | 100.0, 295.0 | 13.3 | 16.0 |" in printed
    assert f"| {THEIRS} | 350.0, 600.0 | 6.7 | 5.0 |" in printed
    assert f"| texts a second | {OURS} / {THEIRS} |" in printed
    assert f"| text in, short, batch 2 | {16.0 / 6.7:.2f} |" in printed  # the better way of each
    assert f"| {OURS} | 1.0 | 500 | 600 |" in printed


def test_of_several_sides_the_best_is_beside_ours(capsys):
    cell = ("ids", "long", 8)
    rates = {OURS: 30.0, f"{serving.TORCH}, float32": 10.0, f"{serving.TORCH}, bfloat16": 20.0}
    rates[f"{serving.TORCH}, float32 compiled"] = 12.0
    sides = {name: [Server(name, {cell: [[1.0]]}, {cell: [rate]})] for name, rate in rates.items()}
    serving.ratios(sides, [cell])
    head, _, row = capsys.readouterr().out.splitlines()[1:]
    assert head == (
        f"| texts a second | {OURS} / {serving.TORCH}, float32 | {serving.OURS} / {serving.TORCH} |"
    )
    assert row == "| ids in, long, batch 8 | 2.50 | 1.50 |"


class Answers:
    def __init__(self, name, value):
        self.name = name
        self.value = value

    def probabilities(self, inputs):
        return np.array([[0.2, 0.8], [self.value, 1 - self.value]])


def test_sides_must_agree_in_float32(capsys):
    first = Answers("PyTorch transformers, float32", 0.5)
    int8 = Answers("ONNX Runtime, int8", 0.6)
    serving.compare({OURS: [Answers(OURS, 0.50005)], first.name: [first], int8.name: [int8]})
    assert "ONNX Runtime, int8: differs by 1.0e-01 from ids, 1.0e-01 from text" in (
        capsys.readouterr().out
    )
    with pytest.raises(SystemExit, match=f"the answers of {OURS} differ from those of PyTorch"):
        serving.compare({first.name: [first], OURS: [Answers(OURS, 0.5), Answers(OURS, 0.5002)]})


@pytest.mark.slow
@pytest.mark.long
def test_our_side_is_served_and_tabled(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(map("\n".join, small.documents(20))))
    vocabulary = small.tokenizer_folder(tmp_path / "tokenizer") / "vocab.txt"
    config = small.config(encoder__max_positions=128)
    head = ClassificationConfig(labels=("no", "yes"))
    config = dataclasses.replace(config, segments=None, corruption=None, objectives=(head,))
    variables = {
        path: np.asarray(variable)
        for path, variable in model_folder.build(config).variables_by_path().items()
    }
    converted = converted_model.Converted(config, tokenizers.load(vocabulary.parent), variables, [])
    converted_model.write(converted, tmp_path / "made" / "converted")
    done = commands.run(
        "benchmarks.serving",
        f"--folder={tmp_path}/made",
        f"--text={text}",
        f"--vocabulary={vocabulary}",
        f"--vocab={config.encoder.vocab_size}",
        f"--sides={OURS}",
        *"--requests=4 --rounds=2 --batches 1 3 --lengths short mixed --threads=2".split(),
        *"--at_once 1 2".split(),
        status=0,
    )
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith(f"| {OURS}")]
    assert len(rows) == 5 and all(float(row[3].replace(",", "")) > 0 for row in rows)
    assert all(len(row) == 9 and float(row[7].replace(",", "")) > 0 for row in rows[:4])
    assert "Ids in, 32 tokens" in done.stdout and "Text in, 8 to 128 tokens" in done.stdout


@pytest.mark.slow
@pytest.mark.long
def test_a_side_that_ends_is_shown(tmp_path):
    with pytest.raises(SystemExit, match="ended early:\n(?s:.*)requests.json"):
        serving.Server(OURS, tmp_path, 1, 1)
