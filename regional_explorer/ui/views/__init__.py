"""Widgets with a front end of their own: graph, source, and trees of HTML elements."""
