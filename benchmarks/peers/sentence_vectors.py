"""The sides of `benchmarks.sentence_embeddings`, and the batches of both.

A request has a `seed`: train with this seed, or null = use the initial weights. The side then
writes the vectors of the texts.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import server


def serve(
    settings: dict, name: str, train: Callable[[int], Any], untrained: Any, encode: Callable
) -> None:
    """Answers requests.

    Args:
      settings: the settings of the benchmark.
      name: the name of the side, for its files.
      train: trains with a seed; returns the folder of the model.
      untrained: the folder of the initial weights.
      encode: returns the vectors of texts of the model in a folder.
    """
    folder = Path(settings["folder"])
    texts = json.loads((folder / "texts.json").read_text("utf-8"))

    def answer(request: dict) -> dict:
        seed, cpu = request["seed"], time.process_time()
        seconds, trained = (0.0, untrained) if seed is None else server.timed(train, seed)
        cpu = time.process_time() - cpu
        vectors = folder / f"{name}-{seed}.npy"
        np.save(vectors, encode(trained, texts))
        return {
            "seconds": seconds,
            "cpu_seconds": cpu,
            "vectors": str(vectors),
            "peak_mib": server.mib("VmHWM"),
        }

    server.serve(answer)


def batches(settings: dict) -> None:
    """Answers requests with a `seed`: writes the indices of the pairs of each of our batches."""
    from official import config as configs
    from official.data import ShardDataset
    from official.distribution import strategies

    folder = Path(settings["folder"])

    def answer(request: dict) -> dict:
        seed = request["seed"]
        config = configs.load(settings["config"], [*settings["overrides"], f"seed={seed}"])
        source = ShardDataset(str(folder / "shards"), config, "train", training=True)
        strategy = strategies.create("one_device", "", 0)
        iterator = iter(strategies.distribute(strategy, source, config.recipe.batch_size))
        numbers = []
        for _ in range(settings["steps"]):
            batch = next(iterator)
            real = batch["example_weights"].numpy() > 0
            numbers.append(batch["row"].numpy()[real].tolist())
        (folder / f"batches-{seed}.json").write_text(json.dumps(numbers))
        return {}

    server.serve(answer)


def ours(settings: dict) -> None:
    """Our side: `official.train`, the function of `official.main --mode=train`."""
    import official
    from official import config as configs
    from official import training  # noqa: F401  (imports are not timed)

    folder = Path(settings["folder"])

    def train(seed: int) -> Path:
        config = configs.load(settings["config"], [*settings["overrides"], f"seed={seed}"])
        model_dir = folder / f"ours-{seed}"
        official.train(config, folder / "shards", model_dir, evaluate=False, init=settings["init"])
        return model_dir

    def encode(model_dir: str | Path, texts: list[str]) -> np.ndarray:
        return official.load(model_dir).encode(texts, max_length=settings["length"])

    serve(settings, "ours", train, settings["init"], encode)


def theirs(settings: dict) -> None:
    """sentence-transformers: its Trainer, with our batches."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from torch.utils.data import SequentialSampler

    folder = Path(settings["folder"])
    lines = (folder / "pairs.jsonl").read_text("utf-8").splitlines()
    pairs = Dataset.from_list([json.loads(line) for line in lines])

    def load(path: str | Path) -> SentenceTransformer:
        names = "hidden_dropout_prob", "attention_probs_dropout_prob"
        model = SentenceTransformer(
            str(path), device="cpu", config_kwargs=dict.fromkeys(names, settings["dropout"])
        )
        model.max_seq_length = settings["length"]
        return model

    def train(seed: int) -> Path:
        numbers = json.loads((folder / f"batches-{seed}.json").read_text())

        class Given(DefaultBatchSampler):
            def __iter__(self):
                return iter(numbers)

            def __len__(self):
                return len(numbers)

        output = folder / f"theirs-{seed}"
        model = load(folder / "hf")
        arguments = SentenceTransformerTrainingArguments(
            output_dir=str(output),
            max_steps=settings["steps"],
            per_device_train_batch_size=settings["batch_size"],
            learning_rate=settings["learning_rate"],
            weight_decay=settings["weight_decay"],
            adam_epsilon=settings["epsilon"],
            max_grad_norm=settings["clip_norm"],
            lr_scheduler_type="linear",
            warmup_steps=settings["warmup_steps"],
            bf16=settings["precision"] == "bfloat16",
            torch_compile=settings["compile"],
            batch_sampler=lambda rows, **others: Given(SequentialSampler(rows), **others),
            seed=seed,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = SentenceTransformerTrainer(
            model,
            arguments,
            train_dataset=pairs,
            loss=MultipleNegativesRankingLoss(model, scale=settings["scale"]),
        )
        trainer.train()
        model.save_pretrained(str(output), create_model_card=False)
        return output

    def encode(path: str | Path, texts: list[str]) -> np.ndarray:
        return load(path).encode(texts)

    serve(settings, "theirs", train, folder / "hf", encode)


if __name__ == "__main__":
    server.main(batches, ours, theirs)
