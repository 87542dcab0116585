"""torch's sums on the CPU: right at every dtype and batch row, settings put back, refusals told."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from parity.errors import InputError, NotRunError
from parity.order.asking import Asker
from parity.order.judge import judge
from parity.order.noise import noise
from parity.order.own.denominators import SCORES
from parity.order.reveal import reveal
from parity.order.sums import Ask, open_op
from parity.order.tree import Order, Tree
from parity.order.twin import evaluate
from parity_torch.sums import Shape
from tests.order.test_adapters import same, whole

torch = pytest.importorskip("torch")
K, N = 64, 8


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(
    ("op", "M", "rows"),
    [
        ("torch.linear", 1, N),
        ("torch.linear", 3, N),
        ("torch.matmul", 3, N),
        ("torch.mv", 1, N),
        ("torch.sum", 1, 1),
        ("torch.sum", 4, 4),
        ("torch.attention", 1, N),
        ("torch.attention", 2, N),
    ],
)
def test_its_sums(op: str, M: int, rows: int, dtype: str, device: str) -> None:
    options = {"head": "8"} if op == "torch.attention" else {}
    made = open_op(Ask(op, K, N, dtype=dtype, device=device, options=options), M)
    assert (made.n, made.rows, made.dtype, made.out) == (K, rows, dtype, dtype)
    rng = np.random.default_rng(1)
    w = rng.integers(-1, 2, (made.rows, K)).astype(np.float32)  # sums that bf16 counts exactly
    x = rng.integers(-1, 2, K).astype(np.float32)
    products = made.terms == "products"
    same(made.run(x if products else None, w), w @ x if products else w.sum(axis=1))
    flags = {"cpu": {"threads", "mkl", "onednn"}, "cuda": {"cuda", "tf32", "reduced"}}[device]
    assert {"op", "dtype", "torch", "device", "shape"} | flags <= set(made.key)


@pytest.mark.parametrize("device", DEVICES)
def test_rms_norm_gives_the_mean_of_its_squares(device: str) -> None:
    made = open_op(Ask("torch.rms_norm", K, N, device=device), 4)
    found, exact = whole(made)
    assert found.tobytes() == (exact / np.float32(K)).astype(np.float32).tobytes()


@pytest.mark.parametrize("M", [1, 5])
def test_softmax_tells_its_own_exponentials(M: int) -> None:
    made = open_op(Ask("torch.softmax", 24, N), M)
    rng = np.random.default_rng(2)
    w = rng.standard_normal((M, 24)).astype(np.float32)
    w[0, 3] = 0
    terms = made.terms_of(w)  # type: ignore[attr-defined]
    assert (terms.max(axis=1) == 1).all()
    assert np.sort(terms, axis=1)[:, -2].max() < 2.0**-25
    assert terms[0, 3] == 0
    exact = np.exp(SCORES.astype(np.float64))
    apart = np.abs(terms[terms < 1][terms[terms < 1] > 0][:, None] / exact - 1).min(axis=1)
    assert apart.max() < 2.0**-20  # each is one of the 16, as near as float32 comes


def test_softmax_has_an_order_and_refuses_any_other() -> None:
    made = open_op(Ask("torch.softmax", 24, N), 5)
    found = reveal(made, seed=1)
    assert found.green, found
    assert found.order is not None
    assert found.noise is not None
    assert not found.noise.blind
    swapped = swapped_leaves(found.order)
    assert swapped.tree.digest() != found.order.tree.digest()
    refused = judge(made, swapped, seed=2)
    assert refused.verdict == "no tree"
    asker = Asker(made, np.random.default_rng(3))
    unlike = noise(asker, swapped, evaluate, np.random.default_rng(4)).unlike
    assert unlike > 0  # the noise alone sees it too


def swapped_leaves(order: Order) -> Order:
    """The order with leaves 0 and 1 in each other's place, of softmax's sixteen lanes."""
    kids = [
        [1 - kid if kid in (0, 1) else kid for kid in children] for children in order.tree.children
    ]
    return replace(order, tree=Tree.joined(order.tree.n, kids))


def test_settings_are_put_back() -> None:
    """Threads of a call, and a switch of CUDA devices, which no op of the CPU may be given."""
    before, flag = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    made = open_op(Ask("torch.linear", K, N, threads=1), 1)
    seen = []
    inner = torch.nn.functional.linear

    def watched(*given: object) -> object:
        seen.append(torch.get_num_threads())
        return inner(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "linear", watched)
        whole(made)
    assert seen == [1]
    shape = Shape(torch, "linear", K, N, 1, "f32", "cpu", {"tf32": "on"})
    with shape.settings():
        assert torch.backends.cuda.matmul.allow_tf32 is True
    assert (torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32) == (before, flag)
    assert made.key["threads"] == "1"


@pytest.mark.parametrize(
    ("ask", "M", "said"),
    [
        (Ask("torch.mv", K, N), 2, "torch.mv --M 2: it takes one x"),
        (Ask("torch.attention", 65, N), 1, "torch.attention --K 65: no power of two"),
        (Ask("torch.attention", K, N), 1, "torch.attention --N 8: no multiple of 64"),
        (Ask("torch.attention", K, N, options={"q": "0"}), 1, "torch.attention: @q=0: no whole"),
        (Ask("torch.rms_norm", K, N, dtype="bf16"), 1, "torch.rms_norm --dtype bf16: too few"),
        (Ask("torch.softmax", K, N, dtype="f16"), 1, "torch.softmax --dtype f16: too few"),
        (Ask("torch.linear", K, N, options={"tf32": "yes"}), 1, "torch.linear: @tf32=yes"),
        (
            Ask("torch.linear", K, N, options={"reduced": "off"}),
            1,
            "torch.linear: @reduced=off: a switch of CUDA devices",
        ),
        (Ask("torch.linear", K, N, options={"q": "1"}), 1, "torch.linear has no option @q"),
        (Ask("torch.lineal", K, N), 1, "no op 'torch.lineal'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_red_refused(ask: Ask, M: int, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        open_op(ask, M)
    assert caught.value.next_step


def test_red_without_a_device_or_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(NotRunError, match="torch sees no CUDA device"):
        open_op(Ask("torch.linear", K, N, device="cuda"), 1)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NotRunError, match="torch is not installed"):
        open_op(Ask("torch.linear", K, N), 1)
