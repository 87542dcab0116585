"""The panels of results that are no tree: there when the JSON has their data, and only then."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parity.cli.saved_checks import saved_checks
from parity.presenting import Options, printable
from parity.runs.checks import Check, CheckRun, not_run
from parity.status import Verdict
from parity_reports import html_checks
from parity_reports.console_checks import ConsoleChecks
from parity_reports.html_checks import HtmlChecks, render
from tests.cli_runner import run_cli
from tests.reports import check_records as made
from tests.reports import html_page
from tests.reports.check_records import Record, run_of, written
from tests.reports.test_console_hostile import HOSTILE

each_kind = pytest.mark.parametrize("records", made.ALL.values(), ids=list(made.ALL))
PANELS = {
    "isodiff": ["rows", "controls", "cost", "lines", "provenance"],
    "isodiff and rollback": [
        *("claims", "rows", "rollback", "controls", "cost", "lines", "provenance"),
    ],
    "rollback": ["rollback", "controls", "provenance"],
    "chunks": ["chunks", "controls", "provenance"],
    "batch": ["batches", "provenance"],
    "ladder": ["ladder", "provenance"],
    "gate": ["claims", "equality", "timing", "decision", "provenance"],
    "refused gate": ["claims", "equality", "decision", "provenance"],
    "conformance": ["promises"],
    "selftest": ["faults", "planted"],
}


def page(folder: Path, records: list[Record]) -> str:
    return render(run_of(folder, records), "saved.json")


def sections(html: str) -> list[str]:
    return [e.attributes["id"] for e in html_page.read(html).all("section")]


def console_of(run: CheckRun) -> str:
    stream = io.StringIO()
    ConsoleChecks().write(run, stream, Options(width=80))
    return stream.getvalue()


def text_of(html: str) -> str:
    return " ".join(html_page.read(html).text.split())


# There when the data are, and only then


@each_kind
def test_every_panel_of_a_file_is_there_and_named(
    records: list[Record], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    html = page(tmp_path, records)
    wanted = PANELS[request.node.callspec.id]
    assert sections(html) == wanted
    links = [e.attributes["href"] for e in html_page.read(html).all("a")]
    assert links == ["#verdict", *(f"#{name}" for name in wanted)]


def without(*path: str | int, by: Any) -> Callable[[list[Record]], None]:
    """Put ``by`` in the place of one part of the first record."""

    def taken(records: list[Record]) -> None:
        place: Any = records[0]
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = by

    return taken


GONE = {
    "rows": ("isodiff", without("blocks", by=[])),
    "controls": ("isodiff", without("controls", by=[])),
    "cost": ("isodiff", without("costs", by=[])),
    "lines": ("isodiff", without("lines", by=[])),
    "provenance": ("isodiff", without("about", by={})),
    "rollback": ("rollback", without("grid", by=None)),
    "chunks": ("chunks", without("fed", by=[])),
    "batches": ("batch", without("batches", by=[])),
    "ladder": ("ladder", None),
    "equality": ("gate", without("equality", by=[])),
    "timing": ("gate", without("statistics", "all", by=None)),
    "promises": ("conformance", without("promises", by=[])),
    "faults": ("selftest", without("trials", by=[])),
    "planted": ("selftest", without("trials", by=[])),
}


@pytest.mark.parametrize("panel", [name for name, (_, change) in GONE.items() if change])
def test_a_panel_without_data_is_absent(panel: str, tmp_path: Path) -> None:
    kind, change = GONE[panel]
    records = copy.deepcopy(made.ALL[kind])
    assert change is not None
    change(records)
    html = page(tmp_path, records)
    gone = {panel, "planted", "faults"} if kind == "selftest" else {panel}
    assert sections(html) == [name for name in PANELS[kind] if name not in gone]
    assert f'href="#{panel}"' not in html


def test_every_panel_is_tried_both_ways() -> None:
    """Claims stand where there are several checks, decision wherever a gate was run."""
    assert {panel.id for panel in html_checks.PANELS} == set(GONE) | {"claims", "decision"}
    assert {name for names in PANELS.values() for name in names} == set(GONE) | {
        *("claims", "decision"),
    }


def test_red_a_panel_that_is_always_there_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panels = list(html_checks.PANELS)
    rows = next(panel for panel in panels if panel.id == "rows")
    panels[panels.index(rows)] = replace(rows, make=lambda _run: "")
    monkeypatch.setattr(html_checks, "PANELS", tuple(panels))
    html = page(tmp_path, [made.chunks()])
    assert sections(html) == ["rows", *PANELS["chunks"]]


# Verdict first


WORDS = {
    "batch": ("Diverged", "bad", "B = 2, ragged, sequence 0; first key t0_l0_attn"),
    "isodiff": ("Diverged", "bad", "M = 3, pos 34, col 1; first key t35_l0_attn"),
    "ladder": ("Same", "good", "exact: 2,024 of 2,024 keys equal, 12 of 12 tokens"),
    "gate": ("Default", "good", "cuda+two_pass against cuda: equal and faster"),
    "refused gate": (
        *("Refused", "bad"),
        "cuda+two_pass against cuda: not equal: seed 7, M = 1: a key differs, first t0_l0_nrm",
    ),
    "conformance": ("Broken", "bad", "first reset_forgets, 1 of 3 promises broken, 1 kept"),
    "selftest": ("Failed", "bad", "1 of 2 faults caught, 1 of 2 equal pairs without an alarm"),
}


def verdict_faults(html: str, word: str, kind: str, said: str) -> list[str]:
    """What of the head of the page is not the verdict as recorded."""
    found = html_page.read(html)
    box, pill = found.by_id("verdict"), found.all("span")[1]
    place = next(e.text for e in found.all("p") if e.attributes.get("class") == "place")
    head = found.all("h1")[0].text
    shown = {"head": head, "pill": pill.text, "place": place[: len(said)]}
    wanted = {"head": word, "pill": word, "place": said}
    faults = [
        f"{name}: {shown[name]}, not {wanted[name]}"
        for name in shown
        if shown[name] != wanted[name]
    ]
    classes = [box.attributes["class"] if box else "", pill.attributes["class"]]
    if classes != [f"verdict {kind}", f"pill {kind}"]:
        faults.append(f"classes {classes}, not {kind}")
    if (
        not found.text.split("\n", 1)[0].strip().startswith(word.upper())
        and word.upper() not in html
    ):
        faults.append("the title does not begin with the verdict")
    return faults


@pytest.mark.parametrize("kind", WORDS)
def test_the_verdict_stands_first(kind: str, tmp_path: Path) -> None:
    assert verdict_faults(page(tmp_path, made.ALL[kind]), *WORDS[kind]) == []


def test_opt_in_is_no_failure_by_its_mark(tmp_path: Path) -> None:
    record = {**made.gate(), "verdict": "opt-in", "exit_status": 1, "reason": "equal, slower"}
    html = page(tmp_path, [record])
    said = "cuda+two_pass against cuda: equal, slower"
    assert verdict_faults(html, "Opt-in", "warn", said) == []


def test_red_a_verdict_shown_otherwise_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {**html_checks.WORDS, Verdict.DIVERGED: ("Same", "good")}
    monkeypatch.setattr(html_checks, "WORDS", words)
    html = page(tmp_path, made.ALL["refused gate"])
    assert verdict_faults(html, *WORDS["refused gate"]) == [
        "classes ['verdict good', 'pill good'], not bad"
    ]
    html = page(tmp_path, made.ALL["isodiff"])
    assert verdict_faults(html, *WORDS["isodiff"])[:2] == [
        *("head: Same, not Diverged", "pill: Same, not Diverged"),
    ]


def test_the_failed_claim_is_the_one_to_reproduce(tmp_path: Path) -> None:
    html = page(tmp_path, made.ALL["isodiff and rollback"])
    command = html_page.read(html).by_id("command")
    assert command is not None
    assert command.text == "parity isodiff --m 2 --seed 7"
    refused = html_page.read(page(tmp_path, made.ALL["refused gate"])).by_id("command")
    assert refused is not None
    assert refused.text == "parity diff --ref cuda --dut cuda+two_pass"


def test_a_run_that_could_not_be_made_says_what_to_do(tmp_path: Path) -> None:
    html = render(not_run("isodiff", ["no device", "use --engine emu"], "parity isodiff"))
    assert verdict_faults(html, "Not run", "warn", "no device") == []
    assert "Next use --engine emu" in text_of(html)
    assert sections(html) == []


def test_a_gate_that_was_not_run_is_told_from_its_file(tmp_path: Path) -> None:
    record = {
        **{"format": "parity-gate", "version": 1, "verdict": "not_run", "exit_status": 3},
        **{"reason": "no CUDA device", "next": "use --engine emu", "command": "parity gate -q"},
    }
    html = page(tmp_path, [record])
    assert verdict_faults(html, "Not run", "warn", "no CUDA device") == []
    assert "Next use --engine emu" in text_of(html)
    assert sections(html) == []
    assert html_page.problems(html) == []
    assert run_cli("report", str(written(tmp_path, [record])), "-q").status == 3


def test_a_probe_that_could_not_run_tells_it_among_its_facts(tmp_path: Path) -> None:
    facts = [["next", "parity engines lists what each engine offers"]]
    record = made.probe("isodiff", verdict="not_run", headline="x lacks rows", facts=facts)
    html = page(tmp_path, [record])
    assert verdict_faults(html, "Not run", "warn", "x lacks rows") == []
    assert "next parity engines lists what each engine offers" in text_of(html)


# Safety


@each_kind
def test_pages_are_well_formed_and_load_nothing(records: list[Record], tmp_path: Path) -> None:
    assert html_page.problems(page(tmp_path, records)) == []


def hostile(value: Any, word: str, keep: frozenset[str]) -> Any:
    """``value`` with ``word`` after every text that may hold anything; "" says that nothing is."""
    if isinstance(value, dict):
        return {
            name: one if name in keep else hostile(one, word, keep) for name, one in value.items()
        }
    if isinstance(value, list):
        return [hostile(one, word, keep) for one in value]
    free = isinstance(value, str) and value not in ("", "equal", "not run")
    return f"{value}{word}" if free else value


# Not free text: a reader refuses anything else, or takes it apart.
FIXED = frozenset(
    {
        *("format", "verdict", "positions", "state", "want", "how", "command", "reproduce", "kind"),
        *("outputs", "address", "digest"),
    }
)


@each_kind
@pytest.mark.parametrize("word", [*HOSTILE, "\x00\n<!--", "\u202e"])
def test_whatever_a_file_holds_is_text(word: str, records: list[Record], tmp_path: Path) -> None:
    html = page(tmp_path, [hostile(record, word, FIXED) for record in records])
    assert html_page.problems(html) == []
    assert sections(html) == sections(page(tmp_path, records))
    shown = html_page.read(html)
    data = [e for e in shown.elements if e.tag not in ("style", "script")]
    assert sum(printable(word) in e.text for e in data) > 5
    clean = html_page.read(page(tmp_path, records))
    assert [e.tag for e in shown.elements] == [e.tag for e in clean.elements]


def test_red_markup_that_gets_through_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from markupsafe import Markup

    monkeypatch.setattr(
        html_checks, "_details", lambda check, _run: [("x", Markup("<b id=verdict>"))]
    )
    html = page(tmp_path, made.ALL["isodiff"])
    assert "id verdict given twice" in html_page.problems(html)


# One door: what a command writes is what its file gives again


def test_a_file_gives_the_page_of_the_command(tmp_path: Path) -> None:
    first, saved, again = (str(tmp_path / name) for name in ("a.html", "run.json", "b.html"))
    words = ("isodiff", "--m", "2", "--rb", "--pos", "3:3", "--model", "dense-tiny", "-q")
    assert run_cli(*words, "--html", first, "--json", saved).status == 0
    assert run_cli("report", saved, "--html", again, "-q").status == 0
    html = Path(first).read_text()
    assert html == Path(again).read_text()
    assert sections(html) == PANELS["isodiff and rollback"]
    assert html_page.problems(html) == []


COMMANDS = {
    "rollback": ("rollback", "--m", "2", "--pos", "3:3", "--model", "dense-tiny"),
    "chunks": ("isodiff", "--chunks", "16", "--pos", "3:3", "--model", "dense-tiny"),
    "conformance": ("conformance", "cpu", "--model", "dense-tiny"),
    "ladder": ("ladder", "--model", "dense-tiny", "--n", "2", "--tokens", "1,2,3"),
    "selftest": ("selftest", "--engine", "cpu"),
    "gate": ("gate", "--engine", "cpu", "--fast", "fma", "--model", "dense-tiny", "--seeds", "3"),
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_each_command_writes_a_page(kind: str, tmp_path: Path) -> None:
    first, saved, again = (str(tmp_path / name) for name in ("a.html", "run.json", "b.html"))
    store = ("--store", str(tmp_path / "store")) if kind == "gate" else ()
    done = run_cli(*COMMANDS[kind], *store, "-q", "--html", first, "--json", saved)
    html = Path(first).read_text()
    assert html_page.problems(html) == []
    assert sections(html) == PANELS["refused gate" if kind == "gate" else kind]
    made_again = run_cli("report", saved, "--format", "html", "-o", again)
    assert (made_again.status, Path(again).read_text()) == (done.status, html)


def test_a_file_gives_the_junit_of_the_command(tmp_path: Path) -> None:
    first, saved, again = (str(tmp_path / name) for name in ("a.xml", "run.json", "b.xml"))
    words = ("isodiff", "--m", "2", "--pos", "3:3", "--model", "dense-tiny", "-q")
    assert run_cli(*words, "--junit", first, "--json", saved).status == 0
    assert run_cli("report", saved, "--format", "junit", "-o", again).status == 0
    assert Path(first).read_text() == Path(again).read_text()


def test_a_page_on_stdout_stands_alone(tmp_path: Path) -> None:
    saved = written(tmp_path, made.ALL["conformance"])
    done = run_cli("report", str(saved), "--format", "html")
    assert done.status == 1
    assert html_page.problems(done.stdout) == []


def test_the_console_tells_what_the_file_holds(tmp_path: Path) -> None:
    saved = written(tmp_path, made.ALL["isodiff and rollback"])
    done = run_cli("report", str(saved))
    lines = done.stdout.splitlines()
    assert (done.status, lines[0]) == (1, f"DIVERGED  {WORDS['isodiff'][2]}")
    assert lines[2] == f"  FAILED   isodiff: {WORDS['isodiff'][2]}"
    assert lines[3].startswith("[SPECTOP1] pos=33 col=0 ")  # as it was printed
    assert lines[-2:] == ["  parity isodiff --m 2 --seed 7", "  time     3.0 s"]
    assert run_cli("report", str(saved), "-q").stdout == f"diverged: {WORDS['isodiff'][2]}\n"


def test_a_screen_has_no_room_for_every_claim_that_holds() -> None:
    held = [Check(f"trial {number}", Verdict.SAME, "caught") for number in range(40)]
    left = [Check("trial x", Verdict.DIVERGED, "missed"), Check("cuda", Verdict.NOT_RUN, "no CuPy")]
    run = CheckRun("selftest", Verdict.DIVERGED, "1 missed", (*held[:20], *left, *held[20:]), "")
    assert console_of(run) == (
        "DIVERGED  1 missed\n\n  FAILED   trial x: missed\n  not run  cuda: no CuPy\n"
        "  ok       40 of 42, each in the JSON and HTML reports\n"
    )
    few = CheckRun("selftest", Verdict.SAME, "all caught", tuple(held[:22]), "")
    assert console_of(few).count("  ok       trial ") == 22
    assert console_of(CheckRun("selftest", Verdict.SAME, "", tuple(held[:23]), "")).count("ok") == 1


# Other versions, and files that are none


def test_an_older_probe_file_is_read(tmp_path: Path) -> None:
    """Version 3 told no blocks: its lines are shown, and the grid is absent."""
    new = (
        *("claim", "blocks", "grid", "drafts", "rules", "fed", "controls"),
        *("command", "reproduce", "seconds"),
    )
    old = {name: part for name, part in made.isodiff().items() if name not in new}
    html = page(tmp_path, [{**old, "version": 3}])
    assert sections(html) == ["cost", "lines", "provenance"]
    assert verdict_faults(html, *WORDS["isodiff"]) == []
    assert html_page.read(html).by_id("command") is None
    assert "[SPECTOP1] pos=33 col=0 top1=9" in text_of(html)
    table = {**old, "version": 3, "table": ["M  logits", "2  equal"]}
    assert "2 equal" in text_of(page(tmp_path, [table]))


def test_an_older_selftest_is_read(tmp_path: Path) -> None:
    old = {name: part for name, part in made.selftest().items() if name != "reproduce"}
    html = page(tmp_path, [{**old, "version": 1}])
    assert sections(html) == PANELS["selftest"]
    assert html_page.read(html).by_id("command") is None


@pytest.mark.parametrize("kind", ["isodiff", "ladder", "gate", "conformance", "selftest"])
@pytest.mark.parametrize("version", [0, 9, "1", None])
def test_another_version_is_refused_by_name(kind: str, version: Any, tmp_path: Path) -> None:
    record = {**made.ALL[kind][0], "version": version}
    path = written(tmp_path, [record])
    done = run_cli("report", str(path), "--format", "html", "-o", str(tmp_path / "x.html"))
    assert (done.status, done.stdout) == (2, "")
    problem, hint = done.stderr.splitlines()
    assert problem.startswith(f"parity: {path}: version {version} of {record['format']}, this ")
    assert hint == "  next: render it with the parity that wrote it"
    assert not (tmp_path / "x.html").exists()


DAMAGE: dict[str, tuple[str, Callable[[list[Record]], None]]] = {
    "no facts": ("isodiff", lambda records: records[0].pop("facts")),
    "another verdict": ("isodiff", without("verdict", by="green")),
    "a number as text": ("isodiff", without("compared", by="many")),
    "a block without rows": ("isodiff", lambda records: records[0]["blocks"][0].pop("logits")),
    "an unknown field": ("chunks", without("news", by=1)),
    "no rungs": ("ladder", without("rungs", by=[])),
    "no record of equality": ("gate", lambda records: records[0].pop("equality")),
    "a state of another name": ("conformance", without("promises", 0, "state", by="fine")),
    "a want of another name": ("selftest", without("trials", 0, "want", by="fine")),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    kind, change = DAMAGE[name]
    records = copy.deepcopy(made.ALL[kind])
    change(records)
    path = written(tmp_path, records)
    done = run_cli("report", str(path), "--format", "html", "-o", str(tmp_path / "x.html"))
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr.startswith(f"parity: {path}: damaged: ")
    assert len(done.stderr.splitlines()) == 2
    assert not (tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    "body", ["[]", "{}", "7", '"x"', '{"format": []}', '[{"format": "parity-gate"}, 3]', "not"]
)
def test_other_files_are_left_to_who_reads_trees(body: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(body)
    assert saved_checks(path) is None
    assert run_cli("report", str(path)).status == 2


def test_the_presenter_is_found_by_its_name(tmp_path: Path) -> None:
    from parity.cli.reporting import CHECK_REPORTS
    from parity.registry import find

    assert find(CHECK_REPORTS, "html").load() is HtmlChecks
    path = tmp_path / "x.html"
    with path.open("w") as stream:
        HtmlChecks().write(run_of(tmp_path, made.ALL["gate"]), stream, Options(json_path="g.json"))
    assert "The whole result is in g.json." in text_of(path.read_text())
    assert json.loads((tmp_path / "saved.json").read_text())["format"] == "parity-gate"
