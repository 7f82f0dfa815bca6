#!/usr/bin/env bash
# Adaptive Batch Scaling on MinAtar. Needs a C compiler.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMP_NUM_THREADS=1
.venv/bin/anybatch train --preset minatar-pqn-abs --seed 1 --total-env-steps 5000000 --threads 1 --run-dir runs/abs
.venv/bin/python results/collect.py runs/abs results/batch-control
.venv/bin/python results/figures.py batch results/batch-control/minatar-Breakout__minatar-pqn-abs__s1.json \
  results/batch-control/batch.png
