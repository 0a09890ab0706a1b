"""The Exploration that rx.explore returns, and its parts."""
