"""A plan as source code: as Python, and in the user's files."""
