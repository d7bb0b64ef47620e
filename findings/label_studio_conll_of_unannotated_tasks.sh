#!/usr/bin/env bash
# Tasks without an annotation in Label Studio's export as CoNLL 2003.
#
# Expected: a task that nobody has annotated is left out of the tags, or marked, as in the JSON
#   export, where its list of annotations is empty.
# What happens: the export has all words of the task with the tag O, exactly like a task whose
#   annotator found no entity. Nothing is printed.
# Why: the converter makes an item for a task without annotations too, with no spans, and every word
#   outside of a span is O.
# Versions: label-studio-sdk 2.1.2 (`label_studio_sdk.converter`), Python 3.11.
# Consequence: a project that is exported before it is finished teaches a tagger that the entities of
#   the other tasks are none. Read the JSON export, and leave out tasks without annotations.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check label-studio-sdk==2.1.2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import logging
import sys
from pathlib import Path

logging.disable(logging.WARNING)
from label_studio_sdk.converter import Converter

config = """<View><Labels name="label" toName="text"><Label value="LOC"/></Labels>
<Text name="text" value="$text"/></View>"""
span = {
    "from_name": "label", "to_name": "text", "type": "labels",
    "value": {"start": 8, "end": 13, "text": "Paris", "labels": ["LOC"]},
}
tasks = [
    {"id": 1, "data": {"text": "Anna in Paris"}, "annotations": [{"id": 1, "result": [span]}]},
    {"id": 2, "data": {"text": "Berlin is large"}, "annotations": [{"id": 2, "result": []}]},
    {"id": 3, "data": {"text": "Rome is old"}, "annotations": []},
]
Path("export.json").write_text(json.dumps(tasks))
Converter(config, ".").convert("export.json", "out", "CONLL2003", is_dir=False)
(made,) = Path("out").glob("*.conll")
text = made.read_text()
print(text)
words = [line.split()[0] for line in text.splitlines() if line and "DOCSTART" not in line]
last = [line.split()[-1] for line in text.splitlines() if line.startswith(("Rome", "is", "old"))]
if "Rome" not in words or set(last) != {"O"}:
    sys.exit("changed: expected the words of task 3 with the tag O")
print("as described: task 3 has no annotation, and its words are O as those of task 2")
PYTHON
