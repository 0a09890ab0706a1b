"""The panel in the notebook; the only package that imports ipywidgets."""
