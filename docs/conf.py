"""Sphinx: the site of `make docs`. The sources are the repository's pages where they stand."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import miniml  # noqa: E402

project = "miniml"
author = "The miniml authors"
copyright = "The miniml authors"
version = release = miniml.__version__

extensions = ["myst_nb", "docs.site"]
root_doc = "docs/index"
include_patterns = [
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md", "docs/*/*.md",
    "examples/README.md", "notebooks/*.ipynb",
]  # fmt: skip
exclude_patterns = [".*", "build", "tests", "miniml", "benchmarks", "tools"]
suppress_warnings = ["misc.highlighting_failure"]  # C in error messages, and graphs as text

myst_enable_extensions = ["dollarmath", "fieldlist"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # tests say that the stored outputs are those of the code
nb_output_stderr = "remove"
smartquotes = False  # m' is a formula
html_math_renderer = "mathml"

html_theme = "sphinx_book_theme"
html_title = "miniml"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_extra_path = ["../build/extra"]  # what docs/live.py made
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None
html_theme_options = {
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_navbar_depth": 1,
    "max_navbar_depth": 3,
    "show_toc_level": 2,
    "home_page_in_toc": True,
    "footer_content_items": ["copyright.html"],
    "navbar_persistent": [],
    "pygments_light_style": "a11y-light",
    "pygments_dark_style": "a11y-dark",
}
