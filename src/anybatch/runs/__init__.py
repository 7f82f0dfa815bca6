"""What a run records: folder, log, checkpoints, metrics, display."""
