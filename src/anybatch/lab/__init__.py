"""What judges runs: studies, tuning, statistics, verdicts, pages. The core does not import it."""
