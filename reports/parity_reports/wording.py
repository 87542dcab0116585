"""The sentences that every report for people shares, so that they cannot disagree.

A sentence says what the tree holds. Numbers have thousands commas; N of N, never a percentage.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from parity.comparison.compare import exit_status
from parity.profiles import BOUND, TIMES, UNEXPECTED
from parity.status import ExitStatus, Level, Verdict
from parity.tree import (
    CONTAMINATED,
    UNTYPED,
    Cause,
    Control,
    Counts,
    Elements,
    KeyRow,
    KeyState,
    Search,
    StateDiff,
    Tree,
)
from parity_reports.states import sourced_name, state_name, tally
from parity_reports.values import parse_key

Span = tuple[str, str]  # text, and the role it plays: "", "key", "good", "bad", "warn", ...

DUMP_LEVEL = "dump level"
ENGINE = "engine"  # the role of a side that is held against itself
_VERDICTS = {
    Verdict.SAME: ("SAME", "good"),
    Verdict.DIVERGED: ("DIVERGED", "bad"),
    Verdict.UNSTABLE: ("UNSTABLE", "bad"),
    Verdict.NOT_RUN: ("NOT RUN", "warn"),
}
_STATE_WORDS = {
    KeyState.MISSING: "missing in the dut",
    KeyState.EXTRA: "not in the ref",
    KeyState.NOT_COMPARABLE: "not comparable",
}
_PARTS = {"k": "K", "ks": "K scales", "v": "V", "vs": "V scales", "s": "S"}


def of(part: int, whole: int) -> str:
    """``2,054 of 2,120``."""
    return f"{part:,} of {whole:,}"


def counted(number: int, unit: str) -> str:
    """``1 ULP``, ``2 ULP``, ``1 step``, ``2 steps``."""
    plural = "" if number == 1 or unit.isupper() else "s"
    return f"{number:,} {unit}{plural}"


def verdict_spans(tree: Tree) -> list[Span]:
    """The verdict line: the word, the place and kind, and what qualifies them."""
    spans: list[Span] = [_VERDICTS[tree.verdict], ("  ", ""), *_place(tree)]
    enough = [f"level {tree.level} holds, as asked"] if is_enough(tree) else []
    return [*spans, *((f", {text}", "") for text in (*enough, *qualifiers(tree)))]


def is_enough(tree: Tree) -> bool:
    """Whether the sides differ and the lower level that was asked for holds all the same."""
    lower = tree.level_asked is not Level.BIT and tree.verdict is Verdict.DIVERGED
    return lower and exit_status(tree) is ExitStatus.SAME


def qualifiers(tree: Tree) -> list[str]:
    """What must stand beside the verdict, because the verdict means less, or other, without it."""
    if tree.verdict is Verdict.NOT_RUN:
        return []
    found = [_emulated(tree)]
    found.append("decode only" if tree.run.get("prefill") == "ref" else "")
    found.append(UNTYPED if _untyped(tree) else "")
    other = tree.verdict is Verdict.SAME and _other_weights(tree)
    found.append("weights digests differ" if other else "")
    if tree.control is not None and tree.control.kind == DUMP_LEVEL:
        found.append("control: dump level")
    if tree.control is not None and not tree.control.fired:
        found.append("control did not fire")
    return [text for text in found if text]


def quiet_line(tree: Tree) -> str:
    """The one line of ``-q``."""
    verdict, counts = tree.verdict, tree.counts
    if verdict is Verdict.NOT_RUN:
        reason, *steps = reason_lines(tree)
        # Two blanks part a step from its explanation, for which one line has no room.
        return f"not run: {reason}" + (f" (next: {steps[0].split('  ')[0]})" if steps else "")
    if verdict is Verdict.UNSTABLE:
        return ", ".join([f"unstable: {_text(_unstable(tree))}", *qualifiers(tree)])
    if verdict is Verdict.SAME:
        facts = [f"{of(counts.same, counts.total)} {noun(tree)}", f"level {tree.level}"]
        facts += [repeatable(tree)] if repeatable(tree) else []
        if tree.first is not None:
            facts.append(_agreement(tree) or f"first difference {tree.first}")
    else:
        facts = [_text(_where(tree, at=""))]
        asked = ", which was asked for" if is_enough(tree) else ""
        facts += [*_changes(counts), f"level {tree.level}{asked}"]
        if tree.isolation is not None and tree.isolation.guilty:
            facts.append(f"guilty: {', '.join(tree.isolation.guilty)}")
    if tree.control is not None and tree.control.fired and tree.control.kind != DUMP_LEVEL:
        facts.append("control fired")
    return f"{verdict}: {', '.join([*facts, *qualifiers(tree)])}"


def reason_lines(tree: Tree) -> list[str]:
    """Of a run that was not run: why, then what to do next, one line each."""
    return [line for line in tree.reason.split("\n") if line] or ["nothing was compared"]


def first_row(tree: Tree) -> KeyRow | None:
    """The row of the first key that differs, if the tree lists it."""
    rows = (row for row in tree.keys if row.key == tree.first)
    return next((row for row in rows if row.state != KeyState.SAME), None)


def keys_sentence(tree: Tree) -> str:
    """``1,204 of 2,120 differ, 3 missing; 530 equal before the first``; with causes
    ``1,204 of 2,120 differ: 3 born here, 1,201 inherited; 109 masked``."""
    counts = tree.counts
    parts = [f"{of(counts.differ, counts.total)} differ"]
    rest = {"missing": counts.missing, "extra": counts.extra}
    rest |= {"not comparable": counts.not_comparable}
    parts += [f"{number:,} {word}" for word, number in rest.items() if number]
    sides = f" (ref {counts.ref:,}, dut {counts.dut:,})" if counts.ref != counts.dut else ""
    causes = _causes_sentence(tree)
    if causes:
        return f"{', '.join(parts)}{sides}: {causes}"
    first = first_row(tree)
    # A large tree lists only what differs, so that there is nothing to count.
    listed = len(tree.keys) == counts.total
    if first is None or not listed or tree.reason == CONTAMINATED:
        return ", ".join(parts) + sides
    before = tree.keys[: tree.keys.index(first)]
    equal = sum(row.state == KeyState.SAME for row in before)
    return f"{', '.join(parts)}{sides}; {equal:,} equal before the first"


def compared(tree: Tree) -> tuple[Tree, tuple[str, str]]:
    """The comparison whose keys are shown, and what its sides are called: of a side that is not
    repeatable its first run and the one that was another."""
    found = tree.stability
    if tree.verdict is not Verdict.UNSTABLE or found is None or not found.key:
        return tree, ("ref", "dut")
    runs = ("run 1", f"run {found.run:,}")
    if found.tree is not None:
        return found.tree, runs
    return tree, runs if tree.ref == tree.dut else ("ref", "dut")


def starts_apart(tree: Tree) -> bool:
    """Whether the states differed before the first key: the op that makes it is not to blame."""
    return tree.reason == CONTAMINATED or (tree.verdict is Verdict.UNSTABLE and tree.first is None)


def compared_sentence(tree: Tree) -> str:
    """``keys_sentence`` of what is shown, with the runs where its sides are runs."""
    shown, names = compared(tree)
    if not shown.counts.total:
        return ""
    runs = "" if names == ("ref", "dut") else f"between {' and '.join(names)}: "
    return runs + keys_sentence(shown)


def _causes_sentence(tree: Tree) -> str:
    """``3 born here, 1,201 inherited; 109 masked``; empty where nobody asked for causes."""
    if not any(row.cause for row in tree.keys):
        return ""
    found = tally(tree.keys)
    differing = {name: found.get(name, 0) for name in (Cause.BORN, Cause.INHERITED)}
    texts = [", ".join(f"{number:,} {name}" for name, number in differing.items())]
    if KeyState.DIFFERS in found:
        texts[0] += f", {found[KeyState.DIFFERS]:,} of no known cause"
    if Cause.MASKED in found:
        texts.append(f"{found[Cause.MASKED]:,} {Cause.MASKED}")
    return "; ".join(texts)


def inputs_sentence(tree: Tree) -> str:
    """``equal: qrope, k, ks``; where one differs, each with its state."""
    first = parse_key(tree.first or "")
    names = []
    for row in tree.inputs:
        key = parse_key(row.key)
        near = key and first and (key.pos, key.layer) == (first.pos, first.layer)
        names.append((key.field if key and near else row.key, row.state))
    if all(state == KeyState.SAME for _, state in names):
        return f"equal: {', '.join(name for name, _ in names)}"
    return ", ".join(f"{name} {state}" for name, state in names)


def control_sentence(control: Control) -> str:
    """``fired: 1 ULP at t34_l19_qrope element 12, found at that key``."""
    if control.unit == BOUND:
        seen = ", in the value it gave" if control.kind == DUMP_LEVEL else ""
        planted = f"{TIMES} times the bound at {control.key}{seen}"
    elif control.kind == DUMP_LEVEL:
        planted = f"dump level, one digit changed at {control.key}"
    else:
        planted = f"{counted(1, control.unit)} at {control.key}"
    element = "" if control.element is None else f" element {control.element}"
    found = "found at that key" if control.found == control.key else f"found at {control.found}"
    if control.found is None:
        found = "not found"
    return f"{'fired' if control.fired else 'did not fire'}: {planted}{element}, {found}"


def search_sentence(search: Search) -> str:
    """``7 of 198 digests read, 4 runs, then layer t33_l7 with all its fields``."""
    runs = f"{search.runs:,} run{'' if search.runs == 1 else 's'}"
    end = "no digest differs"
    if search.layer is not None:
        end = f"then layer {search.layer} with all its fields"
    return f"{of(search.digests_read, search.digests_total)} digests read, {runs}, {end}"


def repeatable(tree: Tree) -> str:
    """``repeatable: 20 runs``, of a green run of one engine against itself; else empty."""
    found = tree.stability
    if found is None or found.key or tree.verdict is not Verdict.SAME or tree.first is not None:
        return ""
    return f"repeatable: {counted(found.runs, 'run')}"


def stability_sentence(tree: Tree) -> str:
    """``repeatable but different (2 runs of each side are equal)``, of a diverged run."""
    found = tree.stability
    if found is None or found.key or tree.verdict is not Verdict.DIVERGED:
        return ""
    return f"repeatable but different ({counted(found.runs, 'run')} of each side are equal)"


def decode_sentence(decode: Tree) -> str:
    """What decoding from the ref's state gave, after a contaminated start."""
    counts = decode.counts
    if decode.verdict is Verdict.SAME:
        equal = of(counts.same, counts.total)
        return f"from the ref's state: same, {equal}. Decoding is not to blame"
    if decode.verdict is Verdict.NOT_RUN:
        return f"from the ref's state: not run: {'; '.join(reason_lines(decode))}"
    place = f"{decode.verdict}, {_text(_place(decode))}"
    return f"from the ref's state: {place}; {keys_sentence(decode)}"


def states_sentence(states: list[StateDiff]) -> str:
    """``equal before and after``, or what differs where."""
    when = {"start": "before", "end": "after"}
    equal = [when.get(state.when, state.when) for state in states if state.equal]
    texts = [f"equal {' and '.join(equal)}"] if equal else []
    for state in states:
        if not state.equal:
            name = when.get(state.when, state.when)
            texts.append(f"{name}: {parts_sentence(state)}, first at {state.first}")
    return "; ".join(texts)


def parts_sentence(state: StateDiff) -> str:
    """``K scales 911 of 1,536 rows differ, K 604 of 1,536``: parts summed over the layers."""
    rows: dict[str, list[int]] = {}
    notes: list[str] = []
    for part in state.parts:
        layer, _, field = part.name.partition("_")
        name = field if field and layer[:1] == "l" and layer[1:].isdigit() else part.name
        total = rows.setdefault(name, [0, 0])
        total[0] += part.differ
        total[1] += part.rows
        if part.note:
            notes.append(f"{part.name}: {part.note}")
    unequal = [(name, of(*total)) for name, total in rows.items() if total[0]]
    texts = [f"{_PARTS.get(name, name)} {count}" for name, count in unequal]
    if texts:
        texts[0] += " rows differ"
    return ", ".join([*texts, *notes])


def greedy_sentence(tree: Tree) -> str:
    """Whether the greedy choices agree, and where they do not (at most four places, without those
    whose margin is known and told beside this)."""
    if not flips(tree):
        return f"same token at {of(len(tree.greedy), len(tree.greedy))} positions"
    told = {margin.pos for margin in tree.margins}
    left = [f"t{pos} ref {ref} dut {dut}" for pos, ref, dut in flips(tree) if pos not in told]
    if len(left) > 4:
        left[4:] = [f"{len(left) - 4:,} more"]
    places = f": {', '.join(left)}" if left else ""
    return f"other token at {of(len(flips(tree)), len(tree.greedy))} positions{places}"


def flips(tree: Tree) -> list[tuple[int, int, int]]:
    """(position, ref, dut) where the sides choose another token."""
    return [row for row in tree.greedy if row[1] != row[2]]


def elements_sentence(elements: Elements, axis: str, bins: bool = False) -> str:
    """``37 of 128 elements differ, at most 1 ULP: head 1 24, head 2 13``; with ``bins``
    ``at most 3 ULP (30 by 1, 7 by 3 to 4): ...``."""
    if not elements.total:  # types apart: the note says so
        return ""
    text = f"{of(elements.differ, elements.total)} elements differ"
    if elements.max_ulp is not None:
        text += f", at most {counted(elements.max_ulp, elements.unit)}"
    distances = _distances(elements) if bins else ""
    text += f" ({distances})" if distances else ""
    if not elements.rows or len(elements.rows[0].index) < 2 or not elements.groups:
        return text
    groups = [f"{axis} {index} {count:,}" for index, count in elements.groups[:6]]
    if len(elements.groups) > 6:
        groups.append(f"and {len(elements.groups) - 6:,} more")
    return f"{text}: {', '.join(groups)}"


def _distances(elements: Elements) -> str:
    """``30 by 1, 5 by 3 to 4, 2 zero sign``; empty when the largest distance says it all."""
    bins = [(label, count) for label, count in elements.histogram if count]
    if elements.max_ulp is not None and len(bins) < 2:
        return ""
    # A distance ends in its figure, a class ("zero sign") does not.
    return ", ".join(f"{n:,} {'by ' if name[-1:].isdigit() else ''}{name}" for name, n in bins)


def repro_sentence(tree: Tree) -> str:
    """``repro folder DIR: parity replay DIR``; empty where none was written."""
    if not tree.repro:
        return ""
    return f"repro folder {tree.repro}: {replay_command(tree)}"


def replay_command(tree: Tree) -> str:
    """The command that replays the repro folder alone."""
    return shlex.join(("parity", "replay", tree.repro)) if tree.repro else ""


def sides(tree: Tree) -> dict[str, dict[str, str]]:
    """The headers of ref and dut, or of the one engine that was held against itself."""
    found = tree.stability
    # A run of an engine may differ from the next in what its header tells: a schedule, weights.
    if found is not None and (found.side == ENGINE or tree.ref == tree.dut):
        return {ENGINE: tree.ref}
    return {"ref": tree.ref, "dut": tree.dut}


def side_facts(header: Mapping[str, str]) -> str:
    """``parity_cuda 0.4.0, exact, NVIDIA H200``: what a header says and the spec does not."""
    engine = " ".join(header[name] for name in ("engine", "version") if header.get(name))
    said = header.get("spec", "")
    tier = header.get("tier", "")
    parts = [engine, "" if f":{tier}" in said else tier]
    variants = re.split("[,+ ]+", header.get("variants", ""))
    parts += [name for name in variants if name != "none" and name not in said]
    parts += [header.get("device", ""), "emulated" if header.get("emulated") == "yes" else ""]
    return ", ".join(part for part in parts if part)


def time_sentence(seconds: float) -> str:
    """``3.1 s``, ``12 ms``; empty where no time was taken."""
    if 0 < seconds < 0.1:
        return f"{max(1, round(seconds * 1000))} ms"
    return f"{seconds:,.1f} s" if seconds else ""


def model_sentence(tree: Tree) -> str:
    """``moe-48 seed 7, weights digest equal on both sides``."""
    seed = tree.run.get("seed")
    text = tree.run.get("model", "") + (f" seed {seed}" if seed else "")
    ref, dut = tree.ref.get("weights"), tree.dut.get("weights")
    if not ref or not dut:
        return text
    if _other_weights(tree):
        return f"{text}, weights digests differ: ref {ref} dut {dut}"
    return f"{text}, weights digest equal on both sides"


def _other_weights(tree: Tree) -> bool:
    """Whether both sides told a digest of their weights, each another one."""
    ref, dut = tree.ref.get("weights"), tree.dut.get("weights")
    return bool(ref and dut and ref != dut)


def run_sentence(run: Mapping[str, str]) -> str:
    """``32 tokens prefilled by each side, then t32 to t35``."""
    tokens, positions = run.get("tokens", ""), run.get("positions", "")
    by = {"own": " prefilled by each side", "ref": " prefilled by the ref for both sides"}
    start = f"{tokens} token{'' if tokens == '1' else 's'}{by.get(run.get('prefill', ''), '')}"
    first, _, last = positions.partition(":")
    span = f"t{first} to t{last}" if first.isdigit() and last.isdigit() else positions
    return ", then ".join(part for part in (start if tokens else "", span) if part)


def _place(tree: Tree) -> list[Span]:
    if tree.verdict is Verdict.NOT_RUN:
        return [(reason_lines(tree)[0], "")]
    if tree.verdict is Verdict.UNSTABLE:
        return _unstable(tree)
    if tree.verdict is Verdict.DIVERGED:
        return _where(tree)
    counts = tree.counts
    equal = f"{of(counts.same, counts.total)} {noun(tree)} equal"
    if tree.level is Level.BIT:
        told = repeatable(tree)
        return [(f"{told}, {equal}, bit for bit" if told else f"{equal}, bit for bit", "")]
    if _agreement(tree):
        return [(f"at level {tree.level}, {_agreement(tree)}", "")]
    spans: list[Span] = [(f"at level {tree.level}, not bit for bit: {equal}", "")]
    return [*spans, (", first difference ", ""), (tree.first, "key")] if tree.first else spans


def _agreement(tree: Tree) -> str:
    """What a pair agrees in that was judged by its profile; "" of any other."""
    judged = tree.profile is not None and tree.profile.judged
    return f"{UNEXPECTED}: every field within its bound" if judged else ""


def _where(tree: Tree, at: str = "first at ") -> list[Span]:
    reason = f"{tree.reason}, " if tree.reason else ""
    start = next((state for state in tree.states if not state.equal), None)
    if start is not None and (tree.reason == CONTAMINATED or tree.first is None):
        place = start.first or ""
        if place in tree.reason:  # it says all of it
            before, _, after = tree.reason.partition(place)
            return [(before, ""), (place, "key"), (after, "")]
        which = "" if tree.reason == CONTAMINATED else f"{start.when} state, "
        return [(f"{reason}{which}{at}", ""), (place, "key")]
    if tree.first is None:
        return [(tree.reason, "")]
    spans: list[Span] = [(f"{reason}{at}", ""), (tree.first, "key")]
    row = first_row(tree)
    if row is not None and row.segment:
        spans.append((f" in segment {row.segment}", ""))
    if row is not None and row.state in _STATE_WORDS:
        spans.append((f", {_STATE_WORDS[row.state]}", ""))
    elif row is not None and state_name(row) != row.state:
        spans.append((f"{', ' if at else ' '}{sourced_name(row)}", ""))
    return spans


def _text(spans: list[Span]) -> str:
    return "".join(text for text, _ in spans)


def _unstable(tree: Tree) -> list[Span]:
    found = tree.stability
    if found is not None and found.key:
        said = tree.reason
        if "not repeatable" not in said or found.key not in said:
            # Of one engine against itself both sides are that engine.
            alone = tree.ref.get("spec") == tree.dut.get("spec")
            side = f"{found.side} " if found.side and not alone else ""
            said = f"{side}not repeatable, first at {found.key} in run {found.run:,}"
        before, _, after = said.partition(found.key)
        return [(before, ""), (found.key, "key"), (f"{after} of {found.runs:,}", "")]
    if tree.first is None or tree.first in tree.reason:
        return [(tree.reason or "a side differs from itself", "")]
    reason = f"{tree.reason}, " if tree.reason else ""
    return [(f"{reason}first at ", ""), (tree.first, "key")]


def _changes(counts: Counts) -> list[str]:
    """``1,204 of 2,120 keys``, and keys that only one side has."""
    found = [f"{of(counts.differ, counts.total)} keys"] if counts.differ else []
    if counts.missing:
        found.append(f"{counts.missing:,} missing")
    if counts.extra:
        found.append(f"{counts.extra:,} extra")
    return found


def noun(tree: Tree) -> str:
    """A green search has read one chained digest a layer; the keys stand behind them."""
    return "layer digests" if tree.search and tree.search.layer is None else "keys"


def _untyped(tree: Tree) -> bool:
    if noun(tree) != "keys":  # a chained digest covers the types of its keys
        return False
    if any(note.startswith(UNTYPED) for note in tree.notes):
        return True
    return any("[" not in text for row in tree.keys for text in (row.ref, row.dut) if text)


def _emulated(tree: Tree) -> str:
    shown = sides(tree)
    names = [name for name, header in shown.items() if header.get("emulated") == "yes"]
    if names == [ENGINE]:
        return "emulated"
    return f"{' and '.join(names)} emulated" if names else ""
