"""parity.diff and parity.isodiff: one path with the command line, as values."""

from __future__ import annotations

import doctest
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import parity
from parity import api
from parity.divergence import SUFFIXES, DivergedError, Divergence
from parity.dumps import recording
from parity.errors import InputError, NotRunError
from parity.model.model import synthetic
from parity.protocol import EngineSettings
from parity.registry import engine_class
from parity.status import ExitStatus, Level, Verdict
from parity.tree import Tree
from tests.cli.engines_for_tests import Moved
from tests.cli.running import SHORT, faulty, written_dump
from tests.cli_runner import run_cli

ASKED: dict[str, Any] = {"tokens": [1, 2, 3], "n": 3}  # what SHORT asks of the command line
STEP_KEYS = 4 * 11 + 2


def from_command(tmp_path: Path, command: str, *words: str) -> tuple[int, Tree]:
    path = tmp_path / "command.json"
    result = run_cli(command, *words, "--json", str(path))
    return result.status, Tree.from_json(path.read_text())


def without_times(tree: Tree) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(tree.to_json())
    for part in filter(None, (body, body["decode"])):
        part.update(seconds=0.0, reproduce="")
    return body


CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "green": ({"dut": "cpu"}, ("--dut", "cpu")),
    "red": ({"dut": "cpu:fast"}, ("--dut", "cpu:fast")),
    "planted": (
        {"dut": faulty("Moved", key="t4_l1_attn")},
        ("--dut", faulty("Moved", key="t4_l1_attn")),
    ),
    "fields and hash": (
        {"dut": "cpu", "fields": ["ffn"], "hash": "kestrel-fnv"},
        ("--dut", "cpu", "--fields", "+ffn", "--hash", "kestrel-fnv"),
    ),
    "prompt too": ({"dut": "cpu", "dump_prefill": True}, ("--dut", "cpu", "--dump-prefill")),
    "the ref's state": (
        {"dut": "cpu:fast", "prefill": "ref"},
        ("--dut", "cpu:fast", "--prefill", "ref"),
    ),
    "own tokens": (
        {"dut": "cpu:fast", "tokens_from": "own"},
        ("--dut", "cpu:fast", "--tokens-from", "own"),
    ),
    "bisected": ({"dut": "cpu:fast", "bisect": True}, ("--dut", "cpu:fast", "--bisect")),
    "greedy": ({"dut": "cpu:fast", "level": "greedy"}, ("--dut", "cpu:fast", "--level", "greedy")),
    "other model": (
        {"dut": "cpu", "model": "dense-tiny", "seed": 3, "weights": "f32"},
        ("--dut", "cpu", "--model", "dense-tiny", "--seed", "3", "--weights", "f32"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_diff_gives_the_tree_of_the_command(tmp_path: Path, case: str) -> None:
    options, words = CASES[case]
    status, tree = from_command(tmp_path, "diff", *SHORT, *words)
    found = parity.diff(**ASKED, **options)
    assert without_times(found.tree) == without_times(tree)
    assert int(found.exit_status) == status
    again, rerun = from_command(tmp_path, *found.tree.reproduce.split()[1:])
    assert (again, without_times(rerun)) == (status, without_times(tree))


def test_a_green_result_answers() -> None:
    found = parity.diff("cpu", "cpu", **ASKED)
    assert (found.verdict, found.same, found.diverged) == (Verdict.SAME, True, False)
    assert (found.first, found.level, found.exit_status) == (None, Level.BIT, ExitStatus.SAME)
    assert (found.counts.same, found.counts.total) == (3 * STEP_KEYS, 3 * STEP_KEYS)
    assert found.elements is None
    assert found.tree.control is not None
    assert found.tree.control.fired
    found.raise_for_status()
    assert repr(found) == "<Divergence same, 138 of 138 keys same, level bit>"
    assert str(found).startswith("SAME  138 of 138 keys equal, bit for bit\n")


def test_a_red_result_answers() -> None:
    found = parity.diff("cpu", faulty("Moved", key="t4_l1_attn"), **ASKED)
    assert (found.verdict, found.same, found.diverged) == (Verdict.DIVERGED, False, True)
    assert (found.first, found.exit_status) == ("t4_l1_attn", ExitStatus.DIVERGED)
    assert found.elements is not None
    assert (found.elements.differ, found.elements.max_ulp) == (1, 1)
    assert repr(found).startswith("<Divergence diverged, first at t4_l1_attn, ")
    assert "\n" not in repr(found)
    with pytest.raises(DivergedError) as caught:
        found.raise_for_status()
    assert isinstance(caught.value, AssertionError)
    assert caught.value.result is found
    assert str(caught.value).startswith("DIVERGED  first at t4_l1_attn")


def test_a_result_is_neither_true_nor_false() -> None:
    for found in (parity.diff("cpu", "cpu", **ASKED), parity.isodiff("cpu", 2, pos=33)):
        with pytest.raises(TypeError, match=r"neither true nor false: ask \.same or \.diverged"):
            bool(found)
        with pytest.raises(TypeError):
            assert found


def test_the_level_asked_for_decides_the_status_alone() -> None:
    found = parity.diff("cpu", "cpu:fast", **ASKED, level="greedy")
    assert (found.verdict, found.level) == (Verdict.DIVERGED, Level.GREEDY)
    assert (found.same, found.exit_status) == (False, ExitStatus.SAME)
    found.raise_for_status()


# --- sides


def test_sides_may_be_classes_engines_and_paths(tmp_path: Path) -> None:
    cpu = engine_class("cpu")
    dump = written_dump(tmp_path)
    for side in (cpu, cpu(EngineSettings()), dump, str(dump), "cpu"):  # type: ignore[call-arg]
        for found in (parity.diff("cpu", side, **ASKED), parity.diff(side, "cpu", **ASKED)):
            assert (found.verdict, found.counts.same) == ("same", 3 * STEP_KEYS)


class Deaf:
    """An engine whose first tier this module chose; it moves one element."""

    def __new__(cls, settings: EngineSettings) -> Any:
        return Moved(EngineSettings(options={"key": "t4_l1_attn"}))

    name: ClassVar[str] = "deaf"
    version: ClassVar[str] = "1"
    tiers: ClassVar[tuple[str, ...]] = ("exact",)
    variants: ClassVar[tuple[str, ...]] = ()
    capabilities: ClassVar[frozenset[str]] = frozenset()
    describe = load = weights = reset = prefill = step = None


def test_a_class_of_the_callers_own_is_opened_and_named() -> None:
    found = parity.diff("cpu", Deaf, **ASKED)
    assert (found.verdict, found.first) == ("diverged", "t4_l1_attn")
    assert found.tree.dut["spec"] == f"{__name__}:Deaf"


def test_an_open_engine_is_run_with_its_own_settings() -> None:
    engine = Moved(EngineSettings(options={"key": "t4_l1_attn"}))
    found = parity.diff("cpu", engine, **ASKED)
    assert (found.verdict, found.first) == ("diverged", "t4_l1_attn")


def test_a_run_with_an_open_engine_has_no_command_to_repeat_it() -> None:
    cpu = engine_class("cpu")
    assert parity.diff("cpu", cpu(EngineSettings()), **ASKED).tree.reproduce == ""  # type: ignore[call-arg]
    named = parity.diff("cpu", cpu, **ASKED).tree.reproduce
    assert named.startswith(f"parity diff --ref cpu --dut {cpu.__module__}:{cpu.__name__} --")


def test_one_open_engine_cannot_be_both_sides() -> None:
    engine = engine_class("cpu")(EngineSettings())  # type: ignore[call-arg]
    with pytest.raises(InputError, match="one engine, with one state"):
        parity.diff(engine, engine, **ASKED)


def test_the_default_dut_is_that_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.runs.side_diff.default_dut", lambda: "emu")
    found = parity.diff("emu", **ASKED)
    assert found.tree.dut["spec"] == "emu"
    assert found.notes[-1] == "no CUDA device works here: the dut is emu (--dut cuda says why)"


def test_a_model_at_hand_is_run() -> None:
    model = synthetic("moe-tiny", 11)
    found = parity.diff("cpu", "cpu", model=model, **ASKED)
    assert found.tree.run["model"] == model.label
    assert found.tree.reproduce == ""


# --- refused


REFUSED: dict[str, tuple[tuple[Any, Any], dict[str, Any], str]] = {
    "unknown side": (("cpu", "cqu"), {}, "'cqu' is no engine, no dump file and no program"),
    "no side": (("cpu", 3), {}, "dut builtins:int lacks name of the Engine Protocol"),
    "a list": ((["cpu"], "cpu"), {}, "ref builtins:list lacks name"),
    "no tokens": (("cpu", "cpu"), {"n": 0}, "n 0: nothing to decode"),
    "bad token": (("cpu", "cpu"), {"tokens": [-1]}, "token -1"),
    "half a token": (("cpu", "cpu"), {"tokens": [1.5, 2]}, "token 1.5: not an integer from 0"),
    "tokens as text": (("cpu", "cpu"), {"tokens": "1,2"}, "tokens='1,2': not token ids"),
    "no prompt": (("cpu", "cpu"), {"tokens": []}, "tokens is empty"),
    "one token": (("cpu", "cpu"), {"tokens": 5}, "tokens=5: not token ids"),
    "rows of tokens": (("cpu", "cpu"), {"tokens": np.ones((1, 3), int)}, "token array([1, 1, 1])"),
    "n as text": (("cpu", "cpu"), {"n": "3"}, "n '3': not an integer from 0"),
    "seed as text": (("cpu", "cpu"), {"seed": "7"}, "seed '7': not an integer from 0"),
    "fields as text": (("cpu", "cpu"), {"fields": "ffn"}, "fields='ffn': a text, not names"),
    "bad model": (("cpu", "cpu"), {"model": "moe-tony"}, "moe-tony"),
    "bad level": (("cpu", "cpu"), {"level": "bits"}, "level 'bits': no such level"),
    "bad hash": (("cpu", "cpu"), {"hash": "md5"}, "hash 'md5': no such hash"),
    "bad prefill": (("cpu", "cpu"), {"prefill": "dut"}, "prefill 'dut'"),
    "bad weights": (("cpu", "cpu"), {"weights": "q5"}, "weights 'q5'"),
    "bad tokens_from": (("cpu", "cpu"), {"tokens_from": "dut"}, "tokens_from 'dut'"),
    "bad field": (("cpu", "cpu"), {"fields": ["ffm"]}, "ffm"),
    "prompt and state": (
        ("cpu", "cpu"),
        {"prefill": "ref", "dump_prefill": True},
        "dump_prefill with prefill ref",
    ),
    "alias of an engine": (("cpu", "cpu"), {"alias": "a"}, "alias needs a dut that is a file"),
    "gone": (("cpu", Path("gone.dump")), {}, "gone.dump"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_run_is_refused_in_the_callers_words(case: str) -> None:
    sides, options, said = REFUSED[case]
    with pytest.raises(InputError) as caught:
        parity.diff(*sides, **{**ASKED, **options})
    assert said in caught.value.message
    assert str(caught.value) == caught.value.message
    assert "--" not in caught.value.message + caught.value.next_step
    assert caught.value.exit_status == 2


def test_token_ids_may_lie_in_an_array() -> None:
    plain = parity.diff("cpu", "cpu", tokens=[1, 2, 3], n=1)
    array = parity.diff("cpu", "cpu", tokens=np.array([1, 2, 3]), n=np.int64(1))  # type: ignore[arg-type]
    assert without_times(array.tree) == without_times(plain.tree)
    assert "--tokens 1,2,3" in array.tree.reproduce


def test_an_absent_device_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise NotRunError(f"{name}: no device", "use --dut emu")

    monkeypatch.setattr("parity.runs.sides.engine_class", absent)
    with pytest.raises(NotRunError) as caught:
        parity.diff("cpu", "cuda", **ASKED)
    assert (caught.value.exit_status, caught.value.next_step) == (3, "use dut emu")


def test_nothing_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    parity.diff("cpu", "cpu:fast", **ASKED, repro=tmp_path / "repro")
    parity.isodiff("cpu", 2, pos=33)
    assert capsys.readouterr() == ("", "")
    assert (tmp_path / "repro" / "repro.json").is_file()


# --- frames, reports


def test_the_frame_of_keys() -> None:
    found = parity.diff("cpu", faulty("Moved", key="t4_l1_attn"), **ASKED)
    frame = found.to_frame()
    assert list(frame.columns) == [
        *("segment", "key", "pos", "layer", "field", "state", "cause", "source"),
        *("ref_hash", "dut_hash", "ref_dtype", "dut_dtype", "ref_shape", "dut_shape"),
        *("ref_nonfinite", "dut_nonfinite"),
    ]
    assert (str(frame.pos.dtype), str(frame.layer.dtype)) == ("Int64", "Int64")
    assert len(frame) == found.counts.total
    counted = frame.state.value_counts().to_dict()
    assert counted == {"same": found.counts.same, "differs": found.counts.differ}
    first = frame[frame.state == "differs"].iloc[0]
    assert (first.key, first.pos, first.layer, first.field) == ("t4_l1_attn", 4, 1, "attn")
    assert (first.ref_dtype, first.cause) == ("f32", "born here")
    assert first.ref_hash != first.dut_hash
    outside = frame[frame.field == "logits"]
    assert list(outside.pos) == [3, 4, 5]
    assert outside.layer.isna().all()


def test_the_frame_of_elements() -> None:
    found = parity.diff("cpu", faulty("Moved", key="t4_l1_attn"), **ASKED)
    frame = found.elements_frame()
    assert found.elements is not None
    (row,) = found.elements.rows
    assert frame.to_dict("records") == [
        {
            **{"key": "t4_l1_attn", "index": row.index, "ref_hex": row.ref_hex},
            **{"dut_hex": row.dut_hex, "ref_value": row.ref_value, "dut_value": row.dut_value},
            **{"ulp": 1, "kind": "value"},
        }
    ]
    empty = parity.diff("cpu", "cpu", **ASKED).elements_frame()
    assert (len(empty), list(empty.columns)) == (0, list(frame.columns))


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.html", "a.xml", "a.txt"])
def test_reports_are_saved_by_suffix(tmp_path: Path, name: str) -> None:
    found = parity.diff("cpu", "cpu:fast", **ASKED)
    path = tmp_path / name
    found.save(path)
    text = path.read_text()
    assert "t3_l0_" in text
    format_name = SUFFIXES[path.suffix]
    report = tmp_path / "from-command"
    saved = tmp_path / "run.json"
    found.save(saved)
    run_cli("report", str(saved), "--format", format_name, "-o", str(report))
    if name not in ("a.html", "a.txt"):  # these say where the JSON lies
        assert report.read_text() == text


def test_a_report_needs_a_format(tmp_path: Path) -> None:
    found = parity.diff("cpu", "cpu", **ASKED)
    with pytest.raises(InputError, match="its suffix names no format"):
        found.save(tmp_path / "a.pdf")
    with pytest.raises(InputError, match="no report 'jsn'"):
        found.save(tmp_path / "a.json", "jsn")
    assert list(tmp_path.iterdir()) == []


def test_json_is_read_back(tmp_path: Path) -> None:
    found = parity.diff("cpu", "cpu:fast", **ASKED)
    again = Divergence.from_json(found.to_json())
    assert again.tree == found.tree
    with pytest.raises(InputError, match="not JSON"):
        Divergence.from_json("x")


def test_a_notebook_shows_the_report() -> None:
    found = parity.compare({"<b>": _one()}, {"<b>": 2 * _one()})
    shown = found._repr_html_()
    assert shown.startswith("<pre>DIVERGED  first at &lt;b&gt;")
    assert "<b>" not in shown


def _one() -> Any:
    import numpy as np

    return np.ones(2, np.float32)


# --- isodiff


def test_isodiff_finds_what_the_command_finds(tmp_path: Path) -> None:
    found = parity.isodiff("cpu", (2, 3), rb=True, pos=(33, 34))
    assert (found.verdict, found.same, int(found.exit_status)) == ("same", True, 0)
    assert [one.name for one in found.found] == ["isodiff", "rollback"]
    path = tmp_path / "a.json"
    words = ("isodiff", "--engine", "cpu", "--m", "2,3", "--rb", "--pos", "33:34")
    assert run_cli(*words, "--json", str(path)).status == 0
    command = json.loads(path.read_text())
    mine = json.loads(found.to_json())
    assert [one["lines"] for one in mine] == [one["lines"] for one in command]
    assert [one["compared"] for one in mine] == [one["compared"] for one in command]
    assert found.compared == sum(one["compared"] for one in command) > 0
    assert found.lines[0].startswith("[SPECTOP1] pos=33 col=0 top1=")
    found.raise_for_status()
    assert repr(found).startswith("<ProbeResult isodiff and rollback same, ")


def test_isodiff_takes_numbers_from_an_array() -> None:
    found = parity.isodiff("cpu", m=np.array([2]), pos=np.int64(33))  # type: ignore[arg-type]
    assert (found.verdict, found.compared) == ("same", 92)


def test_isodiff_without_the_capability_is_not_run() -> None:
    found = parity.isodiff(Deaf, 2)
    assert (found.verdict, int(found.exit_status), found.compared) == ("not_run", 3, 0)
    with pytest.raises(NotRunError, match="lacks the capabilit"):
        found.raise_for_status()


ISODIFF: dict[str, tuple[dict[str, Any], str]] = {
    "no m": ({"m": ()}, "m is empty"),
    "m of 0": ({"m": 0}, "m=0: not numbers from 1"),
    "m and a half": ({"m": 2.5}, "m=2.5: not numbers from 1"),
    "m as a text": ({"m": "2..8"}, "m='2..8': not numbers"),
    "no position": ({"pos": []}, "pos is empty"),
    "no seed": ({"seeds": 0}, "seeds 0: nothing to run"),
    "no room": ({"m": 4, "pos": 10**6}, "past the KV cache"),
    "chunks with rb": ({"chunks": 2, "rb": True}, "chunks is a check of its own"),
    "a dump": ({"engine": "a.dump"}, "a.dump: not an engine"),
    "bad kind": ({"synthetic": "gdm"}, "synthetic 'gdm'"),
}


@pytest.mark.parametrize("case", ISODIFF)
def test_isodiff_refuses_in_the_callers_words(case: str) -> None:
    options, said = ISODIFF[case]
    with pytest.raises(InputError) as caught:
        parity.isodiff(**{"engine": "cpu", **options})
    assert said in caught.value.message
    assert "--" not in caught.value.message + caught.value.next_step


def test_chunks_are_a_check_of_their_own() -> None:
    found = parity.isodiff("cpu", chunks=(2, 7), pos=33)
    assert [one.name for one in found.found] == ["chunks"]
    assert found.same


# --- the docstrings, and what `import parity` gives


@pytest.mark.parametrize("module", [api, recording], ids=["api", "recording"])
def test_the_examples_of_the_docstrings_hold(module: Any) -> None:
    failed, tried = doctest.testmod(module)
    assert (failed, tried > 3) == (0, True)


def test_the_public_names_are_there() -> None:
    assert {*parity.__all__} <= {*dir(parity)}
    assert all(getattr(parity, name) is getattr(api, name) for name in parity.__all__)
    assert set(parity.__all__) == set(api.__all__)
    with pytest.raises(AttributeError, match="module 'parity' has no attribute 'diffs'"):
        _ = parity.diffs
