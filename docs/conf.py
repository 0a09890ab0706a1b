"""Sphinx configuration of the documentation site: ``make docs``."""

from __future__ import annotations

from regional_explorer import __version__

project = "regional_explorer"
author = "regional_explorer contributors"
release = __version__
html_title = "regional_explorer"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
html_theme = "furo"
exclude_patterns = ["_build"]

# Links such as diagnostics.md#state-kept point at headings.
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "undoc-members": True}  # a field whose name says it all has no docstring
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
napoleon_google_docstring = True
