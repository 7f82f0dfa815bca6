#!/usr/bin/env bash
# Our runs of the table, two at a time. Needs the extras envpool and mujoco.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMP_NUM_THREADS=1
one_env() {
  for seed in 1 2 3; do
    .venv/bin/anybatch train --preset mujoco-ppo --env "$1" --seed "$seed" --run-dir runs/mujoco
  done
}
one_env HalfCheetah-v4 &
one_env Hopper-v4 &
wait
.venv/bin/python results/collect.py runs/mujoco results/mujoco
