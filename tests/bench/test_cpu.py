"""The bench of the CPU products counts the bytes that a step reads, and refuses to time nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from parity.model.config import PRESETS
from parity.model.model import weight_shapes
from tests.bench import cpu

TINY = PRESETS["moe-tiny"]
GIGABYTE = 10**9


def test_a_round_reads_every_weight_of_a_step() -> None:
    """Against the shapes that the model itself states: Q4_0 takes 18 bytes for 32 weights."""
    shapes = {name: weight.shape for name, weight in weight_shapes(TINY).items()}
    layer = {name.partition("layers.0.")[2]: shape for name, shape in shapes.items()}
    dense = sum(math.prod(layer[f"{name}_proj"]) for name in "qkvo")
    experts = sum(math.prod(layer[f"experts.{name}"][1:]) for name in ("gate", "up", "down"))
    router, head = 4 * math.prod(layer["router"]), math.prod(shapes["lm_head"])

    found = cpu.one_round(cpu.Token(TINY, 0), np.ones(64, np.uint64), np.empty(1, np.uint64))
    read = {name: size for name, (size, _) in found.items()}
    assert read.pop("memory") == 512
    assert read == {
        "q4_matvec": cpu.LAYERS * dense * 18 // 32,
        "f32_matvec": cpu.LAYERS * router,
        "expert_matvec": cpu.LAYERS * TINY.top_k * experts * 18 // 32,
        "lm_head": head * 18 // 32,
        "token": TINY.layers * ((dense + TINY.top_k * experts) * 18 // 32 + router)
        + head * 18 // 32,
    }
    assert all(seconds > 0 for _, seconds in found.values())


def test_shares_are_of_the_same_round() -> None:
    """Speeds 10 of 20, 4 of 5, 9 of 90: the median ratio is 50 %, not 9 of 20."""
    rounds = [
        {"memory": (m * GIGABYTE, 1.0), "token": (t * GIGABYTE, 1.0)}
        for m, t in ((20, 10), (5, 4), (90, 9))
    ]
    _, memory, token = cpu.table(rounds)
    assert memory.split()[-2:] == ["20.00", "100.0%"]
    assert token.split()[-2:] == ["9.00", "50.0%"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["0"], "the number of runs must be 1 or more, got 0"),
        (["1", "--threads", "0"], "threads must be 1 to"),
    ],
)
def test_red_nothing_to_time(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cpu.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
