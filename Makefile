# Everything a machine with python3 (3.11 or newer) and make needs: `make demo`, `make test`.
# Each sets up its own .venv the first time (a few minutes, mostly PyTorch) and starts in seconds after that.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-cache-dir -c constraints.txt
CORE := $(VENV)/.installed-core
FULL := $(VENV)/.installed-full
WORKERS ?= 2

.PHONY: demo test check bench figures clean

demo: $(CORE)
	mkdir -p out
	$(BIN)/xpusim run llama-8b --chip h200 --phase decode --context 2048 \
	    --html out/llama-8b-decode.html --timeline out/llama-8b-decode.json
	@echo
	@echo "page:     out/llama-8b-decode.html   (open it in a browser)"
	@echo "timeline: out/llama-8b-decode.json   (open it at ui.perfetto.dev)"
	@echo "next:     . $(BIN)/activate && xpusim --help"

test: $(FULL) check
	$(BIN)/python -m pytest -n $(WORKERS) -q
	$(BIN)/xpusim validate h200
	$(BIN)/xpusim validate a100

check: $(FULL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(FULL)
	$(BIN)/xpusim bench

figures: $(FULL)
	$(BIN)/python docs/figures.py

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "xpusim needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Set PYTHON=python3.12, say."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' || { echo "$(PYTHON) has no venv module: apt-get install python3-venv"; exit 1; }
	@echo "== creating $(VENV)"
	$(PYTHON) -m venv $(VENV)

# torch first: every other package then fits the version that the tests were run with.
$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	@echo "== installing PyTorch and the core packages into $(VENV) (once, a few minutes)"
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) -e .
	@touch $@

$(FULL): $(CORE) Makefile
	@echo "== installing what the tests need: dev, hf, rtl, labs and triton extras, an HDL simulator"
	$(PIP) -e '.[dev,hf,rtl,labs,triton]'
	sh rtl/install-tools.sh
	@touch $@

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .hypothesis
