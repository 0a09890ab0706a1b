"""Puts back what a call changed: tensors, attributes, random generators; silences repeated prints."""
