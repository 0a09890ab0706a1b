"""Colours, number formats, CSS and the escaping of untrusted text."""
