"""Compiles programs for TPUs that are not there, with the compiler that TPUs have.

The package `libtpu` contains XLA for TPUs, and compiles on any Linux with an x86-64 processor for
a slice that is only described: `v5e:2x2` are four chips of a TPU v5e. It is called through the C
interface of PJRT, whose functions have fixed places in a table.

It runs in a process of its own. libtpu writes much to standard error, takes some gigabytes that
only the end of a process frees, and ends a process that does not suit it.
"""

import ctypes
import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from typing import Any

from official.utils import atomic
from official.utils.errors import UserError

# The places of functions in the table, which later versions only add to. They are those of
# `PJRT_Api` in xla/pjrt/c/pjrt_c_api.h, from version 0.90 on.
FUNCTIONS = {
    "PJRT_Error_Message": 1,
    "PJRT_Plugin_Initialize": 3,
    "PJRT_TopologyDescription_Create": 82,
    "PJRT_TopologyDescription_GetDeviceDescriptions": 86,
    "PJRT_Compile": 89,
    "PJRT_Executable_GetCompiledMemoryStats": 96,
}
_VERSION = (0, 90)
# Without the first, libtpu asks a metadata server of Google's cloud for a minute.
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_LOG_DIR": "disabled",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # No chip is used, which two processes would not share.
}
# A program that fits nowhere: the refusal says how much memory there is.
_PROBE = b"""
func.func @main(%a: tensor<1099511627776xi8>) -> tensor<1099511627776xi8> {
  %b = stablehlo.add %a, %a : tensor<1099511627776xi8>
  return %b : tensor<1099511627776xi8>
}
"""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = r"([\d.]+)([KMGT]?)"
_TOO_LARGE = re.compile(rf"\({_SIZE}\) exceeds available HBM \({_SIZE}\)")
_GET = "pip install 'encoder-garden[tpu]', on Linux with an x86-64 processor"


@dataclasses.dataclass(frozen=True)
class Slice:
    """A slice of a TPU.

    Attributes:
      topology: the kind of the chips and their arrangement, such as `v5e:2x2`.
      cores: the number of cores, each with a replica and memory of its own.
      limit: the bytes of a core that programs can have.
    """

    topology: str
    cores: int
    limit: int


@dataclasses.dataclass(frozen=True)
class Program:
    """What a program takes on a core, in bytes.

    Attributes:
      arguments: the weights, the state of the optimizer and a batch.
      temporaries: activations and gradients.
      code: the program itself.
      outputs: what is returned, where it is not written over arguments.
      refused: what the compiler says that a program takes which does not fit; None = it fits.
    """

    arguments: int = 0
    temporaries: int = 0
    code: int = 0
    outputs: int = 0
    refused: int | None = None

    @property
    def total(self) -> int:
        """All of it."""
        parts = self.arguments + self.temporaries + self.code + self.outputs
        return parts if self.refused is None else self.refused


def version() -> str:
    """Returns the version of libtpu.

    Raises:
      UserError: it is not installed.
    """
    try:
        return metadata.version("libtpu")
    except metadata.PackageNotFoundError:
        raise UserError(
            f"--topology: the compiler of TPUs, libtpu, is not installed: {_GET}"
        ) from None


def describe(topology: str, log: str) -> Slice:
    """Returns what a slice has.

    Args:
      topology: as in `Slice`.
      log: the file that gets what libtpu says, if it fails.

    Raises:
      UserError: libtpu is not installed, or does not know the topology.
    """
    return Slice(topology, **_answer_of(topology, log))


def compile_program(program: str, slice_: Slice, log: str) -> Program:
    """Compiles a program for all cores of a slice.

    Args:
      program: the file of an HLO module in serialized form.
      slice_: the slice.
      log: the file that gets what libtpu says, if it fails.

    Raises:
      UserError: libtpu is not installed, or cannot compile the program.
    """
    return Program(**_answer_of(slice_.topology, log, program, str(slice_.cores)))


def _answer_of(topology: str, log: str, *words: str) -> dict[str, Any]:
    """Returns the answer of another process, which has libtpu."""
    version()
    with tempfile.TemporaryDirectory() as folder:
        output, noise = (os.path.join(folder, name) for name in ("answer", "noise"))
        program = f"from {__name__} import main; main()"
        command = [sys.executable, "-c", program, output, topology, *words]
        with open(noise, "wb") as file:
            environment = {**os.environ, **_ENVIRONMENT}
            done = subprocess.run(command, stdout=file, stderr=file, env=environment, check=False)
        answer: dict[str, Any] = {"error": f"the compiler ended with status {done.returncode}"}
        if os.path.exists(output):
            with open(output, encoding="utf-8") as file:
                answer = json.load(file)
        elif done.returncode < 0:
            answer["error"] = (
                f"signal {-done.returncode} ended the compiler, which may take gigabytes of the "
                "memory of this machine"
            )
        if "error" in answer:
            with open(noise, encoding="utf-8", errors="replace") as file:
                said = file.read()
            with atomic.file(log) as file:
                file.write(f"{answer['error']}\n{said}")
            raise UserError(
                f"--topology={topology}: {answer['error'].splitlines()[0]} (libtpu {version()}; "
                f"{log} has all that it says)"
            )
    return answer


class _Refused(Exception):
    """A message of libtpu."""


def _struct(*fields: tuple[str, Any]) -> Any:
    """Returns the type of an argument of a function of PJRT, which begins with its size."""
    first = [("struct_size", ctypes.c_size_t), ("extension_start", ctypes.c_void_p)]
    return type("Arguments", (ctypes.Structure,), {"_fields_": [*first, *fields]})


def _text(name: str) -> list[tuple[str, Any]]:
    return [(name, ctypes.c_char_p), (f"{name}_size", ctypes.c_size_t)]


_Message = _struct(("error", ctypes.c_void_p), ("text", ctypes.c_void_p), ("size", ctypes.c_size_t))
_Initialize = _struct()
_Topology = _struct(
    *_text("name"),
    ("options", ctypes.c_void_p),
    ("num_options", ctypes.c_size_t),
    ("topology", ctypes.c_void_p),
)
_Devices = _struct(
    ("topology", ctypes.c_void_p), ("descriptions", ctypes.c_void_p), ("count", ctypes.c_size_t)
)
_Code = _struct(*_text("code"), *_text("format"))
_Compile = _struct(
    ("topology", ctypes.c_void_p),
    ("program", ctypes.c_void_p),
    *_text("options"),
    ("client", ctypes.c_void_p),
    ("executable", ctypes.c_void_p),
)
_Memory = _struct(
    ("executable", ctypes.c_void_p),
    *(
        (each, ctypes.c_int64)
        for each in ("code", "arguments", "outputs", "aliases", "temporaries")
    ),
    ("host", ctypes.c_int64 * 5),
    ("peak", ctypes.c_int64),
    ("total", ctypes.c_int64),
)


class _Compiler:
    """libtpu, in this process, for a slice."""

    def __init__(self, topology: str):
        found = importlib.util.find_spec("libtpu")
        assert found is not None and found.submodule_search_locations
        [folder] = found.submodule_search_locations
        library = ctypes.CDLL(os.path.join(folder, "libtpu.so"))
        library.GetPjrtApi.restype = ctypes.c_void_p
        self._table = library.GetPjrtApi()
        major, minor = (ctypes.c_int * 2).from_address(self._table + 32)
        if major != _VERSION[0] or minor < _VERSION[1]:
            raise _Refused(
                f"libtpu {version()} has version {major}.{minor} of PJRT, and {_VERSION[0]}."
                f"{_VERSION[1]} or a later one is needed: {_GET}"
            )
        self._call("PJRT_Plugin_Initialize", _Initialize())
        name = topology.encode()
        wanted = _Topology(name=name, name_size=len(name))
        self._call("PJRT_TopologyDescription_Create", wanted)
        self._topology = wanted.topology

    def cores(self) -> int:
        """Returns the number of cores."""
        devices = _Devices(topology=self._topology)
        self._call("PJRT_TopologyDescription_GetDeviceDescriptions", devices)
        return devices.count

    def run(self, code: bytes, form: bytes, cores: int) -> dict[str, int]:
        """Compiles a program; returns what it takes, as `Program` has it.

        Raises:
          _Refused: it does not fit, or is not valid.
        """
        program = _Code(code=code, code_size=len(code), format=form, format_size=len(form))
        program.struct_size = ctypes.sizeof(program)
        options = _options(cores)
        made = _Compile(
            topology=self._topology,
            program=ctypes.addressof(program),
            options=options,
            options_size=len(options),
        )
        self._call("PJRT_Compile", made)
        memory = _Memory(executable=made.executable)
        self._call("PJRT_Executable_GetCompiledMemoryStats", memory)
        return {
            "arguments": memory.arguments,
            "temporaries": memory.temporaries,
            "code": memory.code,
            "outputs": memory.outputs - memory.aliases,
        }

    def _call(self, name: str, arguments: Any) -> None:
        if error := self._result(name, arguments):
            said = _Message(error=error)
            self._result("PJRT_Error_Message", said)
            raise _Refused(ctypes.string_at(said.text, said.size).decode(errors="replace"))

    def _result(self, name: str, arguments: Any) -> int | None:
        arguments.struct_size = ctypes.sizeof(arguments)
        place = self._table + 40 + 8 * FUNCTIONS[name]
        function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p).from_address(place)
        return function(ctypes.addressof(arguments))


def _options(cores: int) -> bytes:
    """Returns a serialized CompileOptionsProto of xla/pjrt/proto/compile_options.proto."""
    ids = b"".join(map(_number, range(cores)))
    devices = _field(1, cores) + _field(2, 1) + _field(3, _field(1, ids))  # one computation
    # executable_build_options: no device, the replicas, one partition, and where replicas are.
    build = _field(1, -1) + _field(4, cores) + _field(5, 1) + _field(9, devices)
    return _field(3, build)


def _field(number: int, value: int | bytes) -> bytes:
    """Returns a field of a message of protocol buffers."""
    if isinstance(value, int):
        return _number(number << 3) + _number(value)
    return _number(number << 3 | 2) + _number(len(value)) + value


def _number(value: int) -> bytes:
    value %= 1 << 64
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def needed_by(message: str) -> int | None:
    """Returns the bytes that a program needs, of which a message says that it does not fit."""
    found = _TOO_LARGE.search(message)
    return found and _bytes(*found.group(1, 2))


def limit_of(message: str) -> int | None:
    """Returns the bytes that there are, of such a message."""
    found = _TOO_LARGE.search(message)
    return found and _bytes(*found.group(3, 4))


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])


def _answer(topology: str, *words: str) -> dict[str, Any]:
    """Returns the fields of `Slice`, or those of `Program`, or an `error`."""
    try:
        compiler = _Compiler(topology)
        if not words:
            return {"cores": compiler.cores(), "limit": _limit(compiler)}
        program, cores = words
        with open(program, "rb") as file:
            code = file.read()
        try:
            return compiler.run(code, b"hlo", int(cores))
        except _Refused as refused:
            if (needed := needed_by(str(refused))) is None:
                raise
            return {"refused": needed}
    except _Refused as refused:
        return {"error": str(refused)}


def _limit(compiler: _Compiler) -> int:
    """Returns the bytes that programs can have on a core."""
    try:
        compiler.run(_PROBE, b"mlir", 1)
    except _Refused as refused:
        if (limit := limit_of(str(refused))) is None:
            raise
        return limit
    raise _Refused(f"libtpu {version()} compiles a program that fits on no chip: {_GET}")


def main() -> None:
    """Writes an answer to a file: the work of the other process."""
    output, *words = sys.argv[1:]
    answer = _answer(*words)
    with atomic.file(output) as file:
        json.dump(answer, file)
