"""RMS norms of a library, asked of the module itself: its weight and its eps stay what they are."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from parity.order.reveal import reveal
from parity.order.words import one_line

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm  # noqa: E402
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNorm  # noqa: E402

from parity_torch.norm_sums import is_norm, norm_ask  # noqa: E402

WIDTH = 40


def mean_of_runs(x: Any) -> Any:
    """The mean of squares of each row, in two runs of its own."""
    squares = x.pow(2)
    first, second = squares[..., 0], squares[..., 1]
    for j in range(2, WIDTH, 2):
        first, second = first + squares[..., j], second + squares[..., j + 1]
    return ((first + second) / WIDTH)[..., None]


class TwoRunsRMSNorm(torch.nn.Module):
    """Adds in an order that is known."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((WIDTH,), 3.0))
        self.eps = 1e-6

    def forward(self, x: Any) -> Any:
        return self.weight * (x * torch.rsqrt(mean_of_runs(x) + self.eps))


class OutsideRMSNorm(TwoRunsRMSNorm):
    """Its eps is added to the root: it does not show the sum."""

    def forward(self, x: Any) -> Any:
        return self.weight * (x / (mean_of_runs(x).sqrt() + self.eps))


@pytest.mark.parametrize("kind", [Qwen3RMSNorm, Qwen3NextRMSNorm])
def test_a_librarys_norm_has_a_tree(kind: Any) -> None:
    part = kind(WIDTH)
    with torch.no_grad():
        part.weight.copy_(torch.arange(WIDTH) / 7)
    before, eps = part.weight.clone(), [getattr(part, n, 0) for n in ("eps", "variance_epsilon")]
    assert is_norm(part)
    ask = norm_ask("attn_norm", part, 3, nullcontext)
    op = ask.open()
    answer = reveal(op)
    assert (answer.verdict, answer.contradicts) == ("tree", ())
    assert (op.name, op.n, op.rows) == (f"torch.{kind.__name__}", WIDTH, 3)
    assert torch.equal(part.weight, before)
    assert [getattr(part, n, 0) for n in ("eps", "variance_epsilon")] == eps


def test_the_order_is_the_modules_own() -> None:
    answer = reveal(norm_ask("norm", TwoRunsRMSNorm(), 2, nullcontext).open())
    assert answer.verdict == "tree"
    assert answer.order is not None
    assert one_line(answer.order) == "pairwise(strides [1]) of chain[0..38 step 2]"


def test_red_a_norm_that_does_not_show_its_sum() -> None:
    """It is finite whatever eps is asked for: every two leaves seem to meet first."""
    answer = reveal(norm_ask("norm", OutsideRMSNorm(), 2, nullcontext).open())
    assert answer.verdict == "no tree"
    assert "three terms in one addition, or a sum wider than f32" in answer.contradicts[0]


def test_what_is_no_norm() -> None:
    assert not is_norm(torch.nn.Linear(4, 4))
    assert not is_norm(torch.nn.LayerNorm(4))
