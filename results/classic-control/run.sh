#!/usr/bin/env bash
# Every run of the table, two at a time. Needs the extra envpool.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMP_NUM_THREADS=1
three_seeds() {
  for seed in 1 2 3; do
    .venv/bin/anybatch train "$@" --seed "$seed" --run-dir runs/classic-control
  done
}
{ three_seeds --preset cartpole-ppo; three_seeds --preset cartpole-ppo --env Acrobot-v1; } &
three_seeds --preset cartpole-ppo-ewma &
wait
.venv/bin/python results/collect.py runs/classic-control results/classic-control
