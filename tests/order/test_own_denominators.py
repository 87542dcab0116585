"""The sums inside a softmax, by what they divide: router (contract 2), l of attention (1.8).

Their terms are expf of scores: from 0 to 1, none negative. So the tree comes out by triples, as for
squares: a term of less than half an f32 place beside 1 is lost alone, two that met before are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from parity.order.certify import certify_squares
from parity.order.naming import named
from parity.order.own.asked import Launch
from parity.order.tree import Ints, Order, Tree
from parity.order.triples import Flags, tree_by_triples
from parity.order.twin import evaluate
from parity.protocol import EngineSettings
from parity.variants import variant_mask
from parity_cpu.own_functions import own_values
from parity_cpu.sums import launch
from parity_cuda.cupy_backend import CupyBackend
from parity_cuda.emu_backend import EmuBackend
from parity_cuda.ops import Ops
from parity_cuda.own_sums import launcher
from parity_cuda.sources import HASH, kernel_sources
from tests.order import contract_trees as trees

Floats = npt.NDArray[np.float32]
GONE = np.float32(-200)  # expf gives 0
SMALL = np.float32(-16.7)  # expf gives 0.94 * 2^-24
ROWS = 8
# Scores (ROWS, n), the largest of each row 0, and where that is: 1 / sum, float32[ROWS].
Inverse = Callable[[Launch, Floats, Ints], Floats]


def router(run: Launch, scores: Floats, tops: Ints) -> Floats:
    """The largest probability is expf(0) / sum."""
    given = {
        "ids": np.full((ROWS, 1), -1, np.int32),
        "probs": np.full((ROWS, 1), np.nan, np.float32),
        **{"logits": scores, "norm": False, "variants": 0},
    }
    return run("router_topk", given)["probs"][:, 0]


def attention(run: Launch, scores: Floats, tops: Ints, *names: str) -> Floats:
    """V is 1 at the key with the largest score and 0 at the others: the output is 1 / l."""
    heads, n = scores.shape
    k, v = np.zeros((2, n, heads, 4), np.float32)
    k[..., 0] = scores.T
    v[tops, np.arange(heads)] = 1
    q = np.zeros((1, heads, 4), np.float32)
    q[..., 0] = 1
    given = {"out": np.full_like(q, np.nan), "q": q, "k": k, "v": v, "sm_scale": np.float32(1)}
    given |= {"pos": n - 1, "variants": variant_mask(names)}
    return run("attention_f32", given)["out"][0, :, 0]


def two_pass(run: Launch, scores: Floats, tops: Ints) -> Floats:
    """The same with the variant."""
    return attention(run, scores, tops, "two_pass")


@dataclass
class Denominator:
    """One sum under study; what ``Triples`` is for squares."""

    run: Launch
    inverse: Inverse
    n: int

    def first(self, left: Ints, right: Ints, third: Ints) -> Flags:
        """Do ``left`` and ``right`` meet before they meet ``third``?"""
        found = np.zeros(len(left), np.bool_)
        for at in range(0, len(left), ROWS):
            part = np.resize(np.arange(at, min(at + ROWS, len(left))), ROWS)
            scores, rows = np.full((ROWS, self.n), GONE, np.float32), np.arange(ROWS)
            scores[rows, left[part]] = scores[rows, right[part]] = SMALL
            scores[rows, third[part]] = 0
            found[part] = self.inverse(self.run, scores, third[part]) < 1
        return found

    def unlike(self, order: Order, rng: np.random.Generator, batches: int = 32) -> int:
        """Rows of random scores whose bits are not those of the order. The largest score comes
        first: a running maximum stays there, and no correction rounds."""
        wrong = 0
        tops = np.zeros(ROWS, np.int64)
        for _ in range(batches):
            scores = -rng.uniform(0, 6, (ROWS, self.n)).astype(np.float32)
            scores[:, 0] = 0
            terms = own_values("expf", scores.reshape(-1), 0).reshape(scores.shape)
            wanted = np.float32(1) / evaluate(order, None, terms)
            found = self.inverse(self.run, scores, tops)
            wrong += int((found.view(np.uint32) != wanted.view(np.uint32)).sum())
        return wrong


def emulated(changes: tuple[tuple[str, str, str], ...] = ()) -> Launch:
    """Launches of an emulated device, texts of its kernels changed: (file, old, new)."""
    sources = kernel_sources()
    if not changes:
        return launcher(Ops(EmuBackend(EngineSettings())))
    for name, old, new in changes:
        assert sources[name].count(old) == 1
        sources[name] = sources[name].replace(old, new)
    tap = {path.name for path in HASH}
    wanted = ("router_topk", "attention_f32")
    needed = {
        file: text
        for file, text in sources.items()
        if file not in tap and (file.endswith(".cuh") or file.startswith(wanted))
    }
    return launcher(Ops(EmuBackend(EngineSettings(), needed)))


SUMS = {
    "router": (router, 45, trees.ascending, "contract 1.8 P V and l, 2 softmax"),
    "attention l": (attention, 50, trees.ascending, "contract 1.8 P V and l, 2 softmax"),
    "attention l of two tiles": (attention, 140, trees.ascending, "contract 1.8"),
    "attention l, two_pass": (two_pass, 50, trees.by_tree, "variant two_pass (1.8 l)"),
}


def require(run: Launch, name: str) -> None:
    """The tree, its certificate and its noise are the contract's."""
    inverse, n, tree, called = SUMS[name]
    sum_, rng = Denominator(run, inverse, n), np.random.default_rng(5)
    found = tree_by_triples(sum_, rng)  # type: ignore[arg-type]
    assert found.text() == Tree.of(tree(n)).text()
    certified = certify_squares(sum_, found, rng)  # type: ignore[arg-type]
    assert (certified.asked > 6 * n, certified.contradicted) == (True, 0)
    order = Order(found, "values")
    assert named(order).startswith(called)
    assert sum_.unlike(order, rng) == 0


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("engine", ["cpu", "emu"])
def test_a_softmax_adds_as_the_contract_says(engine: str, name: str) -> None:
    require(launch if engine == "cpu" else emulated(), name)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SUMS)
def test_a_softmax_adds_so_on_a_device(name: str) -> None:
    require(launcher(Ops(CupyBackend(EngineSettings()))), name)


def test_red_a_softmax_that_adds_from_the_end() -> None:
    """The router's sum over its exponentials from the last to the first."""
    old = "const float total = chain_sum(soft, experts, 0.0f);"
    new = (
        "float total = 0.0f;\n"
        "  for (int i = experts - 1; i >= 0; --i) total = __fadd_rn(total, soft[i]);"
    )
    run = emulated((("topk.cuh", old, new),))
    sum_, rng = Denominator(run, router, 20), np.random.default_rng(5)
    found = tree_by_triples(sum_, rng)  # type: ignore[arg-type]
    assert found.text() == Tree.of(trees.chain(range(19, -1, -1))).text()
    assert sum_.unlike(Order(found, "values"), rng) == 0
    right = Order(Tree.of(trees.ascending(20)), "values")
    assert sum_.unlike(right, rng) > 20
    assert certify_squares(sum_, right.tree, rng).contradicted > 20  # type: ignore[arg-type]
