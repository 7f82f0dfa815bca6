"""The batches of a run, the numbers that follow them, and the controllers that change them within a run."""
