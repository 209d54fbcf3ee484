"""The docstrings of public names have one form: `python -m tools.docstrings`, part of `make lint`.

The form, which docs/reference.py shows in numpydoc's sections:

- The first paragraph is the summary: a formula or a noun, on its own, that ends.
- What gives a value says which: the summary is that value ("The mean ...", "x + y"), or a sentence
  says what it "returns" or "gives".
- What gives tensors or arrays, and a layer, says their shape: in words, as (N, C), or by being
  elementwise, which the reference finds out and says itself.
- `name: text` begins what is said of a parameter. Each parameter of a public function or class is
  spoken of, there or in a formula, or means what docs/parameters.txt says of its name.
- An error is named by its class, which exists. What a function or a class raises in its own body
  is named, and what the rules of a primitive raise in theirs, but for NotImplementedError, by which
  a base asks for an override.
- `Source:` begins the source of a formula, or a name and a year stand beside it. A formula of a
  loss, a norm, an activation, a special function, an initialiser, an optimizer or a schedule has
  one, of its own or that of the function or class that its summary names.
- Examples are doctests. A name without one has a line in docs/operations.txt or docs/examples.txt,
  or is used in a page or program that the tests run. Errors, the rules and checks by name, and
  primitives, which a function applies, need none, nor does what ONNX's functions only hand over.
- No sections of other forms: no "Args:", no underlined headings, no ":param x:".
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

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
    yield from of_results(entry, entry.doc)
    if reference.literature(entry) and not reference.source(entry):
        yield "has a formula without a source"
    for method in entry.methods:
        for problem in of_results(method, f"{method.doc}\n{entry.doc}"):
            yield f"has a method {method.name}, which {problem}"


def exemplified(entry: Entry) -> bool:
    """True where the reference has an example to show, or where none is asked for."""
    if ">>>" in entry.doc or entry.spelled in reference.further():
        return True
    if reference.used(entry):
        return True
    row = reference.rows().get(entry.name) if entry.module == "miniml.ops" else None
    primitive = entry.module == "miniml.ops" and entry.kind == "class"
    return primitive or (row is not None and bool(row.example))


# What a call gives, and what it raises.

# A summary that begins so is a value: by an article, a pronoun, a plural, a formula.
VALUE = re.compile(
    r"(The|An?|All|Each|Every|One|Two|No|True|Both|This|What|Nothing|From|How|Independent|Empty)\b"
    r"|[^A-Z]|[A-Z]\w*s\b|[A-Z]\w*[^\w\s,:]|[A-Z]{1,3}\b"
)
SAID = re.compile(r"\b(returns?|Returns?|gives?|Gives?|[Dd]ecorat\w+)\b")
SHAPE = re.compile(
    r"shape|scalar|element|extent|broadcast|ax[ei]s|matri|vector|diagonal|square|row|column|length"
    r"|\b\w+ \([A-Z\d.][\w.]*(, ?[^()]*)?\)|\[[\w.]+,? [\w,. :]*\]"
)
SHAPES = {"shape", "reduction"}  # parameters that say the shape of the result
ARRAYS = re.compile(r"\b(Tensor|Array|NDArray|ndarray)\b")
NONE = {"", "None", "NoReturn", "Never", "Self"}


def of_results(entry: Entry, said: str) -> Iterator[str]:
    """Problems with what is said of the values that a name gives and of the errors it raises."""
    for node in definitions(entry):
        missing = [e for e in dict.fromkeys(raised(node)) if not re.search(rf"\b{e}\b", said)]
        if missing:
            yield f"raises {' and '.join(missing)} and does not say when"
        if node.name == "construct" and entry.kind == "class":
            shaped = ast.unparse(node.returns or ast.Constant(None)) not in NONE
            if shaped and not SHAPE.search(said) and not of_shape(entry):
                yield "does not say of which shape its output is"
        elif entry.kind != "class":
            yield from of_value(entry, ast.unparse(node.returns) if node.returns else "")


# What a user of a class runs without naming it.
CALLS = {"__init__", "construct", "__call__", "infer_shape", "infer_dtype"}


def definitions(entry: Entry) -> list[ast.FunctionDef]:
    """The definition of a function, or of a class those that making and calling one run."""
    value: Any = entry.value
    if value is None and entry.place:  # what needs a package that is not installed
        body = ast.parse((reference.ROOT / entry.place[0]).read_text("utf-8")).body
        return [n for n in body if isinstance(n, ast.FunctionDef) and n.name == entry.name]
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    try:
        text = inspect.getsource(inspect.unwrap(value))
    except (TypeError, OSError):  # a value, or what a decorator made
        return []
    (top,) = ast.parse(f"if True:\n{text}" if text[0] == " " else text).body
    top = top.body[0] if isinstance(top, ast.If) else top
    found = top.body if isinstance(top, ast.ClassDef) else [top]
    names = CALLS if isinstance(top, ast.ClassDef) else {top.name}
    return [n for n in found if isinstance(n, ast.FunctionDef) and n.name in names]


def of_value(entry: Entry, kind: str) -> Iterator[str]:
    """Problems with what is said of a result of this type."""
    prose = entry.doc.split(">>>")[0]
    if kind.strip("'\"") in NONE:
        return
    if not VALUE.match(prose) and not SAID.search(prose):
        yield "does not say what it returns"
    arrays = ARRAYS.search(kind) and not re.search(r"Callable|Iterator", kind)
    if arrays and entry.kind == "function" and not SHAPE.search(prose) and not of_shape(entry):
        yield "does not say of which shape the result is"


def of_shape(entry: Entry) -> bool:
    """True where a parameter, or a fact, says which shape the result has."""
    return bool(SHAPES & set(entry.parameters)) or reference.elementwise(entry)


def raised(node: ast.AST) -> Iterator[str]:
    """The classes of errors that the body of a definition raises itself."""
    for part in ast.walk(node):
        if isinstance(part, ast.Raise) and part.exc is not None:
            made = part.exc.func if isinstance(part.exc, ast.Call) else part.exc
            name = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
            if re.fullmatch(r"[A-Z]\w*(Error|Warning)", name) and name != "NotImplementedError":
                yield name


def main() -> None:
    """List the problems of all public names."""
    entries = [e for module in reference.NAMESPACES for e in reference.entries(module)]
    checked = [e for e in entries if e.kind != "data" or e.parameters or not e.doc]
    found = [f"{e.spelled} {problem}" for e in checked for problem in problems(e)]
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
