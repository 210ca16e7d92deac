"""How Sphinx makes the site of the sources that pages.py staged. `make docs` runs it, by build.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "Perdure"
author = "The Perdure authors"
release = version = os.environ.get("PERDURE_SITE_VERSION", "dev")
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docstrings"]
nitpicky = True
default_role = "code"
highlight_language = "text"

# The pages are read on code hosts as well, so they are plain Markdown: what MyST adds to it is for generated pages.
myst_heading_anchors = 6
myst_disable_syntax = ["myst_line_comment", "myst_block_break", "myst_target"]
myst_enable_extensions = ["strikethrough", "tasklist", "alert"]

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["claude_agent_sdk", "litellm", "agent"]  # they stand in environments of their own
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "Perdure"
html_short_title = "Perdure"
html_static_path = [str(Path(__file__).resolve().parents[2] / "build" / "site-static")]
html_favicon = str(Path(__file__).parent / "static" / "mark.svg")
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "switcher": {"json_url": "../switcher.json", "version_match": release},
    "check_switcher": False,
    "show_version_warning_banner": True,
    "navbar_align": "left",
    "navbar_start": ["navbar-logo"],
    "navbar_end": ["version-switcher", "theme-switcher"],
    "header_links_before_dropdown": 8,
    "search_as_you_type": True,
    "show_prev_next": True,
    "show_toc_level": 2,
    "footer_start": [],
    "footer_center": [],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "back_to_top_button": True,
}
html_sidebars = {"index": []}
