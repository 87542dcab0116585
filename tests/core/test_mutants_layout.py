"""What mutation testing found unseen in the layout of keys and in their order."""

from __future__ import annotations

import itertools

import pytest

from parity.digests.key_layout import Layout, Place
from parity.errors import InputError
from parity.keys import Key, KeyOrder, in_schema

FIELDS = {
    "plain": (("nrm", "f32 [4]"), ("k", None), ("x", "f32 [4]")),
    "recurrent": (("nrm", "f32 [4]"), ("s", "f32 [2, 2]")),
    "before": (("embed", None),),
    "after": (("final_normed", "f32 [4]"), ("logits", "f32 [8]")),
}
Kinds = tuple[tuple[int | None, str], ...]  # layer and kind of its fields, in order
STEP: Kinds = (
    *((None, "before"), (0, "recurrent"), (1, "plain"), (2, "plain"), (3, "recurrent")),
    (None, "after"),
)


def step(segment: str, pos: int, kinds: Kinds = STEP) -> list[Place]:
    """The keys of one position, written out."""
    return [
        Place(segment, Key(pos, layer, name), kind)
        for layer, fields in kinds
        for name, kind in FIELDS[fields]
    ]


def sequence() -> list[Place]:
    """Two segments, positions that begin late, a gap, and a step that is not like the others."""
    return [
        *(place for pos in (3, 4, 5) for place in step("", pos)),
        *step("", 6, ((0, "plain"), (None, "after"))),
        *step("", 8, ((0, "plain"), (None, "after"))),
        *(place for pos in (2, 3) for place in step("again", pos)),
    ]


def test_a_layout_gives_every_key_back_with_its_type() -> None:
    places = sequence()
    layout = Layout.of(places)
    assert len(layout) == len(places)
    assert [*layout] == places
    assert [layout[at] for at in range(len(places))] == places


def test_every_key_is_found_where_it_stands() -> None:
    places = sequence()
    layout = Layout.of(places)
    assert [layout.index(one.segment, one.key) for one in places] == [*range(len(places))]


@pytest.mark.parametrize(
    ("segment", "tag"),
    [
        ("", "t2_l0_nrm"),  # before the first position
        ("", "t7_l0_nrm"),  # in a gap
        ("", "t9_logits"),  # after the last
        ("", "t6_l1_nrm"),  # a layer that this step lacks
        ("", "t3_l0_k"),  # a field that this layer lacks
        ("", "t3_nrm"),  # a field of a layer, outside the layers
        ("again", "t4_l0_nrm"),
        ("third", "t3_l0_nrm"),
    ],
)
def test_a_key_that_is_not_there_is_not_found(segment: str, tag: str) -> None:
    assert Layout.of(sequence()).index(segment, Key.parse(tag)) is None


def test_positions_and_layers_that_are_alike_are_written_once() -> None:
    layout = Layout.of(sequence())
    assert [(span.segment, span.first, span.last) for span in layout.spans] == [
        *(("", 3, 5), ("", 6, 6), ("", 8, 8)),
        ("again", 2, 3),
    ]
    assert [(block.first, block.last, block.fields) for block in layout.spans[0].step] == [
        (-1, -1, FIELDS["before"]),
        (0, 0, FIELDS["recurrent"]),
        (1, 2, FIELDS["plain"]),
        (3, 3, FIELDS["recurrent"]),
        (-1, -1, FIELDS["after"]),
    ]
    assert [block.size for block in layout.spans[0].step] == [1, 2, 6, 2, 2]
    assert layout.spans[0].step == layout.spans[3].step
    assert layout.segments == ["", "again"]


def test_blocks_outside_the_layers_are_joined_with_nothing() -> None:
    """Fields outside the layers like those of layer 0; layers and positions with a gap."""
    places = step("", 0, ((None, "plain"), (0, "plain"), (2, "plain"), (3, "plain")))
    blocks = Layout.of(places).spans[0].step
    assert [(block.first, block.last) for block in blocks] == [(-1, -1), (0, 0), (2, 3)]
    twice = [*step("", 0, ((0, "plain"),)), *step("other", 1, ((0, "plain"),))]
    spans = Layout.of(twice).spans
    assert [(span.segment, span.first, span.last) for span in spans] == [
        ("", 0, 0),
        ("other", 1, 1),
    ]


def test_keys_without_a_type_are_counted() -> None:
    places = sequence()
    bare = sum(place.type is None for place in places)
    assert bare == 5 * 3 + 2
    assert Layout.of(places).untyped == bare
    assert Layout.of(step("", 4, ((0, "recurrent"),))).untyped == 0


def test_samples_are_the_first_position_of_every_span() -> None:
    samples = Layout.of(sequence()).samples
    first = [("", 3), ("", 6), ("", 8), ("again", 2)]
    assert samples == [one.key for one in sequence() if (one.segment, one.key.pos) in first]


def test_layouts_are_equal_where_their_keys_and_types_are() -> None:
    places = sequence()
    one, other = Layout.of(places), Layout.of(places)
    assert one == other
    assert hash(one) == hash(other)
    changed = [places[0]._replace(type="f16 [4]"), *places[1:]]
    assert one != Layout.of(changed)
    assert hash(one) != hash(Layout.of(changed))
    assert one != places
    empty = Layout.of([])
    assert (len(empty), [*empty], empty.segments, empty.untyped) == (0, [], [], 0)
    assert empty.index("", Key(0, 0, "x")) is None


# --- keys -----------------------------------------------------------------------------------------


def ordered(tags: list[str], ref: list[str] = [], dut: list[str] = []) -> list[str]:  # noqa: B006
    """``tags`` in the order of what both sides hold."""
    order = KeyOrder(map(Key.of_name, ref), map(Key.of_name, dut))
    return [key.tag for key in sorted(map(Key.of_name, tags), key=order)]


def test_fields_of_the_dut_stand_after_those_the_ref_placed() -> None:
    ref = ["t0_l0_nrm", "t0_l0_mine", "t0_l0_kraw"]
    dut = ["t0_l0_nrm", "t0_l0_mine", "t0_l0_yours", "t0_l0_kraw", "t0_l0_first"]
    wanted = ["t0_l0_nrm", "t0_l0_mine", "t0_l0_yours", "t0_l0_kraw", "t0_l0_first", "t0_l0_x"]
    for tags in itertools.islice(itertools.permutations(wanted), 0, 720, 37):
        assert ordered(list(tags), ref, dut) == wanted


def test_unknown_fields_outside_the_layers_stand_where_the_file_has_them() -> None:
    """Before the layers where none has begun, else after; with their neighbour where they have
    one."""
    ref = [
        *("t0_embed", "t0_scaled", "t0_l0_nrm", "t0_l0_x", "t0_merged", "t0_final_normed"),
        *("t0_softcap", "t0_logits", "t0_probability"),
    ]
    wanted = [
        *("t0_embed", "t0_scaled", "t0_l0_nrm", "t0_l0_x", "t0_merged", "t0_final_normed"),
        *("t0_softcap", "t0_logits", "t0_probability", "t1_embed", "t1_l3_x", "t1_softcap"),
    ]
    assert ordered(wanted[::-1], ref) == wanted
    # Every position has layers of its own: those of t0 have begun, those of t1 have not.
    late = ["t0_l0_nrm", "t1_embed", "t1_l0_nrm", "t1_logits"]
    assert ordered(late[::-1], late) == late
    grouped = ["t0_embed", "t1_embed", "t0_l0_nrm", "t1_l0_nrm", "t0_tail", "t1_tail"]
    assert ordered(grouped, grouped) == [
        *("t0_embed", "t0_l0_nrm", "t0_tail"),
        *("t1_embed", "t1_l0_nrm", "t1_tail"),
    ]


def test_a_neighbour_of_another_layer_or_position_is_none() -> None:
    """A field that begins its layer stands first in it, whatever the layer before ended with."""
    ref = ["t0_l0_nrm", "t0_l0_x", "t0_l1_begin", "t0_l1_nrm", "t1_l0_start", "t1_l0_nrm"]
    wanted = ["t0_l0_start", "t0_l0_begin", "t0_l0_nrm", "t0_l0_x"]
    assert ordered(wanted[::-1], ref) == wanted


def test_a_field_that_no_side_has_comes_last_at_its_place() -> None:
    order = KeyOrder()
    last = 1 << 60
    assert order(Key(3, 2, "unknown")) == (3, 1, 2, last)
    assert order(Key(3, None, "unknown")) == (3, 2, 0, last)
    assert order(Key.of_name("some.weight")) == (-1, 0, 0, last)
    assert order(Key(3, 2, "nrm")) == (3, 1, 2, 0)
    assert order(Key(3, None, "final_normed")) == (3, 2, 0, 0)
    assert order(Key(3, None, "logits")) == (3, 2, 0, 1)
    told = KeyOrder([Key(0, None, "embed"), Key(0, 0, "nrm"), Key.of_name("some.weight")])
    assert told(Key(3, None, "embed")) == (3, 0, 0, 0)
    assert told(Key.of_name("some.weight")) == (-1, 0, 0, 0)


def test_free_names_and_tags_of_one_file() -> None:
    ref = ["zeta", "t0_l0_x", "alpha", "t0_l0_nrm", "mid"]
    dut = ["zeta", "added", "alpha"]
    wanted = ["zeta", "added", "alpha", "mid", "t0_l0_nrm", "t0_l0_x"]
    assert ordered(wanted[::-1], ref, dut) == wanted


@pytest.mark.parametrize(
    ("key", "known"),
    [
        (Key(0, 0, "nrm"), True),
        (Key(0, 5, "x"), True),
        (Key(0, None, "logits"), True),
        (Key(0, None, "nrm"), False),
        (Key(0, 0, "logits"), False),
        (Key(0, 0, "own"), False),
        (Key.of_name("logits"), False),
    ],
)
def test_schema_knows_a_field_at_its_place_alone(key: Key, known: bool) -> None:
    assert in_schema(key) is known


def test_what_is_no_key_is_refused_with_the_form() -> None:
    with pytest.raises(InputError) as caught:
        Key.parse("t0_l07_x")
    assert caught.value.message == "not a key: 't0_l07_x'"
    assert caught.value.next_step == "write keys as t<pos>_l<layer>_<field> or t<pos>_<field>"
