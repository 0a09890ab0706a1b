"""Compares outputs and gradients with eager and with a float64 run."""
