"""Generic fields, for an architecture without a map: every module's output, under its path.

A field is named after the module's path inside its layer (``self_attn.q_proj``, ``output`` for the
layer itself) or, outside the layers, its path in the model. ``.0`` or ``.name`` tells an element
of a tuple or mapping, ``-2`` the second call in one forward. ``logits`` is the model's own output.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn

from parity.keys import FINAL_FIELDS, LAYER_FIELDS
from parity_torch import dry
from parity_torch.maps import OUTSIDE
from parity_torch.seen import Field
from parity_torch.values import Tensor, Value
from parity_torch.watch import Watch

_NAME = re.compile(r"(?!l\d+_)[A-Za-z][A-Za-z0-9_.\-]*", re.ASCII)
_SIZES = ((2, 3), (1, 5))  # B, T of the dry forwards that tell which dimensions are tokens
_PAST = (0, 4)  # tokens in the cache before them: what grows with those has no rows
_DTYPES = frozenset(
    (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
        *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8),
    )
)
LOGITS = (OUTSIDE, "logits")
Shape = tuple[int, ...]
Size = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Where the tokens of an output stand: dimension ``axis``; ``batch``: what dimension 0 is,
    the sequences ("own"), one for all of them ("shared"), nothing of the kind ("none"), or
    sequences and tokens together ("flat")."""

    axis: int
    batch: str

    def rows(self, tensor: Tensor, size: Size) -> Value:
        """The value [B, T, ...] that ``tensor`` holds."""
        if self.batch == "flat":
            tensor = tensor.unflatten(0, size)
        elif self.batch == "none":
            tensor = tensor[None]
        tensor = tensor.movedim(max(self.axis, 1), 1)
        tensor = tensor.expand(size[0], *tensor.shape[1:])
        return Value((tensor,), tuple(tensor.shape[2:]), size[1] - tensor.shape[1])


def layout_of(one: Shape, other: Shape) -> Layout | None:
    """The layout that fits both shapes, of the dry forwards of _SIZES; None for none or several,
    and where another dimension differs: it grows with the tokens or with the cache."""
    shapes = ((one, _SIZES[0]), (other, _SIZES[1]))
    if len(one) != len(other):
        return None
    axes = [at for at in range(len(one)) if all(shape[at] == size[1] for shape, size in shapes)]
    if not axes and all(shape[:1] == (size[0] * size[1],) for shape, size in shapes):
        return Layout(0, "flat") if one[1:] == other[1:] else None
    if len(axes) != 1:
        return None
    (axis,) = axes
    if one[1:axis] + one[axis + 1 :] != other[1:axis] + other[axis + 1 :]:
        return None
    if axis == 0:
        return Layout(0, "none")
    kinds = {"own": all(shape[0] == size[0] for shape, size in shapes), "shared": one[0] == 1}
    return next((Layout(axis, kind) for kind, fits in kinds.items() if fits), None)


class _Dry:
    """One dry forward: every output's shape, and the field that gave the same tensor before."""

    def __init__(self) -> None:
        self.shapes: dict[Field, Shape] = {}
        self.same: dict[Field, Field] = {}
        self._first: dict[tuple[Any, ...], Field] = {}
        self._alive: list[Tensor] = []  # or a later tensor could stand in the same place

    def keep(self, field: Field, tensor: Tensor) -> None:
        """Note an output; one that was changed in place since is another value."""
        self._alive.append(tensor)
        where = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor._version)
        place = (*where, tuple(tensor.shape), tensor.stride(), tensor.dtype)
        self.shapes[field] = tuple(tensor.shape)
        before = self._first.setdefault(place, field)
        if before != field:
            self.same[field] = before

    def release(self) -> None:
        """The forward is over: its tensors may go."""
        self._alive.clear()


class Generic:
    """The outputs of every module inside ``module``."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.names = dict(_names(module))

    @cached_property
    def _dry(self) -> tuple[_Dry, _Dry]:
        one, other = _Dry(), _Dry()
        for each, size, past in zip((one, other), _SIZES, _PAST, strict=True):
            dry.block(self.module, partial(self._outputs, take=each.keep), size, past)
            each.release()
        return one, other

    @cached_property
    def _layouts(self) -> dict[Field, Layout]:
        """How the rows of each field stand, in call order."""
        one, other = self._dry
        found = {
            field: layout_of(shape, other.shapes.get(field, ()))
            for field, shape in one.shapes.items()
            if field not in self._same
        }
        return {field: layout for field, layout in found.items() if layout is not None}

    @cached_property
    def _same(self) -> dict[Field, Field]:
        """Fields that are another one's tensor, handed on: field -> the other one."""
        one, other = self._dry
        same = {field: that for field, that in one.same.items() if other.same.get(field) == that}
        if LOGITS in same:  # the one name that every model has
            same[same.pop(LOGITS)] = LOGITS
        return same

    @property
    def order(self) -> tuple[Field, ...]:
        """Every field, in call order."""
        return tuple(self._layouts)

    @property
    def keys(self) -> tuple[Field, ...]:
        """Every field, in call order."""
        return self.order

    @property
    def left_out(self) -> Mapping[str, str]:
        """Outputs that are no fields, and why."""
        why = "not one dimension is the tokens of the forward"
        gone = self._dry[0].shapes.keys() - self._layouts.keys()
        return {
            field: f"the tensor of {self._same[layer, field][1]}"
            if (layer, field) in self._same
            else why
            for layer, field in sorted(gone)
        }

    def attach(self, watch: Watch) -> None:
        """Put every hook."""
        known = self._layouts

        def offer(field: Field, tensor: Tensor) -> None:
            layout = known.get(field)
            if layout is not None:
                watch.offer(*field, partial(layout.rows, tensor, watch.size))

        self._outputs(watch, offer)

    def _outputs(self, watch: Watch, take: Callable[[Field, Tensor], None]) -> None:
        """Have ``take`` called with every tensor that a module gives, under its field."""
        calls: Counter[Field] = Counter()

        def ended(where: Field, *hooked: Any) -> None:
            calls[where] += 1
            again = "" if calls[where] == 1 else f"-{calls[where]}"
            for part, tensor in _tensors(hooked[-1]):
                take((where[0], _legal(f"{where[1]}{part}{again}")), tensor)

        for path, module in self.module.named_modules():
            if path:
                watch.ends(module, partial(ended, self.names[path]))
        watch.ends(self.module, lambda *hooked: take(LOGITS, _logits(hooked[-1])))


def _names(module: nn.Module) -> Iterator[tuple[str, Field]]:
    """Path of every module inside, and its layer and field."""
    layers = _layers(module)
    for path, _ in module.named_modules():
        inside = layers and path.startswith(f"{layers}.")
        number, _, rest = path[len(layers) + 1 :].partition(".") if inside else ("", "", path)
        yield path, (int(number) if inside else OUTSIDE, rest or "output")


def _layers(module: nn.Module) -> str:
    """Path of the list of layers: the first of the longest lists of modules."""
    lists = {p: len(m) for p, m in module.named_modules() if isinstance(m, nn.ModuleList)}
    return max(lists, key=lists.__getitem__, default="")


def _legal(name: str) -> str:
    """``name`` in a key's letters, and never a field of the contract."""
    name = re.sub(r"[^A-Za-z0-9_.\-]", "_", name)
    ours = name in LAYER_FIELDS or name in FINAL_FIELDS
    return name if _NAME.fullmatch(name) and not ours else f"m.{name}"


def _tensors(out: Any, part: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of an output that a dump can hold, and its name inside the output."""
    if isinstance(out, torch.Tensor):
        if out.dtype in _DTYPES:
            yield part, out
    elif isinstance(out, Mapping):
        for name, each in out.items():
            yield from _tensors(each, f"{part}.{name}")
    elif isinstance(out, (tuple, list)):
        for at, each in enumerate(out):
            yield from _tensors(each, f"{part}.{at}")


def _logits(out: Any) -> Tensor:
    """The model's own output, [B, T, vocab]."""
    return getattr(out, "logits", out)
