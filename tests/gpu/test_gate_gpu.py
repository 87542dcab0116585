"""The gate on a device: the fast tier and variants are refused, an engine against itself is never
the default, and an equal candidate is timed. No verdict here depends on a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parity.keys import Key
from parity.store import Store
from parity.variants import ACTS_ON
from tests.cli_runner import run_cli

pytestmark = pytest.mark.gpu

MODELS = ("moe-tiny", "moe-48", "hybrid-64")
NAME = "device"


def gate(tmp_path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Status and record of a gate with the settings that are the default."""
    path = tmp_path / "gate.json"
    store = tmp_path / "store"
    result = run_cli("gate", *words, "--store", str(store), "--name", NAME, "--json", str(path))
    assert path.exists(), result.stderr
    print(f"\n{result.stdout}")
    record = json.loads(path.read_text())
    assert Store(store).latest("gate", NAME).address == record["evidence"]["address"]
    return result.status, record


@pytest.mark.parametrize("model", MODELS)
def test_the_fast_tier_is_refused(tmp_path: Path, model: str) -> None:
    words = ("--engine", "cuda:exact", "--fast", "cuda:fast", "--model", model)
    status, record = gate(tmp_path, *words)
    assert (status, record["verdict"]) == (1, "refused")
    assert Key.parse(record["first"]).pos == 0  # in the prompt, which is compared too
    assert record["problem"]["cause"].endswith("born here")
    assert record["statistics"]["all"] is None
    assert record["base"]["mask"] != record["candidate"]["mask"]


@pytest.mark.parametrize(
    "variant", ["fma", "two_pass", "libm_exp", "split_k", "zero_point", "div_by_inverse"]
)
def test_a_variant_is_refused_where_it_acts(tmp_path: Path, variant: str) -> None:
    status, record = gate(tmp_path, "--engine", "cuda", "--fast", variant)
    assert (status, record["verdict"]) == (1, "refused")
    assert record["candidate"]["spec"] == f"cuda+{variant}"
    # x is where a difference in the FFN, whose fields are not dumped, is seen first.
    assert Key.parse(record["first"]).field in ACTS_ON[variant] | {"x"}


@pytest.mark.parametrize("model", MODELS)
def test_an_engine_against_itself_is_never_the_default(tmp_path: Path, model: str) -> None:
    words = ("--engine", "cuda", "--fast", "cuda:exact", "--model", model)
    status, record = gate(tmp_path, *words)
    assert (status, record["verdict"]) == (3, "undecided")
    assert record["reason"] == "equal, and both sides run the same code: nothing to gate"
    assert record["code"] == {"identical": True, "told": True}
    assert record["base"]["compiled"] == record["candidate"]["compiled"]
    assert len(record["timing"]["pairs"]) == 24 * 4


def test_the_device_against_the_cpu_is_equal_and_timed(tmp_path: Path) -> None:
    """Whichever is faster: every pass has the CPU's bits, so nothing is refused."""
    status, record = gate(tmp_path, "--engine", "cpu", "--fast", "cuda", "--model", "moe-48")
    assert record["verdict"] in ("default", "opt-in", "undecided")
    assert status == record["exit_status"]
    assert record["problem"] is None
    assert record["code"] == {"identical": False, "told": True}
    assert [seed["seed"] for seed in record["equality"]] == [7, 8, 9]
    for seed in record["equality"]:
        assert [size["size"] for size in seed["sizes"]] == [1, 2, 4, 8]
        assert all(size["control"]["fired"] for size in seed["sizes"])


def test_rows_that_are_wrong_on_the_device_are_refused(tmp_path: Path) -> None:
    """Untapped, from five rows on, a product is split: single steps and tapped rows are right."""
    engine = "tests.red.gate_devices:CudaUntapped"
    status, record = gate(tmp_path, "--engine", "cuda", "--fast", engine)
    assert (status, record["verdict"]) == (1, "refused")
    assert (record["problem"]["size"], record["first"]) == (8, "t32_logits")
    assert record["problem"]["what"].endswith("in warm-up round 1, without a tap")
