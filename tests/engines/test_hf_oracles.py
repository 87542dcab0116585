"""Checkpoints that transformers saved, read by our loader, against the library's own logits.

tests/fixtures/make_hf.py made the folders: every architecture that a folder may name, small, of
random weights, in the names and the layout the library chose. Ours reads config.json and
safetensors, runs with f32 weights and an f32 cache, and agrees within 1e-5 of the largest logit
over 16 positions. Measured on the cpu engine, of the largest logit: 2.9e-7 (Qwen3), 6.1e-7 (Qwen3
with experts), 1.8e-6 (Qwen3-Next), 4.5e-6 and 6.5e-7 (Qwen3.5), 1.8e-6 (Qwen3.5 with experts). A
mistake in reading any part is far outside, and each is planted here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.dtypes import same_bits
from parity.model.config import ModelConfig
from parity.model.file_model import FileModel
from parity.model.folder import names as reading
from parity.model.folder import open_folder
from parity.model.folder.config import ARCHITECTURES, Architecture
from parity.model.folder.names import Made, Piece
from parity.model.model import synthetic
from parity.model.rope import inv_freq
from parity.protocol import EngineSettings, Plan, Step
from parity_cpu import Engine as CpuEngine
from parity_cuda import CudaEngine, EmuEngine
from tests.caches import own_cache
from tests.cli_runner import run_cli
from tests.hf_folders import config_of, tensors_of, write_folder

FOLDER = Path(__file__).parents[1] / "fixtures" / "hf"
ENGINES = [CpuEngine, EmuEngine, pytest.param(CudaEngine, marks=pytest.mark.gpu)]
BOUND = 1e-5
POSITIONS = 16
LEAST_SPREAD = 0.5
QWEN3, MOE, NEXT = "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM"
TEXT, VISION = "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"
TEXT_MOE = "Qwen3_5MoeForCausalLM"
KINDS = (QWEN3, MOE, NEXT, TEXT, TEXT_MOE, VISION)

Array = np.ndarray[Any, np.dtype[Any]]


@cache
def oracle(kind: str) -> tuple[list[int], Array]:
    """Tokens, and the library's logits f32[16, vocab]."""
    with np.load(FOLDER / kind / "oracle.npz") as stored:
        assert str(stored["made_with"]).startswith("transformers 5.")
        return [int(token) for token in stored["tokens"]], stored["logits"]


def difference(kind: str, model: FileModel, engine: Any = CpuEngine) -> float:
    """max |difference| over max |logit| of 16 positions, the cache growing with each."""
    tokens, ref = oracle(kind)
    side = engine(EngineSettings())
    side.load(model, POSITIONS)
    dut = np.stack([side.step(token, Plan(())).logits for token in tokens])
    assert dut.shape == ref.shape == (POSITIONS, model.config.vocab)
    assert float(ref.std()) >= LEAST_SPREAD
    return float(np.abs(dut.astype(np.float64) - ref).max() / np.abs(ref).max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_logits_are_the_librarys(
    engine: Any, kind: str, record_property: Callable[[str, object], None]
) -> None:
    model = open_folder(FOLDER / kind)
    assert model.config.kv == "f32"
    measured = difference(kind, model, engine)
    record_property("difference", measured)
    print(f"{engine.name} {kind}: {measured:.2e} of the largest logit")
    assert measured <= BOUND


# Keys of a token by contract 2 and 3: an f32 cache has neither ks nor vs, and +ffn adds 5 keys to
# a dense layer, 8 to one with experts, 2 for the shared one.
KEYS = {
    QWEN3: 2 * (9 + 5) + 2,
    MOE: 2 * (9 + 8) + (9 + 5) + 2,
    NEXT: 3 * (13 + 10) + (10 + 10) + 2,
    TEXT: 3 * (13 + 5) + (10 + 5) + 2,
    TEXT_MOE: 3 * (13 + 10) + (10 + 10) + 2,
    VISION: 2 * (10 + 5) + (13 + 5) + 2,
}


def compared(*words: str) -> tuple[int, str]:
    result = run_cli("diff", "--n", "2", "--tokens", "3,1,2", "--fields", "+ffn", "-q", *words)
    return result.status, result.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_engines_have_the_same_digests(kind: str) -> None:
    """Every key of every field, from one folder: cpu against emu."""
    keys = 2 * KEYS[kind]
    said = f"same: {keys} of {keys} keys, level bit, control fired, dut emulated\n"
    assert compared("--ref", "cpu", "--dut", "emu", "--model", str(FOLDER / kind)) == (0, said)


@pytest.mark.parametrize(
    ("preset", "kind", "keys"),
    [
        ("next-tiny", NEXT, 6 * (13 + 10) + 2 * (10 + 10) + 2),
        ("dense-tiny", QWEN3, 4 * (11 + 5) + 2),  # tied; an int8 cache has ks and vs
    ],
)
def test_engines_have_the_same_digests_of_a_quantised_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preset: str, kind: str, keys: int
) -> None:
    """Experts, a shared expert, both kinds of attention and a tied head as Q4_0 made at load."""
    own_cache(tmp_path / "cache", monkeypatch, "emu", "emu-objects", "numba")
    model = synthetic(preset, 7, "f32")
    tensors, config = tensors_of(model, kind), config_of(model.config, kind)
    if kind == QWEN3:
        del tensors["lm_head.weight"]
        config["tie_word_embeddings"] = True
    folder = write_folder(tmp_path / "m", config, tensors)
    words = ("--ref", "cpu", "--dut", "emu", "--model", str(folder), "--weights", "q4")
    said = f"same: {2 * keys} of {2 * keys} keys, level bit, control fired, dut emulated\n"
    assert compared(*words) == (0, said)
    assert (tmp_path / "cache" / "q4").is_dir()


def test_red_digests_of_folders_that_differ_in_two_rows(tmp_path: Path) -> None:
    """Two rows of one layer's key projection change places: found at that layer's kraw."""
    model = synthetic("dense-tiny", 7, "f32")
    tensors = tensors_of(model, QWEN3)
    config = config_of(model.config, QWEN3)
    write_folder(tmp_path / "ref", config, tensors)
    rows = tensors["model.layers.2.self_attn.k_proj.weight"]
    rows = rows[[1, 0, *range(2, len(rows))]]
    write_folder(
        tmp_path / "dut", config, tensors | {"model.layers.2.self_attn.k_proj.weight": rows}
    )
    paths = [str(tmp_path / f"{side}.dump") for side in ("ref", "dut")]
    for side, path in zip(("ref", "dut"), paths, strict=True):
        words = ("--engine", "cpu", "--model", str(tmp_path / side))
        words += ("--tokens", "3,1,2", "--n", "1")
        assert run_cli("dump", *words, "-o", path).status == 0
    result = run_cli("compare", *paths, "-q")
    assert (result.status, result.stdout.split(",")[0]) == (1, "diverged: t3_l2_kraw")


def test_every_architecture_has_a_folder() -> None:
    """The one without is Qwen3.5 with vision and experts, which is two of these at once."""
    assert set(ARCHITECTURES) - set(KINDS) == {"Qwen3_5MoeForConditionalGeneration"}


def test_the_folders_differ_as_they_say() -> None:
    """What is spread over the fixtures is there: tied head, dense layers, shards, dtypes, fused
    experts, layers of full attention by list."""
    models = {kind: open_folder(FOLDER / kind) for kind in KINDS}
    assert models[QWEN3].config.tied
    assert models[MOE].config.dense_layers == (1,)
    assert not models[MOE].config.norm_topk_prob
    assert len(list((FOLDER / NEXT).glob("*.safetensors"))) == 4
    assert models[VISION].config.full_layers == (0, 2)
    kinds = {kind: model.source.stored.split()[1] for kind, model in models.items()}
    assert [kinds[kind] for kind in KINDS] == ["F32", "BF16", "BF16", "F16", "BF16", "BF16"]
    assert b"experts.gate_up_proj" in (FOLDER / TEXT_MOE / "model.safetensors").read_bytes()
    assert b"experts.0.gate_proj" in (FOLDER / MOE / "model.safetensors").read_bytes()
    assert b"model.visual." in (FOLDER / VISION / "model.safetensors").read_bytes()
    for kind in (NEXT, TEXT, TEXT_MOE, VISION):
        assert models[kind].config.gdn == (2, 6, 12, 10)


# --- planted mistakes: in the reader --------------------------------------------------------------


def wrong_parts(heads: int, change: Callable[[Array], Array]) -> Callable[..., list[Piece]]:
    """``_shares`` of a reader that sees a head's value heads in another order."""
    right = reading._shares

    def shares(name: str, count: int, widths: tuple[int, ...], hidden: int) -> list[Piece]:
        pieces = right(name, count, widths, hidden)
        assert count == heads
        return [replace(piece, take=_after(piece, change)) for piece in pieces]

    return shares


def _after(piece: Piece, change: Callable[[Array], Array]) -> Callable[[Array], Array]:
    take = piece.take
    assert take is not None
    return lambda w: change(take(w))


def tiled(w: Array) -> Array:
    """[key heads, rows, hidden] written head by head of the share first: value heads tiled."""
    return w.reshape(w.shape[0], 3, -1, w.shape[2]).swapaxes(0, 1) if w.shape[1] % 3 == 0 else w


def plain_rows(name: str, heads: int, widths: tuple[int, ...], hidden: int) -> list[Piece]:
    """``_shares`` of a reader that takes the rows for [q | k | v | z], not head by head."""
    firsts = [heads * sum(widths[:index]) for index in range(len(widths))]
    shape = (heads * sum(widths), hidden)

    def part(first: int, count: int) -> Callable[[Array], Array]:
        return lambda w: w[first : first + count]

    pairs = zip(firsts, (heads * width for width in widths), strict=True)
    return [Piece(name, shape, part(*pair)) for pair in pairs]


@pytest.mark.parametrize("kind", [NEXT, TEXT, TEXT_MOE, VISION])
def test_red_offset_of_the_norms_forgotten(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Architecture, "offset_norms", property(lambda self: False))
    assert difference(kind, open_folder(FOLDER / kind)) > 1000 * BOUND


@pytest.mark.parametrize("kind", [QWEN3, MOE])
def test_red_offset_where_there_is_none(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Architecture, "offset_norms", property(lambda self: True))
    assert difference(kind, open_folder(FOLDER / kind)) > 1000 * BOUND


@pytest.mark.parametrize("wrong", [plain_rows, wrong_parts(2, tiled)], ids=["plain", "tiled"])
def test_red_interleave_of_the_value_heads(
    wrong: Callable[..., list[Piece]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Qwen3-Next's rows in another order: 2/6 heads, which no permutation undoes by itself."""
    monkeypatch.setattr(reading, "_shares", wrong)
    assert difference(NEXT, open_folder(FOLDER / NEXT)) > 1000 * BOUND


def test_red_up_before_gate_in_fused_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reading._fused_experts

    def other(gate_up: str, down: str, config: ModelConfig) -> Iterator[tuple[str, Made]]:
        found = dict(right(gate_up, down, config))
        found["experts.gate"], found["experts.up"] = found["experts.up"], found["experts.gate"]
        yield from found.items()

    monkeypatch.setattr(reading, "_fused_experts", other)
    assert difference(TEXT_MOE, open_folder(FOLDER / TEXT_MOE)) > 1000 * BOUND


# --- planted mistakes: in what was read -----------------------------------------------------------

Change = Callable[[FileModel], Mapping[str, Array]]


def every(model: FileModel, end: str, change: Callable[[Array], Array]) -> dict[str, Array]:
    """The tensors whose name ends so, each changed."""
    names = [name for name in model.names() if name.endswith(end)]
    assert names, end
    return {name: np.ascontiguousarray(change(model.tensor(name))) for name in names}


def mistaken(model: FileModel, changed: Mapping[str, Array], **config: Any) -> FileModel:
    """The model with other tensors, or other settings. Every change must change something."""
    assert changed.keys() <= model.recipes.keys()
    assert not any(same_bits(model.tensor(name), array) for name, array in changed.items())
    recipes = {**model.recipes, **{name: _given(array) for name, array in changed.items()}}
    return replace(model, recipes=recipes, config=replace(model.config, **config))


def _given(array: Array) -> Callable[[], Array]:
    return lambda: array


def neighbouring_pairs(model: FileModel) -> dict[str, Array]:
    """RoPE on elements (2i, 2i + 1) of the rotated part, as the rows of q and k."""
    head, rot = model.config.head_dim, model.config.rot_dim
    order = np.arange(head)
    order[:rot] = np.concatenate([np.arange(0, rot, 2), np.arange(1, rot, 2)])
    changed = every(model, "_norm", lambda w: w[order] if w.shape == (head,) else w)
    changed = {name: w for name, w in changed.items() if name.endswith((".q_norm", ".k_norm"))}

    def rows(w: Array) -> Array:
        return w.reshape(-1, head, w.shape[1])[:, order].reshape(w.shape)

    def gated(w: Array) -> Array:  # [query, gate] a head: the gate's rows stay
        if model.config.family != "hybrid":
            return rows(w)
        parts = w.reshape(-1, 2, head, w.shape[1]).copy()
        parts[:, 0] = parts[:, 0][:, order]
        return parts.reshape(w.shape)

    return changed | every(model, ".k_proj", rows) | every(model, ".q_proj", gated)


def without_shared_gate(model: FileModel) -> dict[str, Array]:
    """sigmoid(0) is exactly a half, and the doubled output takes it out again."""
    silent = every(model, ".shared_gate", np.zeros_like)
    return silent | every(model, ".shared.down", lambda w: 2 * w)


def without_shared_expert(model: FileModel) -> dict[str, Array]:
    return every(model, ".shared.down", np.zeros_like)


def two_rows(end: str) -> Change:
    """The first two rows of one tensor change places."""

    def changed(model: FileModel) -> dict[str, Array]:
        name = next(name for name in model.names() if name.endswith(end))
        array = model.tensor(name).copy()
        array[[0, 1]] = array[[1, 0]]
        return {name: array}

    return changed


def swapped(one: str, other: str) -> Change:
    def changed(model: FileModel) -> dict[str, Array]:
        names = [name for name in model.names() if name.endswith(one)]
        assert names, one
        pairs = [(name, name.removesuffix(one) + other) for name in names]
        return {a: model.tensor(b) for pair in pairs for a, b in (pair, pair[::-1])}

    return changed


def ends(end: str, change: Callable[[Array], Array]) -> Change:
    return lambda model: every(model, end, change)


MISTAKES: dict[str, tuple[str, Change]] = {
    **{f"neighbouring pairs rotate, {kind}": (kind, neighbouring_pairs) for kind in KINDS},
    **{
        f"two rows of one o_proj swapped, {kind}": (kind, two_rows(".o_proj"))
        for kind in (QWEN3, MOE, NEXT, TEXT)
    },
    **{f"shared gate missing, {kind}": (kind, without_shared_gate) for kind in (NEXT, TEXT_MOE)},
    **{f"no shared expert, {kind}": (kind, without_shared_expert) for kind in (NEXT, TEXT_MOE)},
    "two rows of a dense layer swapped": (MOE, two_rows(".mlp.up")),
    "two rows of the embedding swapped, tied": (QWEN3, two_rows("embed")),
    "two experts swapped": (MOE, two_rows(".experts.down")),
    "gate and up swapped": (MOE, swapped(".gate", ".up")),
    "a and b swapped": (NEXT, swapped(".a_proj", ".b_proj")),
    "1 added to the gated norm": (NEXT, ends(".gdn_norm", lambda w: w + 1)),
    "taps descending": (TEXT, ends(".conv", lambda w: w[:, ::-1])),
    "A_log left out": (TEXT, ends(".a_log", np.zeros_like)),
    "dt_bias left out": (TEXT, ends(".dt_bias", np.zeros_like)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_red_mistake_in_what_was_read(mistake: str) -> None:
    kind, change = MISTAKES[mistake]
    model = open_folder(FOLDER / kind)
    measured = difference(kind, mistaken(model, change(model)))
    print(f"{mistake}: {measured:.2e}")
    assert measured > 100 * BOUND


SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "norm_topk_prob": (MOE, {"norm_topk_prob": True}),
    "top k": (NEXT, {"top_k": 2}),
    "eps": (QWEN3, {"eps": 1e-2}),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_red_another_setting(setting: str) -> None:
    kind, changes = SETTINGS[setting]
    assert difference(kind, mistaken(open_folder(FOLDER / kind), {}, **changes)) > 100 * BOUND


@pytest.mark.parametrize("kind", [QWEN3, TEXT])
def test_red_another_theta(kind: str) -> None:
    model = open_folder(FOLDER / kind)
    other = {"inv_freq": inv_freq(1e4, model.config.rot_dim)}
    assert difference(kind, mistaken(model, other)) > 100 * BOUND


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_red_another_rotated_share(tmp_path: Path, share: float) -> None:
    """A changed config.json: nothing else says how many elements rotate."""
    folder = tmp_path / TEXT
    folder.mkdir()
    for path in (FOLDER / TEXT).iterdir():
        (folder / path.name).symlink_to(path)
    values = json.loads((folder / "config.json").read_text())
    values["rope_parameters"]["partial_rotary_factor"] = share
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(values))
    assert difference(TEXT, open_folder(folder)) > 100 * BOUND


def test_red_engine_that_is_off_by_little() -> None:
    """Twice the bound in one logit of the last position."""
    most = float(np.abs(oracle(TEXT)[1]).max())

    class Off(CpuEngine):
        steps = 0

        def step(self, token: int, plan: Plan | None = None) -> Step:
            step = super().step(token, plan)
            self.steps += 1
            if self.steps == POSITIONS:
                step.logits[30] += np.float32(2 * BOUND * most)
            return step

    assert BOUND < difference(TEXT, open_folder(FOLDER / TEXT), Off) < 3 * BOUND
