# Two commands set everything up by themselves: `make train` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help train test check fmt slow bench clean

help:
	@echo 'make train   set up .venv, train PPO-EWMA on CartPole-v1, evaluate: a minute or two'
	@echo 'make test    all tests but the slow ones'
	@echo 'make check   lint, types, import order, spelling'
	@echo 'make fmt     format the code'
	@echo 'make slow    the slow tests'
	@echo 'make bench   speed beside what this machine can do, most of an hour'
	@echo 'make clean   remove .venv and caches'

train: .venv/ready-to-train
	$(BIN)/anybatch train

test: .venv/ready-to-test
	$(BIN)/pytest

check: .venv/ready-to-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/codespell

fmt: .venv/ready-to-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

slow: .venv/ready-to-test
	$(BIN)/pytest -m slow

bench: .venv/ready-to-bench
	$(BIN)/python benchmarks/throughput.py

# A stamp says that its kind of environment is complete and as new as what defines it.
.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/ready-to-train: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[envpool]'
	touch $@

.venv/ready-to-test: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]'
	touch $@

.venv/ready-to-bench: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev,bench]'
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
