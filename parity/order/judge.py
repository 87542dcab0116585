"""Holding an op to an order: counts that the order foretells, and rows of rounding noise."""

from __future__ import annotations

import time

import numpy as np

from parity.errors import InputError
from parity.order import noise as noisy
from parity.order.answer import Answer, Certified, Noise, Stage, Verdict
from parity.order.asking import Asker, NoTree
from parity.order.certify import certify, certify_squares
from parity.order.counts import Counter
from parity.order.fma import beside_leaves, fma_leaves
from parity.order.noise import Evaluate
from parity.order.op import SummingOp, by_threes
from parity.order.squares import products_of_squares, shows_products
from parity.order.tree import Order
from parity.order.triples import Triples

BLIND = "no row of noise tells this order from one with two leaves swapped"


def judge(
    op: SummingOp, order: Order, *, seed: int = 0, evaluate: Evaluate | None = None
) -> Answer:
    """Does ``op`` sum in ``order``? "tree" only if certify and noise both agree, and every product
    that a probe can see enters as the order says.

    "no tree": counts contradict the order. "tree, not explained": noise or a product does.
    ``evaluate``: the twin, by default parity's. Raises InputError for an order of other sums.
    """
    _require_same(op, order)
    bench = Bench(op, np.random.default_rng(seed), evaluate)
    try:
        return bench.judged(order, _other_products(bench, order))
    except NoTree as said:
        return bench.answer("no tree", order, contradicts=tuple(said.args))


class Bench:
    """An op under study: its askers, and what was spent so far."""

    def __init__(self, op: SummingOp, rng: np.random.Generator, evaluate: Evaluate | None) -> None:
        self.op, self.rng = op, rng
        self.asker = Asker(op, rng)
        self.evaluate = evaluate or _twin()
        self.stages: dict[str, Stage] = {}
        self.started = time.perf_counter()
        self._counter: Counter | None = None

    @property
    def counter(self) -> Counter:
        """Count queries; the first use finds the op's scale, and raises NoTree without one."""
        if self._counter is None:
            self._counter = Counter(self.asker)
        return self._counter

    @property
    def triples(self) -> Triples:
        """Triple queries, for squares."""
        return Triples(self.asker)

    def staged(self, name: str) -> None:
        """Books the probes and the seconds since the last stage under a name."""
        probes = self.asker.probes - sum(stage.probes for stage in self.stages.values())
        before = sum(stage.seconds for stage in self.stages.values())
        self.stages[name] = Stage(probes, time.perf_counter() - self.started - before)

    def judged(
        self, order: Order, odd: tuple[str, ...] = (), undecided: tuple[str, ...] = ()
    ) -> Answer:
        """Certify and noise. ``odd``: what was measured that no order says."""
        if by_threes(self.op):
            certified = certify_squares(self.triples, order.tree, self.rng)
        else:
            certified = certify(self.counter, order.tree, self.rng)
        self.staged("certify")
        if certified.contradicted:
            said = f"{certified.contradicted} of {certified.asked} counts contradict the tree"
            return self.answer(
                "no tree", order, contradicts=(f"{said}: {certified.example}",), certify=certified
            )
        try:
            noise = noisy.noise(self.asker, order, self.evaluate, self.rng)
        except InputError as error:  # an order that the twin cannot evaluate explains nothing
            self.staged("noise")
            return self.answer(
                "tree, not explained",
                order,
                contradicts=(*odd, error.message),
                undecided=undecided,
                certify=certified,
            )
        self.staged("noise")
        told = (*odd, BLIND) if noise.blind else odd
        green = not noise.unlike and not told
        return self.answer(
            "tree" if green else "tree, not explained",
            order,
            contradicts=told,
            undecided=undecided,
            certify=certified,
            noise=noise,
        )

    def answer(
        self,
        verdict: Verdict,
        order: Order | None,
        *,
        contradicts: tuple[str, ...] = (),
        undecided: tuple[str, ...] = (),
        certify: Certified | None = None,
        noise: Noise | None = None,
    ) -> Answer:
        """The answer, with what it cost."""
        self.staged("refused")
        stages = {name: stage for name, stage in self.stages.items() if stage.probes}
        return Answer(
            verdict,
            order,
            self.asker.probes,
            self.asker.calls,
            time.perf_counter() - self.started,
            stages,
            contradicts,
            undecided,
            certify,
            noise,
        )


def _twin() -> Evaluate:
    from parity.order.twin import evaluate

    return evaluate


def _other_products(bench: Bench, order: Order) -> tuple[str, ...]:
    """What products that a probe sees differ from the order's: one leaf's fused multiply-add shows
    in few rows of noise where n is large."""
    if order.dtype != "f32" or order.terms == "values":
        return ()  # all products are exact
    if by_threes(bench.op):
        if not shows_products(bench.op, order):
            return ()
        found = products_of_squares(bench.triples, order, bench.rng)
    else:
        found, hidden, odd = fma_leaves(bench.counter, order, bench.rng)
        if hidden or odd:
            return (odd,) if odd else ()
    bench.staged("measures")
    seen = beside_leaves(order, bench.rng)[0].tolist()
    unlike = [leaf for leaf in sorted(seen) if (leaf in found) != (leaf in order.fma)]
    if not unlike:
        return ()
    ways = ("rounded", "unrounded") if unlike[0] in order.fma else ("unrounded", "rounded")
    return (
        f"{len(unlike)} products enter otherwise than in the order, first leaf {unlike[0]}: "
        f"{ways[0]}, by the order {ways[1]}",
    )


def _require_same(op: SummingOp, order: Order) -> None:
    asked = {"n": op.n, "terms": op.terms, "dtype": op.dtype}
    given = {"n": order.tree.n, "terms": order.terms, "dtype": order.dtype}
    for what, value in asked.items():
        if given[what] != value:
            raise InputError(
                f"op {op.name} has {what} {value}, the order {given[what]}",
                "judge an op by an order of its own sums",
            )
