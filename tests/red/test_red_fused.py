"""A fault in one fused launch: red at the key that it makes, and the report says that the ops are
right."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.tree import Tree
from parity_cuda.sources import KERNELS
from tests.red.test_red_engines import diff

FUSED = "tests.red.fused_faults:Fused"
WORDS = ("--prefill", "ref", "--n", "1", "--fields")
# The model, a kernel's launch in a step with an argument that it writes, and the key that begins
# there. In moe-tiny the launches of fused_project are two a layer, then the head's; in hybrid-tiny
# layers 3 and 7 have full attention.
CASES = [
    ("moe-tiny", "fused_project.7.4", "t32_l3_ores"),
    ("moe-tiny", "fused_project.8.6", "t32_logits"),
    ("moe-tiny", "fused_heads_int8.1.2", "t32_l1_ks"),
    ("moe-tiny", "fused_route.1.0", "t32_l1_fnrm"),
    ("moe-tiny", "fused_experts.3.2", "t32_l3_act"),
    ("moe-tiny", "fused_down.0.0", "t32_l0_x"),
    ("hybrid-tiny", "fused_heads_f32.0.3", "t32_l3_gated"),
    ("hybrid-tiny", "fused_delta_inputs.3.2", "t32_l4_qn"),
    ("hybrid-tiny", "fused_delta.5.1", "t32_l6_gn"),
]


def found(tmp_path: Path, preset: str, fault: str) -> tuple[int, Tree]:
    """Exit status and tree of a run with this fault."""
    fields = "+ffn" if preset == "moe-tiny" else "+s"
    return diff(tmp_path, f"{FUSED}@fault={fault}", "--model", preset, *WORDS, fields)


@pytest.mark.parametrize(("preset", "fault", "key"), CASES)
def test_red_a_fused_fault_is_found_at_the_key_it_makes(
    tmp_path: Path, preset: str, fault: str, key: str
) -> None:
    status, tree = found(tmp_path, preset, fault)
    assert (status, tree.verdict, tree.first) == (1, "diverged", key)
    assert {row.state for row in tree.inputs} <= {"same"}
    assert tree.births is not None
    first = tree.births.found[0]
    assert (first.key, first.how, first.clean) == (key, "inputs", True)
    text = f"{key}: op by op the dut gives the ref's bytes, its fused launches do not"
    assert text in tree.births.reason
    assert not tree.births.complete


def test_every_fused_kernel_has_its_fault() -> None:
    names = {path.stem for path in KERNELS.glob("fused_*.cu")}
    assert {fault.split(".")[0] for _, fault, _ in CASES} == names
