#!/usr/bin/env bash
# Three losses on data that is 8 iterations old, and fresh data beside them. Needs a C compiler.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMP_NUM_THREADS=1
run() { # a name, then flags
  local name=$1; shift
  .venv/bin/anybatch train --preset minatar-ppo-ewma --total-env-steps 1000000 --threads 1 "$@" \
    --run-dir "runs/staleness/$name"
}
for seed in 1 2 3 4 5 6; do
  run decoupled --seed $seed --proximal.policy iteration_start --staleness.iterations 8
  run behavior-anchored --seed $seed --proximal.policy behavior --staleness.iterations 8
  run recent-anchored --seed $seed --proximal.policy iteration_start --proximal.importance recent \
    --staleness.iterations 8
  run fresh --seed $seed --proximal.policy behavior
done
for name in decoupled behavior-anchored recent-anchored fresh; do
  .venv/bin/python results/collect.py "runs/staleness/$name" "results/staleness/$name"
done
