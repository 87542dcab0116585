"""The panels of a tree that tell of other runs: repeats, the baseline, what isolation tried."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from parity.tree import Placement, Stability, Transplant, Tree
from parity_reports import html_repeats, isolating
from parity_reports.html_report import render
from tests.cli_runner import run_cli
from tests.reports import html_page, trees
from tests.reports.html_tables import tables
from tests.reports.test_console_hostile import HOSTILE

each_tree = pytest.mark.parametrize("build", trees.ALL.values(), ids=list(trees.ALL))
DIGEST = "0123456789abcdef" * 4
BASELINE = {
    "accepted": "decode/moe, entry 2 of 2026-01-31T12:00:00Z",
    **{"side": "cpu", "stable": "3 runs alike", "green": "2,120 keys the same as emu"},
    **{"entry": DIGEST, "record": DIGEST[::-1], "command": "parity baseline save decode/moe cpu"},
    "changed": f"compiled: 29440e74c581d06c, now 9af641cf\noptions: none, now {'-O3 ' * 90}",
}
RUN = re.compile(r'<li class="([a-z ]*)"><b>run (\d+)</b> <span>(.*?)</span></li>')


def unstable(*places: str) -> Tree:
    """``parity stable`` of an engine whose further runs differ at ``places``."""
    run = next(at for at, place in enumerate(places, 2) if place)
    found = Stability(len(places) + 1, "engine", places[run - 2], run, trees.red(), list(places))
    return replace(trees.unstable(), stability=found)


def ids(tree: Tree) -> list[str]:
    return [e.attributes["id"] for e in html_page.read(render(tree)).all("section")]


def text_of(html: str) -> str:
    return " ".join(html_page.read(html).text.split())


# There when the tree has the data, and only then


@each_tree
def test_panels_are_there_when_the_tree_has_their_data(build: Callable[[], Tree]) -> None:
    tree = build()
    found, stability = ids(tree), tree.stability
    told = stability is not None and bool(stability.places or stability.key)
    assert ("repeats" in found, "baseline" in found) == (told, False)
    assert ("isolation" in found) == (tree.isolation is not None)
    accepted = ids(replace(tree, baseline=BASELINE))
    assert [name for name in accepted if name not in found] == ["baseline"]
    alike = ids(replace(tree, stability=Stability(3, places=["", ""])))
    assert [name for name in alike if name not in found] == ([] if told else ["repeats"])


@pytest.mark.parametrize("word", HOSTILE)
def test_whatever_they_hold_is_text(word: str) -> None:
    facts = {name: f"{text}{word}" for name, text in BASELINE.items()}
    tree = replace(unstable(word, "", f"{word}2"), baseline=facts)
    html = render(tree)
    assert html_page.problems(html) == []
    texts = [e.text for e in html_page.read(html).elements]
    assert sum(word in text for text in texts) >= len(BASELINE) + 3


# Repeats


def repeats_faults(html: str, tree: Tree) -> list[str]:
    """Runs that are shown otherwise than they were."""
    found = tree.stability
    assert found is not None
    shown = {int(run): (classes.split(), said) for classes, run, said in RUN.findall(html)}
    wrong = [] if len(shown) == found.runs else [f"{len(shown)} of {found.runs} runs shown"]
    for run, place in enumerate(found.places, 2):
        classes, said = shown.get(run, ([], ""))
        wanted = ["born"] if place else ["same"]
        wanted += ["first"] if run == found.run else []
        if classes != wanted:
            wrong.append(f"run {run}: {classes}, not {wanted}")
        if (place or "alike") not in said or ('class="ic no"' in said) != bool(place):
            wrong.append(f"run {run}: not shown as {place or 'alike'}")
    return wrong


@pytest.mark.parametrize("places", [("t33_l4_x", "", "t34_l0_k"), ("", "", "t33_l4_x")])
def test_each_run_is_shown_as_it_was(places: tuple[str, ...]) -> None:
    tree = unstable(*places)
    html = render(tree)
    assert repeats_faults(html, tree) == []
    run = places.index("t33_l4_x") + 2
    counts = trees.red().counts
    said = (
        f"The engine differs from itself first at t33_l4_x in run {run} : "
        f"{counts.total - counts.same:,} of {counts.total:,} keys differ against run 1."
    )
    assert said in text_of(html).replace("run 2:", "run 2 :").replace("run 4:", "run 4 :")


def test_alike_runs_are_shown_as_alike() -> None:
    tree = replace(trees.stable(), stability=Stability(4, places=["", "", ""]))
    html = render(tree)
    assert repeats_faults(html, tree) == []
    assert "4 runs of one engine, each held against run 1." in text_of(html)
    assert "differs from itself" not in text_of(html)


def test_red_a_run_shown_alike_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    true = html_repeats.fragment

    def hidden(name: str, found: Stability, *rest: str, template: str) -> object:
        places = ["", *found.places[1:]]
        return true(name, replace(found, places=places), *rest, template=template)

    monkeypatch.setattr(html_repeats, "fragment", hidden)
    tree = unstable("t33_l4_x", "", "t34_l0_k")
    assert repeats_faults(render(tree), tree) == [
        *("run 2: ['same', 'first'], not ['born', 'first']", "run 2: not shown as t33_l4_x"),
    ]


def test_a_side_of_a_diff_that_differs_from_itself_is_told() -> None:
    html = render(trees.shaky())
    assert "20 runs of each side, each held against run 1." in text_of(html)
    assert "The dut differs from itself first at t33_l4_x in run 7" in text_of(html)
    assert RUN.findall(html) == []


# Baseline


def baseline_faults(html: str, facts: dict[str, str]) -> list[str]:
    """Facts that are not shown whole under their name."""
    section = html.partition('<section id="baseline"')[2].partition("</section>")[0]
    plain = re.sub(r"</?(?:i|span)(?: class=\"[a-z ]*\")?>", "", section)
    shown = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", plain))
    wrong = [
        f"{name}: {shown.get(name)!r}, not {text!r}"
        for name, text in facts.items()
        if name != "changed" and shown.get(name) != text
    ]
    lines = re.findall(r"<li>(.*?)</li>", plain)
    wanted = [line for line in facts["changed"].split("\n") if line]
    return wrong + ([] if lines == wanted else [f"changed: {lines}, not {wanted}"])


def test_the_baseline_is_shown_whole() -> None:
    html = render(replace(trees.red(), baseline=BASELINE))
    assert baseline_faults(html, BASELINE) == []
    unchanged = {**BASELINE, "changed": ""}
    html = render(replace(trees.green(), baseline=unchanged))
    assert baseline_faults(html, unchanged) == []
    assert "Changed since" not in html


def test_red_a_digest_that_is_cut_is_seen() -> None:
    cut = {**BASELINE, "entry": DIGEST[:12]}
    html = render(replace(trees.red(), baseline=cut))
    assert baseline_faults(html, BASELINE) == [f"entry: '{DIGEST[:12]}', not '{DIGEST}'"]


def test_a_check_tells_what_it_was_held_against(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "store"))
    saved, page = tmp_path / "check.json", tmp_path / "check.html"
    words = ("--model", "dense-tiny", "--n", "1", "--tokens", "1,2,3")
    assert run_cli("baseline", "save", "base", "cpu", *words, *store).status == 0
    done = run_cli(
        *("baseline", "check", "base", "--engine", "cpu:exact+fma", *store),
        *("--json", str(saved), "--html", str(page), "-q"),
    )
    assert done.status == 1
    body = json.loads(saved.read_text())
    told = body["baseline"]
    assert told["accepted"].startswith("base, entry 1 of 20")
    assert (len(told["entry"]), len(told["record"])) == (64, 64)
    assert "variants: none, now fma" in told["changed"].split("\n")
    assert any(
        line.startswith("compiled: ") or line.startswith("mask: ")
        for line in told["changed"].split("\n")
    )
    html = page.read_text()
    assert baseline_faults(html, told) == []
    assert html_page.problems(html) == []
    again = run_cli("report", str(saved), "--format", "html")
    assert (again.status, again.stdout) == (1, html)


def test_a_repeated_run_tells_every_run(tmp_path: Path) -> None:
    saved = tmp_path / "stable.json"
    words = ("--model", "dense-tiny", "--n", "3", "--steps", "1", "--tokens", "1,2")
    done = run_cli("stable", *words, "--json", str(saved), "-q")
    tree = Tree.from_json(saved.read_text())
    assert (done.status, tree.stability) == (0, Stability(3, places=["", ""]))
    assert repeats_faults(render(tree), tree) == []


def test_an_engine_that_shakes_is_shown_run_by_run(tmp_path: Path) -> None:
    saved = tmp_path / "stable.json"
    words = ("--engine", "tests.red.faults:Shaky", "--n", "4", "--steps", "2")
    done = run_cli("stable", *words, "--json", str(saved), "-q")
    tree = Tree.from_json(saved.read_text())
    assert (done.status, tree.stability is not None) == (1, True)
    assert tree.stability is not None
    assert len(tree.stability.places) == 3
    assert tree.stability.key in tree.stability.places
    assert repeats_faults(render(tree), tree) == []


def test_a_tree_of_the_version_before_is_read() -> None:
    body = json.loads(trees.stable().to_json())
    del body["baseline"], body["stability"]["places"]
    body["version"] = 2
    tree = Tree.from_json(json.dumps(body))
    assert (tree.baseline, tree.stability) == ({}, Stability(20))
    assert "repeats" not in ids(tree)


# Isolation


def isolation_faults(html: str, tree: Tree) -> list[str]:
    """Bars and counts that are not those of the trials."""
    found, wrong = tree.isolation, []
    assert found is not None
    shown = tables(html)
    for name, tried in (("placement", found.placements), ("transplants", found.transplants)):
        rows = shown.get(f"tried-{name}", [])[1:]
        if len(rows) != len(tried):
            wrong.append(f"{name}: {len(rows)} rows for {len(tried)}")
        for row, one in zip(rows, tried, strict=False):
            wrong += _trial_faults(f"{name} {row.texts[0]}", row.texts, row.cells[-2].rects, one)
    return wrong


def _trial_faults(
    where: str, texts: list[str], bars: list[dict[str, str]], one: Placement | Transplant
) -> list[str]:
    wanted = [one.first or "none", "", f"{one.differ:,} of {one.total:,}"]
    wrong = [] if texts[-3:] == wanted else [f"{where}: {texts[-3:]}, not {wanted}"]
    share = f"{round(100 * one.differ / one.total, 2)}%"
    widths = [bar["width"] for bar in bars]
    return wrong + ([] if widths == ([share] if one.differ else []) else [f"{where}: bar {widths}"])


def test_bars_of_isolation_are_the_shares_that_differ() -> None:
    assert isolation_faults(render(trees.isolated()), trees.isolated()) == []


def test_red_a_bar_of_another_length_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    true = isolating._share
    monkeypatch.setattr(isolating, "_share", lambda differ, total: true(differ, 2 * total))
    wrong = isolation_faults(render(trees.isolated()), trees.isolated())
    differ = [one for one in trees.isolation().placements if one.differ]
    assert len(wrong) >= len(differ) > 0
    assert all(": bar [" in text for text in wrong)
