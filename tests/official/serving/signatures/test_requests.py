"""The requests of docs/serving.md are what exported models take."""

import base64
import json
import re

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from tensorflow.core.framework import tensor_pb2

import official
from official.config.heads import (
    MultipleChoiceConfig,
    RankingConfig,
    SpanAnswerConfig,
    TokenClassificationConfig,
)
from official.config.objectives import CausalLMConfig, MaskedLMConfig
from official.config.sentence_embedding import Projection, SentenceEmbeddingConfig
from official.serving.export import saved_model
from tests import ROOT
from tests.official.commands import test_export

DOC = ROOT / "docs" / "serving.md"
# Which model has the signature of a request.
HEADS = {
    "rank": RankingConfig(),
    "choose": MultipleChoiceConfig(),
    "answer": SpanAnswerConfig(),
    "tag": TokenClassificationConfig(labels=("O", "B-X", "I-X"), crf=True),
    "sample": CausalLMConfig(),
    "embed": SentenceEmbeddingConfig(projection=Projection(size=4)),
    "fill_mask": MaskedLMConfig(),
}


def blocks(kind):
    actual = re.findall(rf"```{kind}\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)
    assert actual
    return actual


def exchanges():
    """The bodies of requests, each with the answer that follows it, or None."""
    actual = []
    for body in map(json.loads, blocks("json")):
        if "signature_name" in body:
            actual.append((body, None))
        else:
            actual[-1] = actual[-1][0], body
    return actual


EXCHANGES = exchanges()
OF_VECTORS = [pair for pair in EXCHANGES if pair[0]["signature_name"] == "embed"]


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def signatures(parent):
    """Gives the signature that a request names, of a model that is exported when it is needed."""
    models = {}

    def signature(name):
        model = name if name in HEADS else "classification"
        if model not in models:
            models[model] = exported(parent / model, model)
        return models[model].signatures[name]

    return signature


def exported(folder, model):
    """The SavedModel of a classifier, or of one of `HEADS`."""
    if model == "classification":
        test_export.make(folder / "model", model)
    else:
        more = {"encoder": test_export.causal_encoder()} if model == "sample" else {}
        test_export.make(folder / "model", "bare", objectives=(HEADS[model],), **more)
        task = {"doc_stride": 4, "max_query_length": 4, "max_length": 12}
        (folder / "model" / "task.json").write_text(json.dumps(task))
    saved_model.export(folder / "model", folder / "saved")
    return tf.saved_model.load(str(folder / "saved"))


def columns(body, signature):
    """The inputs of a request to TensorFlow Serving's REST API, by name."""
    assert body.keys() == {"signature_name", "inputs" if "inputs" in body else "instances"}

    def plain(value):
        if isinstance(value, dict) and value.keys() == {"b64"}:
            return base64.b64decode(value["b64"])
        return list(map(plain, value)) if isinstance(value, list) else value

    names = list(signature.structured_input_signature[1])
    if "inputs" in body:
        given = body["inputs"]
        given = given if isinstance(given, dict) else dict(zip(names, [given], strict=True))
        return {name: plain(value) for name, value in given.items()}
    rows = body["instances"]
    if not isinstance(rows[0], dict) or rows[0].keys() == {"b64"}:
        return dict(zip(names, [plain(rows)], strict=True))  # the only input there is
    return {name: [plain(row[name]) for row in rows] for name in rows[0]}


def answered(body, outputs):
    """The answer of TensorFlow Serving's REST API, from the tensors of a signature."""

    def plain(value):
        if isinstance(value, list):
            return list(map(plain, value))
        return value.decode() if isinstance(value, bytes) else value

    columns = {name: plain(value.numpy().tolist()) for name, value in outputs.items()}
    if "inputs" in body:
        return {"outputs": columns if len(columns) > 1 else next(iter(columns.values()))}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {"predictions": rows if len(columns) > 1 else next(iter(columns.values()))}


def form(value):
    """A body with types in the place of texts and numbers."""
    if isinstance(value, dict):
        return {name: form(each) for name, each in value.items()}
    return list(map(form, value)) if isinstance(value, list) else type(value)


def ask(signature, given):
    """Answers, after names, types and shapes were held against the signature's."""
    specs = signature.structured_input_signature[1]
    assert given.keys() == specs.keys()
    tensors = {}
    for name, spec in specs.items():
        tensors[name] = tf.constant(given[name], spec.dtype)
        assert spec.shape.is_compatible_with(tensors[name].shape), name
    return signature(**tensors)


def rows_of(given):
    return max(len(v) for v in given.values() if isinstance(v, list))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("body", "answer"), EXCHANGES)
def test_a_rest_body_is_answered(signatures, body, answer):
    signature = signatures(body["signature_name"])
    given = columns(body, signature)
    outputs = ask(signature, given)
    assert outputs
    for name, value in outputs.items():
        assert value.shape[0] == rows_of(given), name
        assert value.dtype == tf.string or np.isfinite(value.numpy()).all(), name
    if answer is not None:
        assert form(answered(body, outputs)) == form(answer)


@pytest.mark.slow
def test_answers_with_vectors_are_those_of_encode(signatures, parent):
    assert {next(iter(answer)) for _, answer in OF_VECTORS} == {"predictions", "outputs"}
    signature = signatures("embed")
    model = official.load(parent / "embed" / "model")
    for body, answer in OF_VECTORS:
        given = columns(body, signature)
        actual = answered(body, ask(signature, given))
        assert form(actual) == form(answer)
        assert actual.keys() == answer.keys()
        (vectors,) = actual.values()
        np.testing.assert_allclose(vectors, model.encode(given["text"]), atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(*answer.values(), axis=1), 1.0, atol=1e-6)


def predict_request():
    """The message class, its fields numbered as in TensorFlow Serving's predict.proto."""
    pool = descriptor_pool.DescriptorPool()
    needed = {}

    def add(file):
        for other in file.dependencies:
            add(other)
        if file.name not in needed:
            needed[file.name] = descriptor_pb2.FileDescriptorProto()
            file.CopyToProto(needed[file.name])
            pool.Add(needed[file.name])

    add(tensor_pb2.DESCRIPTOR)
    text = """
      name: "predict.proto" package: "tensorflow.serving" syntax: "proto3"
      dependency: "tensorflow/core/framework/tensor.proto"
      message_type {
        name: "ModelSpec"
        field { name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
        field { name: "signature_name" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL }
      }
      message_type {
        name: "PredictRequest"
        field {
          name: "model_spec" number: 1 type: TYPE_MESSAGE label: LABEL_OPTIONAL
          type_name: ".tensorflow.serving.ModelSpec"
        }
        field {
          name: "inputs" number: 2 type: TYPE_MESSAGE label: LABEL_REPEATED
          type_name: ".tensorflow.serving.PredictRequest.InputsEntry"
        }
        nested_type {
          name: "InputsEntry" options { map_entry: true }
          field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
          field {
            name: "value" number: 2 type: TYPE_MESSAGE label: LABEL_OPTIONAL
            type_name: ".tensorflow.TensorProto"
          }
        }
      }
    """
    pool.Add(text_format.Parse(text, descriptor_pb2.FileDescriptorProto()))
    actual = pool.FindMessageTypeByName("tensorflow.serving.PredictRequest")
    return message_factory.GetMessageClass(actual)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("textproto"))
def test_a_grpc_body_is_answered(signatures, block):
    request = text_format.Parse(block, predict_request()())
    signature = signatures(request.model_spec.signature_name)
    specs = signature.structured_input_signature[1]
    given = {}
    for name, value in request.inputs.items():
        proto = tensor_pb2.TensorProto.FromString(value.SerializeToString())
        assert proto.dtype == specs[name].dtype.as_datatype_enum
        array = tf.make_ndarray(proto)
        assert proto == tf.make_tensor_proto(array, proto.dtype, array.shape)
        given[name] = array.tolist()
    answers = ask(signature, given)
    assert [label in (b"bad", b"good", b"neither") for label in answers["label"].numpy()] == [
        True,
        True,
    ]
