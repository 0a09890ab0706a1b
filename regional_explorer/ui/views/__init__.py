"""anywidget views with JavaScript front ends: graph, source, and trees of HTML elements."""
