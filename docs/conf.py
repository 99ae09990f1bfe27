"""Sphinx's settings; everything that it needs comes from the `docs` group, nothing from the network."""

project = "licserver and licclient"
author = "the licserver and licclient authors"
copyright = author
html_theme = "furo"
html_title = project
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "*-table.md"]
html_extra_path = ["openapi.json"]
nitpicky = True
