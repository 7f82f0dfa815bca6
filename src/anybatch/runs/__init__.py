"""What a run leaves behind and how it goes on: folder, log, checkpoints, seeds, progress."""
