"""Draws graphs: boxes, layout, DOT, SVG and the payload of the page."""
