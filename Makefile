# Two commands do everything on a machine that has only Python 3.11+ and make:
#   make demo   sets up .venv and runs the whole job on the bundled real model
#   make test   sets up .venv with all frameworks, lints, type-checks and runs the whole suite
# Besides: make browser installs Chromium (Debian, Ubuntu), so that the tests of HTML pages run and are not skipped;
# make corpus judges all cases of tests/corpus, of which make test takes a part (about half an hour);
# make web-runtime brings onnxruntime-web (npm), so that `package --for web` is tested in it.
# make packages starts each kind of package in an environment of its own.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
WORKERS ?= auto

.PHONY: demo test corpus announce browser web-runtime packages lint types unit coverage wheel man format clean

demo: $(VENV)/.demo
	$(BIN)/onnxtool quickstart demo

test: announce lint types unit

corpus: $(VENV)/.test
	$(BIN)/python -m tests.corpus.run pairs
	$(BIN)/python -m tests.corpus.run pairs --swapped
	$(BIN)/python -m tests.corpus.run sources

announce:
	@echo "make test: installs all frameworks into $(VENV) if they are not there (about 3 GB), then ruff, mypy, and about"
	@echo "9,500 tests; on 2 cores 2 minutes to install and 13 to 40 to test. Pages are shown to Chromium where it is found."
	@command -v chromium chromium-browser google-chrome > /dev/null || \
		echo "Chromium is not here: its tests will be counted as skipped. To have them: make browser"

browser:
	apt-get update && apt-get install -y chromium

web-runtime:
	npm install --no-audit --no-fund --prefix .web onnxruntime-web@1.30.0

# Each kind of package from the bundled model, started and compared with it; servers in an environment of their own, which
# pip fills. With ONNXRUNTIME_WEB=.web/node_modules the pages run in Chromium, too.
KINDS := fastapi kserve azureml mlflow triton ort cpp
packages: $(VENV)/.test
	for kind in $(KINDS); do \
	  $(BIN)/onnxtool package fixtures/digits_cnn.onnx --for $$kind --fresh-venv -o build/packages/$$kind || exit 1; \
	done
	$(BIN)/python -m pytest -n 0 -q tests/packaging/kinds/test_web.py

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

# Each worker takes one thread of numpy's OpenBLAS, and one of torch's, scikit-learn's and the boosters' OpenMP: threads
# beyond the processors wait for each other busily. What is compiled is kept, also where the environment says not to (as
# images for containers do): hundreds of children import it.
unit: export PYTHONDONTWRITEBYTECODE :=
unit: $(VENV)/.test
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 ONNXRUNTIME_WEB="$${ONNXRUNTIME_WEB:-$(wildcard .web/node_modules)}" $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

# Tracing every line nearly doubles the time, so it is not part of `make test`.
coverage: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --cov --cov-report=term:skip-covered

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "onnxtool needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Each stamp is newer than pyproject.toml and constraints.txt once its extras are installed.
$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e ".[pytorch]"
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e ".[all,dev]"
	@touch $(VENV)/.demo $@

# The wheel, and the base install of it in a fresh environment: it must start, check and optimize the bundled model.
wheel: | $(VENV)/bin/python
	rm -rf dist build/wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd build && wheel/bin/onnxtool quickstart wheel-demo --quiet
	@echo "dist: $$(ls dist)"

# Manual pages: man -l build/man/onnxtool-optimize.1
man: $(VENV)/.demo
	$(BIN)/python -m onnxtool.cli.man_pages build/man

clean:
	rm -rf $(VENV) demo build dist .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis
