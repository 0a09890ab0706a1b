"""Compiles partitions and switches between their implementations in place."""
