"""Rows and batches of ``hf``: what they run, what isodiff says of them, and invariant=on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from parity.errors import InputError  # noqa: E402
from parity.families import dumped_fields  # noqa: E402
from parity.keys import Key  # noqa: E402
from parity.protocol import EngineSettings, Plan, Step  # noqa: E402
from parity_torch import batch, invariant  # noqa: E402
from parity_torch.engine import HfEngine  # noqa: E402
from tests.cli_runner import run_cli  # noqa: E402

FAULTS = "tests.red.torch_faults"
ONE, OTHER = [5, 17, 40, 3, 8], [9, 1, 2, 60, 4, 4, 31, 7]
NEAR = 1e-4  # of the largest logit: some hundred roundings of f32


def opened(model: str = "dense-tiny", positions: int = 16, **options: str) -> Any:
    """The engine with one of our presets."""
    given = HfEngine.open_model(model, seed=7, weights=None, options=options)
    engine: Any = HfEngine(EngineSettings("library", options={"threads": "1", **options}))
    engine.load(given, positions)
    return engine


@pytest.fixture(scope="module")
def dense() -> Any:
    return opened()


def singly(engine: Any, tokens: list[int]) -> list[Step]:
    engine.reset()
    return [engine.step(token) for token in tokens]


def unlike(ref: list[Step], dut: list[Step]) -> float:
    """The largest difference of two runs' logits, in the largest logit."""
    assert len(ref) == len(dut)
    rows = np.stack([step.logits for step in ref]), np.stack([step.logits for step in dut])
    return float(np.abs(rows[0] - rows[1]).max() / np.abs(rows[0]).max())


# --- what a batch runs ----------------------------------------------------------------------------


@pytest.mark.parametrize("decode", [0, 2])
@pytest.mark.parametrize("model", ["dense-tiny", "hybrid-tiny"])
def test_a_padded_batch_gives_each_sequence_its_own_logits(model: str, decode: int) -> None:
    engine = opened(model)
    steps = engine.step_batch([ONE, OTHER], None, decode)
    for tokens, found in zip((ONE, OTHER), steps, strict=True):
        assert unlike(singly(engine, tokens), found) < NEAR
    assert unlike(singly(engine, OTHER)[:5], steps[0]) > 0.1  # and not its neighbour's


def test_keys_stand_under_the_sequence_s_own_positions(dense: Any) -> None:
    plan = Plan(dumped_fields(dense.model.config))
    for tokens, steps in zip((ONE, OTHER), dense.step_batch([ONE, OTHER], plan, 2), strict=True):
        assert [step.entries[0].key for step in steps] == [
            Key(pos, 0, "nrm") for pos in range(len(tokens))
        ]
        assert len({len(step.entries) for step in steps}) == 1


def test_positions_that_nothing_is_wanted_of_carry_nothing(dense: Any) -> None:
    plan = Plan(("x", "logits"), places=frozenset({(4, 1), (4, None)}))
    short, long = dense.step_batch([ONE, OTHER], plan, 1)
    for steps in (short, long):
        told = [(len(step.entries), step.logits.size) for step in steps]
        assert told == [(2, 512) if pos == 4 else (0, 0) for pos in range(len(steps))]


def test_one_forward_a_prompt_and_one_a_token(dense: Any) -> None:
    before = dense.counters()
    dense.step_batch([ONE, OTHER, ONE], None, 2)
    after = dense.counters()
    assert after["lm_head"] - before["lm_head"] == 1 + 2


def test_the_engine_is_reset_and_as_good_as_new(dense: Any) -> None:
    ref = singly(dense, ONE)
    dense.step_batch([OTHER, ONE], None, 1)
    assert int(dense.read_state()["lengths"][0]) == 0
    again = [dense.step(token) for token in ONE]
    assert [one.logits.tobytes() for one in ref] == [one.logits.tobytes() for one in again]


def test_red_a_sequence_without_a_prompt_is_refused(dense: Any) -> None:
    with pytest.raises(InputError) as raised:
        dense.step_batch([OTHER, [5, 6]], None, 2)
    said = "hf: sequence 1 of a batch has 2 tokens, of which 2 are decoded"
    assert raised.value.message == said


def test_a_model_without_a_mask_lacks_batches(dense: Any) -> None:
    assert batch.lacks_batch(dense.module) == ""
    assert batch.lacks_batch(torch.nn.Linear(2, 2)) == "Linear takes no attention_mask"


# --- what isodiff says ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """What one command gave."""

    status: int
    found: dict[str, Any]

    @property
    def facts(self) -> dict[str, str]:
        return dict(self.found["facts"])

    def firsts(self, neighbours: str) -> list[str | None]:
        """First key of each sequence of the batch of two whose one sequence stands first."""
        one = next(
            one
            for one in self.found["batches"]
            if (one["neighbours"], one["place"]) == (neighbours, 0)
        )
        return [mate["first"] for mate in one["mates"]]


def isodiff(tmp_path: Path, engine: str, *words: str) -> Ran:
    path = tmp_path / "found.json"
    given = ("--engine", f"{FAULTS}:{engine}@threads=1", "--model", "dense-tiny")
    given += ("--weights", "f32", "--m", "2", "--pos", "3", "--json", str(path))
    result = run_cli("isodiff", *given, *words)
    assert path.exists(), result.stderr
    return Ran(result.status, json.loads(path.read_text()))


def test_red_a_spoiled_row_is_found_and_tried_with_other_settings(tmp_path: Path) -> None:
    ran = isodiff(tmp_path, "SpoiledRow")
    assert (ran.status, ran.found["verdict"], ran.found["first"]) == (1, "diverged", "t3_l0_nrm")
    assert ran.found["headline"] == "M = 2, pos 3, col 0; first key t3_l0_nrm, born here"
    cause = "RMSNorm, output of input_layernorm, row 0 of 2; every key before it is equal"
    assert ran.facts["cause"] == cause
    assert ran.facts["size"].startswith("t3_l0_nrm: 1 of 128 differ, by up to 1 ULP of f32")
    assert ran.facts["greedy"].startswith(("safe in 2 of 2 rows", "at risk", "flipped"))
    again = ran.found["again"]
    assert (again["settings"], again["first"]) == ("invariant=on", "t3_l0_nrm")
    told = f"with invariant=on ({invariant.settings_text('cpu')}): it differs too, M = 2"
    assert ran.facts["settings"].startswith(told)


def test_red_rows_that_differ_from_themselves_are_unstable(tmp_path: Path) -> None:
    ran = isodiff(tmp_path, "Drifting")
    assert (ran.status, ran.found["verdict"]) == (1, "unstable")
    assert ran.found["brief"] == "2 rows at pos 3 differ between two runs"
    assert ran.found["again"] is None


BATCHES = {
    # engine: neighbours, sequence, and its first key, which no true batch has
    "NoMask": (("ragged", 0, "t0_l0_attn"),),
    "WrongPositions": (("ragged", 0, "t0_l0_k"),),
    "Swapped": (("other prompts", 0, "t0_l0_nrm"), ("ragged", 1, "t0_l0_nrm")),
}


@pytest.fixture(scope="module")
def true_batch(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return isodiff(tmp_path_factory.mktemp("true"), "RowByRow@invariant=on", "--batch")


@pytest.mark.parametrize("engine", BATCHES)
def test_red_a_faulty_batch_is_found_at_its_key(
    tmp_path: Path, true_batch: Ran, engine: str
) -> None:
    ran = isodiff(tmp_path, f"{engine}@invariant=on", "--batch")
    assert (ran.status, ran.found["verdict"], ran.found["again"]) == (1, "diverged", None)
    for beside, at, key in BATCHES[engine]:
        assert ran.firsts(beside)[at] == key
        assert true_batch.firsts(beside)[at] != key
    assert ran.found["first"] == BATCHES[engine][0][2]


def test_no_sequence_of_a_true_batch_reads_its_neighbour(true_batch: Ran) -> None:
    """Whatever this machine's kernels make of the order."""
    assert true_batch.found["verdict"] in ("same", "diverged")
    contents = [one["contents"] for one in true_batch.found["batches"]]
    assert contents == [None, "", None, "", None]
    assert all(cost["rows_calls"]["lm_head"] == 3 for cost in true_batch.found["costs"])


# --- invariant=on ---------------------------------------------------------------------------------


def settings() -> tuple[Any, ...]:
    """All that invariant=on may set."""
    matmul, cuda = torch.backends.cuda.matmul, torch.backends.cuda
    halves = [f"allow_{name}_reduced_precision_reduction" for name in ("bf16", "fp16")]
    return (
        *(torch.get_num_threads(), torch.backends.mkldnn.enabled, torch.backends.cudnn.benchmark),
        *(cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        *(getattr(matmul, name) for name in halves),
        *(getattr(matmul, f"{name}_split_k", None) for name in halves),
    )


@pytest.fixture
def one_thread() -> Iterator[None]:
    """More than one, so that a change would show."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_settings_hold_inside_and_are_put_back(one_thread: None) -> None:
    before, inside = settings(), settings()

    def fail() -> None:
        nonlocal inside
        with invariant.invariant("cpu"):
            inside = settings()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert inside[:7] == (1, False, before[2], False, False, True, True)
    assert settings() == before
    assert invariant.settings_text("cpu") == "sdpa=math deterministic=warn threads=1 mkldnn=off"


def test_settings_of_a_device_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """This build may have no device: its choice of a library is a stand-in, the rest is real."""
    chosen = ["cublas"]
    monkeypatch.setattr(
        torch.backends.cuda,
        "preferred_blas_library",
        lambda name=None: chosen[-1] if name is None else chosen.append(name),
    )
    before = settings()
    with invariant.invariant("cuda"):
        inside = settings()
    assert inside[9:11] == (False, False)
    assert set(inside[11:]) <= {False, None}
    assert chosen == ["cublas", "cublaslt", "cublas"]
    assert settings() == before
    told = invariant.settings_text("cuda")
    assert "reduced_precision_reduction=off split_k=off" in told
    assert "CUBLAS_WORKSPACE_CONFIG=" in told


def test_a_forward_runs_inside_the_settings(one_thread: None) -> None:
    engine = opened(invariant="on")
    inside: list[tuple[Any, ...]] = []
    engine.module.model.norm.register_forward_pre_hook(lambda *_: inside.append(settings()))
    before = settings()
    engine.step(5)
    engine.step_batch([ONE, OTHER], None, 1)
    assert [found[:2] for found in inside] == [(1, False)] * 3
    assert settings() == before
    assert engine.describe()["invariant"] == invariant.settings_text("cpu")
    with pytest.raises(InputError):
        engine.step_batch([[5]], None, 1)
    assert settings() == before
