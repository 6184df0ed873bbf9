# make demo     the demonstration: one program, run with NumPy and with blockarray
# make test     the tests                     (make test ARGS="-k softmax -x" passes ARGS to pytest)
# make test-gpu the tests with all arrays on this machine's GPU (as `python3 -m pytest tests --device cuda`)
# make sanitize the kernels, on this machine's GPU, under compute-sanitizer (of the CUDA toolkit)
# make lint     ruff and pyright
# make docs     the tutorials of docs/language with their plots, on this machine's device
# make bench    the benchmarks, against NumPy and whichever peers are installed
#
# Each creates .venv and installs what it needs on the first call.  PYTHON chooses the interpreter (3.11 or newer).

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.PHONY: demo test test-gpu sanitize lint docs bench clean

demo: .venv/.demo
	$(BIN)/python examples/digits.py $(ARGS)

# Tests start many interpreters, which need not compile the same modules again.
test: export PYTHONDONTWRITEBYTECODE =
test: .venv/.test
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal $(ARGS)

test-gpu: .venv/.test .venv/.cuda
	$(BIN)/python -m pytest tests --device cuda $(ARGS)

sanitize: .venv/.test .venv/.cuda
	$(BIN)/python tests/sanitize.py $(ARGS)

lint: .venv/.lint .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --threads 2

docs: .venv/.docs $(if $(wildcard /dev/nvidia0),.venv/.cuda)
	$(BIN)/python docs/language/make.py $(ARGS)

bench: .venv/.test
	$(BIN)/python benchmarks/run.py $(ARGS)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "blockarray needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv .venv

# One stamp for each extra of pyproject.toml.
.venv/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

clean:
	rm -rf .venv demo_output dist build .pytest_cache .ruff_cache
