"""Small divergence trees, built by hand: what the presenters are tested on. Data invented."""

from __future__ import annotations

from dataclasses import replace

from parity.keys import LAYER_FIELDS, Key
from parity.status import Level, Verdict
from parity.tree import (
    Birth,
    Births,
    Cause,
    Control,
    Counts,
    ElementRow,
    Elements,
    FunctionDiff,
    Isolation,
    KeyRow,
    KeyState,
    Margin,
    Placement,
    Search,
    Stability,
    StateDiff,
    StatePart,
    Transplant,
    Tree,
    Trial,
)
from tests.reports.profiles import profile, profile_beyond

FIELDS = ("nrm", "kraw", "knorm", "k", "ks", "v", "vs", "qrope", "attn", "ores", "x")
TYPES = {"ks": "f32[2]", "vs": "f32[2]", "k": "int8[2,32]", "v": "int8[2,32]", "attn": "f32[4,32]"}
REF = {
    "spec": "cpu",
    "engine": "parity_cpu",
    "version": "0.4.0",
    "tier": "exact",
    "variants": "none",
    "weights": "ac1981aa9c771701",
}
DUT = {
    "spec": "cuda:exact",
    "engine": "parity_cuda",
    "version": "0.4.0",
    "tier": "exact",
    "variants": "none",
    "device": "NVIDIA H200",
    "weights": "ac1981aa9c771701",
    "emulated": "no",
}
RUN = {"model": "moe-48", "seed": "7", "tokens": "32", "positions": "32:35", "prefill": "own"}
CONTROL = Control("inject", True, "t34_l19_qrope", "t34_l19_qrope", 12, "ULP")
COMMAND = "parity diff --ref cpu --dut cuda:exact+libm_exp --model moe-48 --seed 7 --n 4"
FIRST = "t33_l7_attn"


def hash_text(number: int) -> str:
    """Sixteen hex digits that look like a hash."""
    return f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}"


def key_rows(
    states: dict[str, str] | None = None, layers: tuple[int, ...] = (6, 7, 8), segment: str = ""
) -> list[KeyRow]:
    """Rows of position 33, those layers and the final fields; ``states`` where not the same."""
    keys = [Key(33, layer, field).tag for layer in layers for field in FIELDS]
    keys += [Key(33, None, field).tag for field in ("final_normed", "logits")]
    return [
        key_row(tag, (states or {}).get(tag, KeyState.SAME), number, segment)
        for number, tag in enumerate(keys, 1)
    ]


def key_row(tag: str, state: str, number: int, segment: str = "") -> KeyRow:
    """One row; the dut's hash is another one where the key differs."""
    kind = TYPES.get(Key.parse(tag).field, "f32[64]")
    ref = None if state == KeyState.EXTRA else f"{hash_text(number)} {kind}"
    dut_number = number + 1000 if state == KeyState.DIFFERS else number
    dut = None if state == KeyState.MISSING else f"{hash_text(dut_number)} {kind}"
    return KeyRow(tag, state, ref, dut, segment)


def count(rows: list[KeyRow]) -> Counts:
    """Counts of those rows."""
    states = [row.state for row in rows]
    return Counts(
        ref=sum(row.ref is not None for row in rows),
        dut=sum(row.dut is not None for row in rows),
        same=states.count(KeyState.SAME),
        differ=states.count(KeyState.DIFFERS),
        missing=states.count(KeyState.MISSING),
        extra=states.count(KeyState.EXTRA),
        not_comparable=states.count(KeyState.NOT_COMPARABLE),
    )


def equal_state(when: str) -> StateDiff:
    """A state whose parts are all equal."""
    return StateDiff(when, [StatePart("lengths", 1, 0, None), StatePart("l0_k", 64, 0, None)], None)


def green() -> Tree:
    """SAME, with everything a diff of two engines records."""
    rows = key_rows()
    return Tree(
        verdict=Verdict.SAME,
        first=None,
        counts=count(rows),
        level=Level.BIT,
        level_asked=Level.BIT,
        ref=dict(REF),
        dut=dict(DUT),
        run=dict(RUN),
        keys=rows,
        states=[equal_state("start"), equal_state("end")],
        control=CONTROL,
        greedy=[(33, 88, 88)],
        reproduce="parity diff --ref cpu --dut cuda --model moe-48 --seed 7 --n 4",
        seconds=3.14,
    )


ELEMENTS = (
    ((1, 2), "3e0e01e1", "3e0e01e2", "+1.38679042e-01", "+1.38679057e-01", 1),
    ((1, 6), "3d09d76c", "3d09d76b", "+3.36527079e-02", "+3.36527042e-02", -1),
    ((1, 7), "bbe6fc31", "bbe6fc30", "-7.04910653e-03", "-7.04910606e-03", 1),
    ((1, 8), "bd64d70d", "bd64d70e", "-5.58691509e-02", "-5.58691546e-02", -1),
    ((2, 5), "bdf64e18", "bdf64e17", "-1.20266140e-01", "-1.20266132e-01", 1),
    ((2, 6), "3de71513", "3de71512", "+1.12833165e-01", "+1.12833157e-01", -1),
)


def elements() -> Elements:
    """Six of 128 elements of t33_l7_attn, each 1 ULP apart."""
    rows = [ElementRow(*row, "value") for row in ELEMENTS]
    kind = "f32[4,32]"
    return Elements(FIRST, kind, kind, 128, 6, 1, "ULP", [("1", 6)], [(1, 4), (2, 2)], rows)


def red() -> Tree:
    """DIVERGED first at t33_l7_attn, with elements and equal inputs."""
    differing = [FIRST, "t33_l7_ores", "t33_l7_x", "t33_l8_nrm", "t33_logits"]
    rows = key_rows(dict.fromkeys(differing, KeyState.DIFFERS))
    inputs = [row for row in rows if row.key in ("t33_l7_qrope", "t33_l7_k", "t33_l7_ks")]
    return replace(
        green(),
        verdict=Verdict.DIVERGED,
        first=FIRST,
        counts=count(rows),
        level=Level.GREEDY,
        dut={**DUT, "spec": "cuda:exact+libm_exp", "variants": "libm_exp"},
        keys=rows,
        elements=elements(),
        inputs=inputs,
        reproduce=COMMAND,
        seconds=6.8,
    )


def contaminated() -> Tree:
    """DIVERGED by its start state; decoding from the ref's state is the same."""
    parts = [StatePart(f"l{layer}_{name}", 32, 0, None) for layer in (0, 1) for name in ("k", "v")]
    parts += [StatePart(f"l{layer}_ks", 32, 9 + layer, 3) for layer in (0, 1)]
    parts += [StatePart("l1_k", 32, 1, 30), StatePart("lengths", 1, 0, None)]
    start = StateDiff("start", parts, "l0_ks row 3 (position 3)")
    return replace(
        red(),
        reason="contaminated start",
        first="t33_l6_ks",
        level=Level.NONE,
        keys=key_rows({"t33_l6_ks": KeyState.DIFFERS}),
        counts=count(key_rows({"t33_l6_ks": KeyState.DIFFERS})),
        elements=None,
        inputs=[],
        states=[start, StateDiff("end", parts, "l0_ks row 3 (position 3)")],
        decode=replace(green(), run={**RUN, "prefill": "ref"}),
        control=Control("inject", True, "t33_l2_ores", "t33_l2_ores", 77, "ULP"),
        reproduce="parity diff --ref cpu --dut cuda --model moe-48 --seed 7 --n 4",
        seconds=5.2,
    )


def bisected() -> Tree:
    """A bisected red run: one layer listed, and what the search cost."""
    rows = key_rows({FIRST: KeyState.DIFFERS}, layers=(7,))
    found = Search("t33_l7", 7, 198, 4)
    return replace(red(), keys=rows, counts=count(rows), search=found, elements=None, inputs=[])


def not_run() -> Tree:
    """NOT RUN: no device."""
    reason = (
        "cuda: no NVIDIA driver on this machine (libcuda.so.1 not found)\n"
        "parity diff --dut emu    the same kernels on the CPU, labelled emulated\n"
        "parity doctor            what this machine can run"
    )
    nothing = Counts(0, 0, 0, 0, 0, 0)
    return Tree(Verdict.NOT_RUN, None, nothing, Level.NONE, Level.BIT, {}, {}, reason)


def unstable() -> Tree:
    """UNSTABLE: the dut differs from itself."""
    return replace(
        red(),
        verdict=Verdict.UNSTABLE,
        first="t33_l4_x",
        reason="t33_l4_x in run 7 of 20",
        level=Level.NONE,
        elements=None,
        inputs=[],
        control=None,
        run={},
        states=[],
        greedy=[],
        keys=key_rows({"t33_l4_x": KeyState.DIFFERS}, layers=(4,)),
        counts=count(key_rows({"t33_l4_x": KeyState.DIFFERS}, layers=(4,))),
        reproduce="parity stable --engine cuda:fast --n 20",
    )


def two_column() -> Tree:
    """SAME: dumps of another program, no types, no headers, the control at dump level."""
    rows = [KeyRow(row.key, row.state, *(row.ref or "").split(" ")[:1] * 2) for row in key_rows()]
    note = "dtype and shape not recorded in ref (35 keys): digest alone compared"
    return Tree(
        verdict=Verdict.SAME,
        first=None,
        counts=count(rows),
        level=Level.BIT,
        level_asked=Level.BIT,
        ref={"spec": "ref.dump"},
        dut={"spec": "runs/2026-11-29/dut.dump"},
        keys=rows,
        control=Control("dump level", True, "t33_l8_v", "t33_l8_v"),
        notes=[note],
        reproduce="parity compare ref.dump runs/2026-11-29/dut.dump",
        seconds=0.2,
    )


def tensor_files() -> Tree:
    """DIVERGED: two files of tensors whose names are no keys, one missing and one extra."""
    rows = [
        KeyRow("model.embed", KeyState.SAME, f"{hash_text(1)} f32[4]", f"{hash_text(1)} f32[4]"),
        KeyRow("blk.0/attn", KeyState.DIFFERS, f"{hash_text(2)} f32[4]", f"{hash_text(3)} f16[4]"),
        KeyRow("blk.0/ffn", KeyState.MISSING, f"{hash_text(4)} f32[4]", None),
        KeyRow("blk.0/mlp", KeyState.EXTRA, None, f"{hash_text(5)} f32[4]"),
    ]
    return Tree(
        verdict=Verdict.DIVERGED,
        first="blk.0/attn",
        counts=count(rows),
        level=Level.NONE,
        level_asked=Level.BIT,
        ref={"spec": "a.npz"},
        dut={"spec": "b.npz"},
        keys=rows,
        reproduce="parity compare a.npz b.npz",
    )


def stopped() -> Tree:
    """DIVERGED in the final fields, in a segment, after which nothing is comparable."""
    rows = key_rows(
        {"t33_final_normed": KeyState.DIFFERS, "t33_logits": KeyState.NOT_COMPARABLE},
        layers=(7,),
        segment="m=4",
    )
    rows[-2] = replace(rows[-2], dut=f"{hash_text(9)} f32[64] nonfinite=3@17")
    integers = Elements(
        key="t33_final_normed",
        ref_type="f32[64]",
        dut_type="f32[64]",
        total=64,
        differ=3,
        max_ulp=None,
        unit="ULP",
        histogram=[("NaN in dut", 2), ("zero sign", 1)],
        groups=[],
        rows=[
            ElementRow((17,), "3f800000", "7fc00000", "+1.00000000e+00", "nan", None, "NaN in dut"),
            ElementRow((60,), "00000000", "80000000", "+0.00000000e+00", "-0.0", None, "zero sign"),
        ],
    )
    return replace(
        red(), first="t33_final_normed", keys=rows, counts=count(rows), elements=integers, inputs=[]
    )


# Trees that say why: births, repeatability, near-ties, isolation.

EXPF = FunctionDiff("expf", 264, 2, "bf8c51e2", "3eab12cd", "3eab12ce", 1)
CAUSES = {
    FIRST: (Cause.BORN, FIRST),
    "t33_l7_ores": (Cause.INHERITED, FIRST),
    "t33_l7_x": (Cause.INHERITED, FIRST),
    "t33_l8_nrm": (Cause.INHERITED, FIRST),
    "t33_l8_k": (Cause.MASKED, FIRST),
    "t33_l8_attn": (Cause.BORN, "t33_l8_attn"),
    "t33_logits": (Cause.INHERITED, "t33_l8_act"),
}


def birth(key: str, op: str = "attention (contract 1.8)") -> Birth:
    """A birth whose inputs are equal in the run."""
    return Birth(
        key=key,
        op=op,
        how="replay",
        dumped=True,
        state=KeyState.DIFFERS,
        clean=True,
        ref=f"{hash_text(1)} f32[4,32]",
        dut=f"{hash_text(2)} f32[4,32]",
    )


def births() -> Births:
    """Three births of two ops: one at the first key, one equal in the run, one not dumped."""
    first = replace(
        birth(FIRST),
        ref_kernels=["attention"],
        dut_kernels=["attention_rows", "attention_merge"],
        elements=elements(),
        functions=[EXPF],
    )
    second = replace(birth("t33_l8_attn"), state=KeyState.SAME, clean=False)
    act = replace(birth("t33_l8_act", "swiglu (contract 1.9)"), dumped=False, state="")
    return Births([first, second, act], complete=True, reason="", reruns=2, replays=1)


def explained() -> Tree:
    """DIVERGED with every cause named, each side repeatable, and a repro folder."""
    rows = [replace(row, cause=cause, source=source) for row, cause, source in _caused()]
    return replace(
        red(),
        keys=rows,
        births=births(),
        stability=Stability(2),
        control=None,
        repro="repro/run 1",
    )


def _caused() -> list[tuple[KeyRow, str, str]]:
    return [(row, *CAUSES.get(row.key, ("", ""))) for row in red().keys]


def inherited() -> Tree:
    """DIVERGED: the first dumped key inherits from a birth that was not dumped."""
    hidden = replace(
        birth("t33_l7_down", "down projection (contract 2)"),
        dumped=False,
        state="",
        clean=False,
        elements=replace(elements(), key="t33_l7_down"),
    )
    rows = key_rows({"t33_l7_x": KeyState.DIFFERS, "t33_l8_v": KeyState.DIFFERS})
    source = {"t33_l7_x": hidden.key, "t33_l8_v": hidden.key}
    rows = [
        replace(row, cause=Cause.INHERITED, source=source[row.key]) if row.key in source else row
        for row in rows
    ]
    found = Births([hidden], complete=False, reason="stopped after 1 s", reruns=1, replays=1)
    changed = {"first": "t33_l7_x", "keys": rows, "counts": count(rows), "births": found}
    return replace(explained(), **changed, elements=None, inputs=[], repro="")


def decode_explained() -> Tree:
    """DIVERGED by its start state; decoding from the ref's state differs too, and why."""
    decode = replace(explained(), run={**RUN, "prefill": "ref"}, stability=None, repro="")
    return replace(contaminated(), decode=decode, control=None)


MARGIN = Margin(
    pos=33,
    ref_id=1773,
    dut_id=3837,
    gap=3,
    ref_move=-2,
    dut_move=2,
    largest=5,
    explained=True,
    text="ref 1773 over 3837 by 3 ULP; the dut moved them by -2 and +2: a near-tie, "
    "explained by the difference",
)


def near_tie() -> Tree:
    """DIVERGED down to the greedy choice, which a near-tie explains."""
    return replace(
        explained(), level=Level.NONE, greedy=[(32, 5, 5), (33, 1773, 3837)], margins=[MARGIN]
    )


def isolation() -> Isolation:
    """One guilty variant of three, with the ladder, every placement and two transplants."""
    total = 35
    trials = [
        Trial(["fma", "libm_exp"], ["sum_order"], FIRST, 4, total),
        Trial(["sum_order"], ["fma", "libm_exp"], None, 0, total),
        Trial(["fma", "sum_order"], ["libm_exp"], None, 0, total),
        Trial(["fma", "libm_exp", "sum_order"], [], FIRST, 5, total, cached=True),
    ]
    groups = (("norm", "nrm"), ("attn", "attn"), ("kvquant", "k ks v vs"), ("lm_head", "logits"))
    return Isolation(
        variants=["fma", "libm_exp", "sum_order"],
        guilty=["libm_exp"],
        needed=["sum_order"],
        trials=trials,
        ladder=[
            Trial(["fma", "sum_order"], ["libm_exp"], "t33_l8_attn", 2, total),
            Trial(["fma"], ["libm_exp", "sum_order"], None, 0, total),
        ],
        interactions=["sum_order alone is equal, with libm_exp it is not"],
        runs=4,
        placements=[
            Placement(name, fields.split(), *((FIRST, 3) if name == "attn" else (None, 0)), total)
            for name, fields in groups
        ],
        transplants=[
            Transplant([FIRST], "t33_l8_attn", 2, total),
            Transplant([FIRST, "t33_l8_attn"], None, 0, total),
        ],
        notes=["fma changes no op of this model"],
    )


def isolated() -> Tree:
    """DIVERGED and isolated to one variant."""
    return replace(explained(), isolation=isolation(), repro="")


def stable() -> Tree:
    """SAME: one engine against itself, 20 runs."""
    tree = replace(green(), ref=dict(DUT), stability=Stability(20), control=None)
    return replace(tree, greedy=[], states=[], reproduce="parity stable --engine cuda --n 20")


def shaky() -> Tree:
    """UNSTABLE: in run 7 the dut of a diff was another one than in run 1."""
    runs = replace(unstable(), ref=dict(DUT), verdict=Verdict.DIVERGED, reason="", reproduce="")
    found = Stability(20, "dut", "t33_l4_x", 7, runs)
    return replace(unstable(), reason="dut differs from itself at t33_l4_x", stability=found)


def agreed() -> Tree:
    """SAME at level greedy: sides of different arithmetic, every field within its bound."""
    return replace(
        red(),
        verdict=Verdict.SAME,
        **{"level": Level.GREEDY, "level_asked": Level.GREEDY},
        ref={**REF, "spec": "hf", "engine": "parity_torch", "tier": "library"},
        dut={**REF, "spec": "cpu"},
        **{"inputs": [], "states": [], "elements": None, "profile": profile()},
        stability=Stability(2),
        control=Control("inject", True, "t34_l7_x", "t34_l7_x", 12, "bound"),
        notes=["only the ref has l7_ores (4 keys, not judged)"],
        reproduce="parity diff --ref hf --dut cpu --model moe-48 --weights f32",
    )


def beyond() -> Tree:
    """DIVERGED: of the same pair one field lies beyond its bound, and a choice flips."""
    return replace(
        agreed(),
        verdict=Verdict.DIVERGED,
        reason="bits not expected, outside the bound",
        elements=elements(),
        control=None,
        profile=profile_beyond(FIRST, "l7_attn"),
        greedy=[(33, 88, 12)],
        margins=[Margin(33, 88, 12, 40, 3, 51, 9, False, "ref 88 over 12 by 40 ULP")],
    )


ALL = {
    "green": green,
    "red": red,
    "contaminated": contaminated,
    "bisected": bisected,
    "not_run": not_run,
    "unstable": unstable,
    "two_column": two_column,
    "tensor_files": tensor_files,
    "stopped": stopped,
    "explained": explained,
    "inherited": inherited,
    "decode_explained": decode_explained,
    "near_tie": near_tie,
    "isolated": isolated,
    "stable": stable,
    "shaky": shaky,
    "agreed": agreed,
    "beyond": beyond,
}
assert set(FIELDS) <= set(LAYER_FIELDS)
