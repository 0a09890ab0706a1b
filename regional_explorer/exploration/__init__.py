"""The Exploration that rx.explore returns, and the parts it is made of."""
