"""From an iteration batch to gradient steps."""
