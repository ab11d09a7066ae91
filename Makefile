# The project's commands. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
WHEELS := target/wheels
TESTED := target/wheels-tested
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Runs plans and stages of tests/stages/plan.py, where their commands stand, and ends with a table of what each took.
STAGES := $(PYTHON) -m tests.stages
.PHONY: help demo demo-cluster demo-protocols demo-selftest test quick check fuzz test-rust test-python test-spark test-wheel test-lifecycle test-long test-spark-old bench bench-cluster bench-python bench-spark docs fmt venv wheel sdist dist test-dist test-container install install-tested publish clean

help: ## List the commands.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

$(VENV)/.installed: tests/requirements.txt
	@echo "== Python environment"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(UV) || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	@$(UV) pip install --quiet --python $(BIN)/python -r tests/requirements.txt
	@touch $@

venv: $(VENV)/.installed ## Create .venv with the pinned requirements.

# Builds the wheel with profile $(1) into folder $(2), with what else maturin is told in $(3).
define build
	@echo "== wheel, profile $(1)"
	@cargo xtask licenses
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin build --profile $(1) --locked --quiet --out $(2) $(3)
endef

# Installs the newest wheel of folder $(1) if its bytes are not those that are installed.
define install
	@wheel=$$(ls -t $(1)/sbp_native-*.whl | head -n 1); \
	digest=$$(sha256sum "$$wheel" | cut -d ' ' -f 1); \
	if [ "$$digest" != "$$(cat $(VENV)/.wheel 2>/dev/null || true)" ]; then \
		$(UV) pip install --quiet --python $(BIN)/python --no-deps --force-reinstall "$$wheel"; \
		echo "$$digest" > $(VENV)/.wheel; \
	fi; \
	echo "installed $$wheel"
endef

wheel: venv ## Build the release wheel into target/wheels.
	$(call build,release,$(WHEELS))

DISTRIBUTIONS := target/dist
ZIG := ziglang==0.17.1
UNWINDER = $(CURDIR)/target/unwinder/$(1)/libgcc_s.so.1
# With the name of a system that Zig knows, the module takes the unwinder of that system's C library.
define build_for
	@echo "== wheel for $(1), $(2)"
	$(if $(3),@mkdir -p $(dir $(UNWINDER)) && $(BIN)/python -m ziglang cc -target $(3) -shared -nostdlib -Xlinker -soname -Xlinker libgcc_s.so.1 \
		-o $(UNWINDER) crates/sbp-python/unwinder/libgcc_s.c)
	@$(if $(3),SBP_UNWINDER=$(UNWINDER)) PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin build --profile $(PROFILE) --locked --quiet --zig --target $(1) --compatibility $(2) --out $(DISTRIBUTIONS)
endef

PROFILE ?= release
sdist: venv ## Build the source distribution into target/dist.
	@cargo xtask licenses
	@$(BIN)/maturin sdist --out $(DISTRIBUTIONS)

dist: sdist ## Build what is published, into target/dist: wheels for x86_64 and aarch64 (glibc 2.28), x86_64 (musl 1.2), and the source.
	@rustup --quiet target add aarch64-unknown-linux-gnu x86_64-unknown-linux-gnu x86_64-unknown-linux-musl
	@$(UV) pip install --quiet --python $(BIN)/python $(ZIG)
	$(call build_for,x86_64-unknown-linux-gnu,manylinux_2_28,x86_64-linux-gnu.2.28)
	$(call build_for,aarch64-unknown-linux-gnu,manylinux_2_28,aarch64-linux-gnu.2.28)
	$(call build_for,x86_64-unknown-linux-musl,musllinux_1_2)

test-dist: ## Run the x86_64 wheel of target/dist, and the aarch64 one on an emulated machine (Debian's qemu-user and arm64 packages).
	@$(PYTHON) tests/wheel/distributions.py $(DISTRIBUTIONS)

WHEELS_OF_IMAGE ?= $(WHEELS)
test-container: ## Build docs/operate/Containerfile with podman and run it: TLS, a token, SIGTERM, a volume, no root. BASE=debian makes the base image from Debian's packages.
	@$(PYTHON) tests/wheel/container.py --wheels $(WHEELS_OF_IMAGE) $(if $(filter debian,$(BASE)),--debian)

INDEX ?=
DIST ?=
publish: $(if $(DIST),venv,wheel) ## Build the release wheel, check it and upload it: make publish INDEX=URL, with TWINE_USERNAME and TWINE_PASSWORD; DIST=target/dist uploads what `make dist` made.
	@test -n "$(INDEX)" || { echo "say where to: make publish INDEX=https://packages.example/" >&2; exit 2; }
	@$(BIN)/twine check --strict $(or $(DIST),$(WHEELS))/sbp_native-*
	@$(BIN)/twine upload --non-interactive --disable-progress-bar --repository-url "$(INDEX)" $(or $(DIST),$(WHEELS))/sbp_native-*

install: wheel ## Install the release wheel into .venv.
	$(call install,$(WHEELS))

install-tested: venv ## Build and install the wheel that is tested, with the profile of the Rust tests: no optimisation, all assertions.
	$(call build,dev,$(TESTED),--features as-tested)
	$(call install,$(TESTED))

demo: install-tested ## Run the pipeline on a year of flights, check every figure, draw the chart.
	@$(BIN)/python -m tests.demo

demo-cluster: install-tested ## The same on three servers and an etcd, two of which are lost while it runs. MONTHS=2 is shorter.
	@.ci/need etcd=etcd-server
	@$(BIN)/python -m tests.demo --cluster --months $(or $(MONTHS),12)

demo-protocols: install-tested ## Flights in through clients of TANK, Pravega (its Python package) and Seastar RPC, one query of Spark behind them. MONTHS=2 is shorter.
	@$(BIN)/python -m tests.demo --protocols --months $(or $(MONTHS),12)

demo-selftest: install-tested ## Show that the demo's check fails when an event is dropped, duplicated or swapped.
	@$(BIN)/python -m tests.demo --selftest

test: ## Everything CI runs, the demo's check included. Ends with a table of stages and times.
	@$(STAGES) test

quick: venv ## Before each commit: formatting, layers, sizes, ruff, and the Rust tests of crates changed since main.
	@$(STAGES) quick

check: ## Formatting, lints, types, stubs, layers, sizes, generated code, vectors, documentation.
	@$(STAGES) check

test-rust: ## Rust tests, the fuzz targets over their seeds among them.
	@$(STAGES) "Rust tests"

fuzz: ## Run each fuzz target for ten seconds; `cargo xtask fuzz --seconds 600` for longer.
	@cargo xtask fuzz --seconds 10

test-python: ## Python tests, through the installed wheel.
	@$(STAGES) "tested wheel" "Python tests"

test-spark: ## Spark tests: a real session, a real server.
	@$(STAGES) "tested wheel" "Spark tests"

test-wheel: ## Install the wheel from a local index into a clean environment and read a row back.
	@$(STAGES) "tested wheel" "wheel in a clean environment"

test-lifecycle: install-tested ## Each process-level cell of docs/lifecycle.md 200 times.
	@$(BIN)/python -m tests.lifecycle --runs 200

SHARE ?= 1
test-long: ## Hours: kills, soaks, floods, the fuzzer, Spark's long tests. Goes on behind a failure, ends with a table; SHARE=0.01 is shorter.
	@$(STAGES) --go-on --share $(SHARE) long

OLD_SPARK := 4.2.1
OLD := target/pyspark-$(OLD_SPARK)

$(OLD)/.installed: tests/spark/requirements-old.txt | venv
	@echo "== PySpark $(OLD_SPARK) into an environment of its own"
	@test -x $(OLD)/bin/python || $(UV) venv --quiet --python $(BIN)/python $(OLD)
	@$(UV) pip install --quiet --python $(OLD)/bin/python -r tests/spark/requirements-old.txt
	@touch $@

test-spark-old: wheel $(OLD)/.installed ## One Spark job on the oldest supported PySpark, in an environment of its own.
	@echo "== Spark job, PySpark $(OLD_SPARK)"
	@$(UV) pip install --quiet --python $(OLD)/bin/python --no-deps --force-reinstall "$$(ls -t $(WHEELS)/sbp_native-*.whl | head -n 1)"
	@SBP_TEST_PYSPARK=$(OLD_SPARK) $(OLD)/bin/python -m pytest -q tests/spark_long/test_versions.py

docs: venv ## Build the documentation site into target/site, with warnings as errors.
	@mkdir -p target
	@PATH="$(CURDIR)/$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2> target/site.log || { cat target/site.log; exit 1; }

bench: install ## Benchmarks: criterion, then the command line's against an embedded server.
	@cargo bench --workspace --locked
	@$(BIN)/python -m tests.bench

bench-python: install ## The Python client beside floors, beside the usual bridge, and beside Kafka's clients and a real broker.
	@$(UV) pip install --quiet --python $(BIN)/python -r tests/bench_python/requirements.txt
	@$(BIN)/python -m tests.bench_python

bench-cluster: install ## Three servers: what three copies cost, how long appends stand still; and both beside Kafka with three brokers.
	@.ci/need etcd=etcd-server mvn=maven
	@$(UV) pip install --quiet --python $(BIN)/python -r tests/bench_python/requirements.txt
	@$(BIN)/python -m tests.bench_cluster

bench-spark: install ## Spark's source and sink beside ones that cost nothing, and beside Kafka's with a real broker.
	@$(BIN)/python -m tests.bench_spark

fmt: venv ## Format Rust and Python.
	@cargo fmt --all
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

clean: ## Remove build output and the environment.
	@rm -rf target $(VENV)
