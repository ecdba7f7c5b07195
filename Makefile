# Everything below works in a fresh clone: the first target that needs it makes .venv and builds.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := pyproject.toml CMakeLists.txt $(shell find cpp metal -type f) \
  $(shell find tests/ptx tests/softmetal -name '*.cpp' -o -name '*.h' -o -name '*.mm' -o -name '*.cmake')
FORMATTED = $(shell find cpp metal tests/ptx tests/softmetal -name '*.h' -o -name '*.cpp' -o -name '*.mm') \
  $(wildcard metal/*.metal)
BUILD_FLAGS ?=
# Where its packages are, the Metal device is built over a software one, for the tests; so is the
# PTX device, which the same compiler's kernels run on.
ifneq ($(and $(shell command -v clang++-19),$(wildcard /usr/lib/gcc/*/*/include/objc/objc.h),$(wildcard /usr/include/Block.h)),)
  override BUILD_FLAGS += --config-settings=cmake.define.MFERENCE_SOFTMETAL=ON
  override BUILD_FLAGS += --config-settings=cmake.define.MFERENCE_PTX=ON
endif

SECONDS ?= 60
ARCH ?= $(shell uname -m)

.PHONY: demo test test-all lint format bench sanitize fuzz wheel aarch64 macos clean

demo: .venv/ready
	$(BIN)/mference demo --tour

test: .venv/ready
	$(BIN)/python -m pytest -q -m "not slow"

test-all: .venv/ready
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation \
	  $(BUILD_FLAGS) --editable '.[dev,oracles]'
	$(BIN)/python -m pytest -q

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(BIN)/clang-format --dry-run --Werror $(FORMATTED)

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(FORMATTED)

bench: .venv/ready
	$(BIN)/python benchmarks/affine_products.py
	$(BIN)/python benchmarks/demo_model.py

# The core's tests under sanitizers, in a build and environment of their own.
sanitize:
	tests/sanitize.sh $(PYTHON) address,undefined
	tests/sanitize.sh $(PYTHON) thread

# The readers of untrusted bytes under a coverage-guided fuzzer.
fuzz: .venv/ready
	$(BIN)/pip install --quiet --disable-pip-version-check 'atheris>=3.0'
	tests/fuzz/run.sh $(BIN)/python $(SECONDS)

# A manylinux wheel of $(PYTHON) and the source distribution, in dist/.
wheel:
	tools/wheel.sh $(PYTHON) $(ARCH)

# The aarch64 wheel under emulation, and the macOS build as far as a linker goes.
aarch64: .venv/ready
	tests/portability/aarch64.sh $(PYTHON)

macos:
	tests/portability/macos.sh $(PYTHON)

clean:
	rm -rf .venv build dist

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mference needs Python 3.11 or newer: run 'make PYTHON=python3.12 ...'" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check \
	  cmake ninja 'pybind11>=3.0' 'scikit-build-core>=0.11'

.venv/ready: .venv/bin/python $(SOURCES)
	@echo "Building the core and installing into .venv: about a minute."
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation \
	  $(BUILD_FLAGS) --editable '.[dev]'
	@touch $@
