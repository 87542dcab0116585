"""A key whose variant changed an elementary function: which one, in how many calls, first where.

The count is the scalar oracle's, on the ref's own values (counted.py). Sparse variants stand on
pinned models where they show; libm_* were pinned with glibc 2.36.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from parity.cli.options import make_run
from parity.dump import Entry
from parity.explain.attribution import attribute_birth
from parity.keys import Key
from parity.protocol import Call, Elementary, EngineSettings, Plan, Step
from parity.runs.run import Run, greedy
from parity.tree import Birth, FunctionDiff, Tree
from parity_cpu import Engine as Cpu
from parity_cuda import EmuEngine
from tests.cli_runner import run_cli
from tests.red.counted import Seen


class Case(NamedTuple):
    """A variant on a pinned model, and the keys of t32 that are born: other bytes, same inputs."""

    variant: str
    model: str
    seed: int
    born: tuple[str, ...]


CASES = (
    Case("rsqrt", "moe-tiny", 0, ("l0_knorm", "l1_fnrm", "l2_knorm", "l3_knorm", "l3_qrope")),
    Case("rsqrt", "moe-tiny", 1, ()),
    Case("rsqrt", "hybrid-tiny", 0, ()),
    Case("libm_exp", "moe-tiny", 0, ("l0_act",)),
    Case("libm_exp", "moe-tiny", 4, ("l1_attn", "l3_act")),
    Case("libm_exp", "hybrid-tiny", 0, ("l6_conv", "l7_gated")),
    Case("libm_exp", "hybrid-tiny", 4, ("l2_conv", "l4_conv", "l4_act", "l5_gn", "l7_attn")),
    Case("libm_exp", "hybrid-tiny", 7, ("l4_conv", "l6_g", "l6_act")),
    Case("exp_via_double", "moe-48", 0, ("l3_act", "l9_act")),
    Case("exp_via_double", "hybrid-tiny", 3, ("l1_conv", "l1_gn")),
    Case("libm_sincos", "moe-tiny", 2, ()),
    Case("libm_sincos", "moe-tiny", 4, ("l1_qrope", "l3_qrope")),
)
OTHERS = (
    Case("split_k", "moe-tiny", 7, ()),
    Case("two_pass", "moe-tiny", 7, ()),
    Case("norm_tree", "moe-tiny", 0, ()),
    Case("two_pass", "hybrid-tiny", 0, ()),
    Case("split_keys", "moe-tiny", 7, ()),
)
ENGINES = {"cpu": Cpu, "emu": EmuEngine}


class Reference(NamedTuple):
    """The ref's step at t32: before it, in it, after it."""

    run: Run
    token: int
    entries: list[Entry]
    calls: dict[Key, tuple[Call, ...]]
    seen: Seen


@cache
def reference(model: str, seed: int) -> Reference:
    run = make_run(
        model=model,
        weights="q4",
        seed=seed,
        tokens=None,
        n=1,
        fields="+ffn",
        dump_prefill=False,
        hash_name="fnv1a64",
        prefill="ref",
    )
    engine = Cpu(EngineSettings())
    engine.load(run.model, run.positions)
    token = greedy(engine.prefill(run.prompt)[-1].logits, 0)
    before = engine.read_state()
    every = frozenset(entry.key for entry in engine.step(token, Plan(run.fields)).entries)
    engine.write_state(before)
    step = engine.step(token, Plan(run.fields, tensors=every, trace=every))
    seen = Seen(run.model, token, step.tensors, before, engine.read_state())
    return Reference(run, token, step.entries, step.calls, seen)


def opened(name: str, variant: str = "") -> Any:
    return ENGINES[name](EngineSettings(variants=frozenset({variant} if variant else ())))


def forced(engine: Any, ref: Reference, borrow: Elementary | None = None) -> list[Entry]:
    """What an engine's ops make of the ref's inputs."""
    engine.load(ref.run.model, ref.run.positions)
    engine.write_state(ref.seen.before)
    own = ref.seen.tensors
    plan = Plan(ref.run.fields, replace=lambda key, read: own.get(key), borrow=borrow)
    made: list[Entry] = engine.step(ref.token, plan).entries
    return made


def born(dut: Any, ref: Reference) -> list[Key]:
    """The keys that the dut's ops give other bytes on the ref's inputs."""
    pairs = zip(ref.entries, forced(dut, ref), strict=True)
    return [one.key for one, two in pairs if one != two]


def attributed(dut: Any, ref: Reference, key: Key) -> list[FunctionDiff]:
    return attribute_birth(key, ref.calls[key], opened("cpu"), dut)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_functions_of_every_born_key_are_the_oracles(case: Case, engine: str) -> None:
    ref, dut = reference(case.model, case.seed), opened(engine, case.variant)
    keys = born(dut, ref)
    if case.born:
        assert [key.tag for key in keys] == [f"t32_{place}" for place in case.born]
    assert keys
    for key in keys:
        found = attributed(dut, ref, key)
        assert found == ref.seen.count(key, case.variant), key
        assert found, key


@pytest.mark.parametrize(("model", "seed"), [("moe-tiny", 0), ("hybrid-tiny", 0)])
def test_calls_of_every_key_are_the_oracles(model: str, seed: int) -> None:
    """All arguments of all keys, bit for bit, whether or not a function differs there."""
    ref, compared = reference(model, seed), set()
    for key, ran in ref.calls.items():
        told = {name: x for call in ran for name, x in call.elementary}
        if told:
            log = ref.seen.calls(key)
            assert list(told) == list(dict.fromkeys(name for name, _ in log)), key
            for name, x in told.items():
                wanted = np.array([value for called, value in log if called == name], np.float32)
                assert x.tobytes() == wanted.tobytes(), (key, name)
            compared.add(key.field)
    both = {"nrm", "knorm", "k", "qrope", "attn", "fnrm", "act", "final_normed"}
    own = {"ks", "topk", "topp"} if model == "moe-tiny" else {"conv", "beta", "g", "gn", "gated"}
    assert compared == both | own


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_nothing_is_named_where_no_function_differs(case: Case, engine: str) -> None:
    ref, dut = reference(case.model, case.seed), opened(engine, case.variant)
    keys = born(dut, ref)
    assert keys
    assert {key.tag: attributed(dut, ref, key) for key in keys} == {key.tag: [] for key in keys}


def test_the_function_is_named_beside_another_change() -> None:
    """two_pass changes the order as well; what is called on the ref's side is counted."""
    ref = reference("hybrid-tiny", 4)
    dut = Cpu(EngineSettings(variants=frozenset({"two_pass", "libm_exp"})))
    key = Key(32, 7, "attn")
    assert key in born(dut, ref)
    found = attributed(dut, ref, key)
    assert found == ref.seen.count(key, "libm_exp")
    assert [diff.function for diff in found] == ["expf"]


def test_arguments_of_the_dut_do_where_the_ref_has_none() -> None:
    """The emulated kernels tell no arguments: the dut's step on the ref's inputs does."""
    ref, dut = reference("moe-tiny", 0), opened("cpu", "libm_exp")
    key = Key(32, 0, "act")
    dut.load(ref.run.model, ref.run.positions)
    dut.write_state(ref.seen.before)
    given = ref.seen.tensors.get
    plan = Plan((), replace=lambda asked, read: given(asked), trace=frozenset({key}))
    calls = dut.step(ref.token, plan).calls[key]
    found = attribute_birth(key, calls, opened("emu"), dut)
    assert found == ref.seen.count(key, "libm_exp")
    assert found


# --- on the command line --------------------------------------------------------------------------


def births(tmp_path: Path, dut: str, case: Case) -> dict[str, Birth]:
    """The birthplaces that ``parity diff`` names."""
    path = tmp_path / "run.json"
    words = ["diff", "--ref", "cpu", "--dut", dut, "--prefill", "ref", "--n", "1"]
    words += ["--model", case.model, "--seed", str(case.seed), "--fields", "+ffn"]
    result = run_cli(*words, "--json", str(path))
    assert result.status == 1, result.stderr
    tree = Tree.from_json(path.read_text())
    assert tree.births is not None
    assert tree.births.complete
    return {birth.key: birth for birth in tree.births.found}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", [CASES[2], CASES[3], CASES[9], CASES[11]], ids=str)
def test_diff_names_the_function(tmp_path: Path, case: Case, engine: str) -> None:
    """Details are kept of the first birth of each field."""
    ref = reference(case.model, case.seed)
    found = births(tmp_path, f"{engine}:exact+{case.variant}", case)
    detailed: dict[str, Key] = {}
    for key in map(Key.parse, found):
        detailed.setdefault(key.field, key)
    for key in detailed.values():
        assert found[key.tag].functions == ref.seen.count(key, case.variant), key
        assert found[key.tag].functions
        assert found[key.tag].explained is True, "nothing else is changed"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", OTHERS[:2], ids=str)
def test_diff_names_none_where_none_differs(tmp_path: Path, case: Case, engine: str) -> None:
    found = births(tmp_path, f"{engine}:exact+{case.variant}", case)
    assert found
    for birth in found.values():
        assert (birth.functions, birth.explained) == ([], None), birth.key


def test_diff_says_that_the_function_is_not_all(tmp_path: Path) -> None:
    """two_pass sums in another order, so the library's expf alone does not give these bytes."""
    case = Case("libm_exp", "moe-tiny", 7, ())
    alone = births(tmp_path, "cpu:exact+libm_exp", case)["t32_l0_attn"]
    both = births(tmp_path, "cpu:exact+libm_exp+two_pass", case)["t32_l0_attn"]
    assert alone.functions == both.functions != []
    assert (alone.explained, both.explained) == (True, False)


def test_nobody_says_so_where_the_ref_cannot_borrow(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    words = ["diff", "--ref", "emu", "--dut", "cpu:exact+libm_exp", "--prefill", "ref", "--n", "1"]
    run_cli(*words, "--model", "moe-tiny", "--seed", "0", "--fields", "+ffn", "--json", str(path))
    births = Tree.from_json(path.read_text()).births
    assert births is not None
    (birth,) = births.found
    assert [function.function for function in birth.functions] == ["expf"]
    assert birth.explained is None


# --- planted faults -------------------------------------------------------------------------------


class OffAround(Cpu):
    """Its expf is 1 ULP too high between -0.5 and -0.25, and its ops compute with that."""

    def elementary(self, function: str, x: np.ndarray) -> np.ndarray:
        values = super().elementary(function, x)
        wrong = (x > -0.5) & (x < -0.25) if function == "expf" else np.zeros(x.shape, bool)
        return np.where(wrong, np.nextafter(values, np.float32(2.0)), values)

    def step(self, token: int, plan: Plan | None = None) -> Step:
        return super().step(token, replace(plan or Plan(()), borrow=self.elementary))


def test_red_a_planted_function_is_named() -> None:
    ref, dut = reference("moe-tiny", 0), OffAround(EngineSettings())
    keys = [key for key in born(dut, ref) if key.field == "act"]
    assert len(keys) == 4
    for key in keys:
        gate = ref.seen.tensors[Key(key.pos, key.layer, "gate")].reshape(-1)
        wrong = np.flatnonzero((gate > 0.25) & (gate < 0.5))
        (found,) = attributed(dut, ref, key)
        assert (found.function, found.calls, found.differ) == ("expf", gate.size, wrong.size)
        assert found.first_input == f"{int((-gate[wrong[:1]]).view(np.uint32)[0]):08x}"
        assert found.max_ulp == 1


class Claims(Cpu):
    """Computes with the library's expf and says that it is the contract's."""

    def elementary(self, function: str, x: np.ndarray) -> np.ndarray:
        return opened("cpu").elementary(function, x)


def test_red_an_engine_that_tells_other_functions_than_it_uses() -> None:
    ref, dut = reference("moe-tiny", 0), Claims(EngineSettings(variants=frozenset({"libm_exp"})))
    (key,) = born(dut, ref)
    assert attributed(dut, ref, key) == []
    assert ref.seen.count(key, "libm_exp") != []


def test_red_a_call_too_many_is_seen() -> None:
    """The counts would not agree if the op's calls were told twice."""
    ref, dut = reference("moe-tiny", 0), opened("cpu", "libm_exp")
    key = Key(32, 0, "act")
    calls = (*ref.calls[key], *ref.calls[key])
    found = attribute_birth(key, calls, opened("cpu"), dut)
    assert found != ref.seen.count(key, "libm_exp")
