"""The batches of a run, the numbers that follow them, and what changes them within a run."""
