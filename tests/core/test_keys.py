"""Keys and their dataflow order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.errors import InputError
from parity.keys import FINAL_FIELDS, LAYER_FIELDS, Key, KeyOrder

FIELDS = st.sampled_from([*LAYER_FIELDS, *FINAL_FIELDS, "mine", "a.b-c", "l7"])


def in_order(tags: list[str], ref: list[str] | None = None) -> list[str]:
    keys = [Key.parse(tag) for tag in tags]
    order = KeyOrder([Key.parse(tag) for tag in ref or tags], keys)
    return [key.tag for key in sorted(keys, key=order)]


@pytest.mark.parametrize(
    ("tag", "key"),
    [
        ("t33_l7_attn", Key(33, 7, "attn")),
        ("t0_l0_k", Key(0, 0, "k")),
        ("t33_final_normed", Key(33, None, "final_normed")),
        ("t4_a.b-c", Key(4, None, "a.b-c")),
        ("t4_l7", Key(4, None, "l7")),
    ],
)
def test_a_tag_is_read_and_written_back(tag: str, key: Key) -> None:
    assert Key.parse(tag) == key
    assert key.tag == str(key) == tag


@given(st.integers(0, 10**9 - 1), st.none() | st.integers(0, 999_999), FIELDS)
@settings(derandomize=True)
def test_every_key_survives_its_written_form(pos: int, layer: int | None, field: str) -> None:
    key = Key(pos, layer, field)
    assert Key.parse(key.tag) == key


@pytest.mark.parametrize(
    "tag",
    [
        *("", "t0", "t0_", "logits", "t01_l0_k", "t0_l07_k", "t0_l7_", "t0_l1_7k", "t-1_k", "T0_k"),
        *("t0_l0_k ", "t0_l0_k\n", "t0 _k", "t1\u0663_l0_k", "t0_l0_\u00e9", "t9999999999_k"),
    ],
)
def test_what_has_no_keys_form_is_refused_by_name(tag: str) -> None:
    with pytest.raises(InputError) as caught:
        Key.parse(tag)
    assert repr(tag) in caught.value.message
    assert "t<pos>_l<layer>_<field>" in caught.value.next_step


def test_numbers_order_by_value_not_as_text() -> None:
    tags = ["t10_l0_nrm", "t2_l10_kraw", "t2_l9_attn"]
    assert in_order(tags) == ["t2_l9_attn", "t2_l10_kraw", "t10_l0_nrm"]


def test_layer_zero_comes_first_and_the_head_last() -> None:
    tags = ["t0_logits", "t0_final_normed", "t0_l1_nrm", "t0_l0_x"]
    assert in_order(tags) == ["t0_l0_x", "t0_l1_nrm", "t0_final_normed", "t0_logits"]


def test_unknown_fields_keep_the_place_they_have_in_the_ref() -> None:
    ref = ["t0_l0_rms", "t0_l0_q", "t0_l0_k", "t0_l0_k_rot", "t0_l0_x", "t0_l1_rms"]
    assert in_order(random.Random(3).sample(ref, len(ref)), ref) == ref


def test_unknown_fields_keep_their_place_when_lines_are_grouped_by_field() -> None:
    ref = ["t0_l0_a", "t0_l1_a", "t0_l0_b", "t0_l1_b"]
    assert in_order(ref) == ["t0_l0_a", "t0_l0_b", "t0_l1_a", "t0_l1_b"]


def test_a_field_written_before_the_layers_comes_before_them() -> None:
    ref = ["t0_embed", "t0_scaled", "t0_l0_nrm", "t0_softcap", "t0_logits", "t0_probs"]
    ref += [tag.replace("t0", "t1") for tag in ref]
    assert in_order(ref[::-1], ref) == ref


def test_fields_only_the_dut_has_stand_after_their_neighbour() -> None:
    ref = ["t0_l0_nrm", "t0_l0_x"]
    assert in_order([*ref[:1], "t0_l0_extra", *ref[1:]], ref) == [
        *("t0_l0_nrm", "t0_l0_extra", "t0_l0_x"),
    ]


def test_a_field_the_order_was_not_told_of_comes_last_in_its_layer() -> None:
    keys = [Key(0, 1, "nrm"), Key(0, 0, "chain"), Key(0, 0, "x")]
    assert sorted(keys, key=KeyOrder()) == [keys[2], keys[1], keys[0]]


def test_free_names_keep_the_files_order_and_come_first() -> None:
    names = ["logits", "block.10.q", "x", "block.9.q", "t0_l0_nrm"]
    keys = [Key.of_name(name) for name in names]
    assert sorted(keys[::-1], key=KeyOrder(keys, keys[::-1])) == keys
    assert [key.tag for key in keys] == names


def test_many_free_names_take_linear_time() -> None:
    keys = [Key.of_name(f"name.{number}") for number in range(50_000)]
    assert sorted(keys[::-1], key=KeyOrder(keys)) == keys
