"""The notation of a tree, in one line, and its reading.

tree     = leaf | chain | pairwise | fused | ( tree + tree )
chain    = chain[ sequence ]                      ((first + second) + third) + ...
pairwise = pairwise(strides [8, 16]) of tree      the tree, its copy 16 further added, and so on
fused    = fused{ sequence }                      one sum of all terms at once
         | fused-chain[ from tree: sequence ]     each takes the one before as a term
sequence = item, item; ...                        the two separators mean the same
item     = tree | {sequence} | a..b step s | 14 x (step 64) item | 14 x (step 64) <sequence>
"""

from __future__ import annotations

import re
from collections.abc import Callable

from parity.errors import InputError
from parity.order.shapes import Chain, Form, Fused, Group, Leaf, Pairwise, Repeat

DEEPEST = 60  # forms within forms, in a text that is read
LARGEST = 1 << 40  # of a number that is read: more is a slip, and would fill the memory

_TOKEN = re.compile(r"\s*(fused-chain|[a-z]+|-?\d+|\.\.|[\[\](){}<>,;:+])")

# --- writing --------------------------------------------------------------------------------------


def text_of(form: Form) -> str:
    """The one line of a form."""
    match form:
        case Leaf(at):
            return str(at)
        case Repeat():
            return _repeat_text(form)
        case Pairwise(strides, of):
            return f"pairwise(strides [{', '.join(map(str, strides))}]) of {text_of(of)}"
        case Chain((one, other)) if not isinstance(one, Repeat) and not isinstance(other, Repeat):
            return f"({text_of(one)} + {text_of(other)})"
        case Chain(items):
            return f"chain[{sequence_text(items)}]"
        case Group(items):
            return f"{{{sequence_text(items)}}}"
        case Fused(None, (Group(items),)):
            return f"fused{{{sequence_text(items)}}}"
        case Fused(start, steps):
            begin = "" if start is None else f"from {text_of(start)}: "
            return f"fused-chain[{begin}{sequence_text(steps)}]"


def sequence_text(items: tuple[Form, ...]) -> str:
    """Items with the separator that reads better: a comma between numbers alone."""
    plain = all(isinstance(item, Leaf) or _is_range(item) for item in items)
    return (", " if plain else "; ").join(text_of(item) for item in items)


def _is_range(form: Form) -> bool:
    return isinstance(form, Repeat) and len(form.items) == 1 and isinstance(form.items[0], Leaf)


def _repeat_text(form: Repeat) -> str:
    if _is_range(form):
        begin = form.items[0].at  # type: ignore[union-attr]
        end = begin + (form.count - 1) * form.step
        return f"{begin}..{end}" + ("" if form.step == 1 else f" step {form.step}")
    inner = text_of(form.items[0]) if len(form.items) == 1 else f"<{sequence_text(form.items)}>"
    return f"{form.count} x (step {form.step}) {inner}"


# --- reading --------------------------------------------------------------------------------------


def parse(text: str) -> Form:
    """The form of a tree in this notation; InputError says where the text cannot be read."""
    reader = _Reader(text)
    form = reader.tree(0)
    reader.end()
    return form


def parse_leaves(text: str) -> tuple[Form, ...]:
    """The items of a sequence of leaves: ``0, 2..8 step 2, 4 x (step 16) 32..35``."""
    reader = _Reader(text)
    items = reader.sequence(0) if text.strip() else ()
    reader.end()
    if not all(map(_leaves_only, items)):
        raise InputError(f"order: {text[:40]!r} is no list of leaves", "give leaves and ranges")
    return items


def _leaves_only(form: Form) -> bool:
    if isinstance(form, Repeat):
        return all(map(_leaves_only, form.items))
    return isinstance(form, Leaf)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.place, self.token = text, 0, ""
        self.next()

    def next(self) -> str:
        """The token that was read last; the next one is read."""
        was, rest = self.token, self.text[self.place :]
        found = _TOKEN.match(rest)
        if found is None and rest.strip():
            raise self.failure(len(self.text) - len(rest.lstrip()))
        self.place += found.end() if found else len(rest)
        self.token = found[1] if found else ""
        return was

    def failure(self, at: int | None = None) -> InputError:
        at = self.place - len(self.token) if at is None else at
        seen = self.text[at : at + 20] or "its end"
        return InputError(f"order: the tree cannot be read at character {at}: {seen!r}", "")

    def end(self) -> None:
        if self.token:
            raise self.failure()

    def take(self, *tokens: str) -> None:
        for token in tokens:
            if self.token != token:
                raise self.failure()
            self.next()

    def number(self) -> int:
        if not re.fullmatch(r"-?\d{1,15}", self.token) or abs(int(self.token)) > LARGEST:
            raise self.failure()
        return int(self.next())

    def tree(self, depth: int) -> Form:
        if depth > DEEPEST:
            raise InputError("order: the tree's notation is too deep", f"at most {DEEPEST} forms")
        known: dict[str, Callable[[int], Form]] = {
            "chain": self.chain,
            "pairwise": self.pairwise,
            "fused": self.fused,
            "fused-chain": self.fused_chain,
            "(": self.pair,
        }
        read = known.get(self.token)
        if read is None:
            return Leaf(self.number())
        self.next()
        return read(depth + 1)

    def chain(self, depth: int) -> Form:
        self.take("[")
        items = self.sequence(depth)
        self.take("]")
        return Chain(items)

    def pair(self, depth: int) -> Form:
        one = self.tree(depth)
        self.take("+")
        other = self.tree(depth)
        self.take(")")
        return Chain((one, other))

    def pairwise(self, depth: int) -> Form:
        self.take("(", "strides", "[")
        strides = [self.number()]
        while self.token == ",":
            self.next()
            strides.append(self.number())
        self.take("]", ")", "of")
        if len(strides) > 40:
            raise InputError(f"order: {len(strides)} strides", "at most 40")
        return Pairwise(tuple(strides), self.tree(depth))

    def fused(self, depth: int) -> Form:
        return Fused(None, (self.group(depth),))

    def group(self, depth: int) -> Form:
        self.take("{")
        items = self.sequence(depth)
        self.take("}")
        return Group(items)

    def fused_chain(self, depth: int) -> Form:
        self.take("[")
        start: Form | None = None
        if self.token == "from":
            self.next()
            start = self.tree(depth)
            self.take(":")
        steps = self.sequence(depth)
        self.take("]")
        return Fused(start, steps)

    def sequence(self, depth: int) -> tuple[Form, ...]:
        items = [self.item(depth)]
        while self.token in (",", ";"):
            self.next()
            items.append(self.item(depth))
        return tuple(items)

    def item(self, depth: int) -> Form:
        if depth > DEEPEST:
            raise InputError("order: the tree's notation is too deep", f"at most {DEEPEST} forms")
        if self.token == "{":
            return self.group(depth + 1)
        if not self.token.lstrip("-").isdigit():
            return self.tree(depth)
        number = self.number()
        if self.token == "..":
            return self.range(number)
        return self.repeat(number, depth) if self.token == "x" else Leaf(number)

    def range(self, begin: int) -> Form:
        self.next()
        end, step = self.number(), 1
        if self.token == "step":
            self.next()
            step = self.number()
        if step == 0 or (end - begin) % step or (end - begin) // step < 0:
            raise InputError(f"order: {begin}..{end} step {step} is no range", "")
        return Repeat((end - begin) // step + 1, step, (Leaf(begin),))

    def repeat(self, count: int, depth: int) -> Form:
        self.take("x", "(", "step")
        step = self.number()
        self.take(")")
        if count < 1:
            raise InputError(f"order: {count} x is no repeat", "")
        if self.token != "<":
            return Repeat(count, step, (self.item(depth + 1),))
        self.next()
        items = self.sequence(depth + 1)
        self.take(">")
        return Repeat(count, step, items)
