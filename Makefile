# `make help` lists the targets. Each one first has tools/deps install the missing packages that it
# needs. Meson builds; `meson setup build && ninja -C build` works without this file.

BUILD ?= build
# Where `make install` installs.
PREFIX ?= /usr/local
DESTDIR ?=
# More options for `meson setup`, for example MESON_FLAGS=-Ddefault_library=static.
MESON_FLAGS ?=
# How many compilers, linters or fuzzers run at once.
JOBS ?= $(shell nproc)
# How long `make fuzz` runs each target.
FUZZ_SECONDS ?= 60
# More options for muster-sim, for example SIM_FLAGS='--seconds 300'.
SIM_FLAGS ?=
# How long `make chaos` kills nodes, with each backend, and more options for tests/chaos/chaos.py.
CHAOS_SECONDS ?= 90
CHAOS_FLAGS ?=
# The rooms whose mutants `make mutants` runs; empty: all.
ROOMS ?=
# More options for bench/run, for example BENCH_FLAGS=--quick.
BENCH_FLAGS ?=
# How many tests run at once; they mostly wait.
TEST_JOBS ?= 14
# The same with sanitizers, which compute more.
SANITIZE_JOBS ?= 10
# The same with PyTorch, whose import computes for seconds.
PEER_JOBS ?= 6
# The suites of `make test-peers`: peers alone, peers in one job with ours, our Python package.
PEER_SUITES ?= peers mixed package
# The suites of `make test` and the sanitizer builds.
SUITES ?= unit golden sim integration etcd faults

# Relative to this directory. Meson would take it as relative to the build's.
override DESTDIR := $(if $(filter-out /%,$(firstword $(DESTDIR))),$(CURDIR)/)$(DESTDIR)
export DESTDIR

# $(call setup,DIRECTORY,OPTIONS): configure once. Without make, warnings are no errors.
setup = test -f $(1)/build.ninja || \
	meson setup $(1) -Dwerror=true $(2) $(MESON_FLAGS)
suites = $(foreach suite,$(1),--suite $(suite))
# In CI, a failed test runs once more, alone.
testrun = tools/testrun $(if $(filter true,$(CI)),--retry) --since $(STARTED_S) --jobs $(TEST_JOBS)
STARTED_S := $(shell date +%s)

.DEFAULT_GOAL := all
.PHONY: all help demo test test-peers test-builds test-cluster sim chaos bench bench-gate lint \
	format tidy fuzz mutants sanitize sanitize-peers sanitize-thread wheel with-tests install clean \
	distclean

all: ## Use: build the library and build/muster
	@tools/deps build
	@$(call setup,$(BUILD),-Dtests=false)
	@ninja -C $(BUILD)

help: ## Use: list the targets
	@for group in Use Test Check Measure; do echo "$$group"; \
		sed -n "s/^\([a-z-]*\):.*## $$group: /  \1\t/p" $(MAKEFILE_LIST) | expand -t 20; done

demo: all ## Use: show a rendezvous on this machine
	@$(BUILD)/muster demo

test: with-tests ## Test: run the tests that need no PyTorch
	@$(testrun) $(BUILD) $(call suites,$(SUITES))

test-peers: ## Test: install PyTorch and Redis, and run the tests with them
	@tools/deps peers
	@$(MAKE) --no-print-directory with-tests
	@$(testrun) $(BUILD) --jobs $(PEER_JOBS) $(call suites,$(PEER_SUITES))

test-builds: ## Test: build as packagers do: other options, without libraries, musl; install
	@tools/deps builds
	@tools/builds --jobs $(JOBS)

test-cluster: ## Test: run jobs under a real Slurm, mpirun and sshd, and with cut networks
	@tools/deps cluster
	@$(MAKE) --no-print-directory with-tests
	@$(testrun) $(BUILD) --suite cluster

sim: all ## Test: run the simulator with new seeds until stopped
	@$(BUILD)/muster-sim $(SIM_FLAGS)

chaos: all ## Test: kill and stop hundreds of real nodes and servers at random
	@tools/deps test
	@MUSTER=$(BUILD)/muster tests/chaos/chaos.py --seconds $(CHAOS_SECONDS) $(CHAOS_FLAGS)
	@MUSTER=$(BUILD)/muster tests/chaos/chaos.py --backend etcd-v3 --seconds $(CHAOS_SECONDS) \
		$(CHAOS_FLAGS)
	@MUSTER=$(BUILD)/muster tests/chaos/launchers.py --seconds $(CHAOS_SECONDS)

# With the tests, for the Python package that torchrun loads.
bench: ## Measure: compare with PyTorch and etcd: a table and JSON files
	@tools/deps bench
	@$(MAKE) --no-print-directory with-tests
	@bench/run --build $(BUILD) --out $(BUILD)/bench.json $(BENCH_FLAGS)
	@bench/rendezvous --build $(BUILD) --out $(BUILD)/bench-rendezvous.json \
		$(filter-out --realtime,$(BENCH_FLAGS))
	@bench/etcd --build $(BUILD) --out $(BUILD)/bench-etcd.json \
		$(filter-out --realtime,$(BENCH_FLAGS))
	@bench/authority --build $(BUILD) --out $(BUILD)/bench-authority.json \
		$(filter-out --realtime,$(BENCH_FLAGS))
	@bench/torchrun --build $(BUILD) --out $(BUILD)/bench-torchrun.json \
		$(filter-out --realtime,$(BENCH_FLAGS))
	@bench/launcher --build $(BUILD) --out $(BUILD)/bench-launcher.json \
		$(filter-out --realtime,$(BENCH_FLAGS))
	@echo "every result as JSON, one per line: $(BUILD)/bench*.json"

bench-gate: all ## Measure: compare instruction counts with those in the tree
	@tools/deps gate
	@bench/gate --build $(BUILD)

lint: ## Check: run all static checks; every finding is an error
	@tools/deps lint
	@tools/lint --jobs $(JOBS)

format: ## Check: format the sources with clang-format
	@tools/deps lint
	@tools/lint --format

tidy: ## Check: check the rules about includes, purity and form
	@tools/deps test
	@tools/tidy

fuzz: ## Test: run each fuzz target for FUZZ_SECONDS (60)
	@tools/deps fuzz
	@export CC=clang; $(call setup,build-fuzz,-Dfuzz=true -Dtests=true -Ddocs=disabled \
		-Dpython=disabled -Doptimization=1 -Ddebug=false -Dc_args=-gline-tables-only \
		-Db_sanitize=address$(comma)undefined -Db_lundef=false)
	@ninja -C build-fuzz --quiet fuzz
	@tools/fuzz build-fuzz --seconds $(FUZZ_SECONDS) --jobs $(JOBS)

mutants: ## Test: break the product on purpose; a test must notice
	@tools/deps test
	@tools/mutants --jobs $(JOBS) $(foreach room,$(ROOMS),--room $(room))

# -O1 and -g1 halve the compilation. Some warnings are false at -O1; the other builds have -Werror.
sanitized = -Dtests=true -Ddocs=disabled -Dmutants=false -Dwerror=false -Db_lundef=false \
	-Doptimization=1 -Dc_args=-g1

sanitize: ## Test: run the tests with the address and undefined sanitizers
	@tools/deps test
	@$(call setup,build-asan,$(sanitized) -Db_sanitize=address$(comma)undefined)
	@$(testrun) build-asan --jobs $(SANITIZE_JOBS) --build --timeout-scale 4 $(call suites,$(SUITES))

sanitize-peers: ## Test: run the tests with PyTorch with the same sanitizers
	@tools/deps peers
	@$(MAKE) --no-print-directory sanitize SUITES=peers SANITIZE_JOBS=$(PEER_JOBS)

sanitize-thread: ## Test: run the tests of threads with the thread sanitizer
	@tools/deps test
	@$(call setup,build-tsan,$(sanitized) -Db_sanitize=thread)
	@$(testrun) build-tsan --jobs $(SANITIZE_JOBS) --build --timeout-scale 6 --suite threads

wheel: ## Use: build the Python wheel and sdist into dist/
	@tools/deps build
	@python3 -m venv build-wheel
	@build-wheel/bin/pip install --quiet --disable-pip-version-check build
	@build-wheel/bin/python -m build --outdir dist .

install: all ## Use: install into PREFIX (/usr/local), below DESTDIR if set
	@meson configure $(BUILD) --prefix "$(PREFIX)"
	@meson install -C $(BUILD)
	@test -n "$(DESTDIR)" || test "$$(id -u)" -ne 0 || ldconfig

clean: ## Use: remove the build directories
	rm -rf build build-* dist

distclean: clean ## Use: remove the virtual environments as well
	rm -rf .venv-torch .venv-lint

# A plain build needs no cmocka; the tests are switched on when they are first asked for.
with-tests:
	@tools/deps test
	@$(call setup,$(BUILD),-Dtests=true)
	@grep -q '"name": "tests", "value": true' $(BUILD)/meson-info/intro-buildoptions.json || \
		meson configure $(BUILD) -Dtests=true
	@ninja -C $(BUILD) --quiet

# For a comma inside the arguments of a call.
comma := ,
