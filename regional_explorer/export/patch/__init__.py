"""Writes a plan into the user's own source: annotations around the statements, functions and calls that regions are."""
