"""The key view of an HTML report: one layer's strip, then one key with all that is known of it.

Without the script it shows the first key (of a green run the control's, or the run's first); the
script puts any other key of the map in its place. Elements are kept for the first key and for the
first births.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from parity.families import field_op
from parity.status import Verdict
from parity.tree import Birth, Cause, KeyRow, KeyState, Tree
from parity_reports import why, wording
from parity_reports.html_elements import ElementsView, elements_view
from parity_reports.html_grid import first_index
from parity_reports.html_map import control_index
from parity_reports.html_panels import SHOWN, KeyView, key_view
from parity_reports.html_shell import fragment
from parity_reports.values import parse_key

if TYPE_CHECKING:
    from markupsafe import Markup

DETAILED = 8  # births, beside the first key, whose elements stand in the file


@dataclass(frozen=True)
class Twin:
    """A file that holds the text of what one side (``ref``, ``dut``) runs for a field."""

    side: str
    file: str


@dataclass(frozen=True)
class KeyPanel:
    """What is known of one key: its layer's strip, itself, the op that makes it, what ran, its
    inputs, its elements. ``names``: what the sides are called; ``remark``: of a birth, on which
    inputs."""

    names: tuple[str, str]
    place: str
    strip: list[KeyView]
    key: KeyView | None
    op: str
    ran: str
    twins: list[Twin]
    functions: list[str]
    inputs: list[KeyView]
    inputs_text: str
    elements: ElementsView | None
    remark: str = ""


def key_section(tree: Tree) -> Markup | None:
    """The panel of the first key, and those of the births whose elements are kept."""
    panel = key_panel(tree)
    if panel is None:
        return None
    births = birth_panels(tree)
    return fragment("key_section", panel, births, SHOWN, template="key.html.j2")


def key_lead(tree: Tree) -> str:
    """What stands in the panel before anybody chooses."""
    if wording.first_row(wording.compared(tree)[0]) is not None or tree.elements is not None:
        return "The first key that differs, in its layer."
    told = "The run's first key" if control_index(tree) is None else "The control's key"
    return f"{told}; every key of the map opens here."


def key_panel(whole: Tree) -> KeyPanel | None:
    """The panel of the first key, of a green run of the control's or the run's first; else None."""
    tree, names = wording.compared(whole)
    index = first_index(tree)
    if index is None and tree.elements is None:
        index = control_index(tree)
        # A name without position has no map that the script could open it from.
        placed = any(parse_key(row.key) for row in tree.keys[:1])
        index = 0 if index is None and placed and tree.verdict is Verdict.SAME else index
    row = None if index is None else tree.keys[index]
    if row is None and tree.elements is None:
        return None
    birth, key = why.leading_birth(tree), None if row is None else parse_key(row.key)
    own = birth if birth is not None and row is not None and birth.key == row.key else None
    read = wording.inputs_sentence(tree) if tree.inputs else ""
    return KeyPanel(
        names=names,
        place="" if row is None else _place(row),
        strip=[] if row is None else _strip(tree, row),
        key=None if row is None else key_view(row, first=row.key == tree.first),
        op=own.op if own is not None else "" if row is None else op_of(row.key),
        ran=_ran(tree, row, own),
        twins=[] if key is None else twins(tree, key.field),
        functions=[] if own is None else [why.function_sentence(each) for each in own.functions],
        inputs=[key_view(feed) for feed in tree.inputs],
        inputs_text=(own.evidence if own is not None else "") or read,
        elements=None if tree.elements is None else elements_view(tree.elements),
    )


def birth_panels(tree: Tree) -> list[KeyPanel]:
    """Births whose elements are kept, without the first key: their values on the ref's inputs."""
    found = tree.births.found if tree.births is not None else []
    shown = tree.elements.key if tree.elements is not None else ""
    kept = [birth for birth in found if birth.elements is not None and birth.key != shown]
    return [_birth_panel(tree, birth) for birth in kept[:DETAILED]]


def op_of(tag: str) -> str:
    """``attention (contract 1.8)``: the op that makes a key; empty where the field is unknown."""
    key = parse_key(tag)
    return "" if key is None or field_op(key.field) == key.field else field_op(key.field)


def twins(tree: Tree, field: str) -> list[Twin]:
    """Each side's files of what ran for ``field``, the ref's first, where the engines told them."""
    births = tree.births
    if births is None:
        return []
    ran = [name for side in births.kernels.get(field, ([], [])) for name in side]
    files = [births.sources[name] for name in dict.fromkeys(ran) if name in births.sources]
    sides = zip(("ref", "dut"), zip(*files, strict=True), strict=False)
    return [Twin(side, file) for side, held in sides for file in dict.fromkeys(held) if file]


def _ran(tree: Tree, row: KeyRow | None, birth: Birth | None) -> str:
    """``attention on both sides``: of a birth its own, else of the field."""
    if birth is not None and (birth.ref_kernels or birth.dut_kernels):
        return why.kernels_sentence(birth).removeprefix("ran ")
    key = None if row is None else parse_key(row.key)
    if key is None or tree.births is None:
        return ""
    ref, dut = (", ".join(side) for side in tree.births.kernels.get(key.field, ([], [])))
    if ref == dut:
        return f"{ref} on both sides" if ref else ""
    return f"ref {ref or 'not recorded'}, dut {dut or 'not recorded'}"


def _birth_panel(tree: Tree, birth: Birth) -> KeyPanel:
    key = parse_key(birth.key)
    run = "equal in the run" if birth.clean else "differ in the run; the ref's were used"
    row = KeyRow(birth.key, KeyState.DIFFERS, birth.ref, birth.dut, "", Cause.BORN, birth.key)
    return KeyPanel(
        names=("ref", "dut"),
        place="",
        strip=[],
        key=key_view(row),
        op=birth.op,
        ran=_ran(tree, row, birth),
        twins=[] if key is None else twins(tree, key.field),
        functions=[why.function_sentence(each) for each in birth.functions],
        inputs=[],
        inputs_text=birth.evidence or run,
        elements=None if birth.elements is None else elements_view(birth.elements, SHOWN),
        remark=why.marks_sentence(birth),
    )


def _place(row: KeyRow) -> str:
    key = parse_key(row.key)
    if key is None:
        return ""
    where = "after the last layer" if key.layer is None else f"layer {key.layer}"
    return f"t{key.pos} {where}" + (f" in segment {row.segment}" if row.segment else "")


def _strip(tree: Tree, first: KeyRow) -> list[KeyView]:
    """The fields of the layer that holds the first key, in dataflow order."""
    place = parse_key(first.key)
    if place is None:
        return []
    found = []
    for row in tree.keys:
        key = parse_key(row.key) if row.segment == first.segment else None
        if key is not None and (key.pos, key.layer) == (place.pos, place.layer):
            found.append(key_view(row, row is first and row.key == tree.first))
    return found
