"""A drawing in which the calls of each layer, or of each line, are folded into one box."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace

from .drawing import Arrow, Box, Drawing, shortened


def fold(drawing: Drawing) -> Drawing:
    """The drawing with one box for each part of the user's code, which holds that part's drawing.

    A part that others run through is folded in pieces, so that arrows still lead one way. State
    and constants go with the calls that use them first. A box that would be alone stays as it is.
    """
    return _Fold(drawing).folded()


@dataclass(slots=True)
class _Part:
    """Boxes to be drawn as one; `before` has a bit for each part that they depend on."""

    boxes: list[Box] = field(default_factory=list)
    before: int = 0


class _Fold:
    """The parts of a drawing, found in one walk from the sources down."""

    def __init__(self, drawing: Drawing):
        self.drawing = drawing
        self.boxes = {box.key: box for box in drawing.boxes}
        self.inputs: dict[str, list[str]] = defaultdict(list)
        for arrow in drawing.arrows:
            self.inputs[arrow.target].append(arrow.source)
        self.parts: list[_Part] = []
        self.index: dict[str, int] = {}  # of a box's part, by the box's key
        latest: dict[str, int] = {}
        for box in drawing.boxes:
            if box.kind not in ("state", "constant"):
                latest[box.part] = self._add(box, latest.get(box.part) if box.part else None)
        for box in drawing.boxes:
            if box.key not in self.index:  # nothing uses it
                self._put(box, self._new())

    def _add(self, box: Box, index: int | None) -> int:
        """Put a box, and the state that it uses first, into that part if it can be, else into a
        new one; returns which."""
        unused = [s for s in self.inputs[box.key] if s not in self.index]
        if not box.part:
            for source in unused:
                self._put(self.boxes[source], self._new())
        needed = {self.index[s] for s in self.inputs[box.key] if s in self.index}
        if index is None or self._turns_back(needed - {index}, index):
            index = self._new()
        for source in unused if box.part else ():
            self._put(self.boxes[source], index)
        self._put(box, index)
        self._depend(index, needed - {index})
        return index

    def _new(self) -> int:
        self.parts.append(_Part())
        return len(self.parts) - 1

    def _put(self, box: Box, index: int) -> None:
        self.parts[index].boxes.append(box)
        self.index[box.key] = index

    def _turns_back(self, needed: set[int], index: int) -> bool:
        """True where a part that is needed depends on the part itself."""
        return any(self.parts[i].before >> index & 1 for i in needed)

    def _depend(self, index: int, needed: set[int]) -> None:
        """Add to what the part depends on, and with it all that depend on it."""
        own = self.parts[index]
        before = own.before
        for i in needed:
            before |= self.parts[i].before | 1 << i
        if before != own.before:
            for part in self.parts:
                if part is own or part.before >> index & 1:
                    part.before |= before

    def folded(self) -> Drawing:
        boxes = [self._box(i) for i in range(len(self.parts))]
        order = sorted(range(len(boxes)), key=lambda i: self.parts[i].before.bit_count())
        types: dict[tuple[str, str], list[str]] = defaultdict(list)
        for arrow in self.drawing.arrows:
            source, target = self.index[arrow.source], self.index[arrow.target]
            if source != target:
                types[boxes[source].key, boxes[target].key].append(arrow.type)
        arrows = [Arrow(*ends, ", ".join(dict.fromkeys(t))) for ends, t in types.items()]
        return Drawing(self.drawing.name, tuple(boxes[i] for i in order), tuple(arrows))

    def _box(self, index: int) -> Box:
        boxes = self.parts[index].boxes
        if len(boxes) == 1:
            return replace(boxes[0], title=shortened(boxes[0].part or boxes[0].title))
        calls = [box for box in boxes if box.part]
        count = "1 call" if len(calls) == 1 else f"{len(calls)} calls"
        kinds = Counter(box.title.split()[0] for box in calls).most_common()
        listed = ", ".join(f"{n} {kind}" if n > 1 else kind for kind, n in kinds)
        state = ", ".join(box.title for box in boxes if box.kind == "state")
        details = (calls[0].part, f"{count}: {listed}", *([f"state: {state}"] if state else []))
        inner = (("", self._inside(index, calls[0].part)),)
        return Box(f"p{index}", "part", shortened(calls[0].part), count, details, inner)

    def _inside(self, index: int, name: str) -> Drawing:
        """The boxes of a part, and those outside that it takes values from and gives values to."""
        sources: dict[str, Box] = {}
        targets: dict[str, Box] = {}
        arrows: dict[Arrow, None] = {}
        for arrow in self.drawing.arrows:
            enters, leaves = (self.index[end] == index for end in (arrow.target, arrow.source))
            if enters and not leaves:
                outside = self._outside(arrow.source, f"p{index}_from_")
                arrow = replace(arrow, source=sources.setdefault(arrow.source, outside).key)
            elif leaves and not enters:
                outside = self._outside(arrow.target, f"p{index}_to_")
                arrow = replace(arrow, target=targets.setdefault(arrow.target, outside).key)
            if enters or leaves:
                arrows[arrow] = None
        boxes = (*sources.values(), *self.parts[index].boxes, *targets.values())
        return Drawing(name, boxes, tuple(arrows))

    def _outside(self, key: str, prefix: str) -> Box:
        box = self.boxes[key]
        return Box(f"{prefix}{key}", "outside", box.title, box.part or box.kind, box.details)
