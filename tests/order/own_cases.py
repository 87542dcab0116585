"""The contract's sums with the orders that they must have: one table for cpu, emu and cuda."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from parity.order.own.table import TAKES
from tests.order import contract_trees as trees
from tests.order.contract_trees import Nested


def _none(n: int) -> Iterable[int]:
    return ()


@dataclass(frozen=True)
class Case:
    """``tree`` and ``fma`` by number of terms; ``name``: begins what parity calls the order."""

    op: str
    K: int
    N: int
    tree: Callable[[int], Nested]
    name: str
    variants: str = ""
    fma: Callable[[int], Iterable[int]] = _none
    M: int = 1

    @property
    def id(self) -> str:
        """``q4_matvec+fma K=96 N=5 M=1``."""
        variants = f"+{self.variants}" if self.variants else ""
        return f"{self.op}{variants} K={self.K} N={self.N} M={self.M}"

    @property
    def options(self) -> Mapping[str, str]:
        """As ``make`` takes them."""
        return {"variants": self.variants} if self.variants else {}


Q4 = "contract 1.3"
L = "contract 1.8 P V and l, 2 softmax"
PARTS = "variant split_keys (1.8 P V and l)"
TREE_NORM = "variant norm_tree (1.1, 1.2)"
CASES = (
    # 1.1: whole blocks, and a tail of three
    Case("rmsnorm", 64, 1, trees.rmsnorm, "contract 1.1"),
    Case("rmsnorm", 99, 1, trees.rmsnorm, "contract 1.1"),
    Case("rmsnorm", 99, 1, trees.rmsnorm, "contract 1.1", "rsqrt"),
    # 1.2
    Case("headnorm", 96, 3, trees.ascending, "contract 1.2"),
    Case("headnorm", 40, 3, trees.ascending, "contract 1.2", "rsqrt"),
    Case("norm_tree", 64, 1, trees.by_tree, TREE_NORM, "norm_tree"),
    Case("norm_tree", 99, 1, trees.by_tree, TREE_NORM, "norm_tree+rsqrt"),
    # 3.2: q and k
    Case("l2norm", 96, 3, trees.ascending, "contract 1.2"),
    Case("l2norm", 9, 2, trees.ascending, "contract 1.2"),
    # 1.8: l, two query heads to a KV head and one
    Case("attention_f32_l", 99, 4, trees.ascending, L),
    Case("attention_f32_l", 40, 3, trees.by_tree, "variant two_pass (1.8 l)", "two_pass"),
    Case("attention_int8_l", 99, 3, trees.ascending, L),
    Case("attention_int8_l", 40, 2, trees.by_tree, "variant two_pass (1.8 l)", "two_pass"),
    Case("attention_f32_l", 40, 2, trees.ascending, L, "split_keys"),
    Case("attention_int8_l", 132, 2, trees.in_parts, PARTS, "split_keys"),
    # 1.3: three blocks; six of them where block b goes to partial b mod 4
    Case("q4_matvec", 96, 5, trees.q4, Q4),
    Case("q4_matvec", 96, 5, trees.q4, "variant fma (1.3)", "fma", trees.lower_halves),
    Case("q4_matvec", 96, 5, trees.q4_unpaired, "variant unpaired (1.3)", "unpaired"),
    Case("q4_matvec", 192, 5, trees.q4_split, "variant split_k (1.3)", "split_k"),
    Case(
        *("q4_matvec", 96, 5, trees.q4_unpaired, "variants fma, unpaired (1.3)", "fma+unpaired"),
        trees.all_but_first_of_blocks,
    ),
    # 1.4: every block a term
    Case("expert_matvec", 67, 5, trees.ascending, "contract 1.5; contract 1.4"),
    Case("expert_matvec", 67, 5, trees.ascending, "contract 1.5; contract 1.4", "scale_assoc"),
    Case("expert_matvec", 35, 5, trees.ascending, "contract 1.5; contract 1.4", "fold_p"),
    # 1.5: 16 lanes and a tail on the CPU, windows of columns on the device
    Case("f32_matvec", 99, 21, trees.ascending, "contract 1.5"),
    Case("f32_matvec", 256, 5, trees.ascending, "contract 1.5"),
    Case("f32_matvec", 99, 21, trees.ascending, "variant fma (1.5)", "fma", trees.all_but_first),
    Case("expert_f32_matvec", 99, 5, trees.ascending, "contract 1.5"),
    Case(
        *("expert_f32_matvec", 67, 5, trees.ascending, "variant fma (1.5)", "fma"),
        trees.all_but_first,
    ),
    Case("router_tree", 99, 5, trees.by_tree, "variant router_tree (1.5)", "router_tree"),
    # 1.8: less than one tile of keys, and two
    Case("attention_f32", 64, 6, trees.ascending, "contract 1.8 P V"),
    Case("attention_f32", 256, 6, trees.ascending, "contract 1.8 P V"),
    Case("attention_f32", 64, 6, trees.ascending, "contract 1.8 P V", "two_pass"),
    Case("attention_int8", 64, 6, trees.ascending, "contract 1.5; contract 1.4"),
    Case("attention_int8", 64, 6, trees.ascending, "contract 1.5; contract 1.4", "two_pass"),
    # a part of keys is no other order; then two parts
    Case("attention_f32", 128, 2, trees.ascending, "contract 1.8 P V", "split_keys"),
    Case("attention_f32", 256, 2, trees.in_parts, PARTS, "split_keys"),
    Case("attention_int8", 256, 2, trees.in_parts, PARTS, "two_pass+split_keys"),
    # 2: ranks ascending, the shared expert, the residual
    Case("combine", 9, 40, trees.residual, "contract 1.5; contract 1.4"),
    Case("combine", 9, 40, trees.residual, "contract 1.5; contract 1.4", "fold_p"),
    Case("combine_shared", 10, 40, trees.residual, "contract 1.5; contract 1.4"),
    Case("combine_shared", 10, 40, trees.residual, "contract 1.5; contract 1.4", "fold_p"),
    # 3.2
    Case("delta_mem", 96, 8, trees.ascending, "contract 1.5; contract 1.4"),
    Case("delta_o", 96, 8, trees.ascending, "contract 1.5; contract 1.4"),
    # 2: the router's softmax
    Case("router_softmax", 45, 1, trees.ascending, "contract 1.8 P V and l, 2 softmax"),
)
# The same orders with M rows in one forward.
BATCHES = (
    Case("rmsnorm", 99, 1, trees.rmsnorm, "contract 1.1", M=5),
    Case("headnorm", 64, 3, trees.ascending, "contract 1.2", M=2),
    Case("norm_tree", 64, 1, trees.by_tree, TREE_NORM, "norm_tree", M=4),
    Case("q4_matvec", 96, 9, trees.q4, Q4, M=2),
    Case("q4_matvec", 96, 9, trees.q4, Q4, M=8),
    Case("q4_matvec", 96, 9, trees.q4, "variant fma (1.3)", "fma", trees.lower_halves, M=9),
    Case("f32_matvec", 99, 21, trees.ascending, "contract 1.5", M=8),
    Case("f32_matvec", 99, 21, trees.ascending, "contract 1.5", M=11),
    Case("router_tree", 99, 5, trees.by_tree, "variant router_tree (1.5)", "router_tree", M=4),
    Case("expert_matvec", 67, 5, trees.ascending, "contract 1.5; contract 1.4", M=4),
    Case("expert_f32_matvec", 99, 5, trees.ascending, "contract 1.5", M=4),
    Case("attention_f32", 64, 6, trees.ascending, "contract 1.8 P V", M=4),
    Case("attention_int8", 64, 6, trees.ascending, "contract 1.5; contract 1.4", M=4),
    Case("l2norm", 40, 3, trees.ascending, "contract 1.2", M=2),
    Case("attention_f32_l", 64, 4, trees.ascending, L, M=3),
    Case("attention_f32", 256, 2, trees.in_parts, PARTS, "split_keys", M=3),
    Case("attention_int8_l", 64, 2, trees.ascending, L, M=3),
    Case("combine", 9, 8, trees.residual, "contract 1.5; contract 1.4", M=4),
    Case("router_softmax", 33, 1, trees.ascending, "contract 1.8 P V and l, 2 softmax", M=4),
    Case("combine_shared", 10, 8, trees.residual, "contract 1.5; contract 1.4", M=4),
)


# A difference of two sums: zero_point adds nibbles times x, and takes off 8 times the sum of x.
NO_TREES = (
    Case("q4_matvec", 96, 5, trees.q4_unpaired, "", "zero_point"),
    Case("q4_matvec", 192, 5, trees.q4_unpaired, "", "fma+split_k+unpaired+zero_point"),
    Case("q4_matvec", 96, 9, trees.q4_unpaired, "", "zero_point", M=4),
)


def unseen() -> set[tuple[str, str]]:
    """Variants that an op takes and that act on the order of its sum, without a case."""
    told = (*CASES, *NO_TREES)
    cased = {(case.op, name) for case in told for name in case.variants.split("+")}
    return {(op, name) for op in TAKES for name in TAKES[op]} - cased
