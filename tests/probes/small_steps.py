"""What the tests of the shared parts of probes share: tokens, plans and single steps."""

from __future__ import annotations

import numpy as np

from parity.comparison.states import compare_states
from parity.protocol import Plan
from parity.runs.run import Side
from parity_probes.blocks import Singles, plan_for
from tests.probes.small_engine import small_config

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
SEEDS = range(80)


def plan(kind: str = "moe-tiny") -> Plan:
    return plan_for(small_config(kind))


def singles(side: Side, keep: tuple[int, ...] = (), kind: str = "moe-tiny") -> Singles:
    return Singles(side, TOKENS, keep, plan(kind))


def same_state(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return compare_states("end", one, other).equal
