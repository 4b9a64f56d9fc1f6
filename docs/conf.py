"""Configuration of the documentation site: `make docs` builds it, warnings are errors.

`-t quick` leaves out the API pages and runs no notebook: five seconds, for a test. `-t no_notebook`
has the API pages: what continuous integration builds.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_extensions"), str(ROOT / "benchmarks")]
import figures  # noqa: E402
import option_tables  # noqa: E402

figures.require_filled()
QUICK = tags.has("quick")  # noqa: F821  # Sphinx puts `tags` here

project = "td3_robot"
author = "the td3_robot authors"
html_title = "td3_robot"

extensions = ["myst_nb", "mathml", "glossary_links"]
exclude_patterns = ["_build"]

nitpicky = True
suppress_warnings = [
    "ref.python",  # one attribute name in several classes
    "config.cache",  # a function in myst_substitutions: every build reads all pages
]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "substitution"]
myst_heading_anchors = 3
myst_substitutions = {"options": option_tables.make_options}  # {{ options("train") }}
nb_execution_mode = "off" if QUICK or tags.has("no_notebook") else "force"  # noqa: F821
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of its kernel: threads stall on a busy machine

html_theme = "furo"
html_static_path = ["_static"]
html_copy_source = False
html_show_copyright = False
html_css_files = ["site.css"]
html_math_renderer = "mathml"

if not QUICK:
    extensions += ["autoapi.extension", "sphinx.ext.napoleon", "public_names"]
    # Annotations name types of torch and numpy, whose inventories only a network could give.
    nitpick_ignore_regex = [("py:.*", ".*")]
    suppress_warnings += ["autoapi.python_import_resolution"]  # names for type checkers alone
    napoleon_use_ivar = True
    autoapi_dirs = [str(ROOT / "td3_robot"), str(ROOT / "envs")]
    autoapi_root = "reference/api"
    autoapi_add_toctree_entry = False
    autoapi_options = ["members", "undoc-members", "show-module-summary", "imported-members"]


def drop_api(app, docname: str, source: list[str]) -> None:
    """Leave the list of API pages out of a quick build, which has none."""
    source[0] = source[0].replace("\napi/**\n", "\n")


def setup(app) -> None:
    """Connect what a quick build leaves out."""
    if QUICK:
        app.connect("source-read", drop_api)
