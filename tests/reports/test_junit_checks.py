"""JUnit of probes and promises; and every JUnit report holds to the common schema."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace

import pytest

from parity.presenting import Options
from parity.runs.checks import Check, CheckRun, of_probes
from parity.status import Verdict
from parity.tree import Tree
from parity_reports import junit_checks, junit_report
from parity_reports.junit_checks import JunitChecks, render
from tests.reports import trees
from tests.reports.check_runs import KEY, RED, RUNS
from tests.reports.junit_schema import faults
from tests.reports.test_console_hostile import HOSTILE
from tests.reports.test_junit import outcomes, problems


def cases(run: CheckRun) -> dict[str, ET.Element]:
    return {case.get("name", ""): case for case in ET.fromstring(render(run)).iter("testcase")}


def outcome(run: CheckRun, name: str) -> str:
    return (outcomes(cases(run)[name]) or ["passed"])[0]


@pytest.mark.parametrize("build", trees.ALL.values(), ids=list(trees.ALL))
def test_every_tree_holds_to_the_schema(build: Callable[[], Tree]) -> None:
    assert faults(junit_report.render(build())) == []


@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
def test_every_run_holds_to_the_schema_and_adds_up(run: CheckRun) -> None:
    assert faults(render(run)) == problems(render(run)) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('tests="3"', 'tests="three"', "/testsuites: attribute tests='three'"),
        ('time="1.500"', "", "/testsuites: missing required attribute 'time'"),
        ("<properties>", "<properties><note />", "/testsuites/testsuite/properties: Unexpected"),
        ('name="isodiff"', 'name="isodiff" id="1"', "testcase[2]: 'id' attribute not allowed"),
        ("<failure ", "<system-out>x</system-out><failure ", "Unexpected child with tag 'failure'"),
        ("</failure>", "</failure><failure type='a' message='b' />", "testcase[1]: Unexpected"),
        ("</properties>", "</properties><properties />", "testsuite: Unexpected child"),
        ("<properties>", "text<properties>", "testsuite: character data between child elements"),
        ("</properties>", "</properties><failure type='a' message='b' />", "testsuite: Unexpected"),
        ('classname="parity.run"', 'classname=""', "testcase[1]: attribute classname=''"),
        ("</testsuite>", "</testsuite><testsuite />", "/testsuites: Unexpected child"),
    ],
)
def test_red_a_breach_of_the_schema_is_named(old: str, new: str, fault: str) -> None:
    xml = render(RUNS["red and green"])
    assert old in xml
    found = faults(xml.replace(old, new, 1))
    assert any(fault in line for line in found), found


def test_red_another_document_is_named() -> None:
    found = faults("<suites><testsuite /></suites>")
    assert any("'suites' is not an element of the schema" in line for line in found), found


def test_red_the_failure_names_the_key_and_the_rerun() -> None:
    run = RUNS["red and green"]
    assert {name: outcome(run, name) for name in cases(run)} == {
        "verdict": "failure",
        "isodiff": "failure",
        "rollback": "passed",
    }
    failure = cases(run)["isodiff"].find("failure")
    assert failure is not None
    assert failure.get("message") == f"M = 3, pos 33; the keys are equal; first key {KEY}"
    assert failure.text == "\n".join(
        ["parity isodiff --m 3", "[SPECTOP1] pos=33", "cause  attention, row 2 of 3"]
    )
    assert f'<property name="first" value="{KEY}" />' in render(run)
    assert cases(run)["verdict"].find("failure").get("message") == failure.get("message")  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["not run and green", "no device"])
def test_not_run_is_skipped_never_passed(name: str) -> None:
    run = RUNS[name]
    assert {outcome(run, case) for case in cases(run)} == {"skipped"}
    assert ET.fromstring(render(run)).get("failures") == "0"


def test_red_a_not_run_that_passes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit_checks, "SKIPPED", junit_checks.PASSED)
    monkeypatch.setattr(junit_checks, "_OUTCOMES", {})
    run = RUNS["not run and green"]
    assert {outcome(run, case) for case in cases(run)} != {"skipped"}


def test_what_is_not_offered_is_skipped_in_a_green_run() -> None:
    checks = (
        Check("shapes", Verdict.SAME, "kept"),
        Check("rows_equal_steps", Verdict.NOT_RUN, "the capability 'rows' is not offered"),
    )
    run = CheckRun("conformance", Verdict.SAME, "1 of 2 promises kept", checks, "parity x")
    assert {name: outcome(run, name) for name in cases(run)} == {
        "verdict": "passed",
        "shapes": "passed",
        "rows_equal_steps": "skipped",
    }


@pytest.mark.parametrize("word", [*HOSTILE, "]]>", "\x00\n<!--"])
def test_hostile_words_are_data(word: str) -> None:
    found = replace(RED, headline=word, first=word, facts=[(word, word)], lines=[word])
    xml = render(of_probes([found], [word], word, 0.0))
    assert xml.isascii()
    assert faults(xml) == problems(xml) == []


def test_stream_gets_the_report() -> None:
    stream = io.StringIO()
    JunitChecks().write(RUNS["green"], stream, Options())
    assert stream.getvalue() == render(RUNS["green"])
