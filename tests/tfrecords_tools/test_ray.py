"""The commands on Ray: the same bytes as in processes of this machine, and Ray's options."""

import importlib.util

import pytest

from official import tokenizers
from official.conversion import converted_model, huggingface
from official.serving import vector_pieces
from official.utils.engines import Engine
from official.utils.errors import UserError
from tests import GOLDEN, hanging, small
from tests.tfrecords_tools.tasks import test_splits
from tests.tfrecords_tools.test_beam import FORMATS, TEXTS, contents
from tfrecords_tools.pretraining import builder
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import corpus
from tfrecords_tools.vocabulary import builder as vocabulary
from tfrecords_tools.vocabulary import phrases
from tfrecords_tools.writing.execution import Execution

if not importlib.util.find_spec("ray"):  # importing it takes a second
    pytest.skip("ray is not installed", allow_module_level=True)

HERE, RAY = Execution(), Execution(engine=Engine("ray"))


def runner(*options):
    return Engine("ray", options).runner("official.utils", hanging.nothing, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num_cpu=2"], r"Unknown command line flag 'num_cpu'.*\n  --address: the cluster to"),
        (["--num_cpus=0"], "flag --num_cpus=0: 0 is not a positive integer"),
        (["more"], "unexpected argument 'more'"),
        (["--address=x:1", "--num_cpus=2"], "--num_cpus: the cluster at x:1 has its own: remove"),
    ],
)
def test_options_that_are_wrong(options, message):
    with pytest.raises(UserError, match=f"--runner=ray: {message}"):
        runner(*options)


def test_a_cluster_that_is_not_there(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(UserError, match="address=127.0.0.1:1: .*refused: give HOST:PORT"), runner():
        pass


@pytest.fixture(scope="module")
def running():
    """A Ray for all tests, which the runners find."""
    with runner("--num_cpus=2"):
        yield


@pytest.mark.slow
@pytest.mark.long
def test_pretraining_shards(running, tmp_path, monkeypatch):
    """Of pairs and of streams, and a UserError that a worker raises."""
    monkeypatch.setattr(corpus, "MIN_RANGE_BYTES", 500)
    text = tmp_path / "a.txt"
    text.write_text("\n\n".join("\n".join(each) for each in TEXTS))
    tokenizer = small.tokenizer_folder(tmp_path / "tokenizer", sentinels=8)
    for name in ("pairs", "stream"):
        settings = Settings.from_config(small.config(**FORMATS[name]), tokenizer)
        for end, where in (("here", HERE), ("ray", RAY)):
            lines = []
            output = tmp_path / f"{name}-{end}"
            builder.build(settings, str(text), output, where, num_shards=9, report=lines.append)
            assert "examples in 9 shards" in "".join(lines)
        expected = contents(tmp_path / f"{name}-here")
        assert contents(tmp_path / f"{name}-ray") == expected and len(expected) == 13
    text.write_bytes(b"ba\n\xff\n")
    with pytest.raises(UserError, match=r"a\.txt:2: not UTF-8 .*--on_bad_utf8=skip to leave such"):
        builder.build(settings, str(text), tmp_path / "bad", RAY, report=lines.append)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".", "bad"))]


@pytest.mark.slow
@pytest.mark.long
def test_tasks_vocabularies_and_phrases(running, tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("\n\n".join("\n".join(each) for each in TEXTS))
    tokenizer = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer"))
    for name, where in (("here", HERE), ("ray", RAY)):
        folder = tmp_path / name
        folder.mkdir()
        test_splits.build_labeled(
            tmp_path, tokenizer, folder / "labels", execution=where, **test_splits.SILENT
        )
        vocabulary.build(str(text), folder / "words", "wordpiece", 200, execution=where)
        phrases.build(str(text), folder / "phrases.txt", 2, -1.0, execution=where)
    expected = contents(tmp_path / "here")
    assert contents(tmp_path / "ray") == expected and len(expected) > 6


@pytest.mark.slow
@pytest.mark.long
def test_vectors(running, tmp_path):
    """The pieces of one worker."""
    converted_model.write(huggingface.read(GOLDEN / "hf_files" / "bare"), tmp_path / "model")
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"the cat sat on tree {i % 7} a dog\n" for i in range(23)))
    options = vector_pieces.Options(str(tmp_path / "model"), size=5)
    for name, where in (("here", {"workers": 1}), ("ray", {"engine": Engine("ray")})):
        vector_pieces.write(options, path, tmp_path / name, report=lambda line: None, **where)
    expected = contents(tmp_path / "here")
    assert contents(tmp_path / "ray") == expected and len(expected) == 11


@pytest.mark.slow
@pytest.mark.long
def test_a_task_that_hangs_is_tried_again(running, tmp_path):
    hasty = runner("--task_timeout=12")  # in which a process starts on a busy machine
    items = [(str(tmp_path / "begun"), number) for number in range(4)]
    with hasty:
        assert list(hasty.ordered(hanging.once, items)) == [0, 1, 4, 9]
        assert (tmp_path / "begun").exists()
        results = hasty.ordered(hanging.always, range(3))
        assert next(results) == 0
        with pytest.raises(
            UserError, match="--task_timeout=12: the task always, number 1 from 0, was not done"
        ):
            next(results)
