"""The case tables: names, labels, determinism, and that every planted fault shows in them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracle import check, twin
from tests.oracle.inputs import OPS, cases, is_non_finite

PLANTED = [(op, fault) for op in OPS for fault in twin.FAULTS[op]]


def _float_arrays(values: tuple[object, ...]) -> list[np.ndarray]:
    arrays = [v for v in values if isinstance(v, np.ndarray)]
    return [a for a in arrays if a.dtype == np.float32]


@pytest.mark.parametrize("op", OPS)
def test_names_are_unique_and_arrays_are_plain(op: str) -> None:
    """Each case has its own name; arrays are C-ordered and in the op's dtypes."""
    table = list(cases(op))
    assert len({name for name, _ in table}) == len(table) > 5
    arrays = [a for _, args in table for a in args if isinstance(a, np.ndarray)]
    assert all(a.flags.c_contiguous and a.dtype != np.float64 for a in arrays)


@pytest.mark.parametrize("op", OPS)
def test_cases_are_the_same_every_time(op: str) -> None:
    """Seeds are fixed by name: two runs of the generator give the same bytes."""
    first, second = list(cases(op)), list(cases(op))
    for (name, args), (again, args_again) in zip(first, second, strict=True):
        assert name == again
        pairs = zip(args, args_again, strict=True)
        assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


@pytest.mark.parametrize("op", OPS)
def test_labels_are_earned(op: str) -> None:
    """NaN comes only out of labelled cases, and no label hides a finite case."""
    for name, args, outputs in check.expected(op):
        floats = _float_arrays(outputs)
        has_nan = any(np.isnan(a).any() for a in floats)
        if is_non_finite(name):
            assert has_nan or any(not np.isfinite(a).all() for a in _float_arrays(args)), name
        else:
            assert not has_nan, name


@pytest.mark.parametrize("op", OPS)
def test_oracle_outputs_have_the_declared_shapes(op: str) -> None:
    """The shapes that runners allocate are the oracle's."""
    for name, args, outputs in check.expected(op):
        found = tuple((out.shape, out.dtype.type) for out in outputs)
        assert found == check.output_specs(op, args), name


@pytest.mark.parametrize("op", OPS)
def test_second_writing_agrees(op: str) -> None:
    """An independent vectorised writing gives the oracle's bytes in every case."""
    assert check.check_op(op, twin.run) == len(list(cases(op)))


@pytest.mark.parametrize(
    ("op", "fault"), PLANTED, ids=[f"{op} with {fault}" for op, fault in PLANTED]
)
def test_planted_fault_is_caught(op: str, fault: str) -> None:
    """Every named fault turns the comparison red on some case."""
    with pytest.raises(check.OpMismatch, match="differ, first at"):
        check.check_op(op, lambda name, args: twin.run(name, args, fault))


def test_unknown_fault_is_refused() -> None:
    """A misspelt fault must not pass for a fault-free run."""
    with pytest.raises(KeyError, match="has no fault"):
        twin.run("add", (np.zeros((1, 1)),) * 2, "mispelt")
