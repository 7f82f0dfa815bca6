"""Charts as data. Pages draw them as responsive markup; matplotlib draws them into files."""
