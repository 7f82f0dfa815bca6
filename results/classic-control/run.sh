#!/usr/bin/env bash
# Every run of the table, two at a time. Needs the extra envpool.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMP_NUM_THREADS=1
run() { # SEEDS, then flags
  local seeds=$1; shift
  for seed in $seeds; do
    .venv/bin/anybatch train "$@" --seed "$seed" --run-dir runs/classic-control
  done
}
{ run "1 2 3" --preset cartpole-ppo; run "1 2 3" --preset cartpole-ppo --env Acrobot-v1; } &
run "10 11 12" --preset cartpole-ppo-ewma &
wait
run "1 2 3" --preset cartpole-pqn --threads 1
.venv/bin/python results/collect.py runs/classic-control results/classic-control
