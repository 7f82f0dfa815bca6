"""Collecting and evaluating: everything that steps environments."""
