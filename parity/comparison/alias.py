"""Rules for keys that the two sides name, fuse or split differently (docs/dump-format.md).

One rule a line: ``dut = ref`` (renamed), ``dut = ref + ref`` (fused in the dut) or
``dut + dut = ref`` (split in the dut). A name is a field, or a tensor file's own name; one ``*`` in
it stands for any digits, the same ones in every name of the rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path

import numpy as np

from parity.comparison.matching import Apart
from parity.dump import Dump
from parity.dumps.table import Places, Table, tables
from parity.errors import InputError
from parity.keys import FREE, Key

_NAME = re.compile(r"[A-Za-z0-9_.:/\-]*\*?[A-Za-z0-9_.:/\-]*")
_FORM = "write dut = ref, dut = ref + ref, or dut + dut = ref"
Where = tuple[int | None, str]  # layer (FREE for a tensor file's own name) and what * stands for


@dataclass(frozen=True)
class Rule:
    """One rule: names of the dut's keys and of the ref's; one of the two is a single name."""

    source: str
    line: int
    dut: tuple[str, ...]
    ref: tuple[str, ...]

    def __str__(self) -> str:
        return f"alias line {self.line}: {' + '.join(self.dut)} = {' + '.join(self.ref)}"

    @property
    def renames(self) -> bool:
        """Whether a key of the dut is a key of the ref under another name."""
        return len(self.dut) == len(self.ref) == 1

    @cached_property
    def _patterns(self) -> dict[str, re.Pattern[str]]:
        names = (*self.dut, *self.ref)
        return {name: re.compile(re.escape(name).replace(r"\*", "([0-9]+)")) for name in names}

    def where(self, name: str, place: Key) -> Where | None:
        """Where ``place`` is, if its field is ``name``, a name of this rule."""
        found = self._patterns[name].fullmatch(place.field)
        if found is None:
            return None
        return FREE if place.pos == FREE else place.layer, "".join(found.groups())

    def places(self, name: str, table: Table) -> dict[Where, int]:
        """Number of the place in ``table`` that has this name, wherever there is one."""
        found = ((self.where(name, place), at) for at, place in enumerate(table.places))
        return {where: at for where, at in found if where is not None}

    def refused(self, what: str, next_step: str) -> InputError:
        """The error that names this rule's line."""
        return InputError(f"{self.source} line {self.line}: {what}", next_step)


@dataclass(frozen=True)
class Joined:
    """Keys of one layer that a rule puts together: places of each side in the rule's order, and
    the positions (int32[n]) at which all of them have a key."""

    refs: list[int]
    duts: list[int]
    positions: np.ndarray


@dataclass(frozen=True)
class Aliased:
    """The dut under the ref's names, what to say of it, and which rows must not be compared."""

    dut: Dump
    notes: list[str] = field(default_factory=list)
    apart: Apart | None = None


def read_aliases(path: Path) -> list[Rule]:
    """Read a file of rules; raises InputError, with the line, for anything else."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "give a file of alias rules") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: encoding is not UTF-8", "write the file as UTF-8") from error
    rules = [
        _parse(str(path), number, rule)
        for number, line in enumerate(text.splitlines(), 1)
        if (rule := line.partition("#")[0].strip())
    ]
    if not rules:
        raise InputError(f"{path}: no rule in it", _FORM)
    _refuse_second_rules(rules)
    _refuse_circles(rules)
    return rules


def apply_aliases(rules: Sequence[Rule], ref: Dump, dut: Dump) -> Aliased:
    """Rename the dut's keys, and set apart what is fused or split: digests do not tell of parts.

    Raises InputError, with the line, for a rule that matches nothing, and where a key of the dut
    would get the name of another one.
    """
    given = rename(rules, ref, dut)
    puts_together = [rule for rule in rules if not rule.renames]
    notes = [f"{rule}: {_apart_text(rule, ref, given.dut)}" for rule in puts_together]
    return Aliased(given.dut, [*given.notes, *notes], apart_by(puts_together))


def rename(rules: Sequence[Rule], ref: Dump, dut: Dump) -> Aliased:
    """The dut with the keys of rules ``dut = ref`` renamed; raises as ``apply_aliases`` does."""
    for rule in rules:
        _require_match(rule, "dut", dut, rule.dut)
        _require_match(rule, "ref", ref, rule.ref)
    renames = [rule for rule in rules if rule.renames]
    segments = {name: _renamed(table, renames) for name, table in tables(dut).items()}
    for table in segments.values():
        _refuse_taken(rules, table)
    notes = [f"{rule}: {_count(rule, dut, rule.dut[0]):,} keys renamed" for rule in renames]
    return Aliased(replace(dut, segments=segments), notes)


def apart_by(rules: Sequence[Rule]) -> Apart | None:
    """What ``compare_dumps`` must not compare, under rules that fuse or split; None without any."""
    return (lambda refs, duts: _masks(rules, refs, duts)) if rules else None


def joined(rule: Rule, refs: Table, duts: Table) -> Iterator[Joined]:
    """The keys that ``rule`` puts together, layer by layer, where every name has one."""
    ref_places = [rule.places(name, refs) for name in rule.ref]
    dut_places = [rule.places(name, duts) for name in rule.dut]
    for where in ref_places[0]:
        if not all(where in found for found in (*ref_places, *dut_places)):
            continue
        ref, dut = ([found[where] for found in side] for side in (ref_places, dut_places))
        sides = [(refs, at) for at in ref] + [(duts, at) for at in dut]
        positions = [table.pos[table.place == at] for table, at in sides]
        yield Joined(ref, dut, reduce(np.intersect1d, positions))


def _parse(source: str, line: int, text: str) -> Rule:
    sides = [tuple(name.strip() for name in side.split("+")) for side in text.split("=")]
    names = [name for side in sides for name in side]
    rule = Rule(source, line, sides[0], sides[-1])
    if len(sides) != 2 or min(map(len, sides)) > 1 or not all(map(_is_name, names)):
        raise rule.refused(f"not a rule: {text!r}", _FORM)
    if len({name.count("*") for name in names}) > 1:
        raise rule.refused(f"* in some names only: {text!r}", "write one * in each name, or none")
    return rule


def _is_name(text: str) -> bool:
    return bool(text.strip("*")) and _NAME.fullmatch(text) is not None


def _refuse_second_rules(rules: Sequence[Rule]) -> None:
    for role in ("dut", "ref"):
        lines: dict[str, int] = {}
        for rule in rules:
            for name in getattr(rule, role):
                if name in lines:
                    raise rule.refused(
                        f"{role} name {name} has a rule already, on line {lines[name]}",
                        "keep one rule for each name",
                    )
                lines[name] = rule.line


def _refuse_circles(rules: Sequence[Rule]) -> None:
    """Refuse rules by which a name leads back to itself; no name has two rules here."""
    rule_of = {name: rule for rule in rules for name in rule.dut}
    for rule in rules:
        reached, open_names = set(rule.dut), list(rule.ref)
        while open_names:
            name = open_names.pop()
            if name in rule.dut:
                raise rule.refused(
                    f"the rules lead from {name} back to {name}", "name what the dut has, once"
                )
            if name in rule_of and name not in reached:
                open_names += rule_of[name].ref
            reached.add(name)


def _require_match(rule: Rule, role: str, dump: Dump, names: Sequence[str]) -> None:
    for name in names:
        if not _count(rule, dump, name):
            raise rule.refused(
                f"no key of the {role} is named {name}",
                f"name what {dump.source} has, or take the rule out",
            )


def _count(rule: Rule, dump: Dump, name: str) -> int:
    """How many keys of ``dump`` have one name of ``rule``."""
    found = ((table, list(rule.places(name, table).values())) for table in tables(dump).values())
    return sum(int(np.isin(table.place, places).sum()) for table, places in found)


def _renamed(table: Table, rules: Sequence[Rule]) -> Table:
    places = Places()
    numbers = [places.id_of(_new_place(place, rules)) for place in table.places]
    return replace(table, place=np.array(numbers, np.int32)[table.place], places=places.keys)


def _new_place(place: Key, rules: Sequence[Rule]) -> Key:
    found = [(rule, where) for rule in rules if (where := rule.where(rule.dut[0], place))]
    if not found:
        return place
    if len(found) > 1:
        rule = found[1][0]
        raise rule.refused(
            f"{place.field} has a rule already, on line {found[0][0].line}",
            "keep one rule for each name",
        )
    rule, (_, star) = found[0]
    return place._replace(field=rule.ref[0].replace("*", star))


def _refuse_taken(rules: Sequence[Rule], table: Table) -> None:
    """Refuse a rule under which two keys of the dut stand for one of the ref.

    ``table`` is the dut's, renamed: such a rename shows as a key that appears twice.
    """
    codes = np.sort(table.pos * np.int64(len(table.places)) + table.place)
    twice = set((codes[1:][codes[1:] == codes[:-1]] % max(1, len(table.places))).tolist())
    for rule in rules:
        for wanted in rule.ref:
            taken = rule.places(wanted, table)
            for where, at in taken.items():
                if at in twice if rule.renames else _both(rule, table, where, at):
                    raise rule.refused(
                        f"the dut has {' + '.join(rule.dut)} and also {table.places[at].field}",
                        "take the rule out, or one of the two keys",
                    )


def _both(rule: Rule, table: Table, where: Where, part: int) -> bool:
    """Whether the dut has, at one position, a name of the dut's and the ref's key ``part``."""
    mine = [found[where] for name in rule.dut if where in (found := rule.places(name, table))]
    positions = table.pos[np.isin(table.place, mine)]
    return bool(np.isin(table.pos[table.place == part], positions).any())


def _masks(rules: Sequence[Rule], refs: Table, duts: Table) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ref and of dut (bool[n] each) that the rules put together."""
    masks = np.zeros(len(refs), bool), np.zeros(len(duts), bool)
    for rule in rules:
        for found in joined(rule, refs, duts):
            for mask, table, places in zip(
                masks, (refs, duts), (found.refs, found.duts), strict=True
            ):
                mask |= np.isin(table.place, places) & np.isin(table.pos, found.positions)
    return masks


def _apart_text(rule: Rule, ref: Dump, dut: Dump) -> str:
    refs, duts = tables(ref), tables(dut)
    names = [name for name in refs if name in duts]
    keys = sum(int(mask.sum()) for at in names for mask in _masks([rule], refs[at], duts[at]))
    return f"{keys:,} keys not comparable: the digest of a whole does not tell of its parts"
