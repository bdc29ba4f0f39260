# Two commands: `make run` and `make test`; and `make docs`. Each makes .venv, installs what it needs once, and does its job.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: run test coverage test-faults soak fuzz bench docs clean

run: $(VENV)/.installed-run
	@$(BIN)/fedcompass compare
	@echo "Next: . $(BIN)/activate && fedcompass advise --paces 0.1,0.2,0.25,0.4,0.9   (your clients' seconds per step)"

test: $(VENV)/.installed-test
	scripts/check

# Which lines of the whole tree the tests run.
coverage: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term

# All faults, one at a time, with real processes, in some tens of minutes; as root also those of links and disks.
test-faults: $(VENV)/.installed-test
	$(BIN)/python -m pytest tests/faults tests/flower/test_stock_flower.py -n 2 -m '' --fault-table docs/faults.md

# A thousand faults and more in one run of a federation, until the time is over.
SOAK_SECONDS ?= 3600
soak: $(VENV)/.installed-test
	$(BIN)/python -m tests.faults.soak --seconds $(SOAK_SECONDS) --page docs/faults.md

# Hostile bytes for everything that reads what comes from a site.
FUZZ_INPUTS ?= 1000000
fuzz: $(VENV)/.installed-test
	$(BIN)/python -m tests.deployment.wire.hostile_bytes --inputs $(FUZZ_INPUTS) --page docs/faults.md

bench: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks

# The docs as a site, to read from disk: site/index.html. A broken link fails.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "open site/index.html"

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-run: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[plot]'
	touch $@

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[docs]'
	touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[dev]'
	scripts/install-system-packages
	touch $@ $(VENV)/.installed-run $(VENV)/.installed-docs

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* scripts/page-checks/node_modules
