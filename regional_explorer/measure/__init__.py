"""Measures variants, regions, partitions and ops: time, memory and numerics."""
