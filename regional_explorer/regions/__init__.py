"""Marks regions, selects their nodes and cuts graphs into partitions."""
