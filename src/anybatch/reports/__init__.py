"""Made from finished runs and studies: advice, suites of games, verdicts, charts, pages and videos."""
