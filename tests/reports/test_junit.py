"""The JUnit report: counts add up, and its colour is that of the exit status."""

import io
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace

import pytest

from parity.comparison.compare import exit_status
from parity.errors import ParityBug
from parity.presenting import Options, printable
from parity.status import ExitStatus, Level, Verdict
from parity.tree import KeyRow, KeyState, StateDiff, StatePart, Tree
from parity_reports import junit_report
from parity_reports.junit_report import JunitReport, render
from tests.reports import trees
from tests.reports.test_console_hostile import HOSTILE, hostile_tree

each_tree = pytest.mark.parametrize("build", trees.ALL.values(), ids=list(trees.ALL))


def suite_of(xml: str) -> ET.Element:
    suite = ET.fromstring(xml).find("testsuite")
    assert suite is not None
    return suite


def problems(xml: str) -> list[str]:
    """Counts that do not add up, and cases that say two things at once."""
    root = ET.fromstring(xml)
    suites = root.findall("testsuite")
    cases = root.findall(".//testcase")
    counted = {
        "tests": len(cases),
        "failures": len(root.findall(".//testcase/failure")),
        "errors": len(root.findall(".//testcase/error")),
        "skipped": len(root.findall(".//testcase/skipped")),
    }
    found = [] if len(suites) == 1 else [f"{len(suites)} suites"]
    for element in (root, *suites):
        for name, number in counted.items():
            if element is root and name == "skipped":
                continue  # no attribute of testsuites
            if element.get(name) != str(number):
                found.append(f"{element.tag} {name}: {element.get(name)}, counted {number}")
    names = [(case.get("classname"), case.get("name")) for case in cases]
    found += [f"{name} twice" for name in sorted(set(names)) if names.count(name) > 1]
    found += [f"{case.get('name')}: two outcomes" for case in cases if len(outcomes(case)) > 1]
    return found


def outcomes(case: ET.Element) -> list[str]:
    return [child.tag for child in case if child.tag in ("failure", "error", "skipped")]


def compared(case: ET.Element) -> int:
    """How many keys or rows stand behind a case."""
    last = (case.findtext("system-out") or "").split("\n")[-1]
    return int(last.removeprefix("compared: "))


def outcome(tree: Tree, name: str) -> str:
    """passed, failure or skipped of one case."""
    case = next(case for case in suite_of(render(tree)) if case.get("name") == name)
    return (outcomes(case) or ["passed"])[0]


def properties(tree: Tree) -> dict[str, str]:
    found = suite_of(render(tree)).iterfind("properties/property")
    return {item.get("name", ""): item.get("value", "") for item in found}


@each_tree
def test_counts_add_up(build: Callable[[], Tree]) -> None:
    assert problems(render(build())) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('failures="4"', 'failures="0"', "testsuites failures: 0, counted 4"),
        ('tests="8"', 'tests="9"', "testsuites tests: 9, counted 8"),
        ('name="t33_l8"', 'name="t33_l7"', "('parity.t33', 't33_l7') twice"),
        ("</failure>", "</failure><skipped />", "verdict: two outcomes"),
        ("</testsuite>", "</testsuite><testsuite />", "2 suites"),
    ],
)
def test_red_a_tampered_report_is_named(old: str, new: str, problem: str) -> None:
    xml = render(trees.red())
    assert old in xml
    assert problem in problems(xml.replace(old, new, 1))


@each_tree
@pytest.mark.parametrize("asked", list(Level))
def test_red_means_exit_1(build: Callable[[], Tree], asked: Level) -> None:
    tree = build()
    if tree.verdict is not Verdict.SAME or asked is tree.level:
        tree = replace(tree, level_asked=asked)
    failures = int(suite_of(render(tree)).get("failures", ""))
    assert bool(failures) == (exit_status(tree) is ExitStatus.DIVERGED)


def test_one_case_a_place_with_the_first_key_and_its_hashes() -> None:
    cases = {case.get("name"): case for case in suite_of(render(trees.red())).iter("testcase")}
    assert [name for name in cases if name not in (None, "control")] == [
        *("verdict", "start state", "end state", "t33_l6", "t33_l7", "t33_l8", "t33"),
    ]
    failure = cases["t33_l7"].find("failure")
    assert failure is not None
    first = "t33_l7_attn differs: ref 5c55827df1d1b1a4 f32[4,32] dut 6508ff172cc663ac f32[4,32]"
    assert failure.get("message") == first
    assert failure.text is not None
    assert failure.text.splitlines()[0] == first
    assert [line.split()[0] for line in failure.text.splitlines()] == [
        *("t33_l7_attn", "t33_l7_ores", "t33_l7_x"),
    ]
    assert outcome(trees.red(), "t33_l6") == "passed"


def test_cases_cover_every_listed_key() -> None:
    for build in trees.ALL.values():
        groups = [case for case in suite_of(render(build())).iter("testcase")]
        places = [case for case in groups if case.get("classname") != "parity.run"]
        assert sum(map(compared, places)) == len(build().keys)


def test_tensor_files_have_one_case_a_key() -> None:
    tree = trees.tensor_files()
    states = {row.key: outcome(tree, row.key) for row in tree.keys}
    assert states == {
        "model.embed": "passed",
        "blk.0/attn": "failure",
        "blk.0/ffn": "failure",
        "blk.0/mlp": "failure",
    }


def test_segments_are_groups() -> None:
    groups = {case.get("classname") for case in suite_of(render(trees.stopped())).iter("testcase")}
    assert groups == {"parity.run", "parity.m=4.t33"}


def not_run_with_keys() -> Tree:
    """All keys the same, but the control was not found: nothing is proved."""
    control = replace(trees.CONTROL, fired=False, found=None)
    reason = "the control did not fire: a fault planted at t34_l19_qrope was found at nothing\nnext"
    return replace(
        trees.green(), verdict=Verdict.NOT_RUN, level=Level.NONE, control=control, reason=reason
    )


@pytest.mark.parametrize("build", [trees.not_run, not_run_with_keys])
def test_not_run_is_skipped_with_the_reason_and_never_green(build: Callable[[], Tree]) -> None:
    suite = suite_of(render(build()))
    cases = list(suite.iter("testcase"))
    assert cases
    assert all(outcomes(case) == ["skipped"] for case in cases)
    assert suite.get("tests") == suite.get("skipped") == str(len(cases))
    reason = build().reason.splitlines()[0]
    assert properties(build())["not_run"] == reason
    assert {item.get("message") for item in suite.iter("skipped")} == {reason}


def test_red_a_not_run_that_passes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit_report, "SKIPPED", junit_report.PASSED)
    cases = list(suite_of(render(not_run_with_keys())).iter("testcase"))
    assert not all(outcomes(case) == ["skipped"] for case in cases)


def test_not_comparable_is_skipped() -> None:
    rows = trees.key_rows(
        {trees.FIRST: KeyState.DIFFERS, "t33_logits": KeyState.NOT_COMPARABLE}, layers=(7,)
    )
    tree = replace(trees.red(), keys=rows, counts=trees.count(rows))
    assert (outcome(tree, "t33_l7"), outcome(tree, "t33")) == ("failure", "skipped")


def test_a_difference_only_in_the_end_state_fails() -> None:
    part = StatePart("l0_k", 64, 1, 40)
    end = StateDiff("end", [part], "l0_k row 40 (position 40)")
    tree = replace(
        trees.green(),
        verdict=Verdict.DIVERGED,
        level=Level.LOGITS,
        reason="end state differs, first at l0_k row 40 (position 40)",
        states=[trees.equal_state("start"), end],
        control=None,
    )
    assert outcome(tree, "verdict") == "failure"
    assert outcome(tree, "end state") == "failure"
    assert outcome(tree, "start state") == "passed"
    assert "1 of 64 rows differ, first at l0_k row 40 (position 40)" in render(tree)


def test_a_level_that_holds_passes_and_still_names_the_keys() -> None:
    tree = replace(trees.red(), level=Level.LOGITS, level_asked=Level.LOGITS)
    assert outcome(tree, "t33_l7") == outcome(tree, "verdict") == "passed"
    assert "t33_l7_attn differs: ref 5c55827df1d1b1a4" in render(tree)
    missing = [*tree.keys, KeyRow("t34_logits", KeyState.MISSING, "0" * 16, None)]
    fewer = replace(tree, keys=missing, counts=trees.count(missing))
    assert outcome(fewer, "verdict") == outcome(fewer, "t34") == "failure"


def test_the_decoding_after_a_contaminated_start_is_a_case() -> None:
    tree = trees.contaminated()
    assert outcome(tree, "start state") == "failure"
    assert outcome(tree, "decode") == "passed"
    assert outcome(replace(tree, decode=trees.red()), "decode") == "failure"
    assert outcome(replace(tree, decode=trees.not_run()), "decode") == "skipped"


def test_properties_hold_every_header_and_the_command() -> None:
    found = properties(trees.red())
    assert found["reproduce"] == trees.COMMAND
    assert found["keys"] == "30 of 35 equal"
    assert all(found[f"ref.{name}"] == text for name, text in trees.REF.items())
    assert found["run.model"] == "moe-48"
    assert properties(trees.two_column())["note.1"].startswith("dtype and shape not recorded")


@pytest.mark.parametrize("word", [*HOSTILE, "a\x00\x1b\nb", "\u4e2d\udc80\ufffe", "]]>", "<!--"])
def test_hostile_words_are_data(word: str) -> None:
    xml = render(hostile_tree(word))
    assert xml.isascii()
    assert problems(xml) == []
    shown = printable(word)
    cases = list(suite_of(xml).iter("testcase"))
    assert cases[-1].get("name") == shown
    assert properties(hostile_tree(word))["ref.spec"] == shown
    failure = cases[-1].find("failure")
    assert failure is not None
    assert failure.get("message", "").startswith(
        f"{shown} differs: ref {trees.hash_text(1)} f32[4]"
    )


def test_a_tree_that_contradicts_itself_is_not_shown() -> None:
    with pytest.raises(ParityBug, match="contradicts itself"):
        render(replace(trees.red(), verdict=Verdict.SAME, level=Level.BIT))


def test_stream_gets_the_report() -> None:
    stream = io.StringIO()
    JunitReport().write(trees.red(), stream, Options())
    assert stream.getvalue() == render(trees.red())
