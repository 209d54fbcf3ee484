"""Look up the questions in the search index of the built site: `python -m docs.questions`.

docs/design/questions.md has them. A page counts as found if it is among the first ten, ranked as
the site's search ranks: titles and names of the API above words of the text; and if two clicks lead
to it from the first page.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from collections import Counter
from pathlib import Path

from sphinx.search.en import SearchEnglish

ROOT = Path(__file__).resolve().parents[1]
FIRST = 10
TITLE, NAME, WORD, PART = 15, 11, 5, 2


def questions() -> list[list[str]]:
    """Question, words and page of each row."""
    text = (ROOT / "docs" / "design" / "questions.md").read_text("utf-8")
    return [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| ")][1:]


def found(index: dict, words: str) -> list[str]:
    """The pages that have all words, the best first."""
    english = SearchEnglish({})
    stem = english.stem
    scores: Counter[int] = Counter()
    pages: set[int] | None = None
    for word in re.findall(r"\w+", words):
        here: Counter[int] = Counter()
        if word.lower() in english.stopwords:
            continue  # as the site's search does
        for table, score in ((index["titleterms"], TITLE), (index["terms"], WORD)):
            for page in listed(table.get(stem(word.lower()), table.get(word.lower(), []))):
                here[page] += score
        for page in objects(index, word):
            here[page] += NAME
        if not here:
            for term, where in index["terms"].items():
                if word.lower() in term:
                    here.update(dict.fromkeys(listed(where), PART))
        pages = here.keys() & pages if pages is not None else set(here)
        scores.update(here)
    best = sorted(pages or (), key=lambda page: -scores[page])
    return [index["docnames"][page] for page in best]


def listed(where: int | list[int]) -> list[int]:
    """The index has a page alone as a number."""
    return [where] if isinstance(where, int) else where


def objects(index: dict, word: str) -> list[int]:
    """The pages with an entry of this name."""
    rows = [row for entries in index["objects"].values() for row in entries]
    return [row[0] for row in rows if row[-1].rpartition(".")[2].lower() == word.lower()]


def near(site: Path, first: str = "docs/index", clicks: int = 2) -> set[str]:
    """The pages that so many clicks lead to, by the links in the pages as they are."""
    seen, last = {first}, {first}
    for _ in range(clicks):
        last = {page for name in last for page in links(site, name)} - seen
        seen |= last
    return seen


def links(site: Path, name: str) -> set[str]:
    """The pages that a page leads to."""
    hrefs = re.findall(
        r'<a [^>]*?href="([^"#:]+)\.html', (site / f"{name}.html").read_text("utf-8")
    )
    found = {posixpath.normpath(posixpath.join(posixpath.dirname(name), h)) for h in hrefs}
    return {page for page in found if (site / f"{page}.html").exists()}


def main() -> None:
    """List the questions whose page is not found."""
    site = ROOT / "build" / "site"
    text, close = (site / "searchindex.js").read_text("utf-8"), near(site)
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    lost = []
    for question, words, page in questions():
        first = found(index, words)[:FIRST]
        if page not in first:
            lost.append(f"{question} {words!r} does not find {page}; found: {first}")
        if page not in close:
            lost.append(f"{question} {page} is more than two clicks away")
    if lost:
        sys.exit("\n".join(lost))
    print(f"==> {len(questions())} questions, each answered after one search, or two clicks")


if __name__ == "__main__":
    main()
