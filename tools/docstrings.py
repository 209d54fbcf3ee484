"""The docstrings of public names have one form: `python -m tools.docstrings`, part of `make lint`.

The form, which docs/reference.py shows in numpydoc's sections:

- The first paragraph is the summary: a formula or a noun, on its own, that ends.
- `name: text` begins what is said of a parameter. Each parameter of a public function or class is
  spoken of, there or in a formula, or means what docs/parameters.txt says of its name.
- An error is named by its class, which exists.
- `Source:` begins the source of a formula.
- Examples are doctests. A name without one has a line in docs/operations.txt or docs/examples.txt,
  or is used in a page or program that the tests run. Errors, the rules and checks by name, and
  primitives, which a function applies, need none, nor does what ONNX's functions only hand over.
- No sections of other forms: no "Args:", no underlined headings, no ":param x:".
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator

from docs import reference
from docs.reference import Entry

FOREIGN = re.compile(
    r"^\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?)\s*:?\s*$"
    r"|^\s*:(param|type|returns?|rtype|raises)\b|^\s*-{4,}\s*$",
    re.MULTILINE,
)
WITHOUT = {"miniml.errors", "miniml.ops.rules", "miniml.ops.validator"}
HANDED = {"onnx.Constant", "onnx.Coverage", "onnx.Node", "onnx.Operator", "onnx.Setting"}


def problems(entry: Entry) -> Iterator[str]:
    """One line for each way in which a docstring has another form."""
    first = entry.doc.split("\n\n")[0].rstrip()
    if not first:
        yield "has no docstring"
    elif first[-1] not in ".:;)?!`":
        yield f"has a first paragraph without an end: {first[-40:]!r}"
    if found := FOREIGN.search(entry.doc):
        yield f"has a section of another form: {found[0].strip()!r}"
    for error in entry.errors:
        if not reference.known(error) and not hasattr(builtins, error):
            yield f"names an error that there is not: {error}"
    if entry.kind == "exception":
        return
    for name in entry.parameters:
        said = reference.spoken_of(entry, name) or reference.meaning(entry.module, name)
        if not said and name != "self":
            yield f"does not speak of the parameter {name!r}, nor does docs/parameters.txt"
    if entry.module not in WITHOUT and entry.spelled not in HANDED and not exemplified(entry):
        yield "has no example: a doctest, a line in docs/examples.txt, or a use in a guide"


def exemplified(entry: Entry) -> bool:
    """True where the reference has an example to show, or where none is asked for."""
    if ">>>" in entry.doc or entry.spelled in reference.further():
        return True
    if reference.used(entry):
        return True
    row = reference.rows().get(entry.name) if entry.module == "miniml.ops" else None
    primitive = entry.module == "miniml.ops" and entry.kind == "class"
    return primitive or (row is not None and bool(row.example))


def main() -> None:
    """List the problems of all public names."""
    entries = [e for module in reference.NAMESPACES for e in reference.entries(module)]
    checked = [e for e in entries if e.kind != "data" or e.parameters]
    found = [f"{e.spelled} {problem}" for e in checked for problem in problems(e)]
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
