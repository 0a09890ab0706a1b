"""The panel in the notebook: the only room that imports ipywidgets."""
