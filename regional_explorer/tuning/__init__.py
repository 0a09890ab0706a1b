"""Searches for the plan that makes a call fastest."""
