"""The parts that the panel and the saved page share: controls around the graph, overlays, source and code."""
