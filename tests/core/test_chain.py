"""Chained digests and the bisection over them: the same first key, in few looks."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.comparison.compare import compare_dumps
from parity.digests.chain import bisect_first, chain, chain_lines, first_by_bisection
from parity.dump import Dump, Entry, TensorType
from parity.errors import InputError
from parity.fnv import BASES, fnv1a64
from parity.keys import Key

F32 = TensorType("f32", (4,))
KINDS = (None, F32, TensorType("f64", (4,)), TensorType("f32", (2, 2)))


def small(count: int) -> Dump:
    """A dump of ``count`` keys in dataflow order, three fields a layer, two layers a position."""
    fields = ("nrm", "mine", "x")
    keys = (Key(at // 6, at // 3 % 2, fields[at % 3]) for at in range(count))
    return Dump({}, {"": [Entry(key, at, F32) for at, key in enumerate(keys)]}, "small")


def limit(shorter: int) -> int:
    return 2 * (math.ceil(math.log2(shorter)) + 1) if shorter else 0


def test_a_digest_is_the_hash_of_the_text_so_far() -> None:
    entries = [Entry(Key(0, 0, "x"), 0xAB, F32), Entry(Key(0, None, "logits"), 1, None, (1, 2))]
    text = b"t0_l0_x 00000000000000ab f32[4]\nt0_logits 0000000000000001\n"
    assert chain(entries) == [fnv1a64(text[:32]), fnv1a64(text)]
    assert chain(entries, 5) == [fnv1a64(text[:32], 5), fnv1a64(text, 5)]


def test_a_chain_goes_on_from_the_digest_before() -> None:
    entries = small(9).entries
    whole = chain(entries, BASES["kestrel-fnv"])
    assert chain(entries[4:], whole[3]) == whole[4:]
    assert chain([], 7) == []


@pytest.mark.parametrize("part", ["tag", "digest", "type"])
def test_a_change_in_any_part_of_a_line_changes_every_later_digest(part: str) -> None:
    entries = small(9).entries
    changed = {
        "tag": replace(entries[4], key=Key(0, 1, "other")),
        "digest": replace(entries[4], digest=entries[4].digest ^ 1 << 63),
        "type": replace(entries[4], type=TensorType("f32", (2, 2))),
    }[part]
    before, after = chain(entries), chain([*entries[:4], changed, *entries[5:]])
    assert [ref == dut for ref, dut in zip(before, after, strict=True)] == [True] * 4 + [False] * 5


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 100, 2120])
def test_every_place_is_found_within_the_bound(count: int) -> None:
    lines = [f"line {at}" for at in range(count)]
    ref = chain_lines(lines)
    for place in {0, count - 1, *random.Random(count).sample(range(count), min(count, 20))}:
        dut = chain_lines([*lines[:place], "fault", *lines[place + 1 :]])
        index, looks = bisect_first(ref, dut)
        assert index == place
        assert looks <= limit(count)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
@settings(derandomize=True)
def test_bisection_equals_the_linear_search(ref: int, dut: int, fault: int) -> None:
    """Chains of different lengths; a fault at or past the end of one is no fault."""
    ref_lines = [str(at) for at in range(ref)]
    dut_lines = [str(at) if at != fault else "fault" for at in range(dut)]
    pairs = zip(ref_lines, dut_lines, strict=False)
    parted = [at for at, (one, other) in enumerate(pairs) if one != other]
    expected = parted[0] if parted else None if ref == dut else min(ref, dut)
    index, looks = bisect_first(chain_lines(ref_lines), chain_lines(dut_lines))
    assert index == expected
    assert looks <= limit(min(ref, dut))


def test_callables_are_read_only_where_the_search_looks() -> None:
    ref = chain_lines(str(at) for at in range(1024))
    dut = chain_lines(str(at) if at != 700 else "fault" for at in range(1024))
    seen: list[int] = []

    def look(index: int) -> int:
        seen.append(index)
        return dut[index]

    assert bisect_first(ref.__getitem__, look, lengths=(1024, 1024)) == (700, 2 * len(seen))
    assert len(seen) == len(set(seen)) <= 11
    with pytest.raises(TypeError, match="needs lengths"):
        bisect_first(ref, look)


def test_equal_dumps_have_no_first_key() -> None:
    key, search = first_by_bisection(small(30), small(30))
    assert key is None
    assert (search.layer, search.digests_read, search.digests_total) == (None, 2, 60)


def test_the_search_says_what_it_cost_and_where_it_led() -> None:
    ref = small(600)
    dut = replace(ref, segments={"": [*ref.entries[:400], *ref.entries[401:]]})
    key, search = first_by_bisection(ref, dut)
    assert key == ref.entries[400].key == Key(66, 1, "mine")
    assert (search.layer, search.digests_total, search.runs) == ("t66_l1", 1199, 0)
    assert search.digests_read <= limit(599)


FAULTS = st.lists(
    st.tuples(st.sampled_from(["missing", "extra", "digest", "type"]), st.integers(0, 10**6)),
    max_size=4,
)


@given(st.integers(1, 60), FAULTS, st.randoms(use_true_random=False))
@settings(derandomize=True, max_examples=300, deadline=None)
def test_bisection_names_the_key_that_comparing_names(
    count: int, faults: list[tuple[str, int]], rng: random.Random
) -> None:
    """Also in two segments, in any line order, and where a side did not record some types."""
    ref, dut = small(count).entries, small(count).entries
    for kind, number in faults:
        side = ref if kind == "extra" else dut
        at = number % len(side) if side else 0
        if kind in ("missing", "extra"):
            del side[at : at + 1]
        elif side:
            change = {"digest": 999} if kind == "digest" else {"type": KINDS[number % 4]}
            side[at] = replace(side[at], **change)
    cut = count // 2
    dumps = []
    for entries in (ref, dut):
        parts = {
            "": [entry for entry in entries if entry.key.pos < cut // 6],
            "B": [entry for entry in entries if entry.key.pos >= cut // 6],
        }
        shuffled = {name: rng.sample(part, len(part)) for name, part in parts.items()}
        dumps.append(Dump({}, shuffled, "random"))
    tree = compare_dumps(*dumps)
    linear = next((row.key for row in tree.keys if row.state != "same"), None)
    key, search = first_by_bisection(*dumps)
    assert (key.tag if key else None) == linear
    assert search.digests_read <= limit(min(len(ref), len(dut)))


@pytest.mark.parametrize("place", [0, 17, 29])
@pytest.mark.parametrize("kind", ["missing", "extra", "digest", "type"])
def test_first_last_and_middle_key(place: int, kind: str) -> None:
    whole, key = small(30), small(30).entries[place].key
    lacking = replace(whole, segments={"": [e for e in whole.entries if e.key != key]})
    change = {"digest": 999} if kind == "digest" else {"type": KINDS[2]}
    changed = [replace(e, **change) if e.key == key else e for e in whole.entries]
    pairs = {"missing": (whole, lacking), "extra": (lacking, whole)}
    ref, dut = pairs.get(kind, (whole, replace(whole, segments={"": changed})))
    found, search = first_by_bisection(ref, dut)
    assert found == key
    assert compare_dumps(ref, dut).first == key.tag
    assert search.digests_read <= limit(30)


def test_a_key_given_twice_is_refused() -> None:
    twice = replace(small(3), segments={"": [*small(3).entries, small(3).entries[0]]})
    with pytest.raises(InputError, match="key t0_l0_nrm appears twice"):
        first_by_bisection(small(3), twice)


def test_a_key_in_another_segment_is_another_key() -> None:
    entries = small(9).entries
    ref = Dump({}, {"": entries[:4], "B": entries[4:]}, "ref")
    dut = Dump({}, {"": entries[:6], "B": entries[6:]}, "dut")
    assert first_by_bisection(ref, dut)[0] == entries[4].key
    assert compare_dumps(ref, dut).first == entries[4].key.tag
