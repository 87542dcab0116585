"""Ops as adapters give them: the sums are right, at every batch row, and refusals are told."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from parity.errors import InputError, NotRunError, ParityBug
from parity.order.adapters.called import CalledOp, Spread, narrow
from parity.order.sums import Ask, asked_of, asked_text, open_op, parse_op
from parity.registry import plugins

K, N = 24, 8
OWN = "tests.order.foreign_sums"


def whole(op: Any, seed: int = 3) -> tuple[Any, Any]:
    """What the op gives for whole numbers, and the sums, which every order gives exactly."""
    rng = np.random.default_rng(seed)
    x, w = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((op.n,), (op.rows, op.n)))
    asked = op.run(x if op.terms == "products" else None, w)
    exact = {"products": w @ x, "values": w.sum(axis=1), "squares": (w * w).sum(axis=1)}
    return asked, exact[op.terms]


def same(found: Any, exact: Any) -> None:
    """Every batch row has the exact sums, as float32."""
    assert found.dtype == np.float32
    rows = found if found.ndim == 2 else found[:, None]
    assert rows.shape == (len(exact), rows.shape[1])
    for column in rows.T:
        assert column.tobytes() == exact.astype(np.float32).tobytes()


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize(
    ("op", "M", "rows"),
    [
        ("numpy.sum", 1, 1),
        ("numpy.sum", 5, 5),
        ("numpy.dot", 1, 1),
        ("numpy.matmul", 1, N),
        ("numpy.matmul", 3, N),
    ],
)
def test_numpy_gives_its_sums(op: str, M: int, rows: int, dtype: str) -> None:
    made = open_op(Ask(op, K, N, dtype=dtype), M)
    assert (made.n, made.rows, made.dtype, made.out) == (K, rows, dtype, dtype)
    assert {"op", "dtype", "device", "numpy", "blas", "shape"} <= set(made.key)
    same(*whole(made))


@pytest.mark.parametrize(
    ("name", "terms", "M", "told"),
    [
        ("ascending", "products", 1, "one row at a time"),
        ("rows_at_once", "products", 1, "all rows at once"),
        ("rows_at_once", "products", 3, "all rows at once"),
        ("ascending_values", "values", 4, "all rows at once"),
        ("squares", "squares", 2, "all rows at once"),
    ],
)
def test_a_users_function_gives_its_sums(name: str, terms: str, M: int, told: str) -> None:
    made = open_op(Ask(f"{OWN}:{name}", K, N, terms=terms), M)
    assert made.key["called"] == told
    assert made.rows == (N if terms == "products" else M)
    assert "numba" in made.key  # the module uses it
    same(*whole(made))


def test_a_function_may_work_in_the_arrays_it_is_given() -> None:
    made = open_op(Ask(f"{OWN}:in_place", K, N, terms="products"), 1)
    x = np.arange(1, K + 1, dtype=np.float32)
    w = np.ones((N, K), np.float32)
    same(made.run(x, w), w @ np.arange(1, K + 1, dtype=np.float32))
    assert (w == 1).all()
    assert x.tolist() == list(range(1, K + 1))


def test_a_batch_answers_with_all_its_rows_or_one() -> None:
    ask = Ask(f"{OWN}:last_row_apart", K, N, terms="products")
    found, _ = whole(open_op(ask, 3))
    assert found.shape == (N, 3)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((K,), (N, K)))
    every = open_op(ask, 3).run(x, w)
    for row in range(3):
        pinned = Ask(f"{ask.op}@row={row}", K, N, terms="products", options={"row": str(row)})
        assert open_op(pinned, 3).run(x, w).tobytes() == every[:, row].tobytes()
    assert every[:, 0].tobytes() != every[:, 2].tobytes()


def test_rows_that_are_too_few_are_filled_up() -> None:
    seen = []

    def call(x: Any, w: Any) -> Any:
        seen.append(w.shape)
        return w.sum(axis=1)

    op = CalledOp("mine", 3, 4, "values", "f32", "f32", call)
    w = np.arange(18, dtype=np.float32).reshape(6, 3)
    assert op.run(None, w).tobytes() == w.sum(axis=1).tobytes()
    assert seen == [(4, 3), (4, 3)]
    assert op.run(None, w[:0]).shape == (0,)


def test_spread_tells_its_rows() -> None:
    assert [Spread(1, 4).told, Spread(8, 4).told, Spread(8, 4, 7).told] == [
        "1",
        "8, all rows",
        "8, row 7",
    ]


def test_narrow_values_are_kept() -> None:
    pytest.importorskip("ml_dtypes")
    values = np.array([1.0, -(2.0**-7), 2.0**100], np.float32)
    assert narrow(values, "bf16").astype(np.float32).tobytes() == values.tobytes()
    assert narrow(values, "f32") is values


def test_red_bf16_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(NotRunError, match="bf16 arrays need the package ml_dtypes"):
        narrow(np.ones(1, np.float32), "bf16")


REFUSED = [
    (Ask("numpy.sum", K, N, dtype="bf16"), 1, "numpy.sum: NumPy has no bf16"),
    (Ask("numpy.sum", K, N, device="cuda"), 1, "numpy.sum runs on the CPU"),
    (Ask("numpy.dot", K, N), 2, "numpy.dot --M 2: it gives one sum a call"),
    (Ask("numpy.sum", K, N, threads=2), 1, "numpy.sum: its threads cannot be set"),
    (Ask("numpy.sum", K, N, terms="squares"), 1, "--terms squares: numpy.sum is known"),
    (Ask("numpy.sums", K, N), 1, "no op 'numpy.sums'"),
    (Ask("nunpy.sum", K, N), 1, "no family of sums 'nunpy'"),
    (Ask("numpy.matmul", K, N, options={"q": "1"}), 1, "numpy.matmul has no option @q"),
    (Ask("numpy.matmul", K, N, options={"row": "3"}), 3, "numpy.matmul: @row=3: no row of a"),
    (Ask("no_such_module:f", K, N, terms="values"), 1, "op no_such_module:f: no_such_module"),
    (Ask(f"{OWN}:nothing", K, N, terms="values"), 1, f"op {OWN}:nothing: module {OWN} has no"),
    (Ask(f"{OWN}:NOT_A_FUNCTION", K, N, terms="values"), 1, f"op {OWN}:NOT_A_FUNCTION is no f"),
    (Ask(f"{OWN}:squares", K, N), 1, f"{OWN}:squares: what does it sum?"),
    (Ask(f"{OWN}:wide", K, N, terms="values"), 1, f"op {OWN}:wide returned f64"),
    (Ask(f"{OWN}:wrong_shape", K, N, terms="values"), 2, f"op {OWN}:wrong_shape returned shape (1"),
    (Ask(f"{OWN}:raises", K, N, terms="values"), 1, f"op {OWN}:raises raised RuntimeError: no"),
    (Ask(f"{OWN}:squares", K, N, terms="products"), 1, f"op {OWN}:squares raised TypeError: squ"),
    (Ask(f"{OWN}:ascending", K, N, terms="products"), 2, f"op {OWN}:ascending takes one row at"),
    (Ask(f"{OWN}:squares", K, N, terms="squares", device="cuda"), 1, f"{OWN}:squares is given"),
]


@pytest.mark.parametrize(("ask", "M", "said"), REFUSED, ids=[said for _, _, said in REFUSED])
def test_red_refused(ask: Ask, M: int, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        open_op(ask, M)
    assert "\n" not in caught.value.message
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sum", "op 'sum' is no FAMILY.NAME and no module:function"),
        ("", "op '' is no FAMILY.NAME"),
        ("numpy.sum@", "op 'numpy.sum@': an option without a name"),
        ("numpy.sum@row=1@row=2", "op 'numpy.sum@row=1@row=2': the option row stands twice"),
    ],
)
def test_red_malformed(text: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        parse_op(text)


def test_options_are_read() -> None:
    assert parse_op("torch.linear@row=3@tf32=on") == {"row": "3", "tf32": "on"}
    assert parse_op("my.module:function") == {}


def test_the_shape_is_kept_as_text_and_read_again() -> None:
    given = {"terms": "products", "threads": 3, "dtype": "f16", "options": {"row": "1"}}
    ask = Ask("my_module:f@row=1", 5, 7, **given)  # type: ignore[arg-type]
    text = asked_text(ask, 9)
    assert text == "--K 5 --N 7 --M 9 --dtype f16 --device cpu --terms products --threads 3"
    assert asked_of(ask.op, text) == (ask, 9)


@pytest.mark.parametrize(
    "text", ["", "--K 5", "--K 5 --N x --M 1 --dtype f32 --device cpu", "--M 1 --K 5 --N 7"]
)
def test_red_a_shape_that_cannot_be_read(text: str) -> None:
    said = re.escape(f"numpy.sum: its shape cannot be read: {text!r}")
    with pytest.raises(InputError, match=said):
        asked_of("numpy.sum", text)


class Halfway:
    """A family that forgot ``make``."""

    def names(self) -> tuple[str, ...]:
        """One."""
        return ("sum",)


def test_red_a_family_without_make(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = plugins("parity.sums")["numpy"]
    monkeypatch.setattr("parity.registry.Plugin.load", lambda _: Halfway)
    with pytest.raises(ParityBug, match=f"{plugin.distribution}: sums numpy lacks make"):
        open_op(Ask("numpy.sum", K, N), 1)


def test_cublas_without_a_device() -> None:
    """Without CuPy or a GPU it is not run; with them its sums are right (marked gpu elsewhere)."""
    with pytest.raises(InputError, match=r"cublas\.matmul runs on a CUDA device"):
        open_op(Ask("cublas.matmul", K, N), 1)
    with pytest.raises(InputError, match=r"cublas\.matmul: @out=bf16"):
        open_op(Ask("cublas.matmul", K, N, device="cuda", options={"out": "bf16"}), 1)
    if not _cuda():
        with pytest.raises(NotRunError) as caught:
            open_op(Ask("cublas.matmul", K, N, device="cuda"), 1)
        assert caught.value.next_step == "cublas needs CuPy and a CUDA device"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("M", [1, 5])
def test_cublas_gives_its_sums(dtype: str, M: int) -> None:
    made = open_op(Ask("cublas.matmul", K, N, dtype=dtype, device="cuda"), M)
    same(*whole(made))
    kept = open_op(
        Ask("cublas.matmul", K, N, dtype=dtype, device="cuda", options={"out": "f32"}), M
    )
    assert kept.out == "f32"
    same(*whole(kept))


def _cuda() -> bool:
    try:
        from parity_cuda.cupy_backend import open_cupy

        open_cupy()
    except NotRunError:
        return False
    return True
