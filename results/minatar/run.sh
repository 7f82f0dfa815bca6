#!/usr/bin/env bash
# Every run of the table, one after the other. Needs a C compiler.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMP_NUM_THREADS=1
for seed in 1 2; do
  for game in Breakout Asterix Freeway SpaceInvaders Seaquest; do
    .venv/bin/anybatch train --preset minatar-pqn --env "minatar:$game" --seed "$seed" \
      --total-env-steps 2000000 --threads 1 --run-dir runs/minatar
  done
done
.venv/bin/python results/collect.py runs/minatar results/minatar
.venv/bin/python results/figures.py curves results/minatar results/minatar/curves.png
