"""State in files: trees of tensors, safe opening, checkpoints, segments, and their parts by rank."""
