"""Traces a call once and records its graphs."""
