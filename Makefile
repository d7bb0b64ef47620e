# Everything runs from .venv, which is made from the pinned requirements when it is missing or
# when they change. `make demo PYTHON=/path/to/python` names the Python to make it from.

SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: help lock demo study-quick test test-slow test-all test-2.20 coverage lint imports types torture parity parity-mteb parity-node buckets parity-environments \
  environments bench docs clean always

first = $(shell for p in $(1); do $$p -c 'import ensurepip, venv' >/dev/null 2>&1 && \
	{ echo $$p; break; }; done)
PYTHON ?= $(call first,python3.11 python3.12 python3.13)
# TensorFlow 2.15, the last that tensorflow-addons works with, has no later Python than 3.11.
PARITY_PYTHON ?= $(call first,python3.11)

# What one process leaves idle of a core while it makes graphs, another one uses.
TEST_PROCESSES ?= 2

PY := .venv/bin/python
# Most modules are never imported. Python compiles the others at their first import and writes their
# bytecode. Without bytecode, an import of TensorFlow takes three times as long.
PIP := --quiet --no-compile
unexport PYTHONDONTWRITEBYTECODE
export TF_CPP_MIN_LOG_LEVEL ?= 3

help:
	@echo "make demo         raw text to a SavedModel that answers, with a table at the end (minutes)"
	@echo "make study-quick  two variants of a pretraining and a verdict on a claim (minutes)"
	@echo "make test         the tests of a few seconds each (minutes)"
	@echo "make test-slow    the others of up to four seconds each, which CI runs too"
	@echo "make test-all     all tests: whole runs, kills, several workers, benchmarks too"
	@echo "make test-2.20    some of the short tests on TensorFlow 2.20 (installs it)"
	@echo "make coverage     the share of lines that the tests of the data side run, with its floor"
	@echo "make lint         ruff, the import rules of pyproject.toml, and types (mypy)"
	@echo "make torture      kills, damages, full disks and hostile input, in a slice (some minutes)"
	@echo "make parity       live comparison with the reference implementations (installs them)"
	@echo "make parity-node  the comparison with transformers.js in Node (installs it, with npm)"
	@echo "make parity-mteb  the comparison with MTEB's runner (installs it, with PyTorch)"
	@echo "make buckets      runs in buckets, with servers of S3 and of Google's (installs them)"
	@echo "make bench        speed, side by side with the references (installs them)"
	@echo "make lock         the lock files of the pinned requirements, with hashes (installs uv)"
	@echo "make docs         the pages of docs/ as a site, in site/ (installs mkdocs-material)"

# The lock file has each package that these requirements lead to, with the hashes of its files.
LOCKED := requirements.txt requirements-dev.txt requirements-beam.txt requirements-ray.txt \
	requirements-buckets.txt

.venv/.ready: requirements-dev.lock
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11, 3.12 or 3.13 with venv and ensurepip" \
	  "found: install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install $(PIP) --require-hashes -r $<
	@# Links to this checkout, so that `import official` works in any folder.
	$(PY) -m pip install $(PIP) --no-deps --no-build-isolation --editable .
	@# Writes the bytecode that commands outside make need, where PYTHONDONTWRITEBYTECODE may be set.
	$(PY) -c "from official.utils import quiet_import as quiet; quiet.install(); import tensorflow_text"
	@touch $@

# Run it when requirements change, and with UPGRADE=--upgrade for newer versions of what they lead to.
# For Python 3.11 to 3.13 on all platforms: a package that one of them needs alone has a marker.
LOCK = .venv-lock/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
  --no-emit-index-url --custom-compile-command "make lock" $(UPGRADE)

lock:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install $(PIP) -r requirements-lock.txt
	$(LOCK) $(LOCKED) --output-file requirements-dev.lock
	$(LOCK) requirements.txt --constraints requirements-dev.lock --output-file requirements.lock
	$(LOCK) requirements-tpu.txt --output-file requirements-tpu.lock

demo: .venv/.ready
	$(PY) -m demo.run

study-quick: .venv/.ready
	rm -rf study_quick
	$(PY) -c "from pathlib import Path; from demo import corpus; corpus.write(Path('study_quick'))"
	$(PY) -m experiments.study --study=configs/studies/quick.yaml --output=study_quick/work \
	  --text=study_quick/text/train.txt --held_out=study_quick/text/heldout.txt --jobs=2

# The tests of a file share its fixtures, and so run in one process. The short ones come last.
PYTEST := $(PY) -m pytest -n $(TEST_PROCESSES) --dist=loadfile --no-loadscope-reorder

test: .venv/.ready
	$(PYTEST) -m "not slow" tests --ignore=tests/parity

test-slow: .venv/.ready
	$(PYTEST) --durations=60 --durations-min=5 -m "slow and not long" tests --ignore=tests/parity

# A process keeps the code of XLA until its end: some gigabytes for the tests that compile much.
test-all: .venv/.ready
	$(PYTEST) -m "not xla" tests --ignore=tests/parity
	$(PYTEST) -m xla tests --ignore=tests/parity

# TensorFlow 2.20 and what it leads to replace 2.21 in an environment of the lock file.
.venv-2.20/.ready: requirements-dev.lock requirements-2.20.txt
	$(PYTHON) -m venv --clear .venv-2.20
	.venv-2.20/bin/python -m pip install $(PIP) --require-hashes -r $<
	.venv-2.20/bin/python -m pip install $(PIP) -r requirements-2.20.txt
	.venv-2.20/bin/python -m pip install $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

test-2.20: .venv-2.20/.ready
	.venv-2.20/bin/python -m pytest -n $(TEST_PROCESSES) --dist=loadfile -m "not slow" \
	  $(addprefix tests/official/,distribution saving tokenizers training)

# Python traces each line, which doubles the time of these tests: they are not part of `.ci/run`.
COVERED := $(addprefix tests/official/,config corruption shards tasks tokenizers utils) \
	tests/tfrecords_tools

coverage: .venv/.ready
	$(PY) -m coverage erase
	$(PY) -m coverage run -m pytest -m "not slow" $(COVERED)
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

lint: .venv/.ready imports types
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

imports: .venv/.ready
	.venv/bin/lint-imports

types: .venv/.ready
	.venv/bin/mypy

torture: .venv/.ready
	$(PY) -m pytest -n 2 -p no:cacheprovider benchmarks/torture

# `.ready` is a copy of the requirements that are installed (an empty one is of an earlier version).
# What a link leads to belongs to another checkout, and is never cleared.
.parity/%/.ready: tests/parity/requirements-%.txt always
	@cmp -s $< $@ || { test ! -s $@ -a $@ -nt $< && cp $< $@; } || \
	  $(MAKE) --no-print-directory install-parity-$*

install-parity-%: tests/parity/requirements-%.txt
	@test -n "$(PARITY_PYTHON)" || { echo "error: the references need Python 3.11: install it, or" \
	  "name it: make $(MAKECMDGOALS) PARITY_PYTHON=/path/to/python3.11" >&2; exit 2; }
	@for path in .parity .parity/$*; do test ! -L $$path || { echo "error: $$path is a link to an" \
	  "environment with other requirements than $<: remove the link" >&2; exit 2; }; done
	$(PARITY_PYTHON) -m venv --clear .parity/$*
	.parity/$*/bin/python -m pip install $(PIP) -r $<
	@cp $< .parity/$*/.ready

always:

# REFERENCES='hf hf5' installs these environments alone, and PARITY='-k test_bert_parity' runs a part,
# as .ci/run does: that of PyLate takes 5.4 GB, and that of MediaPipe 0.7.
REFERENCES ?= hf hf5 tfm tfa model2vec pylate mediapipe encoding

parity-environments: $(REFERENCES:%=.parity/%/.ready)

parity: .venv/.ready parity-environments
	GARDEN_PARITY=required $(PYTEST) $(PARITY) tests/parity

# transformers.js, of 0.5 GB, which Node runs. The script of its packages would fetch CUDA.
.parity/node/node_modules:
	npm install --ignore-scripts --prefix .parity/node @huggingface/transformers@4.3.2

parity-node: .venv/.ready .parity/node/node_modules
	$(PY) -m pytest tests/parity/test_transformers_js_parity.py

parity-mteb: .venv/.ready .parity/mteb/.ready
	$(PY) -m pytest tests/parity/test_mteb_parity.py

# A server of Azure's blobs, of 0.2 GB, which Node runs.
.parity/buckets/node_modules: .parity/buckets/.ready
	npm install --ignore-scripts --prefix .parity/buckets azurite@3.35.0

buckets: .venv/.ready .parity/buckets/.ready .parity/buckets/node_modules
	GARDEN_PARITY=required $(PY) -m pytest tests/end_to_end/test_bucket_runs.py

bench: .venv/.ready .parity/hf/.ready .parity/tfm/.ready .parity/tokenizers/.ready \
  .parity/encoding/.ready .parity/vectors/.ready
	$(PY) -m benchmarks.preprocess
	$(PY) -m benchmarks.train_step
	$(PY) -m benchmarks.masks
	$(PY) -m benchmarks.tokenizers
	$(PY) -m benchmarks.serving
	$(PY) -m benchmarks.encoding --texts 10000
	$(PY) -m benchmarks.vector_search
	$(PY) -m benchmarks.generation
	$(PY) -m benchmarks.lstm

.venv-docs/.ready: requirements-docs.txt
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11, 3.12 or 3.13 with venv and ensurepip" \
	  "found: install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv --clear .venv-docs
	.venv-docs/bin/python -m pip install $(PIP) -r $<
	@touch $@

# With -j2 two of them install at the same time.
environments: .venv/.ready parity-environments .venv-docs/.ready

docs: .venv-docs/.ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

clean:
	rm -rf .venv .venv-docs .venv-lock .parity demo_run study_quick site
