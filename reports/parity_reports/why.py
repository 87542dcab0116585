"""The sentences about why a run differs: the births, what naming them took, and near-ties.

"Cause" is said of what was tried: an op that gave other bytes on equal inputs, or variants without
which the run was equal. Where nothing was tried only the op that makes the first key is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parity.families import BEFORE, feeding_fields, field_op
from parity.tree import (
    CONTAMINATED,
    EMBEDDED,
    TAP_LIES,
    Birth,
    Births,
    FunctionDiff,
    KeyState,
    Margin,
    Tree,
)
from parity_reports import wording
from parity_reports.axes import leading_axis
from parity_reports.values import parse_key

LISTED_KEYS = 3  # births of one group that are all named; of more the first
NOT_DUMPED = "found by replay, not dumped"
EQUAL_IN_RUN = "equal in the run"
NOT_COMPARED = "at keys that are not comparable"
NOT_REPLAYED = "not replayed"
ALL = "all"


@dataclass(frozen=True)
class Group:
    """Births of one field: ``op``, all of them in dataflow order."""

    op: str
    field: str
    births: list[Birth]


def leading_birth(tree: Tree) -> Birth | None:
    """The birth behind the first key: its own, or the one it is inherited from. After another start
    the first one of the prompt: what decode steps show then is a false lead."""
    if tree.births is None:
        return None
    if tree.reason == CONTAMINATED:
        return next((birth for birth in tree.births.found if _in_prompt(tree, birth)), None)
    row = wording.first_row(tree)
    wanted = tree.first if row is None or not row.source else row.source
    return next((birth for birth in tree.births.found if birth.key == wanted), None)


def _in_prompt(tree: Tree, birth: Birth) -> bool:
    key, tokens = parse_key(birth.key), tree.run.get("tokens", "")
    return key is not None and tokens.isdecimal() and key.pos < int(tokens)


def only_birth(tree: Tree) -> bool:
    """Whether the birth behind the first key is the only one, and all are named."""
    births = tree.births
    return births is not None and births.complete and births.found == [leading_birth(tree)]


def cause_sentence(tree: Tree) -> str:
    """``attention (contract 1.8); inputs equal: qrope, k, ks``, of the birth behind the first key;
    with its own key before it where that is another one. Empty where no birth is known."""
    birth = leading_birth(tree)
    if birth is None:
        return ""
    # After a contaminated start the verdict names a state, not the first key.
    own = birth.key == tree.first and tree.reason != CONTAMINATED
    op = f"{birth.op}, only birth" if only_birth(tree) else birth.op
    said = "inputs equal" if birth.clean else birth.evidence or "other bytes on the ref's inputs"
    if birth.key == tree.first and tree.inputs and not birth.evidence:
        said = _inputs(tree) if birth.clean else f"{said}; {_inputs(tree)}"
    named = op if own else f"{birth.key}: {op}"
    parts = [named, said, weights_sentence(birth), *_marks(birth)]
    shown = tree.elements.key if tree.elements is not None else ""
    if birth.elements is not None and birth.key != shown:
        parts.append(wording.elements_sentence(birth.elements, leading_axis(birth.elements)))
    return "; ".join(filter(None, parts))  # elements of two dtypes have no sentence


def weights_sentence(birth: Birth) -> str:
    """``its weights differ: layers.0.k_proj``; empty where they do not, or are not known to."""
    names = ", ".join(birth.weights[:LISTED_KEYS])
    more = len(birth.weights) - LISTED_KEYS
    return f"its weights differ: {names}{f' and {more} more' if more > 0 else ''}" if names else ""


def inputs_word(birth: Birth) -> str:
    """What became of a birth's inputs in the run: ``equal``, ``differ``, or what is known."""
    return "equal" if birth.clean else birth.evidence or "differ"


def op_sentence(tree: Tree) -> str:
    """``attention (contract 1.8); inputs equal: k, ks``: the op that makes the first key, where no
    birth is known; empty for a name that is no key, and where a tap lies."""
    if tree.reason.startswith(TAP_LIES):
        return ""
    key = parse_key(tree.first or "")
    op = "" if key is None or field_op(key.field) == key.field else field_op(key.field)
    if key is not None and key.layer == 0 and BEFORE in feeding_fields(key.field):
        op += f", or the {EMBEDDED} it reads, which is not dumped"
    return "; ".join(part for part in (op, _inputs(tree) if tree.inputs else "") if part)


def _inputs(tree: Tree) -> str:
    text = wording.inputs_sentence(tree)
    return f"inputs {text}" if text.startswith("equal") else f"inputs in the run: {text}"


def function_sentence(found: FunctionDiff) -> str:
    """``expf differs in 37 of 128 calls, at most 1 ULP, first at bf8c51e2: ref 3eab12cd,
    dut 3eab12ce``."""
    if not found.differ:
        return f"{found.function} equal in all {found.calls:,} calls"
    text = f"{found.function} differs in {wording.of(found.differ, found.calls)} calls"
    if found.max_ulp is not None:
        text += f", at most {wording.counted(found.max_ulp, 'ULP')}"
    return f"{text}, first at {found.first_input}: ref {found.ref_hex}, dut {found.dut_hex}"


def explained_sentence(birth: Birth) -> str:
    """What the ref's op gives with the dut's functions; empty where that was not asked."""
    if birth.explained is None:
        return ""
    names = ", ".join(function.function for function in birth.functions)
    if birth.explained:
        return f"with the dut's {names} the ref gives the dut's bytes"
    return f"with the dut's {names} the ref still differs: something else is changed too"


def kernels_sentence(birth: Birth) -> str:
    """``ran attention on both sides``, or ``ran ref attention, dut attention_rows, merge``."""
    ref, dut = ", ".join(birth.ref_kernels), ", ".join(birth.dut_kernels)
    if not ref and not dut:
        return ""
    if ref == dut:
        return f"ran {ref} on both sides"
    return f"ran ref {ref or 'not recorded'}, dut {dut or 'not recorded'}"


def groups(found: Sequence[Birth]) -> list[Group]:
    """Births by op and field, in the order of the first of each."""
    grouped: dict[tuple[str, str], list[Birth]] = {}
    for birth in found:
        key = parse_key(birth.key)
        grouped.setdefault((birth.op, "" if key is None else key.field), []).append(birth)
    return [Group(op, field, births) for (op, field), births in grouped.items()]


def group_sentence(group: Group) -> str:
    """``attention (contract 1.8): 192 births, first t32_l0_attn``."""
    births = group.births
    text = f"{group.op}: {wording.counted(len(births), 'birth')}, "
    if len(births) > LISTED_KEYS:
        text += f"first {births[0].key}"
    else:
        text += ", ".join(birth.key for birth in births)
    for mark in (NOT_DUMPED, NOT_REPLAYED, EQUAL_IN_RUN, NOT_COMPARED):
        marked = sum(mark in _marks(birth) for birth in births)
        if marked:
            text += f"; {mark}" if marked == len(births) else f"; {marked:,} {mark}"
    return text


def births_sentences(births: Births, limit: int) -> list[str]:
    """One sentence a group, at most ``limit`` of them, then what is missing and why."""
    found = groups(births.found)
    texts = [group_sentence(group) for group in found[:limit]]
    left = found[limit:]
    if left:
        number = wording.counted(sum(len(group.births) for group in left), "birth")
        texts.append(f"{wording.counted(len(left), 'more op')} with {number}")
    if not births.complete:
        texts.append(incomplete_sentence(births))
    return texts or ["none found"]


def incomplete_sentence(births: Births) -> str:
    """``incomplete: dut lacks the capability 'replay'``; empty where all are named."""
    if births.complete:
        return ""
    said = "incomplete" if births.found else "not named"
    return f"{said}: {births.reason}" if births.reason else said


def cost_sentence(*found: Births | None) -> str:
    """``naming the births took 2 reruns and 4 replays``; empty where it took none."""
    reruns = sum(births.reruns for births in found if births is not None)
    replays = sum(births.replays for births in found if births is not None)
    if not reruns and not replays:
        return ""
    took = f"{wording.counted(reruns, 'rerun')} and {wording.counted(replays, 'replay')}"
    return f"naming the births took {took}"


def time_sentence(tree: Tree) -> str:
    """``6.8 s; naming the births took 2 reruns and 4 replays``, with those of the decoding."""
    cost = cost_sentence(tree.births, None if tree.decode is None else tree.decode.births)
    return "; ".join(text for text in (wording.time_sentence(tree.seconds), cost) if text)


def news(tree: Tree) -> str:
    """What the births of a contaminated run say beside those of its decoding: "all" where one is
    another, else what is missing."""
    if tree.births is None:
        return ""
    decoded = tree.decode.births if tree.decode is not None else None
    told = {birth.key for birth in decoded.found} if decoded is not None else set()
    if any(birth.key not in told for birth in tree.births.found):
        return ALL
    return incomplete_sentence(tree.births)


def marks_sentence(birth: Birth) -> str:
    """What is special of a birth: not dumped, equal in the run; else empty."""
    return ", ".join(_marks(birth))


def margin_sentence(margin: Margin) -> str:
    """``t45: ref 1773 over 3837 by 3 ULP; the dut moved them by -2 and +2: a near-tie, ...``."""
    return f"t{margin.pos}: {margin.text}"


def margins_sentences(margins: Sequence[Margin], limit: int) -> list[str]:
    """At most ``limit`` of them, then how many more there are."""
    texts = [margin_sentence(margin) for margin in margins[:limit]]
    return [*texts, f"{len(margins) - limit:,} more"] if len(margins) > limit else texts


def _marks(birth: Birth) -> list[str]:
    marks = {
        NOT_DUMPED: not birth.dumped,
        NOT_REPLAYED: birth.how == "inputs",
        EQUAL_IN_RUN: birth.state == KeyState.SAME,
        NOT_COMPARED: birth.state == KeyState.NOT_COMPARABLE,
    }
    return [mark for mark, holds in marks.items() if holds]
