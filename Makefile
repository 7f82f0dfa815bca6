# Two commands set everything up by themselves: `make train` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Compiled ahead, all modules of all packages would take 360 MB more, most of them for nothing.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

.PHONY: help train test system-packages check sanitize fmt dial slow bench docs results package other-pythons clean
# System packages are checked before anything is installed.
.NOTPARALLEL:

help:
	@echo 'make train          set up .venv, train PPO-EWMA on CartPole-v1, evaluate: seconds once installed'
	@echo 'make test           set up .venv and the system packages it needs, run all tests except the slow ones'
	@echo 'make check          lint, types, import order, spelling'
	@echo 'make sanitize       tests of native code under the address and undefined behaviour sanitizers of gcc'
	@echo 'make fmt            format the code'
	@echo 'make dial           write docs/dial.html from the presets and the recorded studies'
	@echo 'make slow           the slow tests'
	@echo 'make bench          speed relative to the serial limit of this machine, most of an hour'
	@echo 'make docs           refresh links to code and reference pages, build the documentation in build/site'
	@echo 'make results        write what the recorded studies found into docs/results.md'
	@echo 'make package        build a wheel and a source archive in dist/'
	@echo 'make other-pythons  resolve the wheel and its dependencies for Python 3.12 and 3.13'
	@echo 'make clean          remove .venv and caches'

train: .venv/ready-to-train
	$(BIN)/anybatch train

test: system-packages .venv/ready-to-test
	$(BIN)/pytest --numprocesses 2 --dist worksteal

system-packages:
	@.ci/system-packages

check: .venv/ready-to-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/codespell

# Undefined behaviour ends the process at once. What the libraries around our code do is not checked: Python frees
# little at its end, and torch and EnvPool free memory of each other. Compilers and long tests would take minutes.
SANITIZED := tests/native/test_native_states.py tests/backends/test_parity.py tests/backends/test_threads.py tests/envs/test_minatar_rules.py \
	tests/envs/test_classic_control.py
UNSANITIZED := second_process or encoding or auxiliary or any_size or random_play or (change_action_values and minatar)
sanitize: export CC = gcc
sanitize: export ANYBATCH_CFLAGS = -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
sanitize: export ASAN_OPTIONS = detect_leaks=0:alloc_dealloc_mismatch=0
sanitize: export UBSAN_OPTIONS = print_stacktrace=1
sanitize: .venv/ready-to-test
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) libstdc++.so.6" \
		$(BIN)/pytest --numprocesses 2 --dist worksteal --capture sys -k 'not ($(UNSANITIZED))' $(SANITIZED)

fmt: .venv/ready-to-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The first has the numbers of the preset with which the page opens.
DIAL_STUDIES := invariance-minatar invariance-to-one-env invariance invariance-mujoco upward
dial: .venv/ready-to-train
	$(BIN)/anybatch dial $(DIAL_STUDIES:%=results/studies/%.jsonl.gz) --out docs/dial.html

slow: system-packages .venv/ready-to-test
	$(BIN)/pytest -m slow

bench: .venv/ready-to-bench
	$(BIN)/python benchmarks/throughput.py

docs: .venv/ready-for-docs
	$(BIN)/python -m docs_build.refresh
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

results: .venv/ready-to-test
	$(BIN)/python -m docs_build.study_results

package: .venv/ready-to-test
	rm -rf dist
	$(BIN)/python -m build --no-isolation

other-pythons: package
	$(BIN)/python release/other_pythons.py

# A stamp says that its kind of environment is complete and as new as what defines it.
.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/ready-to-train: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[envpool,lab]'
	touch $@

.venv/ready-to-test: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]'
	touch $@

.venv/ready-for-docs: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[docs]'
	touch $@

.venv/ready-to-bench: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev,bench]'
	touch $@

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
