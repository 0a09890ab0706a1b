"""Performance, measured against what a user would pick instead, side by side, in one run, as a ratio."""
