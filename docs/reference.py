"""Write the reference of the site, an entry for every public name: `python -m docs.reference`.

The pages go to docs/api, which git ignores; `make docs` builds them into the site. In order: the
pages and their groups, by task; an entry, from signature, docstring, examples and the source; the
docstring as sections; examples from the pages and programs that the tests run.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import miniml as ml
from docs import operations
from miniml import Primitive
from miniml.errors import MinimlError
from tools.public_names import PUBLIC, exported

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "api"

NAMESPACES = {
    "miniml": "The package itself, `import miniml as ml`",
    "miniml.ops": "Operations on tensors",
    "miniml.nn": "Layers, losses and cells",
    "miniml.nn.init": "Initialisers",
    "miniml.optim": "Optimizers and schedules",
    "miniml.train": "Training: steps, `Model`, metrics, callbacks, checkpoints",
    "miniml.data": "Data sets, loaders and preparation",
    "miniml.grad": "Gradients and other transforms",
    "miniml.testing": "The checkers",
    "miniml.viz": "Pictures of graphs and networks",
    "miniml.onnx": "ONNX, in and out",
    "miniml.interop": "PyTorch, JAX, SciPy, scikit-learn",
    "miniml.distributed": "Several processes",
    "miniml.export": "Programs as C",
    "miniml.errors": "Errors",
    "miniml.ops.rules": "Inference rules by name",
    "miniml.ops.validator": "Checks under MindSpore's names",
}
NAMESPACES |= {m: m.rpartition(".")[2].capitalize() for m in PUBLIC if m not in NAMESPACES}
ALIASES = {
    "miniml": "ml",
    "miniml.nn.init": "nn.init",
}  # how pages spell a namespace; others by their last part
# The task that a module of the house, or a name in it, stands for, in the order in which a page has
# them.
TASKS = {
    "miniml.core.tensor": "Tensors",
    "miniml.array_api": "Tensors",
    "miniml.core.abstract": "Dtypes",
    "miniml.core.parameter": "Parameters and randomness",
    "miniml.train": "Training",
    "miniml.nn.container": "Training",
    "miniml.core.settings": "Settings",
    "builtins": "Settings",
    "miniml.graph.tracing": "Compile and look inside",
    "miniml.grad.batching": "Compile and look inside",
    "miniml.viz.reports": "Compile and look inside",
    "miniml.runtime.jit": "Compile and look inside",
    "miniml.runtime.observe": "Compile and look inside",
    "miniml.viz": "Compile and look inside",
    "miniml.core.primitive": "Primitives of your own",
    "miniml.core.infer": "Primitives of your own",
    "miniml.interop.formula": "Primitives of your own",
    "miniml.backends.kernel": "Kernels of your own",
    "miniml.backends.registry": "Kernels of your own",
    "miniml.core.abstract.ArraySpec": "Kernels of your own",
    "miniml.core.abstract.KernelAttr": "Kernels of your own",
    "miniml.graph.passes": "Passes and rewriting rules",
    "miniml.export.saved": "Saved graphs",
    "miniml.export": "Export",
}


TITLES = {
    "miniml.nn.cell": "Cell",
    "miniml.nn.container": "Containers, and weights as dictionaries",
    "miniml.nn.linear": "Linear layers and embeddings",
    "miniml.nn.layer": "Activations",
    "miniml.nn.images": "Images",
    "miniml.nn.norm": "Normalization and dropout",
    "miniml.nn.recurrent": "Recurrent layers",
    "miniml.nn.attention": "Attention",
    "miniml.nn.loss": "Losses",
    "miniml.interop.foreign": "Weights of PyTorch",
    "miniml.optim.optimizer": "Optimizers",
    "miniml.optim.lbfgs": "LBFGS",
    "miniml.optim.schedules": "Schedules",
    "miniml.optim.wrappers": "Groups, accumulation, averages, loss scaling, clipping",
    "miniml.train.run": "Model, and the learning rate finder",
    "miniml.train.metrics": "Metrics",
    "miniml.train.callbacks": "Callbacks",
    "miniml.train.step": "Training step",
    "miniml.train.checkpoint": "Checkpoints",
    "miniml.data.loader": "Batches, samplers and streams",
    "miniml.data.sets": "Data sets, preparation and augmentation",
    "miniml.grad.transforms": "Gradients",
    "miniml.compat.classic": "Gradients",
    "miniml.ops.elementwise": "Gradients",
    "miniml.grad.forward": "Forward mode",
    "miniml.grad.batching": "vmap",
    "miniml.core.bprop": "Rules of primitives",
    "miniml.interop.formula": "Primitives from an expression",
    "miniml.testing.gradchecks.run": "Gradient check",
    "miniml.testing.opchecks.run": "Operator check",
    "miniml.testing.report": "Reports",
    "miniml.testing.calls": "Rows for opcheck",
    "miniml.viz.page": "Pages",
    "miniml.viz.pictures": "Graphs as text and pages, and figures",
    "miniml.onnx.reader": "Load",
    "miniml.onnx.writer": "Save",
    "miniml.onnx.model": "Coverage",
    "miniml.onnx.operators": "Operators of your own",
    "miniml.interop.pytorch": "PyTorch",
    "miniml.interop.torch_functions": "PyTorch",
    "miniml.interop.jax": "JAX",
    "miniml.interop.scipy": "SciPy",
    "miniml.interop.estimators": "scikit-learn",
    "miniml.distributed.ranks": "Ranks and collectives",
    "miniml.backends.group": "Groups of ranks",
    "miniml.export.exporter": "C",
    "miniml.ops.collective": "Collectives",
}


@dataclass
class Entry:
    """A public name: what it is, and all that its entry says."""

    module: str
    name: str
    value: object
    kind: str  # "class", "exception", "function" or "data"
    home: str  # the module that defines it
    place: tuple[str, int] | None  # its file and line
    signature: str
    parameters: tuple[str, ...]
    doc: str
    methods: list[Entry] = field(default_factory=list)

    @property
    def spelled(self) -> str:
        """The name as programs write it: `nn.Dense`."""
        return f"{ALIASES.get(self.module, self.module.rpartition('.')[2])}.{self.name}"

    @property
    def errors(self) -> list[str]:
        """The classes of errors that its docstring names."""
        found = re.findall(r"\b[A-Z]\w*(?:Error|Warning)\b", self.doc)
        return [e for e in dict.fromkeys(found) if e != self.name]


def pages() -> dict[str, str]:
    """The text of every page, by its name."""
    made = {}
    lines = ["# Reference", "", "Every public name, with signature, errors, an example and source."]
    tree: list[str] = []
    for module, title in NAMESPACES.items():
        groups = grouped(module)
        split = len(entries(module)) > 80
        short = module.removeprefix("miniml.")
        lines += ["", f"## `{module}`", "", f"{title}.", ""]
        if split:
            tree.append(short)
            names = [f"{short}-{slug(task)}" for task in groups]
            made[short] = contents(f"`{module}`: {lowered(title)}", names)
            for name, (task, members) in zip(names, groups.items()):
                made[name] = page(f"{short}: {lowered(task)}", module, {"": members})
                lines.append(f"- [{task}]({name}.md): {brief_list(members)}")
        else:
            tree.append(short)
            made[short] = page(f"`{module}`: {lowered(title)}", module, groups)
            lines += [f"- [{t}]({short}.md#{slug(t)}): {brief_list(m)}" for t, m in groups.items()]
    lines += ["", "```{toctree}", ":hidden:", "", *tree, "```"]
    made["index"] = "\n".join(lines) + "\n"
    return made


def contents(title: str, names: list[str]) -> str:
    """A page that lists others."""
    return "\n".join([f"# {title}", "", "```{toctree}", ":maxdepth: 1", "", *names, "```", ""])


def page(title: str, module: str, groups: dict[str, list[Entry]]) -> str:
    """A page of entries."""
    lines = [f"# {title}", "", "```{py:currentmodule} " + module, "```"]
    for task, members in groups.items():
        lines += ["", f"## {task}"] if task else []
        for entry in members:
            lines += ["", text(entry)]
    return "\n".join(lines) + "\n"


def brief_list(members: list[Entry]) -> str:
    """The names of a group, on a line."""
    return ", ".join(f"{{py:obj}}`{e.name} <{e.module}.{e.name}>`" for e in members)


def slug(title: str) -> str:
    """A heading as the name of an anchor or file."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def lowered(title: str) -> str:
    """A title within a sentence."""
    return title[0].lower() + title[1:] if title.split()[0][1:].islower() else title


def grouped(module: str) -> dict[str, list[Entry]]:
    """The entries of a namespace by task; operations by the sections of their table."""
    groups: dict[str, list[Entry]] = {}
    sections = (
        {row.name: row.section for row in operations.rows()} if module == "miniml.ops" else {}
    )
    for entry in entries(module):
        title = sections.get(snake(entry.name)) or sections.get(entry.name)
        if sections and entry.home != "miniml.ops.collective":
            title = title or "Further primitives"
        groups.setdefault(title or task(entry), []).append(entry)
    order = list(dict.fromkeys([*sections.values(), *TASKS.values(), *TITLES.values()]))
    rank = {title: i for i, title in enumerate(order)}
    groups = dict(sorted(groups.items(), key=lambda item: rank.get(item[0], len(rank))))
    if sections:
        for members in groups.values():  # functions first, then the primitives that they call
            members.sort(key=lambda e: (e.kind != "function", e.name.lower()))
    return groups


def snake(name: str) -> str:
    """LeakyReLU as leaky_relu, where there is such an operation; the name otherwise."""
    return _spellings()[0].get(name.lower(), name)


def camel(name: str) -> str:
    """leaky_relu as LeakyReLU, where there is such a primitive; the name otherwise."""
    return _spellings()[1].get(name, name)


@cache
def _spellings() -> tuple[dict[str, str], dict[str, str]]:
    """The functions of `ops` by their letters alone, and its first primitive of each function."""
    names = exported("miniml.ops")
    functions = {e.lower().replace("_", ""): e for e in names if e.islower()}
    primitives: dict[str, str] = {}
    for e in names:
        function = functions.get(e.lower(), e)
        if e != function:
            primitives.setdefault(function, e)
    return functions, primitives


def task(entry: Entry) -> str:
    """What its module is for."""
    if (
        entry.module == "miniml"
        and isinstance(entry.value, np.dtype | type)
        and entry.kind == "data"
    ):
        return "Dtypes"
    places = [p for p in TASKS if f"{entry.home}.{entry.name}".startswith(p)]
    if places and entry.module == "miniml":
        return TASKS[max(places, key=len)]
    if title := TITLES.get(entry.home):
        return title
    if entry.home == entry.module or not entry.home.startswith("miniml"):
        return "All" if entry.home == entry.module else "Values"
    sentence = opening(entry.home)
    head, _, rest = sentence.partition(": ")
    title = rest if rest and len(head.split()) == 1 else head
    title = re.split(r"[;,(.]", title)[0].strip()
    return title[0].upper() + title[1:]


@cache
def opening(module: str) -> str:
    """The first sentence of a module's docstring."""
    file = ROOT / module.replace(".", "/")
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    doc = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or module
    return " ".join(doc.split("\n\n")[0].split())


@cache
def entries(module: str) -> list[Entry]:
    """All public names of a namespace; submodules have pages of their own."""
    found = [entry(module, name) for name in sorted(exported(module), key=str.lower)]
    return [e for e in found if e is not None]


def entry(module: str, name: str) -> Entry | None:
    """What there is to say about a name; of what needs an absent package, from its source."""
    try:
        value = getattr(importlib.import_module(module), name)
    except MinimlError:
        return _from_source(module, name)
    if isinstance(value, ModuleType):
        return None
    return _described(module, name, value)


def _described(module: str, name: str, value: Any) -> Entry:
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, BaseException) else "class"
    else:
        kind = "function" if callable(value) else "data"
    home = getattr(value, "__module__", None)
    if not isinstance(home, str) or not home.startswith("miniml"):
        home = type(value).__module__ if kind == "data" else module
    if isinstance(value, Primitive):
        home = type(value).__module__
    doc = inspect.getdoc(value) or ""
    if kind == "class" and "__init__" in vars(value) and written(value.__init__, value):
        doc += "\n\n" + inspect.cleandoc(value.__init__.__doc__)
    if kind == "data" and not isinstance(value, Primitive):
        doc = data_doc(f"{ALIASES.get(module, module.rpartition('.')[2])}.{name}", value)
    made = Entry(module, name, value, kind, home, place(value), *called(value), doc)
    if kind == "class" and not issubclass(value, Primitive):
        made.methods = list(methods(made))
    return made


def written(init: Any, owner: type) -> bool:
    """True for an `__init__` that stands in the class, with a docstring."""
    return bool(init.__doc__) and init.__qualname__ == f"{owner.__qualname__}.__init__"


def data_doc(spelled: str, value: Any) -> str:
    """What docs/values.txt says of a value that is no function, and its text where it is short."""
    said = dict(lines_of("values.txt")).get(spelled, "")
    text = repr(value)
    return f"{said} `{text}`." if said and len(text) < 30 else said


def called(value: Any) -> tuple[str, tuple[str, ...]]:
    """Its signature as text, and the names of its parameters."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "", ()
    text = re.sub(r"(:|->) '([^']*)'", r"\1 \2", str(found))
    text = re.sub(r"<(?:function|class|object)?[^<>]*?(\w+)(?: at 0x\w+)?'?>", r"\1", text)
    text = re.sub(r": Any(?=[,)])|: Any (?==)| -> (?:Any|None)$", "", text.replace("typing.", ""))
    return text, tuple(found.parameters)


def place(value: Any) -> tuple[str, int] | None:
    """The file and line of a definition, relative to the repository."""
    value = type(value) if isinstance(value, Primitive) else inspect.unwrap(value)
    try:
        file = Path(inspect.getsourcefile(value) or "").resolve()
        inside = file.is_relative_to(ROOT)
        named = _classes(file) if inside and inspect.isclass(value) else {}
        line = named.get(value.__qualname__) or inspect.getsourcelines(value)[1]
    except (TypeError, OSError):
        return None
    return (file.relative_to(ROOT).as_posix(), line) if inside else None


@cache
def _classes(file: Path) -> dict[str, int]:
    """The lines of a file's classes; `inspect` parses the whole file for each of them."""
    nodes = [n for n in ast.parse(file.read_text("utf-8")).body if isinstance(n, ast.ClassDef)]
    return {n.name: min([n.lineno, *(d.lineno for d in n.decorator_list)]) for n in nodes}


def listed(kind: type) -> bool:
    """True for a class that has an entry of its own."""
    return any(kind.__name__ in exported(module) for module in NAMESPACES)


# What programs ask objects, not users.
INSIDE = set(
    "describe function signature outgrown added count counted judged means parts weighted_step "
    "zeros".split()
)


def methods(owner: Entry) -> Iterator[Entry]:
    """The documented methods and properties of a class, of its private bases too."""
    assert isinstance(owner.value, type)
    seen = set()
    for base in owner.value.__mro__:
        near = base.__module__.split(".")[:2] == owner.value.__module__.split(".")[:2]
        if not near or (base is not owner.value and listed(base)):
            continue
        for name, value in vars(base).items():
            function = getattr(value, "__func__", value)
            public = name[0] != "_" and (
                inspect.isfunction(function) or isinstance(value, property)
            )
            if public and name not in seen | INSIDE and function.__doc__:
                seen.add(name)
                kind = "property" if isinstance(value, property) else "method"
                signature, parameters = ("", ()) if kind == "property" else called(function)
                signature = re.sub(r"^\((?:self|cls)(?:, )?", "(", signature)
                doc = inspect.getdoc(function) or ""
                yield Entry(
                    owner.module, name, value, kind, base.__module__, None, signature,
                    parameters, doc,
                )  # fmt: skip


def _from_source(module: str, name: str) -> Entry:
    folder = Path(str(importlib.import_module(module).__file__)).parent
    for file in sorted(folder.glob("*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == name and ast.get_docstring(node):
                where = (file.relative_to(ROOT).as_posix(), node.lineno)
                arguments = f"({ast.unparse(node.args)})"
                returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
                parameters = tuple(a.arg for a in node.args.args)
                home = f"{module}.{file.stem}"
                doc = ast.get_docstring(node) or ""
                return Entry(
                    module, name, None, "function", home, where, arguments + returns,
                    parameters, doc,
                )  # fmt: skip
    raise LookupError(f"{module}.{name} is defined in no file of {folder}")


def text(entry: Entry, fence: int = 7) -> str:
    """The entry in MyST."""
    marks = "`" * fence
    kind = {"property": "property", "method": "method"}.get(entry.kind, entry.kind)
    lines = [f"{marks}{{py:{kind}}} {entry.name}{entry.signature}", ""]
    lines += [sections(entry)]
    if entry.module == "miniml.ops" and (row := table().get(entry.name)):
        lines += ["", row]
    if entry.place:
        lines += ["", f"Code: {{src}}`{entry.place[0]}:{entry.place[1]}`"]
    for method in entry.methods:
        lines += ["", text(method, fence - 2)]
    return "\n".join([*lines, marks])


@cache
def table() -> dict[str, str]:
    """What the page of operations says of each: dtypes, gradient, devices, other libraries."""
    found = {}
    for line in operations.PAGE.read_text("utf-8").splitlines():
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == len(operations.HEAD) and cells[0].startswith("`"):
            named = dict(zip(operations.HEAD, cells))
            others = [f"{k} {named[k]}" for k in operations.HEAD[7:11] if named[k] != "-"]
            facts = [f"{k}: {named[k]}" for k in ("dtypes", "gradient", "vmap", "devices")]
            other = f" Elsewhere: {', '.join(others)}." if others else ""
            found[cells[0].strip("`")] = f"*{'; '.join(facts)}.*{other}"
    return found


# The docstring, in sections.


def sections(entry: Entry) -> str:
    """The docstring as MyST: text, parameters, errors, and examples at the end."""
    prose, parameters, doctests = parsed(entry.doc, entry.parameters)
    cited = [p for p in prose if p.startswith("Source: ")]
    lines = ["\n\n".join(p for p in prose if p not in cited)]
    parameters += common(entry, {name for name, _ in parameters})
    fields = [f":param {name}: {indented(said)}" for name, said in parameters]
    if elementwise(entry):
        fields.append(":returns: for each element, of the shape that the inputs broadcast to")
    fields += [f":raises {e}: {indented(raised(entry.doc, e))}" for e in entry.errors if known(e)]
    lines += ["", *fields] if fields else []
    if (named := source(entry)) and named is not entry:
        cited = [f"Source: see `{named.spelled}`."]
    lines += [line for said in cited for line in ("", said)]
    shown = [fenced(d, "pycon") for d in doctests] or examples(entry)
    if shown:
        lines += (
            ["", "**Example**", "", *shown] if entry.kind not in ("method", "property") else shown
        )
    return "\n".join(lines)


def elementwise(entry: Entry) -> bool:
    """True for an operation, or a layer that is one, whose example is elementwise calls alone."""
    row = rows().get(snake(entry.name))
    layer = entry.home == "miniml.nn.layer"
    if row is None or not row.example or not (layer or entry.module == "miniml.ops"):
        return False
    return _elementwise(row.name)


@cache
def _elementwise(name: str) -> bool:
    row = rows()[name]
    given = operations.numbers(row, _given(name))
    try:
        graph = ml.trace(operations.call(row, _given(name)), **given)
    except MinimlError:
        return False
    return bool(graph.nodes) and all(n.primitive.elementwise for n in graph.nodes)


# Families of formulas out of the literature: modules, and sections of the table of operations.
FAMILIES = ("miniml.nn.layer", "miniml.nn.init", "miniml.nn.loss", "miniml.nn.norm",
    "miniml.optim.optimizer", "miniml.optim.schedules")  # fmt: skip
SECTIONS = {"Activations and special functions", "Losses", "Norms and softmax"}
CITED = r"Source: |\b[A-Z][\w ,.&'-]*? \(?(1[6-9]|20)\d\d\b|\b[Aa]s (in )?(PyTorch|NumPy|IEEE)|DLMF"


def literature(entry: Entry) -> bool:
    """True for a name of these families whose summary is a formula."""
    row = rows().get(entry.name) if entry.module == "miniml.ops" else None
    if not (entry.home in FAMILIES or (row and row.section in SECTIONS)):
        return False
    return re.search(r" [-+*/=^] |\^", entry.doc.split("\n\n")[0]) is not None


def source(entry: Entry) -> Entry | None:
    """The entry that gives its source: itself, or what its summary names, or the operation."""
    if re.search(CITED, " ".join(entry.doc.split())):
        return entry
    named = re.findall(r"`(?:\w+\.)?(\w+)`", entry.doc.split("\n\n")[0])
    twin = snake(entry.name.removesuffix("Loss"))
    for name in (*named, snake(entry.name), twin, twin + "_loss", camel(entry.name)):
        for other in (*entries(entry.module), *entries("miniml.ops")):
            if other.name == name and other is not entry and re.search(CITED, other.doc):
                return other
    return None


def common(entry: Entry, said: set[str]) -> list[tuple[str, str]]:
    """The parameters that mean the same everywhere, where the docstring does not speak of them."""
    found = ((name, meaning(entry.module, name)) for name in entry.parameters if name not in said)
    return [(n, escaped(text)) for n, text in found if text and not spoken_of(entry, n)]


def spoken_of(entry: Entry, name: str) -> bool:
    """True where the docstring of an entry has the name of this parameter."""
    return re.search(rf"\b{re.escape(name)}\b", entry.doc) is not None


def meaning(module: str, name: str) -> str:
    """What a parameter of this name means in a namespace; "" where nothing is agreed on."""
    said = glossary()
    return said.get((module.removeprefix("miniml."), name)) or said.get(("*", name)) or ""


@cache
def glossary() -> dict[tuple[str, str], str]:
    """The lines of docs/parameters.txt, by namespace and name."""
    found = {}
    for names, places, text in lines_of("parameters.txt"):
        parts = text.split("; ")  # as many as names: one for each
        each = parts if len(parts) == len(names.split()) else itertools.repeat(text)
        for name, part in zip(names.split(), each):
            found |= {(place, name): part for place in places.split()}
    return found


def lines_of(table: str) -> list[list[str]]:
    """The cells of a table in docs: lines of cells between bars, below the first paragraph."""
    text = (ROOT / "docs" / table).read_text("utf-8").partition("\n\n")[2]
    return [[cell.strip() for cell in line.split(" | ")] for line in text.splitlines()]


def known(error: str) -> bool:
    """True for the errors that have entries."""
    return any(error in exported(module) for module in NAMESPACES)


def raised(doc: str, error: str) -> str:
    """The sentence of a docstring that speaks of an error, without its name where it begins so."""
    sentences = re.split(r"(?<=[.;:])\s+", " ".join(doc.split()))
    found = next((s for s in sentences if re.search(rf"\b{error}\b", s)), "")
    return escaped(re.sub(rf"^`?{error}`? ", "", found))


def indented(said: str) -> str:
    """A field's text: its further lines stand in by two."""
    return said.replace("\n", "\n  ")


def fenced(code: str, language: str) -> str:
    """A block of code."""
    return f"```{language}\n{code}\n```"


def parsed(doc: str, names: Iterable[str]) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    """The prose of a docstring, what it says of each parameter, and its doctests."""
    prose: list[str] = []
    parameters: list[tuple[str, str]] = []
    doctests: list[str] = []
    apart = re.sub(r"(?<=[.;])\s(?=Source: )", "\n\n", doc)
    for paragraph in re.split(r"\n[ \t]*\n", apart):
        if paragraph.lstrip().startswith(">>>"):
            doctests.append(inspect.cleandoc(paragraph))
        elif paragraph.startswith("    "):
            prose.append(fenced(inspect.cleandoc(paragraph), "text"))
        else:
            before, found = _split(paragraph, set(names))
            prose += [escaped(before)] if before else []
            parameters += [(name, escaped(said)) for name, said in found]
    return prose, parameters, doctests


def _split(paragraph: str, names: set[str]) -> tuple[str, list[tuple[str, str]]]:
    """A paragraph without its `name: text` parts, and these."""
    known = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
    if not known:
        return paragraph, []
    start = rf"(?:^|(?<=[.;]\s))((?:{known})(?:(?:, | and )(?:{known}))*):\s"
    parts = re.split(start, paragraph, flags=re.MULTILINE)
    found = []
    for names, said in zip(parts[1::2], parts[2::2]):
        first, *others = re.split(", | and ", names)
        found += [(first, said.strip()), *((n, f"see {first}") for n in others)]
    return parts[0].strip(), found


def escaped(text: str) -> str:
    """Plain text for MyST; what stands between backticks stays."""
    parts = re.split(r"(`[^`\n]+(?:\n[^`\n]+)?`)", text)
    parts[::2] = [re.sub(r"([\\*_<>\[\]|~$^{}#])", r"\\\1", part) for part in parts[::2]]
    lines = "".join(parts).splitlines()
    mark = r"^(\s*)([+=-]|\d+\.)(?=[\s=-])"  # what would begin a list or underline a heading
    return "\n".join(x if x.startswith("- ") else re.sub(mark, r"\1\\\2", x) for x in lines)


# Examples, from what the tests run.

GUIDES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
    if PAGES not in path.parents
]
ROOMS = {ALIASES.get(m, m.rpartition(".")[2]): m for m in NAMESPACES}


def examples(entry: Entry) -> list[str]:
    """A use of the name: from the table of operations, or the shortest in guides and programs."""
    if entry.module == "miniml.ops" and (row := rows().get(entry.name)) and row.example:
        return [fenced(shown(row), "pycon")]
    if entry.spelled in further():
        return [fenced(tried(entry), "pycon")]
    found = used(entry)
    if found is None:
        return called_by(entry)
    where, code = found
    return [fenced(code, "python"), "", f"from {where}"]


def used(entry: Entry) -> tuple[str, str] | None:
    """Where the tests run the name, or the same thing by its name in the package itself."""
    short = "miniml" if getattr(ml, entry.name, None) is entry.value else entry.module
    return uses().get(f"{entry.module}.{entry.name}") or uses().get(f"{short}.{entry.name}")


def called_by(entry: Entry) -> list[str]:
    """The function that applies a primitive, which has examples."""
    function = snake(entry.name)
    if entry.module != "miniml.ops" or function == entry.name:
        return []
    return [f"`ops.{function}` applies it."]


@cache
def further() -> dict[str, str]:
    """The lines of docs/examples.txt, by name."""
    return dict(lines_of("examples.txt"))


def tried(entry: Entry) -> str:
    """The line of docs/examples.txt with its result."""
    code = further()[entry.spelled]
    given = operations.values("float32")
    rooms = {room: importlib.import_module(module) for room, module in ROOMS.items()}
    ml.manual_seed(0)
    result = eval(compile(code, f"<{entry.spelled}>", "eval"), {**rooms, **given})
    used = [n for n in compile(code, entry.name, "eval").co_names if n in given]
    lines = [f">>> {name} = {_made(given[name])}" for name in dict.fromkeys(used)]
    return "\n".join([*lines, f">>> {code}", *_result(result)])


@cache
def rows() -> dict[str, operations.Row]:
    """The rows of the table of operations, by name."""
    return {row.name: row for row in operations.rows()}


@cache
def _given(name: str) -> dict[str, Any]:
    return operations.given_to(rows()[name])


def shown(row: operations.Row) -> str:
    """The example of an operation with its inputs and its result, as in a session."""
    given = _given(row.name)
    used = [n for n in compile(row.example, row.name, "eval").co_names if n in given]
    lines = []
    for name in dict.fromkeys(used):
        value = given[name]
        lines.append(f">>> {name} = {_made(value)}")
    tree = ast.parse(row.example, mode="eval")
    call = re.sub(rf"(?<![\w.]){re.escape(row.name)}\(", f"ops.{row.name}(", ast.unparse(tree))
    ml.manual_seed(0)
    result = operations.call(row, given)()
    lines += [f">>> {call}", *_result(result)]
    return "\n".join(lines)


def _made(value: Any) -> str:
    array = value.asnumpy()
    if array.size <= 6:
        return f"ml.Tensor({array.tolist()})"
    return f"ops.uniform({array.shape})  # such numbers"


def _result(value: Any) -> list[str]:
    said = re.sub(r" (object )?at 0x\w+", "", repr(value))
    if said.startswith("<"):
        return []
    if len(said) <= 300:
        return said.splitlines()
    return [f"# {getattr(value, 'shape', '...')}"]


@cache
def uses() -> dict[str, tuple[str, str]]:
    """The shortest statement that uses each public name in what the tests run, and where."""
    found: dict[str, tuple[str, str]] = {}
    for where, code in programs():
        try:
            tree = ast.parse(code)
        except SyntaxError:
            continue
        rooms, bare = _imports(tree)
        for statement in _statements(tree):
            for full in _names(statement, rooms, bare):
                short = _text_of(code, statement)
                if len(short.splitlines()) <= 8 and (
                    full not in found or len(short) < len(found[full][1])
                ):
                    found[full] = (where, short)
    return found


def _text_of(code: str, statement: ast.stmt) -> str:
    """The lines of a statement, with its decorators, moved to the left."""
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(d.lineno for d in decorators)])
    lines = code.splitlines()[first - 1 : statement.end_lineno]
    if lines[0][: statement.col_offset].strip():  # it does not begin its line
        return ast.get_source_segment(code, statement) or ""
    return textwrap.dedent("\n".join(lines))


def programs() -> Iterator[tuple[str, str]]:
    """Every page, notebook and program, with its code; a page's blocks are one program."""
    for guide in GUIDES:
        said = (ROOT / guide).read_text("utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```", said, flags=re.MULTILINE | re.DOTALL)
        title = re.search(r"^# (.*)", said, flags=re.MULTILINE)
        yield f"[{title[1] if title else guide}](../../{guide})", "\n".join(blocks)
    for file in (*sorted(ROOT.glob("examples/*.py")), *sorted(ROOT.glob("notebooks/[0-9]*.py"))):
        path = file.relative_to(ROOT).as_posix()
        link = path if path.startswith("examples") else path.replace(".py", ".ipynb")
        yield f"[{path}](../../{link})", file.read_text("utf-8")


def _imports(tree: ast.Module) -> tuple[dict[str, str], dict[str, str]]:
    rooms, bare = dict(ROOMS), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("miniml"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                (rooms if full in NAMESPACES else bare)[alias.asname or alias.name] = full
    return rooms, bare


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Every statement that is not an import; of one with a body, also those in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def _names(node: ast.AST, rooms: dict[str, str], bare: dict[str, str]) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            if part.value.id in rooms:
                yield f"{rooms[part.value.id]}.{part.attr}"
        elif isinstance(part, ast.Attribute) and ast.unparse(part).startswith("ml."):
            yield ast.unparse(part).replace("ml.", "miniml.", 1)
        elif isinstance(part, ast.Name) and part.id in bare:
            yield bare[part.id]


def main() -> None:
    """Write the pages that have changed, and remove those that are no more."""
    PAGES.mkdir(exist_ok=True)
    made = {PAGES / f"{name}.md": said for name, said in pages().items()}
    for path in set(PAGES.glob("*.md")) - made.keys():
        path.unlink()
    for path, said in made.items():
        if not path.exists() or path.read_text("utf-8") != said:
            path.write_text(said, "utf-8")


if __name__ == "__main__":
    main()
