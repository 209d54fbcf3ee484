# Everything a newcomer needs: `make demo` and `make test` do all the set-up themselves.
# All they need is Python 3.11, 3.12 or 3.13 with its venv module. What they install goes into .venv, nowhere else.

SHELL := /bin/bash
.SHELLFLAGS := -e -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
CUDA_STAMP := $(VENV)/.installed-cuda
DOCS_STAMP := $(VENV)/.installed-docs
# nproc counts OMP_NUM_THREADS, if that is set, instead of processors.
JOBS ?= $(shell env -u OMP_NUM_THREADS nproc 2>/dev/null || echo 2)
ARGS ?=

# The first of these that runs, is new enough and can make virtual environments. `make test PYTHON=...` overrides it.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13; do \
	$$p -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)

# $(call install,DIRECTORY,PYTHON): a virtual environment with the locked packages and miniml itself, editable.
define install
	if [ -z "$(2)" ]; then \
		echo "No usable Python found. miniml needs Python 3.11 or newer with its venv module"; \
		echo "(on Debian and Ubuntu: apt install python3 python3-venv), or say which: make PYTHON=/path/to/python"; \
		exit 1; \
	fi; \
	if ! $(1)/bin/python -m pip --version >/dev/null 2>&1; then \
		echo "==> Creating $(1) with $$($(2) --version)"; \
		$(2) -m venv --clear $(1); \
	fi; \
	echo "==> Installing $$(grep -c '^[a-z].*==' requirements-lock.txt) locked packages into $(1) (a minute the first time)"; \
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
		--require-hashes --only-binary :all: -r requirements-lock.txt; \
	echo "==> Installing miniml itself, so that edits here take effect at once"; \
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
		--no-deps --no-build-isolation --editable .; \
	touch $(1)/.installed
endef

# $(call install_cuda,DIRECTORY): what the tests of CUDA sources need besides: NVIDIA's compiler and cupy. They are
# wheels for Linux; elsewhere those tests are skipped.
define install_cuda
	if $(1)/bin/python -c 'import platform as p, sys; \
			sys.exit(p.machine() not in ("x86_64", "aarch64") or p.libc_ver()[0] != "glibc")'; then \
		echo "==> Installing NVIDIA's compiler and cupy into $(1), for the tests of CUDA sources (once, 130 MB)"; \
		$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
			--require-hashes --only-binary :all: -r requirements-cuda-lock.txt; \
	else \
		echo "==> NVIDIA's compiler does not run on this machine: the tests of CUDA sources with it are left out"; \
	fi; \
	touch $(1)/.installed-cuda
endef

# One BLAS thread per test process: the processes are the parallelism.
TEST_ENV := env -u OMP_NUM_THREADS OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := -m pytest --quiet --numprocesses $(JOBS) --dist worksteal

.PHONY: help setup demo demo-2 test test-deep rates lint unit bench gpu notebooks nvrtc docs gallery format lock clean

help: ## Show this list
	@echo "miniml: make TARGET"
	@grep -E '^[a-z0-9-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  \1\t\2/' | expand -t 14

setup: $(STAMP) ## Create .venv and install what is locked (the other targets do it themselves)

$(STAMP): pyproject.toml requirements-lock.txt
	@$(call install,$(VENV),$(PYTHON))

$(CUDA_STAMP): $(STAMP) requirements-cuda-lock.txt
	@$(call install_cuda,$(VENV))

$(DOCS_STAMP): $(STAMP) requirements-docs-lock.txt
	@echo "==> Installing what the site is built with into $(VENV)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
		--require-hashes --only-binary :all: -r requirements-docs-lock.txt
	@touch $(DOCS_STAMP)

demo: $(STAMP) ## Train a small network on handwritten digits (options: make demo ARGS="--epochs 5 --seed 1")
	@echo "==> Running the demo: python -m miniml demo $(ARGS)"
	@$(PY) -m miniml demo $(ARGS)

demo-2: $(STAMP) ## The same on two processes, by MPI
	@echo "==> Running the demo on two ranks: mpiexec -n 2 python -m mpi4py -m miniml demo $(ARGS)"
	@$(VENV)/bin/mpiexec -n 2 $(PY) -m mpi4py -m miniml demo $(ARGS)

test: lint unit ## Lint, types, import floors, doctests, README code and tests
	@echo "==> All of make test passed"

lint: $(STAMP) ## Style, types and import floors
	@echo "==> Style: ruff check"
	@$(PY) -m ruff check --quiet .
	@echo "==> Format: ruff format (make format repairs what it reports)"
	@$(PY) -m ruff format --quiet --check . || { $(PY) -m ruff format --check . | grep -v already; exit 1; }
	@echo "==> Types: mypy, strict, on miniml/"
	@echo "==> Import floors: the contracts under [tool.importlinter] in pyproject.toml"
	@echo "==> What tests import: tools/public_names.py; docstrings of public names: tools/docstrings.py"
	@$(PY) -m mypy --no-error-summary & types=$$!; \
		{ $(VENV)/bin/lint-imports --no-logo --cache-dir .cache/import-linter > $(VENV)/.floors.txt 2>&1 \
			|| { cat $(VENV)/.floors.txt; false; }; } && $(PY) -m tools.public_names && $(PY) -m tools.docstrings || failed=1; \
		wait $$types && [ -z "$$failed" ]

unit: $(CUDA_STAMP) ## Doctests, README code and tests, with small budgets (ARGS go to pytest)
	@echo "==> Tests, doctests and README code in $(JOBS) processes"
	@$(TEST_ENV) $(PY) $(PYTEST) --doctest-modules miniml tests $(ARGS)

# Minutes after which a stage of test-deep begins no further test, as in MINUTES_deep=30; without, all are run.
within = MINIML_MINUTES=$(MINUTES_$(1))
test-deep: $(CUDA_STAMP) ## What make test leaves out: slow tests, larger budgets, other processors, Python 3.12 and 3.13 where present
	@echo "==> Deep tests: slow ones, and larger budgets, in $(JOBS) processes"
	@$(TEST_ENV) $(call within,deep) MINIML_DEEP=1 $(PY) $(PYTEST) -m "deep or larger" --timeout 1000 tests $(ARGS)
	@echo "==> Tests of numbers as other processors compute them, in $(JOBS) processes"
	@$(TEST_ENV) $(call within,cpus) $(PY) -m tools.other_cpus $(PYTEST) $(ARGS)
	@$(MAKE) docs
	@for version in 3.12 3.13; do $(MAKE) test-on-$$version; done
	@echo "==> All of make test-deep passed"

rates: $(STAMP) ## How often the checkers are right, over fresh seeds (up to an hour)
	@echo "==> Rates of detection and of false alarms"
	@$(TEST_ENV) MINIML_RATES=1 $(PY) $(PYTEST) -m rates --timeout 3600 -o faulthandler_timeout=7200 tests $(ARGS)

# What compilers and NumPy judge alone, and what reads the project's own files: the same under every Python.
SAME_EVERYWHERE := $(addprefix --ignore tests/, $(addprefix device/test_, nvrtc.py kernels.py schedules.py elementwise.py \
	norms.py convolution.py reductions.py scans.py sorting.py matmul.py as_gpu.py fused.py attention.py decomposition.py \
	losses.py random.py sampling.py) $(addprefix device/sim/test_, corpus.py kernels.py idioms.py users.py) \
	unit/ops/test_gradient_ranges.py unit/ops/test_tails.py kinds/test_kinds.py \
	$(addprefix faults/test_, corpus.py natural.py rights_opcheck.py) \
	$(addprefix unit/backends/test_, cpu_pool.py cpu_window.py cpu_products.py cc_elementary.py cc_scalars.py) \
	$(addprefix unit/cc/test_, attention.py compositions.py convolve.py decomposition.py einsum.py fuzz.py halves.py \
	masked.py moves.py narrow.py neighbours.py opcheck.py order.py pool.py product.py reductions.py scan_checks.py \
	selections.py sizes.py straight.py) $(addprefix unit/export/test_, families.py loops.py quantize.py stack.py web.py) \
	$(addprefix unit/test_, sizes.py import_rings.py public_names.py habits.py operations_page.py settings_page.py))

# Python 3.12 gets the packages of 3.13 (a test says so), where NumPy's numbers are judged, and lies between two versions
# on which all else runs. So it runs what the interpreter itself may change: tracing, operators, pickling, scopes, files,
# threads, signals, processes, C that calls Python, and what documents show.
TESTS_ON_3.13 := tests $(SAME_EVERYWHERE)
TESTS_ON_3.12 := $(addprefix tests/unit/, core data distributed grad graph interop nn optim runtime train \
	$(addprefix backends/test_, cache.py toolchain.py) export/test_export_c.py \
	$(addprefix cc/test_, failures.py first_call.py native.py native_control.py native_loops.py services.py units.py) \
	$(addprefix testing/test_, clock.py opcheck_budget.py opcheck_report.py plugin.py) \
	$(addprefix test_, checkpoint.py classic_programs.py cli.py hints.py kernel_system.py mistakes.py notebooks.py \
	public.py readme.py run.py show.py training_guide.py viz.py walks.py)) \
	$(addprefix tests/device/, test_interrupts.py test_watchers.py sim/test_driver.py sim/test_forks.py sim/test_launch.py)

# An interpreter counts as present if it runs; pyenv's are found too when they are not the selected ones.
.PHONY: test-on-3.12 test-on-3.13
test-on-3.12 test-on-3.13: test-on-%:
	@found=; \
	for p in python$* "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$*.*/bin/python$*; do \
		if $$p -c 'import ensurepip, venv' 2>/dev/null; then found=$$p; break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "==> Python $* is not on this machine: its tests are left out"; exit 0; fi; \
	if [ ! -e .venv-$*/.installed-cuda ] || \
		[ -n "$$(find pyproject.toml requirements-lock.txt requirements-cuda-lock.txt -newer .venv-$*/.installed-cuda)" ]; then \
		$(MAKE) .install-on-$* FOUND=$$found; \
	fi; \
	echo "==> Tests, doctests and README code on $$($$found --version)"; \
	$(TEST_ENV) $(call within,$*) .venv-$*/bin/python $(PYTEST) --doctest-modules miniml $(TESTS_ON_$*) $(ARGS)

.PHONY: .install-on-3.12 .install-on-3.13
.install-on-3.12 .install-on-3.13: .install-on-%:
	@$(call install,.venv-$*,$(FOUND))
	@$(call install_cuda,.venv-$*)

bench: $(STAMP) ## Speed and memory, against hand-written NumPy (ARGS go to the benchmarks)
	@echo "==> Benchmarks (best on an idle machine): python -m benchmarks $(ARGS)"
	@$(PY) -m benchmarks $(ARGS)

gpu: $(STAMP) ## Everything that needs a GPU, in ten minutes (--device cuda-sim in ARGS tries it without)
	@$(PY) tools/gpu_check.py $(ARGS)

notebooks: $(STAMP) ## Run the notebooks and store their outputs
	@$(PY) notebooks/execute.py

gallery: $(STAMP) ## Run the programs in examples/ and store their pictures in docs/gallery (a minute or two)
	@$(PY) -m examples $(ARGS)

nvrtc: $(CUDA_STAMP) ## Compile every CUDA kernel for every architecture; write what they take into docs/cuda.md
	@JOBS=$(JOBS) $(PY) -m tools.registers

docs: $(DOCS_STAMP) ## Build the site into build/site (offline; a warning is an error)
	@echo "==> The site: build/site/index.html"
	@$(TEST_ENV) $(PY) -m docs.reference
	@$(TEST_ENV) $(PY) -m docs.live
	@$(TEST_ENV) $(PY) -m sphinx --builder html --nitpicky --fail-on-warning --keep-going --quiet --jobs $(JOBS) \
		--conf-dir docs --doctree-dir .cache/doctrees . build/site $(ARGS)
	@$(PY) -m docs.questions

format: $(STAMP) ## Rewrite the code in the project's format
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

# UPGRADE=--upgrade moves to the newest versions; without it only what pyproject.toml forces changes.
UPGRADE ?=
COMPILE := UV_PYTHON_DOWNLOADS=never .cache/lock/bin/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.11 \
	--generate-hashes --no-build --no-header --no-annotate --no-emit-index-url --no-emit-find-links
lock: ## Write requirements-lock.txt and those of CUDA and the site anew from pyproject.toml (needs the network)
	@$(PYTHON) -m venv .cache/lock
	@.cache/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	@$(COMPILE) pyproject.toml --extra test --output-file requirements-lock.txt
	@sed -i '1i # What the tests, the demo and the notebooks use, for Python 3.11 and newer. Written by: make lock' requirements-lock.txt
	@$(PYTHON) -c 'import tomllib; e = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
		print(*e["sim"], *(r for r in e["cuda13"] if "cublas" not in r), sep="\n")' > .cache/lock/cuda.in
	@$(COMPILE) .cache/lock/cuda.in --constraint requirements-lock.txt --no-emit-package numpy \
		--output-file requirements-cuda-lock.txt
	@sed -i '1i # NVIDIA'"'"'s compiler and cupy, for the tests of CUDA sources on Linux. Written by: make lock' requirements-cuda-lock.txt
	@$(PYTHON) -c 'import tomllib; e = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
		print(*e["docs"], sep="\n")' > .cache/lock/docs.in
	@$(COMPILE) .cache/lock/docs.in --constraint requirements-lock.txt --output-file requirements-docs-lock.txt
	@sed -i '1i # What `make docs` builds the site with, for Python 3.11 and newer. Written by: make lock' requirements-docs-lock.txt
	@for lock in requirements-lock.txt requirements-cuda-lock.txt requirements-docs-lock.txt; do \
		echo "==> $$lock: $$(grep -c '^[a-z].*==' $$lock) packages"; \
	done

clean: ## Remove environments, caches and what the demo wrote
	@rm -rf .venv .venv-3.12 .venv-3.13 .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@rm -rf build dist digits.safetensors digits.png
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "==> Clean"
