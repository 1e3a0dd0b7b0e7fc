# Two commands matter: `make demo` (sets up, runs the main job once) and `make test` (sets up, runs the tests).

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
    command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
# Everything that the tests fetch or build once lives outside the clone.
export APPLIANCE_TEST_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/llama-appliance-tests
LLAMA_CPP_PYTHON := 0.3.36
WHEELS := $(APPLIANCE_TEST_CACHE)/wheels
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test test-all lint format picture accuracy bench venv venv-dev preflight clean

demo: venv
	@$(BIN)/python -m appliance.cli.demo

# Rooms whose tests share nothing and look at no clock run on two cores at once; the others one after another.
ALONGSIDE := $(addprefix tests/,cli client daemon engines/builds engines/pool engines/slots engines/startup gguf hardware \
    hub journal monitor/governor operations planning remotes routing store tui web)

test: preflight venv-dev
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile $(ALONGSIDE)
	@$(BIN)/python -m pytest -q $(addprefix --ignore=,$(ALONGSIDE))

# The marks `vulkan` and `slow`, which `make test` leaves out.
test-all: preflight venv-dev
	@$(BIN)/python -m tests.preflight vulkan
	@$(BIN)/python -m pytest -q -m "vulkan or slow"

lint: venv-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: venv-dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# docs/dashboard.svg, from a real run.
picture: venv
	@$(BIN)/python docs/picture.py

# docs/planner-accuracy.md, from the rows of public logs.
accuracy: venv-dev
	@$(BIN)/python -m tests.planning.accuracy

# Ratios measured in one run; needs a quiet machine. The download needs curl.
bench: venv-dev
	@$(BIN)/python -m benchmarks.startup
	@$(BIN)/python -m benchmarks.header
	@$(BIN)/python -m benchmarks.plan
	@$(BIN)/python -m benchmarks.tune
	@$(BIN)/python -m benchmarks.load
	@$(BIN)/python -m benchmarks.idle
	@$(BIN)/python -m benchmarks.verify
	@$(BIN)/python -m benchmarks.download

venv: $(VENV)/.installed
venv-dev: $(VENV)/.installed-dev

preflight:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is missing: install it (Debian: apt-get install python3 python3-venv)."; exit 1; }
	@$(PYTHON) tests/preflight.py

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is missing: install it (Debian: apt-get install python3 python3-venv)."; exit 1; }
	@echo "Creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) can't create an environment (Debian: apt-get install python3-venv)."; rm -rf $(VENV); exit 1; }

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing llama-appliance (prebuilt packages only, no compiler needed)"
	@$(PIP) install --quiet --prefer-binary -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed $(WHEELS)/.llama-cpp-python-$(LLAMA_CPP_PYTHON)
	@echo "Installing what the tests need"
	@$(PIP) install --quiet --prefer-binary -c constraints.txt $(WHEELS)/llama_cpp_python-$(LLAMA_CPP_PYTHON)-*.whl -e '.[demo,dev,llama-cpp-python]'
	@touch $@

# GGML_NATIVE=OFF: a build with this machine's own CPU flags can crash on virtual machines.
$(WHEELS)/.llama-cpp-python-$(LLAMA_CPP_PYTHON): | $(VENV)/bin/python
	@mkdir -p $(WHEELS)
	@ls $(WHEELS)/llama_cpp_python-$(LLAMA_CPP_PYTHON)-*.whl >/dev/null 2>&1 || { \
	  echo "Building llama-cpp-python $(LLAMA_CPP_PYTHON) once (about 6 minutes on two cores)"; \
	  CMAKE_ARGS="-DGGML_NATIVE=OFF" $(PIP) wheel --quiet --no-deps --no-binary llama-cpp-python -w $(WHEELS) llama-cpp-python==$(LLAMA_CPP_PYTHON); }
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
