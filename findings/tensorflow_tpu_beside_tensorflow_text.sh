#!/usr/bin/env bash
# The library of tensorflow-tpu once tensorflow-text is installed with it.
#
# Expected: `pip install tensorflow-tpu tensorflow-text` leaves the library with the kernels of TPUs:
#   tensorflow-tpu is TensorFlow for the host of a TPU, and comes in the folder `tensorflow`.
# What happens: tensorflow-text requires the package `tensorflow`, which tensorflow-tpu does not
#   stand for. pip installs both into one folder, one after the other, and the files of `tensorflow`
#   stay: the libraries have the size that its own list of files says, and not that of
#   tensorflow-tpu's. Nothing is said, and `pip check` finds no conflict.
# Versions: tensorflow-tpu 2.20.0, tensorflow 2.20.0, tensorflow-text 2.20.1, Python 3.11 and its
#   pip, Linux on x86-64.
# Consequence: TPUStrategy does not find the TPU of the machine. tensorflow-tpu has to be installed
#   once more, with --force-reinstall --no-deps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile \
  tensorflow-tpu==2.20.0 tensorflow==2.20.0 tensorflow-text==2.20.1
"$folder/venv/bin/pip" check
"$folder/venv/bin/python" - <<'PYTHON'
import importlib.metadata
import sys

LIBRARIES = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")


def listed(package):
    """Returns the sizes of the libraries in a package's own list of files."""
    files = importlib.metadata.distribution(package).files
    return {file.name: file.size for file in files if file.name in LIBRARIES}


there = {
    file.name: file.locate().stat().st_size
    for file in importlib.metadata.distribution("tensorflow-tpu").files
    if file.name in LIBRARIES
}
for name in LIBRARIES:
    sizes = {package: listed(package)[name] for package in ("tensorflow", "tensorflow-tpu")}
    print(name, {"installed": there[name], **sizes})
    if not there[name] == sizes["tensorflow"] != sizes["tensorflow-tpu"]:
        sys.exit("changed: expected the file of tensorflow")
print("as described: the libraries are those of tensorflow")
PYTHON
