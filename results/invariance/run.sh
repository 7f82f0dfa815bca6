#!/usr/bin/env bash
# One set of numbers at two batch sizes, with the dial's rules and without them. Needs the extra minatar.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMP_NUM_THREADS=1
for seed in 1 2 3; do
  for rescale in all none; do
    for envs in 64 16; do
      [ "$rescale $envs" = "none 64" ] && continue # the batch it was tuned at: the same run as with all rules
      .venv/bin/anybatch train --preset results/invariance/one-epoch.toml --total-env-steps 1000000 --threads 1 \
        --seed $seed --rescale $rescale --num-envs $envs --run-dir "runs/invariance/$rescale/$envs"
    done
  done
done
for folder in all/64 all/16 none/16; do
  .venv/bin/python results/collect.py "runs/invariance/$folder" "results/invariance/$folder"
done
.venv/bin/python results/figures.py groups results/invariance results/invariance/curves.png --reference all/64
.venv/bin/python results/invariance/summarize.py
