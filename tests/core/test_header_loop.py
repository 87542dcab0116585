"""The protocol loop of parity_dump.h, request by request, under ASan and UBSan."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.dumps.reader import read_dump
from parity.fnv import BASES, fnv1a64_array, hex16
from tests.c_header import EXAMPLE, INCLUDE, SANITIZED, build

LOOP = Path(__file__).parent / "c" / "loop_engine.c"
LOAD = "load 9 some model seed 7"
Build = Callable[..., Path]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build loop_engine.c with these macros, once each."""
    built: dict[tuple[str, ...], Path] = {}

    def of(*macros: str) -> Path:
        if macros not in built:
            program = tmp_path_factory.mktemp("loop") / "engine"
            flags = [f"-D{name}" for name in macros]
            built[macros] = build(LOOP, program, *SANITIZED, *flags)
        return built[macros]

    return of


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, under the sanitizers."""
    return build(EXAMPLE, tmp_path_factory.mktemp("toy") / "c_engine", *SANITIZED)


def environment(**told: str) -> dict[str, str]:
    """That of this process without parity's variables, and these."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PARITY_")}
    return {**clean, **told}


def talk(program: Path, *requests: str) -> list[list[str]]:
    """The reply to each request, as lines; the program must end 0 and say nothing else."""
    given = "".join(f"{line}\n" for line in requests)
    done = subprocess.run(
        [program], input=given, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    replies: list[list[str]] = [[]]
    for line in done.stdout.splitlines():
        replies[-1].append(line)
        if line == "ok" or line.startswith("error "):
            replies.append([])
    assert replies.pop() == []
    return replies


def last(program: Path, *requests: str) -> list[str]:
    """The reply to the last one, after hello and load."""
    return talk(program, "hello 2", LOAD, *requests)[-1]


def tapped(pos: int, layer: int, value: float, basis: int = BASES["fnv1a64"]) -> str:
    """The line of a scalar."""
    digest = fnv1a64_array(np.float32(value).reshape(()), basis)
    return f"t{pos}_l{layer}_x {hex16(digest)} f32[]"


def logits(values: list[float]) -> str:
    return f"logits {np.array(values, '<f4').tobytes().hex()}"


# --- what it says it can --------------------------------------------------------------------------


def test_missing_entry_points_are_capabilities_it_lacks(engine: Build) -> None:
    hello = ["protocol 2", "engine loop 0.1", "capabilities", "vocab 4", "ok"]
    assert talk(engine(), "hello 2") == [hello]
    for request in ("rows 1 2", "mark", "rollback", "state", "counters", "set-state", "weights"):
        assert last(engine(), request) == ["error unknown request"]


def test_the_example_has_every_capability_of_the_header(toy: Path) -> None:
    hello = ["protocol 2", "engine toy 1", "capabilities rows rollback state counters"]
    assert talk(toy, "hello 9") == [[*hello, "vocab 512", "header model toy", "ok"]]
    assert talk(toy, "hello 1") == [["error this program speaks protocol 2"]]


def test_counters_begin_at_load(toy: Path) -> None:
    steps = ["load 9 any", "step 1", "rows 1 2", "counters"]
    assert talk(toy, *steps)[-1] == ["count forward 2", "ok"]
    assert talk(toy, *steps, *steps)[-1] == ["count forward 2", "ok"]


def test_load_resets_and_takes_the_tap_away(engine: Build) -> None:
    row = ["row 0", logits([0, 5, 3, 1]), "ok"]
    assert last(engine(), "tap fnv1a64 x", "step 0", LOAD, "step 1") == row
    assert last(engine(), "tap fnv1a64 x", "step 0", "reset", "step 1")[1] == tapped(0, 0, 1)


def test_the_kv_cache_can_be_filled(engine: Build) -> None:
    assert last(engine(), "prefill 0 0 0 0 0 0 0 0", "step 1")[0] == "row 8"
    assert last(engine(), "prefill 0 0 0 0 0 0 0 0 0", "step 1")[0].startswith("error ")


# --- rows -----------------------------------------------------------------------------------------


def test_a_step_is_one_row(engine: Build) -> None:
    row = ["row 0", tapped(0, 0, 1), tapped(0, 1, 11), logits([0, 5, 3, 1]), "ok"]
    assert last(engine(), "tap fnv1a64 nrm,x", "step 1") == row
    assert last(engine(), "step 1") == ["row 0", logits([0, 5, 3, 1]), "ok"]
    assert last(engine(), "tap fnv1a64 nrm,x", "tap -", "step 1")[1] == logits([0, 5, 3, 1])
    assert last(engine(), "tap fnv1a64 nrm", "step 1")[1] == logits([0, 5, 3, 1])


def test_the_hash_is_the_one_asked_for(engine: Build) -> None:
    reply = last(engine(), "tap kestrel-fnv x", "step 1")
    assert reply[1] == tapped(0, 0, 1, BASES["kestrel-fnv"])
    assert last(engine(), "tap md5 x") == ["error tap HASH FIELDS, or tap -"]


def test_lines_that_were_tapped_layer_by_layer_are_told_row_by_row(engine: Build) -> None:
    second = ["row 1", tapped(1, 0, 101), tapped(1, 1, 111), logits([1, 6, 4, 2])]
    third = ["row 2", tapped(2, 0, 202), tapped(2, 1, 212), logits([0, 5, 3, 1]), "ok"]
    assert last(engine("ROWS"), "tap fnv1a64 x", "step 0", "rows 1 2") == [*second, *third]


@pytest.mark.parametrize("macros", [(), ("PREFILL",)])
def test_prefill_tells_every_row_with_a_tap_and_the_last_one_without(
    engine: Build, macros: tuple[str, ...]
) -> None:
    every = last(engine(*macros), "tap fnv1a64 x", "prefill 0 1 2")
    assert [line for line in every if line.startswith("row")] == ["row 0", "row 1", "row 2"]
    only = last(engine(*macros), "prefill 0 1 2")
    assert (only[0], len(only)) == ("row 2", 3)


def test_a_tap_of_another_position_is_an_error_and_not_lost(engine: Build) -> None:
    told = last(engine("WRONG"), "tap fnv1a64 x", "step 1")
    assert told == ["error the engine tapped another position"]
    assert last(engine("WRONG", "ROWS"), "tap fnv1a64 x", "rows 1 2")[0].startswith("error ")


def test_a_tap_that_fails_is_an_error_of_its_request_alone(engine: Build) -> None:
    replies = talk(engine("WRONG"), LOAD, "tap fnv1a64 x", "step 2", "step 1", "tap -", "step 1")
    wrong = ["error parity_tap: unknown dtype", "error the engine tapped another position"]
    assert replies[2:4] == [[line] for line in wrong]
    assert replies[5][0] == "row 0"  # what was refused has moved nothing


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("step 4", "a token outside the vocabulary"),
        ("step -1", "a token outside the vocabulary"),
        ("step 1x", "a token outside the vocabulary"),
        ("step 99999999999999999999", "a token outside the vocabulary"),
        ("step", "another number of tokens"),
        ("step 1 2", "another number of tokens"),
        ("prefill 0 0 0 0 0 0 0 0 0 0", "past the end of the KV cache"),
        ("step 3", "token 3"),
        ("sing", "unknown request"),
        ("", "unknown request"),
        ("load", "load POSITIONS MODEL"),
        ("load 0 some model seed 7", "load POSITIONS MODEL"),
        ("load 101 some model seed 7", "too large"),
        ("tap", "tap HASH FIELDS, or tap -"),
    ],
)
def test_a_refusal_is_one_line_and_the_program_goes_on(
    engine: Build, request_: str, said: str
) -> None:
    replies = talk(engine(), "hello 2", LOAD, request_, "step 1")
    assert replies[2] == [f"error {said}"]
    assert replies[3][0] == "row 0"


def test_load_comes_first(engine: Build) -> None:
    assert talk(engine(), "reset", "step 1") == [["error load comes first"]] * 2


def test_a_mark_is_used_once_and_dropped_by_reset_and_load(toy: Path) -> None:
    no, load = ["error there is no mark"], "load 9 any"
    sequence = ["rollback", "mark", "rollback", "rollback", "mark", "reset", "rollback"]
    replies = talk(toy, load, *sequence, "mark", load, "rollback")
    assert replies == [["ok"], no, ["ok"], ["ok"], no, ["ok"], ["ok"], no, ["ok"], ["ok"], no]


# --- state ----------------------------------------------------------------------------------------


def test_a_state_comes_back_bit_for_bit(toy: Path) -> None:
    steps = ["load 9 any", "prefill 5 6 7"]
    *_, state, further = talk(toy, *steps, "state", "step 8")
    parts = [line for line in state if line.startswith("part ")]
    assert [part.split()[1] for part in parts] == ["lengths", "l0_k", "l0_v", "l1_k", "l1_v"]
    assert parts[0] == "part lengths int32[1] 03000000"
    put = ["set-state", *parts, "end"]
    first, taken, again, same = talk(toy, "load 9 any", *put, "state", "step 8")
    assert (first, taken, again, same) == (["ok"], ["ok"], state, further)


def test_parts_of_odd_sizes_are_handed_over_aligned(engine: Build) -> None:
    wide = np.array([3.25, -0.0]).tobytes().hex()
    parts = ["part lengths int32[1] 05000000", "part l0_odd int8[3] ff7f00"]
    parts += [f"part l0_wide f64[2,1] {wide}"]
    assert last(engine("MORE"), "set-state", *parts, "end", "state") == [*parts, "ok"]
    odd = [parts[0], "part l0_odd int8[3] ff7f0", parts[2]]
    said = ["error bytes that do not fill the type"]
    assert last(engine("MORE"), "set-state", *odd, "end") == said
    swapped = [parts[0], parts[2], parts[1]]
    other = ["error other parts than in state"]
    assert last(engine("MORE"), "set-state", *swapped, "end") == other
    assert last(engine("MORE"), "set-state", *parts, "end", "step 1")[0] == "row 5"


def test_an_empty_part_is_a_dash(toy: Path) -> None:
    state = talk(toy, "load 9 any", "state")[1]
    assert state[1] == "part l0_k f32[0,8] -"
    assert talk(toy, "load 9 any", "step 1", "set-state", *state[:-1], "end", "state")[-1] == state


TYPES, BYTES = "other parts than in state", "bytes that do not fill the type"
LENGTHS = "part lengths int32[1]"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([f"{LENGTHS} 0100000"], BYTES),
        ([f"{LENGTHS} 010000000"], BYTES),
        ([f"{LENGTHS} 0100000g"], BYTES),
        ([f"{LENGTHS} 0100000A"], BYTES),
        ([f"{LENGTHS} -"], BYTES),
        ([f"{LENGTHS} 0a000000"], "past the end of the KV cache"),
        ([f"{LENGTHS} ffffffff"], "past the end of the KV cache"),
        (["part"], TYPES),
        (["part lengths"], TYPES),
        (["part lengths int64[1] 0100000000000000"], TYPES),
        (["something else"], TYPES),
        ([""], TYPES),
        ([f"{LENGTHS} 01000000", "part l0_k f32[1,8] 00"], BYTES),
        ([f"{LENGTHS} 01000000", "part l0_k f32[2,8] 00"], TYPES),
        ([f"{LENGTHS} 00000000", "part l0_k f32[0,8] 00"], BYTES),
        ([f"{LENGTHS} 01000000"], TYPES),
        ([], TYPES),
    ],
)
def test_a_state_that_is_refused_changes_nothing(toy: Path, wrong: list[str], said: str) -> None:
    begin = ["load 9 any", "prefill 5 6 7"]
    wanted = talk(toy, *begin, "state")[-1]
    replies = talk(toy, *begin, "set-state", *wrong, "end", "state")
    assert len(replies) == 4
    assert replies[2] == [f"error {said}"]
    assert replies[3] == wanted


def test_a_big_endian_machine_speaks_little_endian(tmp_path: Path) -> None:
    """Swapped on this machine: bytes of each element in the other order, out and in."""
    text, swap = (INCLUDE / "parity_dump.h").read_text(), "*(const unsigned char *)&one ? 0"
    assert text.count(swap) == 1
    (tmp_path / "parity_dump.h").write_text(text.replace(swap, "!one ? 0"))
    (tmp_path / "engine.c").write_text(LOOP.read_text())  # it finds the header beside it first
    program = build(tmp_path / "engine.c", tmp_path / "engine", "-DMORE")
    state = ["part lengths int32[1] 00000005", "part l0_odd int8[3] ff7f00"]
    state += ["part l0_wide f64[2,1] 3fe00000000000004000000000000001"]
    assert last(program, "set-state", *state, "end", "state") == [*state, "ok"]
    assert last(program, "step 1")[1] == "logits " + "80000000" + "00000000" * 3


def test_the_last_part_is_checked_before_the_first_is_taken(toy: Path) -> None:
    """Another state, each but for its end; then with a line too many."""
    *_, state = talk(toy, "load 9 any", "prefill 8 9 10", "state")
    begin = ["load 9 any", "prefill 5 6 7"]
    wanted = talk(toy, *begin, "state")[-1]
    parts = state[:-1]
    for put, said in (
        ([*parts[:-1], parts[-1][:-1]], BYTES),
        ([*parts[:-1], parts[-1] + "0"], BYTES),
        (parts[:-1], TYPES),
        ([*parts, parts[-1]], "more parts than in state"),
    ):
        *_, refused, after = talk(toy, *begin, "set-state", *put, "end", "state")
        assert (refused, after) == ([f"error {said}"], wanted)


# --- any input ------------------------------------------------------------------------------------

WORDS = ("hello", "load", "tap", "step", "prefill", "rows", "mark", "rollback", "state", "part")
REST = st.sampled_from(("2", "9 any", "-", "fnv1a64 k,x,logits", "1 2 3", "511", "512", ",", "end"))
ODD = st.text(st.characters(codec="ascii", exclude_characters="\n\0"), max_size=20)
LINES = st.builds("{} {}".format, st.sampled_from((*WORDS, "counters", "reset")), REST | ODD) | ODD


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(LINES, max_size=12), st.booleans())
def test_any_lines_are_answered_one_by_one(toy: Path, lines: list[str], loaded: bool) -> None:
    given = ["load 9 any", *lines] if loaded else lines
    given = [line for line in given if line.split(" ")[0] not in ("quit", "set-state")]
    assert len(talk(toy, *given)) == len(given)


def test_a_line_of_a_million_tokens_is_read(engine: Build) -> None:
    tokens = " ".join(["1"] * 1_000_000)
    assert last(engine(), f"prefill {tokens}") == ["error past the end of the KV cache"]


def test_input_that_ends_inside_a_line_or_a_state_ends_the_program(toy: Path) -> None:
    state = talk(toy, "load 9 any", "state")[1][:-1]
    put = "\n".join(["load 9 any", "set-state", *state, ""])
    for cut in ("load 9 any\nsta", "load 9 any\nset-state\npart lengths", put, put[:-1], ""):
        done = subprocess.run([toy], input=cut, env=environment(), capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_replies_that_cannot_be_written_end_it_with_an_error(toy: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([toy], input="hello 2\n", env=environment(), stdout=full, text=True)
    assert done.returncode == 1


def test_quit_is_answered_and_ends_it(toy: Path) -> None:
    assert talk(toy, "quit", "hello 2") == [["ok"]]


# --- dump mode ------------------------------------------------------------------------------------


def dumped(program: Path, path: Path, **told: str) -> subprocess.CompletedProcess[str]:
    """The program's end in dump mode: four tokens, two of them the prompt."""
    run = {"DUMP": str(path), "TOKENS": "1,0,1,0", "PREFILL": "2", "N": "2", **told}
    env = environment(**{f"PARITY_{name}": value for name, value in run.items()})
    env["PARITY_MODEL"] = "some model seed 7"
    return subprocess.run([program], env=env, capture_output=True, text=True, check=False)


def test_dump_mode_writes_the_run_that_it_is_told_of(engine: Build, tmp_path: Path) -> None:
    done = dumped(engine(), tmp_path / "d", DUMP_PREFILL="0", FIELDS="x,logits")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    dump = read_dump(tmp_path / "d")
    keys = [entry.key.tag for entry in dump.entries]
    assert keys == [f"t{pos}_{name}" for pos in (2, 3) for name in ("l0_x", "l1_x", "logits")]
    assert dump.entries[2].digest == fnv1a64_array(np.array([2, 0, 5, 3], np.float32))
    assert f"{dump.entries[0].key.tag} {dump.entries[0].value_text()}" == tapped(2, 0, 201)
    told = ("engine", "version", "tokens", "greedy")
    assert [dump.header[name] for name in told] == ["loop", "0.1", "1,0,1,0", "1:1,2:2,3:2"]


def test_the_prompt_is_dumped_where_that_is_asked_for(engine: Build, tmp_path: Path) -> None:
    dumped(engine(), tmp_path / "d", DUMP_PREFILL="1")
    positions = [entry.key.pos for entry in read_dump(tmp_path / "d").entries]
    assert positions == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_logits_that_were_not_asked_for_are_left_out(engine: Build, tmp_path: Path) -> None:
    dumped(engine(), tmp_path / "d", FIELDS="nrm,x")
    assert {entry.key.field for entry in read_dump(tmp_path / "d").entries} == {"x"}


def test_a_value_that_is_not_finite_ends_the_run_after_its_step(
    engine: Build, tmp_path: Path
) -> None:
    dumped(engine("NONFINITE"), tmp_path / "d", TOKENS="1,0,2,0")
    dump = read_dump(tmp_path / "d")
    assert [(e.key.tag, e.nonfinite) for e in dump.entries] == [
        ("t2_l0_x", (1, 0)),
        ("t2_l1_x", (1, 0)),
        ("t2_logits", (1, 2)),
    ]
    assert (dump.header["stopped"], dump.header["greedy"]) == ("t2_l0_x", "1:1,2:2")


def test_the_greedy_choice_is_the_lowest_of_equals(engine: Build, tmp_path: Path) -> None:
    """+0 equals -0, as contract 7 has it."""
    dumped(engine("MORE"), tmp_path / "d")
    assert read_dump(tmp_path / "d").header["greedy"] == "1:0,2:0,3:0"


@pytest.mark.parametrize(
    ("real_ids", "greedy"),
    [("2", "1:1,2:0,3:0"), ("1", "1:0,2:0,3:0"), ("9", "1:1,2:2,3:2"), ("", "1:1,2:2,3:2")],
)
def test_padded_ids_never_win(engine: Build, tmp_path: Path, real_ids: str, greedy: str) -> None:
    """The logits of position 2 are 2, 0, 5, 3; more real ids than logits are all of them."""
    dumped(engine(), tmp_path / "d", REAL_IDS=real_ids)
    assert read_dump(tmp_path / "d").header["greedy"] == greedy


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"TOKENS": "1,0,1"}, "PARITY_TOKENS: too few"),
        ({"TOKENS": "1,0,1,9"}, "a token outside the vocabulary"),
        ({"TOKENS": "1,0,1,3"}, "token 3"),
        ({"N": "200", "TOKENS": ",".join("1" * 202)}, "too large"),
    ],
)
def test_a_run_that_is_refused_leaves_no_dump(
    engine: Build, tmp_path: Path, told: dict[str, str], said: str
) -> None:
    done = dumped(engine(), tmp_path / "d", **told)
    assert done.returncode == 1
    assert done.stderr.startswith(f"parity: {tmp_path / 'd'}: {said}")
    assert list(tmp_path.iterdir()) == []
