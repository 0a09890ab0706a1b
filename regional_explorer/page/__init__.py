"""A session as text, HTML and one file."""
