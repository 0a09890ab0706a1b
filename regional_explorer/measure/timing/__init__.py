"""Interleaved rounds, clocks, statistics and the thread that timed code runs on."""
