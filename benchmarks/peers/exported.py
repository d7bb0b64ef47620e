"""The sides of `benchmarks.exported_models`: runtimes that run the batches of `inputs.npz`."""

import collections
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import server


def plain(values: object) -> np.ndarray:
    """Returns an output as an array without objects; strings get a string dtype."""
    array = np.array(values)
    if array.dtype.kind not in "OS":
        return array
    texts = [text.decode() if isinstance(text, bytes) else text for text in array.ravel()]
    return np.array(texts, np.str_).reshape(array.shape)


def answer(settings: dict, runtime: str, load: Callable[[Path, str], Callable]) -> None:
    """Writes the outputs of each batch: `SIGNATURE/NUMBER/OUTPUT`.

    Args:
      settings: `folder`, the folder of a model.
      runtime: the name of the file to write.
      load: a function of the folder and the name of a signature; returns a function from inputs by
        name to outputs by name.
    """
    folder = Path(settings["folder"])
    batches = collections.defaultdict(dict)
    with np.load(folder / "inputs.npz") as stored:
        for path in stored.files:
            name, i, key = path.split("/")
            batches[name, i][key] = stored[path]
    functions, answers = {}, {}
    for (name, i), batch in batches.items():
        if name not in functions:
            functions[name] = load(folder, name)
        found = functions[name](batch)
        answers |= {f"{name}/{i}/{key}": plain(value) for key, value in found.items()}
    np.savez(folder / f"{runtime}.npz", **answers)


def onnxruntime(settings: dict) -> None:
    """ONNX Runtime."""
    import onnx
    import onnxruntime as ort

    folder = Path(settings["folder"])
    used = set()
    for file in (folder / "onnx").glob("*.onnx"):
        used |= {node.op_type for node in onnx.load(file).graph.node}
    (folder / "onnx_operations.json").write_text(json.dumps(sorted(used)))

    def load(folder: Path, name: str) -> Callable:
        session = ort.InferenceSession(folder / "onnx" / f"{name}.onnx")
        names = [output.name for output in session.get_outputs()]
        return lambda batch: dict(zip(names, session.run(names, batch), strict=True))

    answer(settings, "onnxruntime", load)


def openvino(settings: dict) -> None:
    """OpenVINO, which reads the files of ONNX."""
    import onnx
    import openvino as ov

    def load(folder: Path, name: str) -> Callable:
        file = folder / "onnx" / f"{name}.onnx"
        compiled = ov.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        names = [output.name for output in onnx.load(file).graph.output]

        def run(batch: dict) -> dict:
            found = compiled(batch)
            return {name: found[name] for name in names}

        return run

    answer(settings, "openvino", load)


def litert(settings: dict) -> None:
    """LiteRT, without TensorFlow."""
    from ai_edge_litert.interpreter import Interpreter

    folder = Path(settings["folder"])
    file = str(folder / "litert" / "model.tflite")
    interpreter = Interpreter(file, num_threads=1)
    used = {details["op_name"] for details in interpreter._get_ops_details()}
    (folder / "litert_operations.json").write_text(json.dumps(sorted(used)))

    def load(folder: Path, name: str) -> Callable:
        runner = interpreter.get_signature_runner(name)
        return lambda batch: runner(**batch)

    answer(settings, "litert", load)


if __name__ == "__main__":
    server.main(onnxruntime, openvino, litert)
