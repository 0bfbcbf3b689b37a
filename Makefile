# Every target first makes sure that .venv fits requirements.lock (scripts/setup.sh); the second time that takes no network.
SHELL := /bin/bash
BIN := .venv/bin
PYTHON_FILES := data hardware policies sim robot_rl plugins tests benchmarks examples scripts
PRESENT = $(wildcard $(PYTHON_FILES))

# A sourced ROS or conda would put its own packages, and pytest plugins, before ours.
unexport PYTHONPATH
unexport PYTHONHOME
# Waiting OpenMP threads spin by default, which makes small networks many times slower on a busy machine.
export OMP_WAIT_POLICY ?= PASSIVE
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint format types bench docs lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: ## make .venv from requirements.lock
	@bash scripts/setup.sh

demo: setup ## the main job; ARGS="--seed 3" or ARGS="--resume" are handed on
	@$(BIN)/robot-rl demo $(ARGS)

test: setup ## the fast tests; ARGS="tests/sim -k reset" are handed on
	@$(BIN)/python -m pytest -q -m "not slow" $(ARGS)

test-slow: setup ## the end-to-end tests
	@$(BIN)/python -m pytest -q -m slow $(ARGS)

lint: setup ## style, formatting and the import rule
	@$(BIN)/ruff check $(PRESENT)
	@$(BIN)/ruff format --check $(PRESENT)
	@$(BIN)/lint-imports --no-logo

format: setup ## repair what can be repaired
	@$(BIN)/ruff check --fix $(PRESENT)
	@$(BIN)/ruff format $(PRESENT)

types: setup ## strict type check of all packages
	@$(BIN)/mypy

bench: setup ## run every benchmark; the figures go to outputs/bench/
	@mkdir -p outputs/bench
	@set -e; for file in $(filter-out benchmarks/harness.py,$(wildcard benchmarks/[a-z]*.py)); do \
		$(BIN)/python $$file --json outputs/bench/$$(basename $$file .py).json; done

docs: setup ## build the pages into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lock: setup ## write requirements.lock anew; ARGS="--upgrade" takes newer versions
	@bash scripts/lock.sh $(ARGS)

clean: ## remove what these targets made, except outputs/
	rm -rf .venv .tools site build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
