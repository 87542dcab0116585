"""The contract's orders proved from outside: every op is only called, and its tree comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parity.errors import InputError
from parity.order.answer import Answer
from parity.order.naming import named
from parity.order.own.table import OWN, OwnOp
from parity.order.reveal import reveal
from parity.order.sums import Ask, SumFamily
from parity.order.tree import Order, Tree
from parity_cpu import code_cache
from parity_cpu.sums import CpuSums
from parity_cuda.own_sums import CudaSums, EmuSums
from tests.order.own_cases import BATCHES, CASES, NO_TREES, Case, unseen

FAMILIES: Mapping[str, SumFamily] = {"cpu": CpuSums(), "emu": EmuSums()}
# They swap an elementary function, which is no order.
NO_ORDER = {"libm_exp", "exp_via_double"}


def opened(family: SumFamily, case: Case) -> OwnOp:
    """The op of a case."""
    device = "cuda" if isinstance(family, CudaSums) else "cpu"
    ask = Ask(case.op, case.K, case.N, device=device, options=case.options)
    return family.make(case.op, ask, case.M)  # type: ignore[return-value]


def wanted(case: Case, op: OwnOp) -> Order:
    """The contract's order, written by hand."""
    fma = frozenset(case.fma(case.K))
    return Order(Tree.of(case.tree(case.K)), op.terms, fma=fma)  # type: ignore[arg-type]


def require(case: Case, answer: Answer, op: OwnOp) -> None:
    """The answer is green, the order is the contract's, and has its name."""
    assert answer.verdict == "tree", (answer.contradicts, answer.undecided, answer.noise)
    assert answer.order is not None
    assert answer.noise is not None
    assert (answer.noise.rows, answer.noise.unlike, answer.noise.blind) == (1024, 0, False)
    order = wanted(case, op)
    assert answer.order.tree.text() == order.tree.text()
    assert sorted(answer.order.fma) == sorted(order.fma)
    more = (answer.order.wide, answer.order.fused, answer.order.narrow)
    assert more == (frozenset(), frozenset(), frozenset())
    assert named(answer.order).startswith(case.name)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_order_is_the_contracts(family: str, case: Case) -> None:
    op = opened(FAMILIES[family], case)
    require(case, reveal(op), op)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case.id)
def test_rows_of_one_forward_have_the_order_of_single_ones(family: str, case: Case) -> None:
    op = opened(FAMILIES[family], case)
    require(case, reveal(op), op)
    assert op.key["batch"].startswith(f"{case.M}, ")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", NO_TREES, ids=lambda case: case.id)
def test_a_difference_of_two_sums_is_no_tree(family: str, case: Case) -> None:
    """What is told of the engine's own sum; without the variant it would be unpaired's tree."""
    answer = reveal(opened(FAMILIES[family], case))
    assert (answer.verdict, answer.order) == ("no tree", None)
    assert answer.contradicts


@pytest.mark.gpu
@pytest.mark.parametrize("case", [*CASES, *BATCHES], ids=lambda case: case.id)
def test_the_order_is_the_contracts_on_a_device(case: Case) -> None:
    op = opened(CudaSums(), case)
    require(case, reveal(op), op)


def test_every_sum_and_every_variant_has_a_case() -> None:
    assert {case.op for case in CASES} == set(OWN)
    assert {name for _, name in unseen()} <= NO_ORDER
    attention = {f"attention_{kind}{sum_}" for kind in ("f32", "int8") for sum_ in ("", "_l")}
    assert {op for op, _ in unseen()} == {*attention, "router_softmax"}


def test_a_batch_of_other_rows_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"cpu.delta_o: K = 96, N = 8, M = 2") as refused:
        opened(CpuSums(), Case("delta_o", 96, 8, tuple, "", M=2))
    assert refused.value.next_step == "M rows are M launches of one: ask for M = 1"


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (Case("q4_matvec", 90, 5, tuple, ""), "K is whole blocks of 32"),
        (Case("attention_f32", 96, 6, tuple, ""), "a power of two"),
        (Case("attention_f32", 64, 6, tuple, "", M=65), "K is M or more"),
        (Case("combine", 1, 6, tuple, ""), "2 or more"),
        (Case("delta_mem", 96, 7, tuple, ""), "an even number"),
        (Case("l2norm", 7, 2, tuple, ""), "fewer than 8 outputs"),
        (Case("attention_f32_l", 64, 6, tuple, "", M=65), "K is M or more"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.id,
)
def test_a_shape_that_cannot_be_probed_is_refused(case: Case, said: str) -> None:
    with pytest.raises(InputError) as refused:
        opened(CpuSums(), case)
    assert refused.value.next_step is not None
    assert said in refused.value.next_step


@pytest.mark.parametrize("family", FAMILIES)
def test_what_no_op_of_the_contract_offers_is_refused(family: str) -> None:
    case = CASES[0]
    ask = Ask(f"{family}.{case.op}", case.K, case.N)
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"dtype": "bf16"}, "--dtype bf16"),
        ({"device": "cuda"}, "--device cuda"),
        ({"options": {"variants": "fma"}}, "takes no variant fma"),
        ({"options": {"variants": "fmaa"}}, "no variant 'fmaa'"),
        ({"options": {"row": "1"}}, "no option @row"),
        ({"threads": 2}, "its threads cannot be set"),
    )
    for changed, said in changes:
        with pytest.raises(InputError, match=said):
            FAMILIES[family].make(case.op, replace(ask, **changed), 1)


def test_keys_tell_what_an_order_holds_for() -> None:
    case = replace(CASES[0], variants="rsqrt", M=3)
    for family, device in (("cpu", "cpu"), ("emu", "CPU (emulated CUDA)")):
        key = opened(FAMILIES[family], case).key
        assert key["device"] == device
        assert (key["shape"], key["batch"], key["flags"]) == ("K=64 N=1", "3, all rows", "rsqrt")
        assert len(key["kernels"]) >= 16


def test_probes_have_no_op_compiled_for_read_only_arrays() -> None:
    """Such code would stand in the digest of what ran, and hang on what the process did before."""
    before = _read_only()  # a test may have called an op so
    x, w = np.ones(64, np.float32), np.ones((1, 64), np.float32)
    for array in (x, w):
        array.setflags(write=False)
    CpuSums().make("rmsnorm", Ask("cpu.rmsnorm", 64, 1), 1).run(None, w)
    own = CpuSums().make("f32_matvec", Ask("cpu.f32_matvec", 64, 8), 2)
    own.run(x, np.broadcast_to(w, (own.rows, 64)))
    assert _read_only() == before


def _read_only() -> set[tuple[str, str]]:
    """Code in memory for read-only arrays: the function and its types."""
    kept = [(one.name, str(types)) for one in code_cache._caches for types in one.codes]
    return {(name, types) for name, types in kept if "'C', True" in types}
