# make quickstart    train a tiny agent from nothing, in minutes, on a CPU
# make test          everything that continuous integration runs
# make check         format, lint, types, import contracts, fast tests
# make check-envs    every environment's check, graders on known cases, cost of a turn; ends with one JSON line
# make check-oracles compare the mathematics with verl's and TRL's, and updates with themselves; ends with figures
# make check-learning train with six algorithms, demand a gain of each run, make the page of results (45 minutes)
# make check-programs play real episodes with Codex and DeepSeek Harness, kill and cancel them; ends with figures
# make real          train a real model on real data
# make venv          only make .venv
# make clean         remove what was built; runs/ stays

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# Pinned and installed first: left to a dependency, pip may settle on a newer or larger build of torch.
TORCH ?= torch==2.13.0

# Functions that tests compare with. Without their dependencies: verl pins other releases of transformers.
ORACLES := verl==0.9.1 trl==1.16.0
ORACLE_TESTS := tests/oracles $(addprefix tests/unit/train/test_update_,invariances.py reference.py)

# Two workers with one thread each: on small machines threads only get in each other's way.
WORKERS ?= 2

HYPERRL := $(BIN)/python -m hyperrl.cli
SEED ?= 0
RUN ?= runs/quickstart
QUICKSTART = --set run.seed=$(SEED) --set run.dir=$(RUN) --set run.overwrite=true \
  --set sft.start=$(RUN)/random --set model.path=$(RUN)/warm
GSM8K ?= data/gsm8k

.PHONY: venv test check check-envs check-oracles check-learning check-programs quickstart real clean

venv: $(INSTALLED)

$(INSTALLED): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hyperrl needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'  # older ones know no --group
	$(BIN)/python -m pip install --quiet '$(TORCH)'
	$(BIN)/python -m pip install --quiet --editable '.[models]' --group dev --group oracles '$(TORCH)'
	$(BIN)/python -m pip install --quiet --no-deps $(ORACLES)
	touch $@

test: venv
	$(BIN)/python scripts/fetch_test_assets.py || test "$$HYPERRL_REQUIRE_ASSETS" != 1
	$(BIN)/python scripts/fetch_programs.py || test "$$HYPERRL_REQUIRE_PROGRAMS" != 1
	VIRTUAL_ENV=$(CURDIR)/$(VENV) scripts/check static
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

check: venv
	VIRTUAL_ENV=$(CURDIR)/$(VENV) scripts/check

# What the environment SDK promises beyond `make test`: every environment's check, the case file, the benchmarks.
check-envs: venv
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/check_envs.py $(ARGS)

check-oracles: venv
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -qq $(ORACLE_TESTS) $(ARGS)

check-learning: venv
	$(BIN)/python benchmarks/check_learning.py $(ARGS)

check-programs: venv
	$(BIN)/python scripts/fetch_programs.py
	$(BIN)/python benchmarks/check_programs.py $(ARGS)

# A random model, a short supervised warm start, then GRPO. `make quickstart SEED=1` draws everything anew.
quickstart: venv
	$(HYPERRL) models init $(RUN)/random --seed $(SEED) --overwrite
	$(HYPERRL) sft configs/quickstart.yaml $(QUICKSTART)
	$(HYPERRL) train configs/quickstart.yaml $(QUICKSTART) $(ARGS)

# Real GSM8K rows by path: `make real GSM8K=/path/to/gsm8k` with train.parquet and test.parquet in it.
real: venv
	@test -f '$(GSM8K)/train.parquet' || { echo "make real needs GSM8K=/path/to/gsm8k with train.parquet and test.parquet" >&2; exit 2; }
	model=$$($(HYPERRL) models fetch smollm2-135m) && \
	$(HYPERRL) train configs/gsm8k_smollm2.yaml --set model.path="$$model" --set run.overwrite=true \
	  --set 'env.kwargs.path=$(GSM8K)/{split}.parquet' $(ARGS)

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
