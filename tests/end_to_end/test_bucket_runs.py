"""Corpora, shards, model folders and exports in buckets, with servers of S3 and of Google's.

`make buckets` installs the servers, in an environment of their own, and runs these tests.
"""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from official import config as configs
from official.saving import checkpoints, metrics_log
from official.serving.exported_model import ExportedModel
from official.utils import paths
from tests import ROOT, bucket_servers, commands, small

pytestmark = [pytest.mark.slow, pytest.mark.long]
SAVED_MODEL = ("saved_model.pb", "variables/variables.index")


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """A folder with a text, a tokenizer, a config, and the shards and run that are made of them."""
    bucket_servers.program("moto_server")  # skips before anything is made
    folder = tmp_path_factory.mktemp("local")
    text = "\n\n".join("\n".join(document) for document in small.documents(120))
    (folder / "text.txt").write_text(text + "\n")
    small.tokenizer_folder(folder / "tokenizer")
    config = small.config(
        encoder__dropout=0.0, encoder__attention_dropout=0.0, objectives=[{"type": "masked_lm"}]
    )
    config = small.replace(
        config, precision="float64", steps=12, save_every=3, eval_every=6, report_every=3
    )
    configs.save(config, folder / "run.yaml")
    commands.run(*build(f"{folder}"), status=0)
    commands.run(*train(f"{folder}"), status=0)
    return folder


def build(root):
    return [
        "tfrecords_tools.build_shards", f"--config={root}/run.yaml", f"--input={root}/text.txt",
        f"--tokenizer={root}/tokenizer", f"--output={root}/shards", "--num_shards=3", "--workers=2",
    ]  # fmt: skip


def train(root):
    return [
        "official.main", "--mode=train_and_eval", f"--config={root}/run.yaml",
        f"--data={root}/shards", f"--validation_data={root}/shards", f"--model_dir={root}/model",
    ]  # fmt: skip


def export(root):
    return ["official.export", f"--model_dir={root}/model", f"--output={root}/saved"]


def done(command, variables):
    process = commands.Command(*command, environment=variables, merge=True)
    assert process.wait() == 0, process.output()
    assert "Traceback" not in process.output()
    return process.output()


def upload(local, root):
    for name in (
        "text.txt",
        "run.yaml",
        *(f"tokenizer/{p.name}" for p in (local / "tokenizer").iterdir()),
    ):
        paths.copy(local / name, root / name)


def contents(folder):
    found = {}
    for file in folder.rglob("*"):
        if file.is_file():
            found[str(file).removeprefix(f"{folder}/")] = file.read_bytes()
    return found


@pytest.fixture(params=bucket_servers.SCHEMES)
def bucket(request, monkeypatch):
    """A bucket of a server, and the proxy before the server."""
    import fsspec

    with bucket_servers.running(request.param) as port:
        proxy = bucket_servers.Failing(port, every=0)
        name = f"bucket{time.time_ns()}"
        for variable, value in bucket_servers.environment(request.param, proxy.port).items():
            monkeypatch.setenv(variable, value)
        fsspec.filesystem(request.param, skip_instance_cache=True).mkdir(name)
        yield paths.path(f"{request.param}://{name}"), proxy
        proxy.close()


def test_a_run_that_is_killed_ends_at_the_bytes_of_a_local_one(bucket, local):
    root, proxy = bucket
    variables = bucket_servers.environment(str(root).partition(":")[0], proxy.port)
    upload(local, root)
    # Azure's package waits for 15 s and more before it tries again.
    every = 100 if str(root).startswith("az") else 10
    proxy.every = every
    done(build(root), variables)
    print(f"build: {proxy.failed} of {proxy.requests} requests failed")
    assert proxy.failed
    proxy.every = 0
    assert contents(root / "shards") == contents(local / "shards")
    process = commands.Command(*train(root), environment=variables, merge=True)
    while not (root / "model" / "checkpoints" / "last.json").exists():
        assert process.returncode is None, process.output()
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert checkpoints.last_step(root / "model") < 12, "the run ended before it was killed"
    proxy.every, proxy.requests, proxy.failed = every, 0, 0
    assert "going on from step" in done(train(root), variables)
    print(f"training: {proxy.failed} of {proxy.requests} requests failed")
    assert proxy.failed
    done(export(root), variables)
    proxy.every = 0
    wanted, actual = (
        checkpoints.load_variables(place / "model", "last", optimizer=True)
        for place in (local, root)
    )
    assert wanted.keys() == actual.keys() and int(actual["optimizer/iteration"]) == 12
    for path, value in wanted.items():
        np.testing.assert_array_equal(actual[path], value, err_msg=path)
    steps = [[(r.step, r.split) for r in metrics_log.read(p / "model")] for p in (local, root)]
    assert steps[0] == steps[1]
    left = [p for p in root.rglob("*") if p.name.startswith((".tmp-", ".unfin"))]
    assert not left
    if not (local / "saved").exists():
        done(export(local), {})
    here, there = contents(local / "saved"), contents(root / "saved")
    assert here.keys() == there.keys()
    print("same bytes:", [name for name in here if here[name] == there[name]])
    print("others:", [name for name in here if here[name] != there[name]])
    texts = ["badi bado feku", "fela"]
    np.testing.assert_array_equal(
        ExportedModel(root / "saved").embedder.texts(texts),
        ExportedModel(local / "saved").embedder.texts(texts),
    )


def test_an_upload_that_is_killed_leaves_the_old_object(bucket, tmp_path):
    root, proxy = bucket
    (root / "file").write_bytes(b"old")
    (tmp_path / "file").write_bytes(os.urandom(1 << 20) * 110)
    proxy.requests = 0
    code = (
        f"from official.utils import paths; paths.copy({str(tmp_path / 'file')!r}, '{root}/file')"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as process:
        while proxy.requests < 2:  # a part is on its way
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    assert (root / "file").read_bytes() == b"old"
    assert [path.name for path in root.iterdir()] == ["file"]
    paths.copy(tmp_path / "file", root / "file")
    assert (root / "file").stat().st_size == 110 << 20
