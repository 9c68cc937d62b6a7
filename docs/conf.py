"""How Sphinx makes the documentation's site; `scripts/docs` runs it."""

from __future__ import annotations

import sys
from importlib.metadata import version as find_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

project = "distbench"
author = "the authors of distbench"
release = version = find_version("distbench")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# A page is found by the anchors that GitHub gives its headings.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]

# What docstrings have between single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
# Of a dataclass the attributes are described once, by its docstring.
napoleon_use_ivar = True

html_theme = "furo"
html_title = "distbench"
html_copy_source = False
html_show_sphinx = False
# Pages and reports open without a network.
html_theme_options = {
    "source_repository": "",
    "navigation_with_keys": True,
}
