"""Taps: the values of one forward of a transformers model, by the published map or by module path.

Hooks of modules and a mode that sees torch's functions are there between the start and the end of
``watching``, and without a plan not at all. They read, and write only what a plan asks to change:
the bits of a forward are the same with and without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from parity.protocol import Plan
from parity_torch.generic import Generic
from parity_torch.mapped import Mapped
from parity_torch.maps import is_mapped
from parity_torch.seen import Field, Seen
from parity_torch.values import Row
from parity_torch.watch import Watch

__all__ = ["Row", "Taps"]


class Taps:
    """The taps of ``module`` (a model for causal language modelling, in evaluation mode).

    ``note`` is told, once, of each field that a plan asks for and the map publishes, where the
    forward makes no such value.
    """

    def __init__(self, module: Any, note: Callable[[str], None] | None = None) -> None:
        self.module, self._note = module, note
        self._told: set[str] = set()
        self.mapped = is_mapped(module)
        self._source: Mapped | Generic = (Mapped if self.mapped else Generic)(module)

    def keys(self) -> tuple[Field, ...]:
        """(layer, field) of one token in dataflow order, the optional groups too; layer -1 stands
        outside the layers. The first call runs the model on a few tokens, to see what is there."""
        return self._source.keys

    @property
    def left_out(self) -> Mapping[str, str]:
        """Fields that a reader may look for and not find -> why (docs/torch.md)."""
        return self._source.left_out

    @contextmanager
    def watching(self, plan: Plan | None, rows: Sequence[Row]) -> Iterator[Seen]:
        """What ``plan`` asks for of ``rows`` in the one forward that runs inside."""
        with ExitStack() as stack:
            seen = Seen(plan, rows, self._source.order)
            if plan is not None:
                watch = Watch(seen, stack)
                watch.begins(self.module, watch.measure)
                self._source.attach(watch)
                if self.mapped or plan.trace:
                    stack.enter_context(watch.mode)
            yield seen
            if plan is not None and self._note is not None:
                self._tell(plan, seen)

    def _tell(self, plan: Plan, seen: Seen) -> None:
        published = {field for _, field in self._source.order}
        missing = published & set(plan.fields) - {field for _, field in seen.offered}
        if missing - self._told and self._note is not None:
            names = ", ".join(name for name in plan.fields if name in missing)
            self._note(f"hf: left out: {names}: this implementation makes no such value")
        self._told |= missing
