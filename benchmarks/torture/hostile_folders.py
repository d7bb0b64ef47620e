"""Hostile folders that somebody may give us: a function spoils a fresh copy of a good folder.

`Case` says what a hostile folder is. The functions below it spoil a file, whatever it holds. Then
come the cases: models, tokenizers, shards and configs; shards whose files are as the manifest says,
but whose numbers are out of range; and files of tasks, which are questions, tables, words with
tags, and candidates. `hostile_weights` has the cases of torch's and ELMo's weight files.
"""

import dataclasses
import functools
import gzip
import hashlib
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.torture.foreign_files import SAFETENSORS, TABLE, TORCH, save_checkpoint
from official.shards import manifest, shard_folder
from official.utils import json_files

DEEP = 100_000
HUGE = 1 << 40
TRACE = "executed"  # a file that hostile code would write beside the folder
NESTED = '{"a": ' * DEEP


@dataclasses.dataclass(frozen=True)
class Case:
    """A hostile folder.

    Attributes:
      name: for the report.
      source: which of the materials is spoiled.
      how: what reads it, a key of `hostile.READERS`.
      spoil: spoils the copy.
      harmless: whether it may be read, as what is hostile in it is left alone.
    """

    name: str
    source: str
    how: str
    spoil: Callable[[Path], Any]
    harmless: bool = False


class Payload:
    """Unpickled, it writes a file beside the folder."""

    def __init__(self, folder: Path):
        self._command = f"touch {folder.parent / TRACE}"

    def __reduce__(self):
        return os.system, (self._command,)


def pickled(name: str) -> Callable[[Path], Any]:
    """A pickle that runs a command, under the name of another file."""
    return lambda folder: (folder / name).write_bytes(pickle.dumps(Payload(folder)))


def sparse(name: str) -> Callable[[Path], None]:
    """A file that says it is large; what it had stays at its beginning."""

    def spoil(folder: Path) -> None:
        with open(folder / name, "r+b") as stream:
            stream.truncate(HUGE)

    return spoil


def linked(name: str, target: str) -> Callable[[Path], None]:
    """A link in place of a file."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return spoil


def pipe(name: str) -> Callable[[Path], None]:
    """A pipe in place of a file, which nobody writes to."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return spoil


def directory(name: str) -> Callable[[Path], None]:
    """A folder in place of a file."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return spoil


def holds(name: str, text: str | bytes) -> Callable[[Path], None]:
    """A file with other content."""
    content = text.encode() if isinstance(text, str) else text
    return lambda folder: (folder / name).write_bytes(content)


def sha256(path: Path) -> str:
    """The checksum that a manifest has of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def change(path: Path, **values: Any) -> None:
    """Changes an object in a file, which has no checksum after that."""
    content = {**json.loads(path.read_text()), **values}
    content.pop(json_files.KEY, None)
    path.write_text(json.dumps(content))


def changed(name: str, **values: Any) -> Callable[[Path], None]:
    """An object in a file with other values."""
    return lambda folder: change(folder / name, **values)


def cut(path: Path, kept: int, parts: int) -> None:
    """Cuts a file: keeps `kept` of its `parts` equal parts."""
    os.truncate(path, path.stat().st_size * kept // parts)


def endless_line(path: Path, mib: int) -> None:
    """Writes a packed line of so many MiB, which takes a thousandth of them."""
    path.write_bytes(mib * gzip.compress(b"a" * (1 << 20)))  # members follow one another


def _sealed_pickle(folder: Path) -> None:
    (path,) = folder.glob("checkpoints/step-*/variables.safetensors")
    path.write_bytes(pickle.dumps(Payload(folder)))
    change(path.with_name("state.json"), sha256=sha256(path))


def _only_pickle(folder: Path) -> None:
    (folder / SAFETENSORS).unlink()
    pickled(TORCH)(folder)


def _counts(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Spoils token_counts.npy, and lets the manifest say that it is right."""

    def spoil(folder: Path) -> None:
        path = folder / "token_counts.npy"
        make(path)
        change(folder / "manifest.json", token_counts=sha256(path))

    return spoil


def _object_array(path: Path) -> None:
    np.save(path, np.array([Payload(path.parent)], object), allow_pickle=True)


def _huge_array(path: Path) -> None:
    with open(path, "wb") as stream:
        header = {"descr": "<i8", "fortran_order": False, "shape": (HUGE,)}
        np.lib.format.write_array_header_1_0(stream, header)


def _zip(path: Path, member: str = "data.npy") -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(member, "w", force_zip64=True) as stream:
            for _ in range(256):
                stream.write(bytes(1 << 20))


def _index(value: Any) -> Callable[[Path], None]:
    """Weights in pieces, as the index lists them; the piece lies outside of the folder."""

    def spoil(folder: Path) -> None:
        outside = folder.parent / "secret.safetensors"
        (folder / SAFETENSORS).rename(outside)
        text = value if isinstance(value, str) else json.dumps(value)
        text = text.replace("OUTSIDE", str(outside))
        (folder / "model.safetensors.index.json").write_text(text)

    return spoil


def _elsewhere(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    for path in folder.glob("bert_model.ckpt*"):
        path.rename(outside / path.name)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{outside}/bert_model.ckpt"\n')


def _tensors(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The header and the data of model.safetensors."""
    content = (folder / SAFETENSORS).read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def _store(folder: Path, header: dict[str, Any] | bytes, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / SAFETENSORS).write_bytes(struct.pack("<Q", len(text)) + text + data)


def _entry(**changes: Any) -> Callable[[Path], None]:
    """Changes what the header says of one tensor."""

    def spoil(folder: Path) -> None:
        header, data = _tensors(folder)
        header[TABLE] |= changes
        _store(folder, header, data)

    return spoil


def _dtype(name: str) -> Callable[[Path], None]:
    """Stores the tensors of a file in another type; the bytes are zeros."""

    def spoil(folder: Path) -> None:
        header, _ = _tensors(folder)
        place = 0
        for key, entry in header.items():
            if key != "__metadata__":
                size = int(np.prod(entry["shape"])) * sizes[name]
                entry |= {"dtype": name, "data_offsets": [place, place + size]}
                place += size
        _store(folder, header, bytes(place))

    sizes = {"I64": 8, "BOOL": 1, "I8": 1, "U8": 1, "F8_E4M3": 1, "BF16": 2}
    return spoil


def _number(value: float) -> Callable[[Path], None]:
    """Puts a number into the weights."""

    def spoil(folder: Path) -> None:
        header, data = _tensors(folder)
        start = header[TABLE]["data_offsets"][0]
        _store(folder, header, data[:start] + struct.pack("<f", value) + data[start + 4 :])

    return spoil


def _header(make: Callable[[dict, bytes], bytes]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        header, data = _tensors(folder)
        _store(folder, make(header, data), data)

    return spoil


def _header_size(size: int) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / SAFETENSORS
        path.write_bytes(struct.pack("<Q", size) + path.read_bytes()[8:])

    return spoil


def _config(**values: Any) -> Callable[[Path], None]:
    """Changes config.json or bert_config.json."""

    def spoil(folder: Path) -> None:
        (path,) = (
            folder.glob("*config.json")
            if not (folder / "config.json").exists()
            else (folder / "config.json",)
        )
        change(path, **values)

    return spoil


def _yaml(old: str, new: str) -> Callable[[Path], None]:
    """Changes config.yaml of a model folder, below the checksum."""

    def spoil(folder: Path) -> None:
        path = folder / "config.yaml"
        text = path.read_text()
        text = text.partition("\n")[2] if text.startswith("#") else text
        assert old in text, old
        spoiled = new.replace("TRACE", str(folder.parent / TRACE))
        path.write_text(text.replace(old, spoiled, 1))

    return spoil


def _tokenizer_json(kind: str, **values: Any) -> Callable[[Path], None]:
    """Has a tokenizer.json with one id far above the number of its pieces."""
    pieces = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": HUGE}

    def spoil(folder: Path) -> None:
        (folder / "vocab.txt").unlink()
        content = {"model": {"type": kind, "vocab": pieces, "unk_token": "[UNK]", **values}}
        (folder / "tokenizer.json").write_text(json.dumps(content))

    return spoil


def _shard(**values: Any) -> Callable[[Path], None]:
    """Changes what the manifest says of the first shard."""

    def spoil(folder: Path) -> None:
        path = folder / "manifest.json"
        shards = json.loads(path.read_text())["shards"]
        change(path, shards=[{**shards[0], **values}, *shards[1:]])

    return spoil


def _tf1_tensor(value: Any) -> Callable[[Path], None]:
    """Writes the checkpoint anew with another value under the name of the token table."""

    def spoil(folder: Path) -> None:
        prefix = folder / "bert_model.ckpt"
        reader = tf.train.load_checkpoint(str(prefix))
        names = sorted(reader.get_variable_to_shape_map())
        tensors = {name: reader.get_tensor(name) for name in names}
        table = "bert/embeddings/word_embeddings"
        tensors[table] = value(tensors[table])
        for path in folder.glob("bert_model.ckpt*"):
            path.unlink()
        save_checkpoint(prefix, tensors)

    return spoil


def _nan(table: np.ndarray) -> np.ndarray:
    table = table.copy()
    table[0, 0] = np.nan
    return table


_BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
_MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 12)
)
_EXECUTE = "!!python/object/apply:os.system ['touch TRACE']"

CASES = [
    # Pickles, which run code when they are read.
    Case("weights in a pickle alone", "hf", "hf", _only_pickle),
    Case("a pickle beside the weights", "hf", "hf", pickled(TORCH), harmless=True),
    Case("a pickle named model.safetensors", "hf", "hf", pickled(SAFETENSORS)),
    Case("a pickle named vocab.txt", "hf", "hf", pickled("vocab.txt")),
    Case("a pickle named config.json", "hf", "hf", pickled("config.json")),
    Case("a pickle named spiece.model", "unigram", "tokenizer", pickled("spiece.model")),
    Case("a pickle named *.ckpt.index", "tf1", "tf1", pickled("bert_model.ckpt.index")),
    Case("a pickle as checkpoint, its SHA-256 right", "model", "load", _sealed_pickle),
    Case("token counts as array of objects", "shards", "shards", _counts(_object_array)),
    # Bombs: files that grow when they are read, and files larger than memory.
    Case("token counts as zip bomb", "shards", "shards", _counts(_zip)),
    Case("token counts of 2^40 numbers", "shards", "shards", _counts(_huge_array)),
    Case("a zip bomb named model.safetensors", "hf", "hf",
         lambda folder: _zip(folder / SAFETENSORS)),
    Case("text that grows a thousandfold", "text", "text",
         lambda folder: endless_line(folder / "text.txt.gz", 256)),
    Case("model.safetensors of a TiB", "hf", "hf", sparse(SAFETENSORS)),
    Case("vocab.txt of a TiB", "hf", "hf", sparse("vocab.txt")),
    Case("config.json of a TiB", "hf", "hf", sparse("config.json")),
    Case("tokenizer_config.json of a TiB", "hf", "hf", sparse("tokenizer_config.json")),
    Case("spiece.model of a TiB", "unigram", "tokenizer", sparse("spiece.model")),
    Case("vocab.json of a TiB", "byte_bpe", "tokenizer", sparse("vocab.json")),
    Case("merges.txt of a TiB", "byte_bpe", "tokenizer", sparse("merges.txt")),
    Case("config.yaml of a TiB", "model", "load", sparse("config.yaml")),
    Case("manifest.json of a TiB", "shards", "shards", sparse("manifest.json")),
    Case("*.ckpt.index of a TiB", "tf1", "tf1", sparse("bert_model.ckpt.index")),
    # Paths that lead elsewhere, and what is no file.
    Case("an index that names ../", "hf", "hf",
         _index({"weight_map": {TABLE: "../secret.safetensors"}})),
    Case("an index that names an absolute path", "hf", "hf",
         _index({"weight_map": {TABLE: "OUTSIDE"}})),
    Case("an index that is a list", "hf", "hf", _index({"weight_map": ["a"]})),
    Case("an index of numbers", "hf", "hf", _index({"weight_map": {"a": 5, "b": [1]}})),
    Case("an index nested 100,000 deep", "hf", "hf", _index(NESTED)),
    Case("a checkpoint file that names another folder", "tf1", "tf1", _elsewhere),
    Case("model.safetensors → /dev/zero", "hf", "hf", linked(SAFETENSORS, "/dev/zero")),
    Case("vocab.txt → /dev/zero", "hf", "hf", linked("vocab.txt", "/dev/zero")),
    Case("config.json → itself", "hf", "hf", linked("config.json", "config.json")),
    Case("vocab.txt is a pipe", "hf", "hf", pipe("vocab.txt")),
    Case("model.safetensors is a pipe", "hf", "hf", pipe(SAFETENSORS)),
    Case("config.json is a folder", "hf", "hf", directory("config.json")),
    Case("*.ckpt.index is a pipe", "tf1", "tf1", pipe("bert_model.ckpt.index")),
    Case("a WordPiece of one id 2^40", "hf", "hf",
         _tokenizer_json("WordPiece", max_input_chars_per_word=100,
                         continuing_subword_prefix="##")),
    Case("a BPE of one id 2^40", "hf", "hf", _tokenizer_json("BPE", merges=[])),
    Case("2^40 beams", "model", "load",
         holds("generation.json", json.dumps({"settings": {"num_beams": HUGE}}))),
    Case("2^40 new tokens", "model", "load",
         holds("generation.json", json.dumps({"settings": {"max_new_tokens": HUGE}}))),
    Case("a shard name with ../", "shards", "shards", _shard(name="../a.tfrecord")),
    Case("a manifest that lists /etc/passwd", "shards", "shards",
         changed("manifest.json", files={"/etc/passwd": "0" * 64})),
    # Types.
    *(
        Case(f"weights of type {name}", "hf", "hf", _dtype(name))
        for name in ("I64", "BOOL", "I8", "U8", "F8_E4M3")
    ),
    Case("weights of type BF16", "hf", "hf", _dtype("BF16"), harmless=True),
    Case("a type that there is not", "hf", "hf", _entry(dtype="F1024")),
    Case("a checkpoint of integers", "tf1", "tf1", _tf1_tensor(lambda t: t.astype(np.int32))),
    Case("a checkpoint of text", "tf1", "tf1", _tf1_tensor(lambda t: t.astype(str))),
    Case("a checkpoint of complex numbers", "tf1", "tf1",
         _tf1_tensor(lambda t: t.astype(np.complex64))),
    # Shapes and places that overflow.
    Case("a shape of 2^62 rows", "hf", "hf", _entry(shape=[1 << 62, 32])),
    Case("a shape whose product wraps to the right size", "hf", "hf",
         _entry(shape=[150 + (1 << 59), 32])),
    Case("a negative shape", "hf", "hf", _entry(shape=[-150, -32])),
    Case("data outside of the file", "hf", "hf", _entry(data_offsets=[0, 1 << 60])),
    Case("data that ends before it begins", "hf", "hf", _entry(data_offsets=[64, 0])),
    Case("tensors on top of one another", "hf", "hf", _entry(data_offsets=[0, 19200])),
    Case("a header of 2^63 bytes", "hf", "hf", _header_size(1 << 63)),
    Case("a header of 2^40 bytes", "hf", "hf", _header_size(1 << 40)),
    Case("a header nested 100,000 deep", "hf", "hf", _header(lambda h, d: NESTED.encode())),
    Case("a tensor there twice", "hf", "hf",
         _header(lambda h, d: json.dumps(h).replace("type_embeddings", "embeddings").encode())),
    Case("a checkpoint index cut in half", "tf1", "tf1",
         lambda f: os.truncate(f / "bert_model.ckpt.index", 700)),
    Case("a checkpoint without its data", "tf1", "tf1",
         lambda f: (f / "bert_model.ckpt.data-00000-of-00001").unlink()),
    # Numbers in configs.
    Case("hidden_size 2^40", "hf", "hf", _config(hidden_size=HUGE)),
    Case("vocab_size 2^40", "hf", "hf", _config(vocab_size=HUGE)),
    Case("max_position_embeddings 2^40", "hf", "hf", _config(max_position_embeddings=HUGE)),
    Case("2^40 layers", "hf", "hf", _config(num_hidden_layers=HUGE)),
    Case("2^40 layers of a release", "tf1", "tf1", _config(num_hidden_layers=HUGE)),
    Case("no heads", "hf", "hf", _config(num_attention_heads=0)),
    Case("-2 heads", "hf", "hf", _config(num_attention_heads=-2)),
    Case("hidden_size as text", "hf", "hf", _config(hidden_size="32")),
    Case("hidden_size null", "hf", "hf", _config(hidden_size=None)),
    Case("num_hidden_layers true", "hf", "hf", _config(num_hidden_layers=True)),
    Case("layer_norm_eps NaN", "hf", "hf", _config(layer_norm_eps=float("nan"))),
    Case("layer_norm_eps negative", "hf", "hf", _config(layer_norm_eps=-1.0)),
    Case("hidden_dropout_prob infinite", "hf", "hf", _config(hidden_dropout_prob=float("inf"))),
    Case("initializer_range NaN", "hf", "hf", _config(initializer_range=float("nan"))),
    Case("architectures is a number", "hf", "hf", _config(architectures=7)),
    Case("model_type is a list", "hf", "hf", _config(model_type=["bert"])),
    Case("id2label is a list", "hf", "hf",
         _config(id2label=[1], architectures=["BertForSequenceClassification"]), harmless=True),
    Case("a NaN among the weights", "hf", "hf", _number(float("nan"))),
    Case("an infinity among the weights", "hf", "hf", _number(float("inf"))),
    Case("a NaN in a checkpoint", "tf1", "tf1", _tf1_tensor(_nan)),
    # JSON.
    Case("config.json nested 100,000 deep", "hf", "hf", holds("config.json", NESTED)),
    Case("bert_config.json nested 100,000 deep", "tf1", "tf1", holds("bert_config.json", NESTED)),
    Case("tokenizer_config.json nested 100,000 deep", "hf", "hf",
         holds("tokenizer_config.json", NESTED)),
    Case("vocab.json nested 100,000 deep", "byte_bpe", "tokenizer", holds("vocab.json", NESTED)),
    Case("manifest.json nested 100,000 deep", "shards", "shards", holds("manifest.json", NESTED)),
    Case("special tokens of the wrong type", "hf", "hf",
         holds("tokenizer_config.json", '{"cls_token": {"content": [5]}}')),
    Case("max_length in task.json is text", "model", "load",
         changed("task.json", max_length="long")),
    Case("max_length in task.json is -1", "model", "load", changed("task.json", max_length=-1)),
    Case("max_length in the manifest is 2^40", "shards", "shards",
         changed("manifest.json", max_length=HUGE)),
    Case("a manifest whose totals are hostile", "shards", "shards",
         changed("manifest.json", config={"segments": {"packing": "x", "max_length": []}})),
    # YAML.
    Case("a YAML tag that runs a command", "model", "load", _yaml("name: ", f"name: {_EXECUTE}#")),
    Case("a YAML tag that names a class", "model", "load",
         _yaml("name: ", "name: !!python/name:os.system #")),
    Case("YAML aliases of aliases", "model", "load", _yaml("name:", f"{_BOMB}name:")),
    Case("YAML merges of merges", "model", "load", _yaml("name:", f"{_MERGES}name:")),
    Case("YAML that contains itself", "model", "load", _yaml("name:", "a: &a [*a]\nname:")),
    Case("YAML nested 100,000 deep", "model", "load",
         _yaml("name:", f"a: {'[' * DEEP}{']' * DEEP}\nname:")),
    Case("a YAML key that is a list", "model", "load", _yaml("name:", "? [1, 2]\n: 3\nname:")),
    Case("a number of 100,000 digits", "model", "load", _yaml("seed: 0", f"seed: {'9' * DEEP}")),
    Case("hidden_size 2^40 in config.yaml", "model", "load",
         _yaml("hidden_size: 32", f"hidden_size: {HUGE}")),
    Case("vocab_size 2^40 in config.yaml", "model", "load",
         _yaml("vocab_size: 150", f"vocab_size: {HUGE}")),
    Case("2^40 layers in config.yaml", "model", "load",
         _yaml("num_layers: 2", f"num_layers: {HUGE}")),
    # Vocabularies.
    Case("spiece.model of random bytes", "unigram", "tokenizer",
         holds("spiece.model", np.random.default_rng(0).bytes(5000))),
    Case("spiece.model that says it is longer", "unigram", "tokenizer",
         holds("spiece.model", b"\x0a\xff\xff\xff\xff\x0f" + b"a" * 100)),
    Case("vocab.txt of one line of 60 MB", "hf", "hf", holds("vocab.txt", b"a" * 60_000_000)),
    Case("vocab.txt of zeros", "hf", "hf", holds("vocab.txt", bytes(1000))),
    Case("merges.txt of what no piece is", "byte_bpe", "tokenizer",
         holds("merges.txt", "x y\n" * 100_000)),
]  # fmt: skip


def _records(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    """Changes the records of the first shard; the manifest has its checksum."""

    def spoil(folder: Path) -> None:
        content = manifest.read(folder)
        path = folder / content.shards[0].name
        records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in change(records):
                writer.write(record)
        shards = (shard_folder.describe(path), *content.shards[1:])
        manifest.write(folder, dataclasses.replace(content, shards=shards))

    return spoil


def _first(change: Callable) -> Callable[[Path], None]:
    """Changes the features of the first example."""

    def of_records(records: list[bytes]) -> list[bytes]:
        example = tf.train.Example.FromString(records[0])
        change(example.features.feature)
        return [example.SerializeToString(), *records[1:]]

    return _records(of_records)


def _id(name: str, value: int, place: int = 0) -> Callable[[Path], None]:
    def change(features) -> None:
        features[name].int64_list.value[place] = value

    return _first(change)


def _list(name: str, values: list[int]) -> Callable[[Path], None]:
    def change(features) -> None:
        features[name].int64_list.value[:] = values

    return _first(change)


def _floats(features) -> None:
    ids = list(features["token_ids"].int64_list.value)
    features["token_ids"].float_list.value[:] = map(float, ids)


def _text(features) -> None:
    features["token_ids"].bytes_list.value[:] = [b"5"]


def _longer(features) -> None:
    ids = features["token_ids"].int64_list.value
    ids.extend([ids[0]] * 100_000)
    features["segment_lengths"].int64_list.value[0] += 100_000


_read = functools.partial(Case, source="shards", how="examples")
_case = functools.partial(Case, source="shards", how="verify")

EXAMPLE_CASES = [
    _read("an id of the size of the vocabulary", spoil=_id("token_ids", 150, 1)),
    _case("an id of 2^31", spoil=_id("token_ids", 1 << 31, 1)),
    _read("an id of 2^40 + 7", spoil=_id("token_ids", HUGE + 7, 1)),
    _case("an id of -1", spoil=_id("token_ids", -1, 1)),
    _case("an id of -2^63", spoil=_id("token_ids", -(1 << 63), 1)),
    _case("no ids", spoil=_list("token_ids", [])),
    _case("an example of 100,000 ids", spoil=_first(_longer)),
    _read("ids that are floats", spoil=_first(_floats)),
    _case("ids that are text", spoil=_first(_text)),
    _case("an example without ids", spoil=_first(lambda features: features.pop("token_ids"))),
    _case("an example without segments", spoil=_first(lambda f: f.pop("segment_lengths"))),
    _case("an example without its label", spoil=_first(lambda f: f.pop("next_sentence_label"))),
    _case("an example without features", spoil=_records(lambda r: [b"", *r[1:]])),
    _case("two labels", spoil=_list("next_sentence_label", [0, 1])),
    _case("a label of 2", spoil=_id("next_sentence_label", 2)),
    _case("a label of -1", spoil=_id("next_sentence_label", -1)),
    _case("a label of 2^32 + 1", spoil=_id("next_sentence_label", (1 << 32) + 1)),
    _case("segments of 2^40 tokens", spoil=_id("segment_lengths", HUGE)),
    _case("segments of -5 tokens", spoil=_id("segment_lengths", -5)),
    _case("segments of too many tokens", spoil=_id("segment_lengths", 60)),
    _read("100,000 segments", spoil=_list("segment_lengths", [1] * 100_000)),
    _read("a record of random bytes", spoil=_records(lambda r: [bytes(range(256)), *r[1:]])),
    _case("a record that is cut", spoil=_records(lambda r: [r[0][:-3], *r[1:]])),
]  # fmt: skip


QUESTIONS, TSV, OBJECTS, TAGS = "train.json", "train.tsv", "train.jsonl", "train.conll"
RUN, QRELS = "train.run", "train.qrels"
_LISTS = "[" * DEEP
_DIGITS = "9" * DEEP


def write_tasks(folder: Path) -> None:
    """Writes a good file of each kind."""
    files = {
        QUESTIONS: _questions(),
        TSV: "sentence\tlabel\nbig city\t1\nbad\t0\n",
        OBJECTS: '{"sentence": "big city", "label": 1}\n{"sentence": "bad", "label": 0}\n',
        TAGS: "Ada B-PER\nwrote O\n\nYork B-LOC\n",
        RUN: "q1 Q0 d1 1 2.5 t\nq1 Q0 d2 2 1.5 t\n",
        QRELS: "q1 0 d1 1\nq1 0 d2 0\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)


def _questions(**changes: Any) -> str:
    """A file of one question, with changes."""
    question = {"id": "1", "question": "who?", "answers": [{"text": "Ada", "answer_start": 0}]}
    paragraphs = [{"context": "Ada wrote.", "qas": [{**question, **changes}]}]
    return json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]})


def _answer(**changes: Any) -> str:
    return _questions(answers=[{"text": "Ada", "answer_start": 0, **changes}])


def _bomb(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        endless_line(folder / f"{name}.gz", 512)

    return spoil


def _cases(name: str, how: str):
    """Returns a function that makes a case of other content."""
    case = functools.partial(Case, source="tasks", how=how)
    return lambda what, content: case(f"{name}: {what}", spoil=holds(name, content))


_squad, _table, _objects = (
    _cases(QUESTIONS, "squad"), _cases(TSV, "tsv"), _cases(OBJECTS, "jsonl"),
)  # fmt: skip
_tags, _run, _qrels = _cases(TAGS, "conll"), _cases(RUN, "run"), _cases(QRELS, "qrels")
_READERS = {QUESTIONS: "squad", TSV: "tsv", OBJECTS: "jsonl", TAGS: "conll", RUN: "run"}

TASK_CASES = [
    _squad("nested 100,000 deep", NESTED),
    _squad("lists nested 100,000 deep", f'{{"data": {_LISTS}'),
    _squad("a list", "[1, 2]"),
    _squad("data is text", '{"data": "paragraphs"}'),
    _squad("paragraphs of numbers", '{"data": [{"paragraphs": [1, 2]}]}'),
    _squad("questions of numbers", '{"data": [{"paragraphs": [{"context": "a", "qas": [5]}]}]}'),
    _squad("context is a list", '{"data": [{"paragraphs": [{"context": [1], "qas": []}]}]}'),
    _squad("a question that is a list", _questions(question=["who?"])),
    _squad("an id that is an object", _questions(id={"a": 1})),
    _squad("answers that are text", _questions(answers="Ada")),
    _squad("answers of numbers", _questions(answers=[1])),
    _squad("an answer at 2^40", _answer(answer_start=HUGE)),
    _squad("an answer at -3", _answer(answer_start=-3)),
    _squad("an answer at text", _answer(answer_start="0")),
    _squad("an answer at 0.5", _answer(answer_start=0.5)),
    _squad("an answer at true", _answer(answer_start=True)),
    _squad("an answer that is null", _answer(text=None)),
    _squad("an answer at a number of 100,000 digits",
           _answer(answer_start=0).replace('start": 0', f'start": {_DIGITS}')),
    _squad("a lone surrogate", _answer(text="\ud800")),
    _squad("NaN", '{"data": NaN}'),
    _squad("random bytes", bytes(range(256))),
    _table("a row of 100,000 columns", "sentence\tlabel\n" + "a\t" * DEEP + "\n"),
    _table("one column", "sentence\tlabel\nbig\n"),
    _table("a column twice", "label\tlabel\na\tb\n"),
    _table("random bytes", bytes(range(256)) * 4),
    _table("zeros", bytes(100_000)),
    _table("a header alone", "sentence\tlabel\n"),
    _objects("nested 100,000 deep", NESTED),
    _objects("a list", "[1, 2]\n"),
    _objects("a text that is an object", '{"sentence": {"a": 1}, "label": 1}\n'),
    _objects("a text that is null", '{"sentence": null, "label": 1}\n'),
    _objects("a label that is a list", '{"sentence": "a", "label": [1]}\n'),
    _objects("a number of 100,000 digits", f'{{"sentence": "a", "label": {_DIGITS}}}\n'),
    _objects("random bytes", bytes(range(256)) * 4),
    _tags("other numbers of columns", "Ada B-PER\nwrote x O\n"),
    _tags("random bytes", bytes(range(256)) * 4),
    _tags("zeros", bytes(100_000)),
    _tags("no tag", "Ada\n"),
    _run("a score of NaN", "q1 Q0 d1 1 nan t\n"),
    _run("a score of 10^400", "q1 Q0 d1 1 1e400 t\n"),
    _run("five columns", "q1 Q0 d1 1 2.5\n"),
    _run("random bytes", bytes(range(256)) * 4),
    _qrels("a grade of 100,000 digits", f"q1 0 d1 {_DIGITS}\n"),
    _qrels("a grade of 0.5", "q1 0 d1 0.5\n"),
    *(
        Case(f"{name}: {what}", "tasks", how, spoil(name))
        for name, how in _READERS.items()
        for what, spoil in {
            "a TiB": sparse,
            "a pickle": pickled,
        }.items()
    ),
    *(
        # SQuAD's files are read as a whole; a pipe may be what somebody means.
        Case(f"{name}: → /dev/zero", "tasks", how, linked(name, "/dev/zero"))
        for name, how in _READERS.items()
        if name != QUESTIONS
    ),
    *(
        Case(f"{name}.gz: a line without an end", "tasks", f"{how}.gz", _bomb(name))
        for name, how in {TSV: "tsv", OBJECTS: "jsonl"}.items()
    ),
]  # fmt: skip
