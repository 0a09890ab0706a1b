"""Runs a plan outside of a notebook: ``rx.compile``, and the Dynamo backend behind it."""
