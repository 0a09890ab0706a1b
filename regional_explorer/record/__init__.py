"""The frozen record of an exploration, and what follows from it alone. It needs no torch."""
