"""What the panel and the saved page have in common: the controls around the graph, its overlays, the source."""
