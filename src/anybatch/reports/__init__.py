"""Advice, suites of games and videos made from finished runs."""
