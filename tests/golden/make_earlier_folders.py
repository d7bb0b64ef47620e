"""Makes `earlier/`: shard and model folders of an earlier version, and what it did with them.

  python tests/golden/make_earlier_folders.py --code=CHECKOUT [--output=tests/golden/earlier]
  python tests/golden/make_earlier_folders.py --code=CHECKOUT --expected=bert

CHECKOUT is a checkout of the version that writes the folders. Its command lines do all the work.
`test_earlier_folders.py` lets the present version go on from them. The folders are those of commit
ece0063f, the last one before version 0.1.0, from which on compatibility is promised. With
--expected, CHECKOUT goes on from a folder, and only `expected.npz` is written.

For BERT and XLNet:
  NAME/shards           pretraining shards
  NAME/model            a model folder that was stopped at step 4 of 8
  NAME/expected.npz     the variables that the earlier version has at step 8, and its metrics
For a task, fine-tuned from bert/model:
  task/shards, task/model, task/expected.npz
  task/predictions.tsv  what --mode=predict writes with the weights of step 4
  task/served.json      texts, and what these weights answer once exported
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors.numpy

HERE = Path(__file__).resolve().parent
WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in "aeiou"]
SMALL = ["encoder.hidden_size=16", "encoder.intermediate_size=32"]
RUN = [
    "recipe.steps=8", "recipe.save_every=4", "recipe.report_every=4", "recipe.keep_checkpoints=2",
    "recipe.eval_batch_size=16",
]  # fmt: skip
SERVED = ["bada fego", "tuku", "pire sona labe ki", ""]


def documents(count: int) -> str:
    """Returns documents of random words, one sentence on a line."""
    rng = np.random.default_rng(7)
    word = lambda: "".join(rng.choice(WORDS, rng.integers(1, 3)))  # noqa: E731
    sentence = lambda: " ".join(word() for _ in range(rng.integers(3, 9)))  # noqa: E731
    return "\n\n".join(
        "\n".join(sentence() for _ in range(rng.integers(2, 6))) for _ in range(count)
    )


def rows(count: int, seed: int) -> str:
    """Returns a TSV of texts with a label that says whether a word starts with b or d."""
    rng = np.random.default_rng(seed)
    lines = ["text\tlabel"]
    for _ in range(count):
        words = rng.choice(WORDS, rng.integers(1, 7))
        lines.append(f"{' '.join(words)}\t{'yes' if any(w[0] in 'bd' for w in words) else 'no'}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Makes all folders."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=HERE / "earlier")
    parser.add_argument("--expected")
    options = parser.parse_args()
    code, out = options.code.resolve(), options.output.resolve()

    def run(module: str, *flags: str) -> str:
        command = [sys.executable, "-m", module, *flags]
        done = subprocess.run(command, cwd=code, check=True, stdout=subprocess.PIPE, text=True)
        print(done.stdout)
        return done.stdout

    if options.expected:
        folder = out / options.expected
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(shutil.copytree(folder, Path(scratch) / "copy"))
            train(run, copy, copy / "shards", f"--config={copy}/model/config.yaml")
            shutil.copy(copy / "expected.npz", folder)
        return
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        (work / "text.txt").write_text(documents(40))
        for name, rest in (("train", 30), ("dev", 10), ("test", 10)):
            (work / f"{name}.tsv").write_text(rows(rest, seed=len(name)))
        for name, kind, size in (("bert", "wordpiece", 120), ("xlnet", "unigram", 100)):
            folder = out / name
            run(
                "tfrecords_tools.build_vocab", f"--input={work}/text.txt", f"--type={kind}",
                f"--vocab_size={size}", f"--output={work}/{name}",
            )  # fmt: skip
            config = f"--config=configs/smoke/{name}.yaml"
            run(
                "tfrecords_tools.build_shards", config, f"--input={work}/text.txt", "--workers=1",
                f"--tokenizer={work}/{name}", f"--output={folder}/shards", "--num_shards=2",
            )  # fmt: skip
            train(run, folder, folder / "shards", config, *SMALL)
        run(
            "tfrecords_tools.build_task_shards", "--task=classification", "--text_column=text",
            "--label_column=label", *(f"--{s}_file={work}/{f}.tsv" for s, f in
            (("train", "train"), ("validation", "dev"), ("test", "test"))), "--max_length=16",
            f"--tokenizer={work}/bert", f"--output={out}/task/shards",
        )  # fmt: skip
        task = out / "task"
        train(
            run, task, task / "shards", "--config=configs/smoke/classification_demo.yaml",
            "recipe.epochs=0", "recipe.batch_size=8", "recipe.bucket_lengths=[8,16]",
            init=out / "bert/model",
        )  # fmt: skip
        run(
            "official.main", "--mode=predict", f"--data={task}/shards", f"--model_dir={task}/model",
            "--checkpoint=last", f"--output={task}/predictions.tsv",
        )  # fmt: skip
        run(
            "official.export",
            f"--model_dir={task}/model",
            "--checkpoint=last",
            f"--output={work}/saved",
        )
        serve(work / "saved", task / "served.json")


def train(run, folder: Path, shards: Path, config: str, *overrides: str, init=None) -> None:
    """Trains 8 steps, records what came of them, and leaves the folder as of step 4."""
    model = folder / "model"
    run(
        "official.main", "--mode=train", config, f"--data={shards}", f"--model_dir={model}",
        *(f"--override={o}" for o in (*overrides, *RUN)), *([f"--init={init}"] if init else []),
    )  # fmt: skip
    said = run(
        "official.main", "--mode=eval", f"--data={shards}", "--split=train", "--checkpoint=last",
        f"--model_dir={model}",
    )  # fmt: skip
    metrics = {name: float(value) for name, value in re.findall(r"^(\w+) +([0-9.]+)$", said, re.M)}
    last = model / "checkpoints/step-00000008"
    arrays = safetensors.numpy.load_file(next(last.glob("variables*.safetensors")))
    np.savez_compressed(folder / "expected.npz", metrics=json.dumps(metrics), **arrays)
    shutil.rmtree(last)
    shutil.rmtree(model / "train")  # TensorBoard's events


def serve(saved: Path, path: Path) -> None:
    """Writes what an exported model answers."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (its ops are in the model)

    answers = tf.saved_model.load(saved).signatures["serving_default"](text=tf.constant(SERVED))
    answers = {name: value.numpy().tolist() for name, value in answers.items()}
    path.write_text(json.dumps({"texts": SERVED, "answers": answers}, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
