"""Compares exported models with TensorFlow: all heads, eight encoders, lengths around all limits.

  python -m benchmarks.exported_models [--encoders=bert,...] [--heads=classification,...]
    [--lengths 1 5 ...] [--operations]

Small models with random weights are exported for ONNX and LiteRT. They run on batches of one and of
seven rows, including a full row, a row of one token, and a row of only padding. The runtimes are
ONNX Runtime, OpenVINO and `ai_edge_litert`, in the environment `hf` (made as by `make parity` when
missing). A line is printed for each model: for each runtime, the largest difference to the outputs
of the same signature in TensorFlow, relative to the largest value if that is above 1. The command
ends with an error if a difference exceeds the tolerance, 1e-5.

`--operations` also prints the operations of all graphs of TensorFlow, of ONNX and of LiteRT, with
the number of files that have each.
"""

import argparse
import collections
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import environments
from official import config as configs
from official import tokenizers
from official.saving import checkpoints, model_folder, named_arrays
from official.serving.export import litert, onnx, saved_model
from official.utils.errors import UserError

TOLERANCE = 1e-5
LENGTHS = (1, 5, 127, 128, 129, 255, 256, 257, 300, 511, 512)
BATCHES = (1, 7)
RUNTIMES = ("onnxruntime", "openvino", "litert")
# Labels and tokens are compared only if the best score exceeds the second by at least this.
_CLEAR = 1e-4

_SIZES = {
    "hidden_size": 24, "num_layers": 3, "num_heads": 3, "intermediate_size": 40,
    "initializer_range": 0.1,
}  # fmt: skip
_BERT = {"type": "transformer", **_SIZES, "max_positions": 512}
_GELU = {"activation": "gelu", "norm_epsilon": 1e-7}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": _BERT,
    "roberta": {**_BERT, **_GELU, "position_offset": 2, "segment_types": 1},
    "xlnet": {"type": "transformer_xl", **_SIZES},
    "electra": {**_BERT, **_GELU, "embedding_size": 12, "pooler_activation": "gelu"},
    "deberta": {
        **_BERT, **_GELU, "positions": "none", "segment_types": 0, "convolution": {},
        "disentangled": {"buckets": 64, "max_distance": 512},
    },
    "modernbert": {
        **_BERT, "positions": "rotary", "local_attention": {"window": 128, "global_every": 2},
        "segment_types": 0, "activation": "gelu", "gated": True, "use_bias": False, "norm": "pre",
        "norm_bias": False, "norm_embeddings": True, "first_norm": False,
    },
    "mpnet": {**_BERT, **_GELU, "segment_types": 0, "relative_buckets": 32, "position_offset": 2},
    "t5": {
        "type": "encoder_decoder", "hidden_size": 24, "num_layers": 3, "num_heads": 3,
        "intermediate_size": 40, "head_size": 8, "decoder_layers": 0,
    },
}  # fmt: skip
_POOLED = ("classification", "multi_label", "regression", "ranking", "multiple_choice")
_TAGS = {"type": "token_classification", "labels": ["O", "B-X", "I-X"]}
HEADS: dict[str, dict[str, Any] | None] = {
    "vectors": None,
    "classification": {"type": "classification", "labels": ["bad", "good", "neither"]},
    "multi_label": {"type": "multi_label", "labels": ["a", "b"], "thresholds": [0.5, 0.4]},
    "regression": {"type": "regression"},
    "ranking": {"type": "ranking"},
    "kernel_ranking": {"type": "kernel_ranking"},
    "multiple_choice": {"type": "multiple_choice"},
    "span_answer": {"type": "span_answer"},
    "tags": _TAGS,
    "tags_crf": {**_TAGS, "crf": True},
    "masked_lm": {"type": "masked_lm"},
    "sentence_embedding": {"type": "sentence_embedding", "projection": {"size": 10}},
}


def make_model(folder: Path, encoder: str, head: str) -> None:
    """Writes a model folder with random weights."""
    folder.mkdir()
    tokenizer = tokenizers.WordPiece(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(59))]
    )
    made = {**ENCODERS[encoder], "vocab_size": tokenizer.vocab_size}
    if made["type"] != "encoder_decoder":
        made["pooler"] = True
    objective = HEADS[head]
    if objective and encoder == "t5" and head in _POOLED:  # a T5 has no pooler
        objective = {**objective, "pooling": "mean"}
    raw = {"name": head, "encoder": made, "objectives": [objective] if objective else []}
    config = configs.from_dict({**raw, "recipe": {"steps": 1}})
    configs.save(config, folder / "config.yaml")
    tokenizer.save(folder / "tokenizer")
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    rng = np.random.default_rng(0)
    # Zero biases and scores would make the comparison empty.
    changed = {
        name: value + rng.normal(0, 0.1, value.shape).astype(value.dtype)
        for name, value in variables.items()
    }
    checkpoints.save(folder, 1, changed, {})
    task = {"max_length": 512, "doc_stride": 64, "max_query_length": 32}
    (folder / "task.json").write_text(json.dumps(task))


def make_batches(
    signature: Any, lengths: Sequence[int], left: bool
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the inputs of a signature: for each length a batch of one row and one of seven."""
    rng = np.random.default_rng(0)
    for length in lengths:
        for rows in BATCHES:
            real = np.append([length, 1, 0], rng.integers(1, length + 1, rows))[:rows]
            mask = np.arange(length) < real[:, None]
            mask = mask[:, ::-1] if left else mask
            ids = rng.integers(5, 64, mask.shape) * mask
            types = rng.integers(0, 2, mask.shape) * mask
            fields = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
            given = {}
            for spec in signature.input_signature:
                if spec.name == "top_k":
                    given[spec.name] = np.array(3, np.int32)
                elif spec.name == "masked_positions":  # some positions twice
                    given[spec.name] = rng.integers(0, length, (rows, 4)).astype(np.int32)
                else:
                    value = fields[spec.name].astype(np.int32)
                    # Choices are the rows of an example.
                    given[spec.name] = value if spec.shape.rank == 2 else value[None]
            yield given


def difference(wanted: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> float:
    """Returns the largest difference of a batch's outputs; infinity if names or shapes differ."""
    if wanted.keys() != found.keys():
        return np.inf
    largest = 0.0
    chances = wanted.get("probabilities")
    clear = None
    if chances is not None and chances.shape[-1] > 1:
        ordered = np.sort(chances, axis=-1)
        clear = ordered[..., -1] - ordered[..., -2] > _CLEAR
    for name, right in wanted.items():
        if right.shape != found[name].shape:
            return np.inf
        if right.dtype.kind == "f":
            # Rounding errors are relative to the largest value.
            apart = np.abs(right - found[name]) / max(1.0, np.abs(right).max(initial=0.0))
        elif name == "token_ids":  # tokens of equal probability may be in either order
            apart = np.where(right == found[name], 0.0, np.inf)
            gaps = np.abs(np.diff(chances, axis=-1, append=0, prepend=1))
            apart = apart[np.minimum(gaps[..., :-1], gaps[..., 1:]) > _CLEAR]
        else:
            apart = np.where(right == found[name], 0.0, np.inf)
            if name in ("label", "index") and clear is not None:
                apart = apart[clear]
        largest = max(largest, apart.max(initial=0.0))
    return float(largest)


def run_model(folder: Path, encoder: str, head: str, lengths: Sequence[int]) -> dict[str, Any]:
    """Exports a model and runs it in all runtimes.

    Returns:
      The differences by runtime, and the operations by format.

    Raises:
      UserError: the model cannot be made or exported.
    """
    make_model(folder / "model", encoder, head)
    runtimes = list(RUNTIMES)
    try:
        litert.export(folder / "model", folder / "litert")
    except UserError as error:
        print(f"{encoder} {head}: litert: refused: {error}", flush=True)
        runtimes.remove("litert")
    onnx.export(folder / "model", folder / "onnx")
    _, signatures = saved_model.restore_for_ids(folder / "model", "last", None, None, "onnx")
    operations: dict[str, set[str]] = collections.defaultdict(set)
    wanted: dict[str, list[dict[str, np.ndarray]]] = {}
    given: dict[str, list[dict[str, np.ndarray]]] = {}
    arrays = {}
    for name, signature in signatures.items():
        graph = signature.get_concrete_function().graph
        operations["tensorflow"] |= {operation.type for operation in operations_of(graph)}
        given[name] = list(make_batches(signature, lengths, left=encoder == "xlnet"))
        wanted[name] = [
            {
                key: _plain(value.numpy())
                for key, value in signature(*map(tf.constant, batch.values())).items()
            }
            for batch in given[name]
        ]
        for i, batch in enumerate(given[name]):
            arrays |= {f"{name}/{i}/{key}": value for key, value in batch.items()}
    np.savez(folder / "inputs.npz", **arrays)
    found = {}
    for runtime in runtimes:
        environments.run_peer(f"exported.{runtime}", "hf", {"folder": str(folder)}, folder)
        found[runtime] = _read(folder / f"{runtime}.npz", wanted)
    for file in sorted(folder.glob("*_operations.json")):
        operations[file.name.partition("_")[0]].update(json.loads(file.read_text()))
    return {
        "differences": {
            runtime: max(
                difference(right, actual)
                for name in wanted
                for right, actual in zip(wanted[name], answers[name], strict=True)
            )
            for runtime, answers in found.items()
        },
        "operations": operations,
    }


def operations_of(graph: Any) -> Iterator[Any]:
    """Yields the operations of a graph and of the functions that it calls."""
    yield from graph.get_operations()
    for function in graph._functions.values():
        yield from function.graph.get_operations()


def _plain(values: np.ndarray) -> np.ndarray:
    """Returns an output as an array without objects."""
    return np.char.decode(values.astype(bytes)) if values.dtype == object else values


def _read(file: Path, wanted: Mapping[str, list]) -> dict[str, list[dict[str, np.ndarray]]]:
    """Reads the answers of a peer."""
    with np.load(file) as stored:
        by_batch: dict[tuple[str, int], dict[str, np.ndarray]] = collections.defaultdict(dict)
        for path in stored.files:
            name, i, key = path.split("/")
            by_batch[name, int(i)][key] = stored[path]
    return {
        name: [by_batch[name, i] for i in range(len(batches))] for name, batches in wanted.items()
    }


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--encoders", type=names, default=list(ENCODERS), help="default: all")
    parser.add_argument("--heads", type=names, default=list(HEADS), help="default: all")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--operations", action="store_true", help="print the operations, too")
    arguments = parser.parse_args()
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    failed = 0
    for encoder in arguments.encoders:
        for head in arguments.heads:
            with environments.folder(None) as folder:
                try:
                    done = run_model(folder, encoder, head, arguments.lengths)
                except UserError as error:
                    print(f"{encoder} {head}: refused: {error}", flush=True)
                    continue
            for form, operations in done["operations"].items():
                counts[form].update(operations)
            differences = done["differences"]
            failed += max(differences.values()) > TOLERANCE
            shown = ", ".join(f"{name} {value:.1e}" for name, value in differences.items())
            print(f"{encoder} {head}: {shown}", flush=True)
    if arguments.operations:
        for form, operations in counts.items():
            shown = ", ".join(f"{name} {count}" for name, count in sorted(operations.items()))
            print(f"{form} ({len(operations)}): {shown}")
    if failed:
        sys.exit(f"error: {failed} models differ by more than {TOLERANCE:g}")


if __name__ == "__main__":
    main()
