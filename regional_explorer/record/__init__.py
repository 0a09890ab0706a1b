"""The frozen record of an exploration, and all that can be derived from it without torch."""
