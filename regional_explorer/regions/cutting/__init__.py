"""Cuts graphs into partitions."""
