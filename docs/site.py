"""What the site adds to Sphinx: sources as pages, names as links, formulas without scripts.

In order: pages that no part lists; links to files of the repository, which lead to pages with their
text; names of the API in code, which lead to their entries; formulas as MathML; llms.txt and the
page that a visitor meets first.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

from docs.reference import ALIASES, NAMESPACES

ROOT = Path(__file__).resolve().parents[1]
logger = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, Any]:
    """Join the site's parts."""
    app.add_role("src", Source())
    app.add_html_math_renderer("mathml", (formula, None), (displayed, None))
    app.add_post_transform(Names)
    app.connect("source-read", further_pages)
    app.connect("doctree-read", local_links, priority=1)
    app.connect("missing-reference", typed)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("build-finished", finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


# Pages that nobody has put into a part yet.


def further_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """List the pages of docs that the first page does not, below its parts."""
    if docname == app.config.root_doc:
        listed = set(re.findall(r"^[\w/-]+$", source[0], flags=re.MULTILINE)) | {"index"}
        pages = sorted({path.stem for path in (ROOT / "docs").glob("*.md")} - listed)
        if pages:
            source[0] += "\n".join(
                ["", "```{toctree}", ":caption: More", ":hidden:", "", *pages, "```", ""]
            )


# Files of the repository as pages.


class Source(SphinxRole):
    """{src}`miniml/nn/images.py:40`: a line of a file, linked to the page that shows it."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The link."""
        path, _, line = self.text.partition(":")
        said = f"{path}, line {line}" if line else path
        return [link(self.env, self.env.docname, path, line, nodes.Text(said))], []


def link(env: Any, docname: str, path: str, line: str, *children: nodes.Node) -> nodes.reference:
    """A reference from a page to the page of a file or folder, which will be written."""
    shown = getattr(env, "miniml_sources", None)
    if shown is None:
        shown = env.miniml_sources = {}
    shown.setdefault(docname, set()).add(path)
    start = posixpath.dirname(docname) or "."
    to = posixpath.relpath(f"source/{path}.html", start) + (f"#L{line}" if line else "")
    return nodes.reference("", "", *children, refuri=to, internal=True)


def local_links(app: Sphinx, doctree: nodes.document) -> None:
    """Turn links to files and folders of the repository that are no pages to their own pages."""
    docname = app.env.docname
    for node in list(doctree.findall(addnodes.download_reference)):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(docname), node["reftarget"]))
        if (ROOT / path).exists():
            node.replace_self(link(app.env, docname, path, "", *node.children))
    for node in list(doctree.findall(addnodes.pending_xref)):
        if node.get("reftype") == "myst":
            target = node["reftarget"].partition("#")[0]
            path = posixpath.normpath(posixpath.join(posixpath.dirname(docname), target))
            if node.astext().endswith(".md"):  # where a file is named, the site has its title
                node["refexplicit"] = False
                node.clear()
            if target and (ROOT / path).is_dir():
                node.replace_self(link(app.env, docname, path, "", *node.children))


def forget(app: Sphinx, env: Any, docname: str) -> None:
    """Drop what a page that is read again has linked to."""
    getattr(env, "miniml_sources", {}).pop(docname, None)


def merge(app: Sphinx, env: Any, docnames: list[str], other: Any) -> None:
    """Take over what another process has read."""
    mine = getattr(env, "miniml_sources", None)
    if mine is None:
        mine = env.miniml_sources = {}
    for docname in docnames:
        mine[docname] = getattr(other, "miniml_sources", {}).get(docname, set())


PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{path}</title>
<meta name="viewport" content="width=device-width"><style>{style}</style></head>
<body><p><a href="{home}">miniml</a> / {path}</p>
{body}</body></html>
"""
STYLE = """
:root { color-scheme: light dark } body { margin: 1rem auto; max-width: 70rem; padding: 0 1rem;
font: 14px/1.45 ui-monospace, monospace } pre { overflow-x: auto } a { color: #0a7d91 }
:target, span:has(> a:target) { background: #fd06 } .linenos { opacity: .4; user-select: none }
@media (prefers-color-scheme: dark) { body { background: #14181e; color: #ced6dd } %s }
"""


def write_sources(app: Sphinx) -> None:
    """Write a page for every file that a page leads to, unless it is there and newer."""
    paths = set().union(*getattr(app.env, "miniml_sources", {}).values())
    folders = [p for p in paths if (ROOT / p).is_dir()]
    for folder in folders:
        paths |= {f"{folder}/{f.name}" for f in listed(ROOT / folder) if f.is_file()}
    dark = HtmlFormatter(style="a11y-dark").get_style_defs(".highlight")
    style = HtmlFormatter(style="a11y-light").get_style_defs(".highlight") + STYLE % dark
    style += ".highlight { background: none !important }"
    for path in sorted(paths):
        out = Path(app.outdir) / "source" / f"{path}.html"
        if out.exists() and out.stat().st_mtime > (ROOT / path).stat().st_mtime:
            continue
        out.parent.mkdir(parents=True, exist_ok=True)
        home = posixpath.relpath("docs/index.html", posixpath.dirname(f"source/{path}"))
        body = index(path) if (ROOT / path).is_dir() else highlighted(ROOT / path)
        out.write_text(PAGE.format(path=path, style=style, home=home, body=body), "utf-8")


def listed(folder: Path) -> list[Path]:
    """What stands in a folder, without what tools leave there."""
    return sorted(f for f in folder.iterdir() if f.name[0] != "." and f.name != "__pycache__")


def index(path: str) -> str:
    """A folder as a list of its files."""
    name = posixpath.basename(path)
    files = (f.name for f in listed(ROOT / path) if f.is_file())
    return "".join(f'<p><a href="{name}/{file}.html">{file}</a></p>\n' for file in files)


def highlighted(file: Path) -> str:
    """The text of a file, with a name for every line."""
    try:
        said = file.read_text("utf-8")
    except UnicodeDecodeError:
        return f"<p>{file.stat().st_size} bytes</p>"
    try:
        lexer = get_lexer_for_filename(file.name)
    except ClassNotFound:
        lexer = TextLexer()
    lines = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True)
    return highlight(said, lexer, lines).replace('name="L-', 'name="L').replace('id="L-', 'id="L')


# Names of the API.


class Names(SphinxPostTransform):
    """Code that is a public name, `nn.Dense` or `ops.sum(x)`, leads to its entry; a path, to its
    page."""

    default_priority = 5

    def run(self, **kwargs: Any) -> None:
        """Put a link around each such literal."""
        objects = self.env.get_domain("py").objects
        builder, pages = self.app.builder, self.env.found_docs
        for node in list(self.document.findall(nodes.literal)):
            if isinstance(node.parent, nodes.reference | addnodes.pending_xref):
                continue
            name, here = node.astext(), self.env.docname
            if re.fullmatch(r"[\w/]+\.(md|py|ipynb)", name) and name.partition(".")[0] in pages:
                uri = builder.get_relative_uri(here, name.partition(".")[0])
            elif entry := named(objects, node, here):
                uri = f"{builder.get_relative_uri(here, entry.docname)}#{entry.node_id}"
            else:
                continue
            link = nodes.reference("", "", refuri=uri, internal=True)
            node.replace_self(link)
            link += node


CALL = re.compile(r"(?:miniml\.)?(\w+(?:\.\w+)*)(?:\(.*\))?", re.DOTALL)
# Tables of names without their namespace: in every cell, or, beside names of others, in the first.
BARE = {"docs/layers": ("nn", "optim", "train", "data", "nn.init"), "docs/operations": ("ops",)}


def named(objects: dict[str, Any], node: nodes.literal, docname: str) -> Any:
    """The entry of the public name that a literal is, or None."""
    found = CALL.fullmatch(node.astext())
    if found is None:
        return None
    if "." in found[1]:
        return objects.get(full(found[1]))
    cell = next((c for c in iter_parents(node) if isinstance(c, nodes.entry)), None)
    alone = docname == "docs/layers" or (cell is not None and cell.parent.index(cell) == 0)
    rooms = BARE.get(docname, ()) if cell is not None and alone else ()
    return next((e for r in rooms if (e := objects.get(f"miniml.{r}.{found[1]}"))), None)


def iter_parents(node: nodes.Node) -> Iterator[nodes.Node]:
    """The nodes around a node, from the inside."""
    while (node := node.parent) is not None:
        yield node


ROOMS = {ALIASES.get(m, m.rpartition(".")[2]): m for m in NAMESPACES}


def full(spelled: str) -> str:
    """nn.Dense as miniml.nn.Dense; Tensor methods and the like as they stand."""
    head, _, rest = spelled.partition(".")
    return f"{ROOMS.get(head, 'miniml.' + head)}.{rest}"


TYPING = {"Any"}  # no operation, in an annotation


def typed(app: Sphinx, env: Any, node: Any, child: nodes.Node) -> nodes.Node | None:
    """A type in a signature: its entry, by its last word; one that is not ours is plain text."""
    if node.get("refdomain") != "py":
        return None
    last = node["reftarget"].rpartition(".")[2]
    if last in TYPING:
        return child
    objects = env.get_domain("py").objects
    for module in NAMESPACES:
        if entry := objects.get(f"{module}.{last}"):
            uri = app.builder.get_relative_uri(node["refdoc"], entry.docname)
            return nodes.reference("", "", child, refuri=f"{uri}#{entry.node_id}", internal=True)
    return child


# Formulas.


def formula(self: Any, node: nodes.math) -> None:
    """A formula in a line."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed(self: Any, node: nodes.math_block) -> None:
    """A formula of its own."""
    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


# What is written when the pages are.


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write the pages of sources, llms.txt and the first page; check the links in all pages."""
    if error is not None or app.builder.name != "html":
        return
    write_sources(app)
    out = Path(app.outdir)
    first = '<!doctype html><meta charset="utf-8"><title>miniml</title>'
    refresh = '<meta http-equiv="refresh" content="0; url=docs/index.html">'
    (out / "index.html").write_text(f'{first}{refresh}<a href="docs/index.html">miniml</a>\n')
    (out / "llms.txt").write_text(llms(app), "utf-8")
    for problem in dead_links(out):
        logger.warning(problem)


def llms(app: Sphinx) -> str:
    """All pages with their titles, as a plain list."""
    about = (ROOT / "README.md").read_text("utf-8").split("\n\n")[1].replace("\n", "\n> ")
    lines = ["# miniml", "", f"> {about}", "", "## Pages", ""]
    titles = app.env.titles
    lines += [f"- [{titles[name].astext()}]({name}.html)" for name in sorted(app.env.found_docs)]
    return "\n".join(lines) + "\n"


def dead_links(out: Path) -> list[str]:
    """Links from page to page that lead nowhere, headings included."""
    files = {p.relative_to(out).as_posix(): p for p in out.rglob("*.html")}
    names: dict[str, set[str]] = {}
    found = []
    for name, path in files.items():
        if name.startswith("source/"):
            continue
        for href in sorted(set(re.findall(r'<a [^>]*?href="([^"]+)"', path.read_text("utf-8")))):
            target, _, anchor = href.partition("#")
            to = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            to = to if target else name
            if re.match(r"\w+:", href) or (not anchor and to in files):
                continue
            if to not in files:
                found += [] if (out / to).exists() else [f"{name}: {href} leads nowhere"]
                continue
            if to not in names:
                text = files[to].read_text("utf-8")
                names[to] = set(re.findall(r'(?:id|name)="([^"]+)"', text))
            if anchor not in names[to]:
                found.append(f"{name}: {href} names no place there")
    return found
