"""The sides of `benchmarks.encoding`: sentence-transformers and fastembed with ONNX in int8.

A side reads a file of texts, writes their vectors, float32 [N, D], and prints the texts a second.
The settings are `model` (the folder of `write`), `texts`, `output` and `threads`.
"""

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import server

INT8 = "onnx/model_qint8_avx512_vnni.onnx"


def run(settings: dict, load: Callable[[], Callable[[list[str]], np.ndarray]]) -> None:
    """Encodes the texts by the function that `load` returns, and times it."""
    texts = Path(settings["texts"]).read_text("utf-8").splitlines()
    encode = load()
    encode(texts[:8])
    seconds, vectors = server.timed(encode, texts)
    np.save(settings["output"], np.asarray(vectors, np.float32))
    print(json.dumps({"rate": len(texts) / seconds}))


def loaded(folder: str, threads: int) -> Callable:
    """Returns `encode` of sentence-transformers, which sorts the texts by length."""
    import onnxruntime
    from sentence_transformers import SentenceTransformer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    given = {
        "file_name": INT8,
        "session_options": options,
        "provider": "CPUExecutionProvider",
    }
    model = SentenceTransformer(folder, backend="onnx", device="cpu", model_kwargs=given)
    return lambda texts: model.encode(texts, normalize_embeddings=True, show_progress_bar=False)


def sentence_transformers(settings: dict) -> None:
    """sentence-transformers in one process."""
    run(settings, lambda: loaded(settings["model"], settings["threads"]))


def processes(settings: dict) -> None:
    """sentence-transformers in a process for each thread.

    The library's pool of processes does not support ONNX models ("cannot pickle InferenceSession"),
    so each process here loads the model and encodes its share of the texts.
    """
    count = settings["threads"]

    def load() -> Callable:
        pool = multiprocessing.get_context("spawn").Pool(count, _load, (settings["model"],))

        def encode(texts: list[str]) -> np.ndarray:
            parts = pool.map(_encode, [texts[i::count] for i in range(count)], chunksize=1)
            vectors = np.empty((len(texts), parts[0].shape[1]), np.float32)
            for i, part in enumerate(parts):
                vectors[i::count] = part
            return vectors

        return encode

    run(settings, load)


_loaded: list[Callable] = []  # the model of a process of the pool


def _load(folder: str) -> None:
    import torch

    torch.set_num_threads(1)
    _loaded.append(loaded(folder, 1))


def _encode(texts: list[str]) -> np.ndarray:
    return _loaded[0](texts)


def fastembed(settings: dict) -> None:
    """The package fastembed, in one process for each thread.

    It does not sort texts by length, so it is fastest with batches of one text, which have no
    padding.
    """
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    def load() -> Callable:
        config = json.loads(Path(settings["model"], "config.json").read_text())
        TextEmbedding.add_custom_model(
            "local/model",
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(hf="local/model"),
            dim=config["hidden_size"],
            model_file=INT8,
        )
        model = TextEmbedding("local/model", specific_model_path=settings["model"], threads=1)

        def encode(texts: list[str]) -> np.ndarray:
            return np.array([*model.embed(texts, batch_size=1, parallel=settings["threads"])])

        return encode

    run(settings, load)


def write(settings: dict) -> None:
    """Writes a folder of sentence-transformers with ONNX in int8, by the library's functions.

    This is optimum's dynamic quantization for AVX512-VNNI: weights and activations in int8.
    """
    from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model

    output = settings["output"]
    model = SentenceTransformer(settings["model"], backend="onnx", model_kwargs={"export": True})
    model.save_pretrained(output)
    export_dynamic_quantized_onnx_model(model, "avx512_vnni", output)
    # fastembed cuts texts at the smaller of two lengths in files, sentence-transformers at one.
    path = Path(output, "tokenizer_config.json")
    config = json.loads(path.read_text())
    config["model_max_length"] = config["max_length"] = model.max_seq_length
    path.write_text(json.dumps(config))


def random(settings: dict) -> None:
    """Writes a small BERT with random weights as a folder of sentence-transformers."""
    import torch
    from sentence_transformers import SentenceTransformer, models
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    output = Path(settings["output"])
    learned = BertWordPieceTokenizer(lowercase=True)
    learned.train([settings["text"]], vocab_size=2000, show_progress=False)
    encoder = output.with_name("random-encoder")
    encoder.mkdir(exist_ok=True)
    learned.save_model(str(encoder))
    BertTokenizerFast(str(encoder / "vocab.txt"), model_max_length=128).save_pretrained(encoder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=2000,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        initializer_range=0.05,
    )
    BertModel(config).save_pretrained(encoder)
    read = models.Transformer(str(encoder), max_seq_length=128)
    pool = models.Pooling(read.get_word_embedding_dimension(), "mean")
    SentenceTransformer(modules=[read, pool, models.Normalize()]).save(str(output))


if __name__ == "__main__":
    server.main(sentence_transformers, processes, fastembed, write, random)
