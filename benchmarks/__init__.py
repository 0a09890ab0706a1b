"""Benchmarks: ours beside the alternative that a user would pick, in one run, as a ratio."""
