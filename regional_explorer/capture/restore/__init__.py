"""Restores what a call changed: tensors, attributes, random generators; mutes repeated prints."""
