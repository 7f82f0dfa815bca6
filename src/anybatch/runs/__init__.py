"""Records of a run: folder, log, checkpoints, metrics, display."""
