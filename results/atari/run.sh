#!/usr/bin/env bash
# PQN on the real Breakout, hours on one core, and the video. Needs the extras envpool and video.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMP_NUM_THREADS=1
.venv/bin/anybatch train --preset atari-pqn-gallici --env Breakout-v5 --seed 1 --total-env-steps 2000000 --threads 1 \
  --run-dir runs/atari
.venv/bin/python results/collect.py runs/atari results/atari
.venv/bin/python results/figures.py curves results/atari results/atari/curve.png
.venv/bin/anybatch watch runs/atari --out results/atari/breakout.gif --steps 400
