"""The sides of `benchmarks.serving`: our exports, and other serving runtimes.

A side loads its model and runs it on one text. Then it answers requests, which name an action and
the texts. The settings are `folder`, `mode`, `max_length`, `at_once` (the number of concurrent
requests) and `threads` (of each request).

Shapes: B batch, T length of the longest text in the batch, C classes.
"""

import functools
import json
import os
import queue
import threading
import time
import warnings
from collections.abc import Callable
from concurrent import futures
from pathlib import Path

import numpy as np
import server

NAMES = ["input_ids", "attention_mask", "token_type_ids"]


def serve(
    load: Callable[[], tuple[Callable, Callable, Callable]],
    settings: dict,
) -> None:
    """Loads the model and answers requests; times `at_once` concurrent clients.

    Args:
      load: returns three functions: token ids -> inputs of the model; inputs -> probabilities [B,
        C]; strings -> probabilities [B, C].
      settings: the settings of the side.
    """
    requests = json.loads((Path(settings["folder"]) / "requests.json").read_text())
    before = server.mib("VmRSS")
    started = time.perf_counter()
    inputs_from, predict_ids, predict_texts = load()
    predict_texts(requests["short"]["texts"][:1])
    loaded = {
        "seconds": time.perf_counter() - started,
        "before_mib": before,
        "mib": server.mib("VmRSS"),
    }
    functions = {"ids": predict_ids, "text": predict_texts}
    clients = futures.ThreadPoolExecutor(settings["at_once"])

    def answer(request: str | dict) -> dict:
        if request == "ready":
            return loaded
        if request == "peak":
            return {"mib": server.mib("VmHWM")}
        of_ids = request["inputs"] == "ids"
        texts = requests[request["length"]]["ids" if of_ids else "texts"]
        size = request["batch"]
        batches = [texts[at : at + size] for at in range(0, len(texts), size)]
        batches = batches[: request.get("calls")]
        if of_ids:
            batches = [inputs_from(batch) for batch in batches]
        function = functions[request["inputs"]]
        if request.get("answers"):
            probabilities = np.concatenate([function(batch) for batch in batches])
            return {"probabilities": probabilities.tolist()}
        calls = batches * settings["at_once"]  # each client makes as many calls as a single client
        began = time.perf_counter()
        timed = list(clients.map(functools.partial(server.timed, function), calls))
        return {
            "seconds": [seconds for seconds, _ in timed],
            "whole": time.perf_counter() - began,
            "texts": len(texts) * settings["at_once"],
        }

    server.serve(answer)


def padded(rows: list[list[int]]) -> dict[str, np.ndarray]:
    """Returns the padded ids and the mask of texts, int32 [B, T] each; 0 is padding."""
    width = max(map(len, rows))
    ids = np.array([row + [0] * (width - len(row)) for row in rows], np.int32)
    mask = np.array([[1] * len(row) + [0] * (width - len(row)) for row in rows], np.int32)
    return {"ids": ids, "mask": mask}


def onnx_inputs(rows: list[list[int]]) -> dict[str, np.ndarray]:
    """Returns the inputs of the exported graph for texts, int64 [B, T] each."""
    batch = {name: array.astype("int64") for name, array in padded(rows).items()}
    return dict(zip(NAMES, (batch["ids"], batch["mask"], batch["ids"] * 0), strict=True))


def tokenized(tokenizer: Callable, settings: dict, tensors: str | None) -> Callable:
    """Returns a function that tokenizes a list of strings, padded to the longest.

    Args:
      tokenizer: a fast tokenizer of transformers, which is not thread-safe.
      settings: the settings of the side.
      tensors: "np" or "pt"; None = lists of ids without padding.
    """
    lock = threading.Lock()

    def tokenize(texts: list[str]) -> dict:
        with lock:
            return tokenizer(
                texts,
                padding=tensors is not None,
                truncation=True,
                max_length=settings["max_length"],
                return_tensors=tensors,
            )

    return tokenize


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the softmax over the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def saved_model(settings: dict) -> None:
    """Our side: a SavedModel, loaded without `official`, as in a server."""
    if settings["mode"] == "bfloat16":
        os.environ["TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"] = "1"  # as docs/serving.md advises
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (its ops are in the graph)

    tf.config.threading.set_intra_op_parallelism_threads(settings["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(settings["at_once"])

    def load():
        # Signatures need the model object, so a reference is kept.
        model = load.model = tf.saved_model.load(f"{settings['folder']}/saved_{settings['mode']}")
        tokens, text = (model.signatures[name] for name in ("tokens", "serving_default"))

        def inputs_from(rows):
            batch = padded(rows)
            ids, mask = (tf.constant(batch[name]) for name in ("ids", "mask"))
            inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": ids * 0}
            # systems without segments have no input for types
            return {name: inputs[name] for name in tokens.structured_input_signature[1]}

        def predict_ids(batch):
            return tokens(**batch)["probabilities"].numpy()

        def predict_texts(texts):
            return text(text=tf.constant(texts))["probabilities"].numpy()

        return inputs_from, predict_ids, predict_texts

    serve(load, settings)


def litert(settings: dict) -> None:
    """Our side in LiteRT: a process without TensorFlow, whose model takes text."""
    from ai_edge_litert.interpreter import Interpreter
    from tokenizers import BertWordPieceTokenizer

    def load():
        folder = f"{settings['folder']}/saved_{settings['mode']}"
        tokenizer = BertWordPieceTokenizer(f"{folder}/tokenizer/vocab.txt", lowercase=True)
        tokenizer.enable_truncation(settings["max_length"])
        # An interpreter can serve only one request at a time.
        runners = queue.SimpleQueue()
        for _ in range(settings["at_once"]):
            interpreter = Interpreter(f"{folder}/model.tflite", num_threads=settings["threads"])
            runners.put(interpreter.get_signature_runner("tokens"))

        def inputs_from(rows):
            batch = padded(rows)
            return {
                "input_word_ids": batch["ids"],
                "input_mask": batch["mask"],
                "input_type_ids": np.zeros_like(batch["ids"]),
            }

        def predict_ids(batch):
            runner = runners.get()
            try:
                return runner(**batch)["probabilities"]
            finally:
                runners.put(runner)

        def predict_texts(texts):
            return predict_ids(inputs_from([row.ids for row in tokenizer.encode_batch(texts)]))

        return inputs_from, predict_ids, predict_texts

    serve(load, settings)


def transformers(settings: dict) -> None:
    """The side of PyTorch transformers: its classifier and fast tokenizer."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.set_num_threads(settings["threads"])

    def load():
        folder = f"{settings['folder']}/huggingface"
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True)
        tokenize = tokenized(tokenizer, settings, "pt")
        # Uses SDPA if the model supports it (DeBERTa does not).
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        if settings["mode"].startswith("bfloat16"):
            model.to(torch.bfloat16)
        forward = model
        if settings["mode"].endswith("compiled"):
            forward = torch.compile(model, dynamic=True)

        def inputs_from(rows):
            batch = {k: torch.from_numpy(v).long() for k, v in padded(rows).items()}
            return {"input_ids": batch["ids"], "attention_mask": batch["mask"]}

        @torch.inference_mode()
        def predict_ids(batch):
            return torch.softmax(forward(**batch).logits.float(), dim=-1).numpy()

        def predict_texts(texts):
            return predict_ids(tokenize(texts))

        return inputs_from, predict_ids, predict_texts

    serve(load, settings)


def onnx(settings: dict) -> None:
    """The side of ONNX Runtime: the exported graph with all its optimizations."""
    import onnxruntime
    from transformers import AutoTokenizer

    def load():
        folder = settings["folder"]
        tokenizer = AutoTokenizer.from_pretrained(f"{folder}/huggingface", use_fast=True)
        tokenize = tokenized(tokenizer, settings, "np")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = settings["threads"]
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        session = onnxruntime.InferenceSession(
            f"{folder}/{settings['mode']}.onnx", options, providers=["CPUExecutionProvider"]
        )

        def predict_ids(batch):
            return softmax(session.run(["logits"], batch)[0])

        def predict_texts(texts):
            batch = tokenize(texts)
            return predict_ids({name: batch[name].astype("int64") for name in batch})

        return onnx_inputs, predict_ids, predict_texts

    serve(load, settings)


def openvino(settings: dict) -> None:
    """The side of OpenVINO: the graph of ONNX Runtime or, in int8, that of `write_openvino`."""
    import openvino as ov
    from transformers import AutoTokenizer

    def load():
        folder, mode, at_once = (settings[name] for name in ("folder", "mode", "at_once"))
        tokenizer = AutoTokenizer.from_pretrained(f"{folder}/huggingface", use_fast=True)
        tokenize = tokenized(tokenizer, settings, "np")
        file = "openvino_int8.xml" if mode == "int8" else "float32.onnx"
        compiled = ov.Core().compile_model(
            f"{folder}/{file}",
            "CPU",
            {
                "PERFORMANCE_HINT": "LATENCY",
                # operations that are not int8 are faster in bfloat16
                "INFERENCE_PRECISION_HINT": "f32" if mode == "float32" else "bf16",
                "NUM_STREAMS": at_once,
                "INFERENCE_NUM_THREADS": settings["threads"] * at_once,
            },
        )
        requests = queue.SimpleQueue()
        for _ in range(at_once):
            requests.put(compiled.create_infer_request())

        def predict_ids(batch):
            request = requests.get()
            try:
                return softmax(request.infer(batch)["logits"])
            finally:
                requests.put(request)

        def predict_texts(texts):
            batch = tokenize(texts)
            return predict_ids({name: batch[name].astype("int64") for name in batch})

        return onnx_inputs, predict_ids, predict_texts

    serve(load, settings)


def ctranslate(settings: dict) -> None:
    """The side of CTranslate2: its BERT encoder with the pooler, and the head in NumPy."""
    import ctranslate2
    from safetensors.numpy import load_file
    from transformers import AutoTokenizer

    def load():
        folder = settings["folder"]
        tokenizer = AutoTokenizer.from_pretrained(f"{folder}/huggingface", use_fast=True)
        tokenize = tokenized(tokenizer, settings, None)
        encoder = ctranslate2.Encoder(
            f"{folder}/ctranslate2",
            device="cpu",
            compute_type=settings["mode"],
            inter_threads=settings["at_once"],
            intra_threads=settings["threads"],
        )
        weights = load_file(f"{folder}/huggingface/model.safetensors")
        kernel, bias = weights["classifier.weight"].T, weights["classifier.bias"]

        def predict_ids(rows):  # the encoder pads the rows
            return softmax(np.array(encoder.forward_batch(rows).pooler_output) @ kernel + bias)

        def predict_texts(texts):
            return predict_ids(tokenize(texts)["input_ids"])

        return list, predict_ids, predict_texts

    serve(load, settings)


def write(settings: dict) -> None:
    """Writes the models to serve, with the usual functions of transformers and ONNX Runtime.

    The model is a classifier with random weights that are large enough for different answers to
    different texts: a folder `huggingface` and, for a BERT, `float32.onnx` and `int8.onnx` (dynamic
    quantization) with the same weights.
    """
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        BertConfig,
        BertTokenizerFast,
        DebertaV2Config,
        ModernBertConfig,
    )

    folder, system = settings["folder"], settings["system"]
    torch.manual_seed(0)
    shared = server.sizes(settings) | {
        "num_labels": 2, "id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1},
        "initializer_range": 0.05,
    }  # fmt: skip
    tokenizer = BertTokenizerFast(f"{folder}/tokenizer/vocab.txt", do_lower_case=True)
    if system == "bert":
        config = BertConfig(**shared)
    elif system == "deberta":
        config = DebertaV2Config(
            **shared, relative_attention=True, position_biased_input=False, position_buckets=256,
            norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p",
        )  # fmt: skip
    else:
        config = ModernBertConfig(
            **shared, reference_compile=False,
            pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.cls_token_id,
            eos_token_id=tokenizer.sep_token_id, cls_token_id=tokenizer.cls_token_id,
            sep_token_id=tokenizer.sep_token_id,
        )  # fmt: skip
    model = AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        model.classifier.weight.mul_(10)
    model.save_pretrained(f"{folder}/huggingface")
    tokenizer.save_pretrained(f"{folder}/huggingface")
    if system == "bert":
        _write_onnx(model, folder)


def _write_onnx(model, folder: str) -> None:
    """Writes `float32.onnx` and `int8.onnx` of a model."""
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    ids = torch.ones((2, 16), dtype=torch.long)
    axes = {0: "batch", 1: "length"}
    # ONNX Runtime can fuse the graph of eager attention only.
    model.config._attn_implementation = "eager"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (ids, ids, ids * 0),
            f"{folder}/float32.onnx",
            input_names=NAMES,
            output_names=["logits"],
            dynamic_axes={name: axes for name in NAMES} | {"logits": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
    quantize_dynamic(f"{folder}/float32.onnx", f"{folder}/int8.onnx", weight_type=QuantType.QInt8)


def write_openvino(settings: dict) -> None:
    """Writes `openvino_int8.xml` by post-training quantization of NNCF.

    Ranges of activations are calibrated on the texts of mixed lengths.
    """
    import nncf
    import openvino as ov

    folder = Path(settings["folder"])
    rows = json.loads((folder / "requests.json").read_text())["mixed"]["ids"]
    quantized = nncf.quantize(
        ov.Core().read_model(folder / "float32.onnx"),
        nncf.Dataset([onnx_inputs([row]) for row in rows]),
        subset_size=len(rows),
        model_type=nncf.ModelType.TRANSFORMER,
    )
    ov.save_model(quantized, folder / "openvino_int8.xml", compress_to_fp16=False)


def write_ctranslate(settings: dict) -> None:
    """Writes the folder `ctranslate2` in float32; int8 is made when it is loaded."""
    from ctranslate2.converters import TransformersConverter

    folder = settings["folder"]
    TransformersConverter(f"{folder}/huggingface").convert(f"{folder}/ctranslate2")


if __name__ == "__main__":
    server.main(
        saved_model, litert, transformers, onnx, openvino, ctranslate,
        write, write_openvino, write_ctranslate,
    )  # fmt: skip
