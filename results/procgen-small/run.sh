#!/usr/bin/env bash
# The small Procgen presets, one core each run, half an hour and less. Needs the extra envpool and Qt (libqt5gui5).
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMP_NUM_THREADS=1
train() { .venv/bin/anybatch train --threads 1 --run-dir runs/procgen-small "$@"; }
for seed in 3 4; do
  for preset in procgen-small-ppo procgen-small-ppo-ewma; do
    train --preset "$preset" --seed "$seed"
  done
done
for preset in procgen-small-ppo procgen-small-ppo-ewma; do
  train --preset "$preset" --env procgen-easy:fruitbot --seed 1
done
for preset in procgen-small-ppg procgen-small-ppg-ewma; do
  train --preset "$preset" --seed 3
done
.venv/bin/python results/collect.py runs/procgen-small results/procgen-small
.venv/bin/python results/figures.py curves results/procgen-small results/procgen-small/curves.png \
  --beside results/procgen-small/published.json
