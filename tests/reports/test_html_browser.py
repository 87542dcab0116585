"""The HTML report in a real Chromium: keyboard, pointer, address, copying, widths, policy.

Not run where no Chromium is installed; the count of the run says so.
"""

import json
import re
from dataclasses import replace

import pytest

from parity.keys import Key
from parity.tree import Cause, KeyState, Tree
from parity_reports import html_data, html_map, html_report, html_shell
from tests.reports import trees
from tests.reports.browser import Browser, Load
from tests.reports.test_console_hostile import HOSTILE, hostile_tree
from tests.reports.test_html_map import BIRTHS, born_tree, run_of

WIDTHS = (1440, 800, 390)


def text(page: Browser, selector: str) -> str:
    found = page.ask(f"document.querySelector({json.dumps(selector)}).textContent")
    return " ".join(str(found).split())


def current(page: Browser) -> str:
    """The key that the readout names."""
    return text(page, "#read b")


def focus_map(page: Browser) -> None:
    page.ask("(document.getElementById('pane') || document.getElementById('field')).focus()")


def too_wide(page: Browser) -> list[int]:
    """The widths at which the page would scroll sideways."""
    found = []
    for width in WIDTHS:
        page.size(width)
        if page.ask("document.documentElement.scrollWidth > innerWidth"):
            found.append(width)
    return found


BIG = {"large": lambda: run_of(120, 8, trees.FIELDS, "t90_l3_attn")}
HARD = {f"hostile {number}": lambda w=word: hostile_tree(w) for number, word in enumerate(HOSTILE)}
LONG = {"long": lambda: hostile_tree("w" * 400)}


@pytest.mark.parametrize("name", [*trees.ALL, *BIG, *HARD, *LONG])
def test_no_complaint_and_never_sideways(name: str, load: Load) -> None:
    page = load({**trees.ALL, **BIG, **HARD, **LONG}[name]())
    assert too_wide(page) == []
    page.ask("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    assert too_wide(page) == []
    page.look(prefers_color_scheme="dark")
    assert too_wide(page) == []
    assert page.problems == []


def test_red_a_page_that_scrolls_sideways_is_seen(load: Load) -> None:
    page = load(trees.red())
    page.ask("document.querySelector('main').append(document.createElement('hr'))")
    page.ask("document.querySelector('main hr').setAttribute('width', '900')")
    assert too_wide(page) == [800, 390]


# Keyboard

STEPS = (
    ("f", "t33_l7_attn"),
    ("ArrowDown", "t33_l7_ores"),
    ("ArrowRight", "t33_l8_ores"),
    ("ArrowUp", "t33_l8_attn"),
    ("PageDown", "t34_l8_attn"),
    ("PageDown", "t35_l8_attn"),
    ("PageDown", "t35_l8_attn"),  # there is no further one
    ("PageUp", "t34_l8_attn"),
    ("Home", "t34_l0_attn"),
    ("ArrowLeft", "t34_l0_attn"),
    ("End", "t34_logits"),
    ("f", "t33_l7_attn"),
    ("n", "t34_l23_attn"),
    ("n", "t35_l33_x"),
    ("n", "t35_l33_x"),
    ("p", "t34_l23_attn"),
    ("p", "t33_l7_attn"),
)


def walked(page: Browser) -> list[str]:
    focus_map(page)
    found = []
    for name, _ in STEPS:
        page.key(name)
        found.append(current(page))
    return found


def test_keyboard_moves_to_the_right_key(load: Load) -> None:
    page = load(born_tree(BIRTHS))
    assert current(page) == "t33_l7_attn"
    assert walked(page) == [key for _, key in STEPS]
    assert page.problems == []


def test_keyboard_moves_on_a_canvas_too(load: Load) -> None:
    page = load(born_tree(BIRTHS, positions=16))
    assert page.ask("document.getElementById('sheet').hidden") is False
    wanted = [re.sub(r"^t35(?=_l8)", "t35", key) for _, key in STEPS]
    wanted[6], wanted[7] = "t36_l8_attn", "t35_l8_attn"
    wanted[8:11] = ["t35_l0_attn", "t35_l0_attn", "t35_logits"]
    assert walked(page) == wanted
    assert page.problems == []


def test_red_arrows_that_skip_a_field_are_seen(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "ArrowDown: () => along(1, has)", "ArrowDown: () => along(2, has)")
    found = walked(load(born_tree(BIRTHS)))
    assert found[1] == "t33_l7_x"
    assert found != [key for _, key in STEPS]


def _without(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Plant another text in the page's script."""
    real = html_shell.joined_assets

    def planted(*names: str) -> str:
        script = real(*names)
        if names == html_report.SCRIPTS:
            assert script.count(old) >= 1
            script = script.replace(old, new)
        return script

    monkeypatch.setattr(html_report, "joined_assets", planted)


def test_enter_keeps_the_key_in_the_address_and_opens_it(load: Load) -> None:
    page = load(born_tree(BIRTHS))
    focus_map(page)
    for name in ("n", "Enter"):
        page.key(name)
    assert page.ask("location.hash") == "#t34_l23_attn"
    assert text(page, "#other-key") == "t34_l23_attn"
    assert text(page, "#first-key-place") == "t34 layer 23"
    assert text(page, "#first-key-strip .chosen .m") == "attn"
    assert page.ask("document.getElementById('first-key-panel').hidden") is True
    page.click("#back")
    assert page.ask("document.getElementById('first-key-panel').hidden") is False
    assert page.ask("location.hash") == "#t33_l7_attn"


def test_an_address_opens_its_key(load: Load) -> None:
    for tree in (born_tree(BIRTHS), born_tree(BIRTHS, positions=16)):
        row = next(row for row in tree.keys if row.key == "t34_l23_ores")
        page = load(tree, "#t34_l23_ores")
        assert current(page) == "t34_l23_ores"
        shown = text(page, "#other-facts")
        assert row.ref is not None
        assert row.dut is not None
        for side in (row.ref, row.dut):
            assert side.split(" ")[0] in shown.replace(" ", "")
        assert "f32[4,32]" in shown
        assert "output projection and residual (contract 2)" in shown
        assert "inputsattn born here, t34_l22_x inherited" in shown
    assert page.problems == []


def test_an_address_with_a_segment(load: Load) -> None:
    state = {trees.FIRST: KeyState.DIFFERS}
    rows = [*trees.key_rows(segment="A/1"), *trees.key_rows(state, segment="B redo")]
    tree = replace(trees.red(), keys=rows, counts=trees.count(rows), elements=None, inputs=[])
    page = load(tree, "#B%20redo/t33_l8_v")
    assert current(page) == "t33_l8_v"
    assert "segment B redo" in text(page, "#read")
    focus_map(page)
    page.key("PageUp")
    page.key("Enter")
    assert "segment A/1" in text(page, "#read")
    assert page.ask("decodeURIComponent(location.hash)") == "#A/1/t33_l8_v"


def test_a_pointer_finds_the_key_under_it(load: Load) -> None:
    page = load(born_tree(BIRTHS))
    page.ask("document.getElementById('map').scrollIntoView()")
    box = page.ask(
        "(() => { const b = document.querySelector('.ring-outer').getBoundingClientRect();"
        "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
    )
    page.mouse("mouseMoved", box[0] + 60, box[1] + 40)
    assert current(page) != "t33_l7_attn"
    page.mouse("mouseMoved", *box)
    assert current(page) == "t33_l7_attn"


def test_a_birth_leads_to_its_elements(load: Load) -> None:
    tree = trees.explained()
    found = tree.births
    assert found is not None
    second = replace(found.found[1], elements=replace(trees.elements(), key="t33_l8_attn"))
    page = load(replace(tree, births=replace(found, found=[found.found[0], second])))
    focus_map(page)
    for name in ("n", "Enter"):
        page.key(name)
    page.click("#other-more button")
    assert page.ask("document.querySelector('details[data-key=\"t33_l8_attn\"]').open") is True
    assert page.problems == []


# The canvas

COLORS = {"born": "#7d1500", "missing": "#6a2c91", "differs": "#b8660a"}
COUNT = """((color) => {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  const c = document.getElementById('canvas');
  const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  let found = 0;
  for (let i = 0; i < d.length; i += 4) found += d[i] === r && d[i + 1] === g && d[i + 2] === b;
  return found;
})"""
DRAWN = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50, true)))"


def needles() -> Tree:
    """42,360 keys, all the same but one birth and one that is missing."""
    tree = run_of(60, 64, trees.FIELDS, "")
    rows = list(tree.keys)
    for tag, state, cause in (
        ("t50_l31_v", KeyState.DIFFERS, Cause.BORN),
        ("t70_l11_qrope", KeyState.MISSING, ""),
    ):
        at = next(index for index, row in enumerate(rows) if row.key == tag)
        rows[at] = replace(rows[at], state=state, cause=cause, dut=None)
    rows[0] = replace(rows[0], dut=rows[0].ref)
    return replace(tree, keys=rows, counts=trees.count(rows), first="t50_l31_v")


def needles_seen(page: Browser) -> dict[str, int]:
    """Pixels of each colour where the whole run is drawn."""
    page.click("[data-zoom=run]")
    page.ask("document.getElementById('read').scrollIntoView()")
    page.until(DRAWN)
    assert page.problems == []  # before the browser remarks upon reading the canvas back
    return {name: int(page.ask(f"{COUNT}('{color}')")) for name, color in COLORS.items()}


def test_a_single_key_is_seen_in_the_whole_run(load: Load) -> None:
    page = load(needles())
    found = needles_seen(page)
    assert found["born"] >= 7 * 4  # 8 x 5 px, its edges blended
    assert found["missing"] >= 8  # a column wide
    assert found["differs"] == 0
    focus_map(page)
    page.key("n")
    assert current(page) == "t50_l31_v"


def test_red_a_pixel_that_shows_the_best_state_is_seen(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without(
        monkeypatch, "ranks[k] < worst", "ranks[k] !== 255 && (worst === 255 || ranks[k] > worst)"
    )
    assert needles_seen(load(needles()))["missing"] == 0


def test_zoom_ends_in_named_fields(load: Load) -> None:
    """Enter goes from the layers to the fields of a cell, and opens the key."""
    page = load(needles())
    focus_map(page)
    for name in ("ArrowDown", "Enter"):
        page.key(name)
    page.until(DRAWN)
    assert text(page, "#first-key-strip .chosen .m") == "vs"
    before = page.ask("document.getElementById('canvas').toDataURL()")
    for name in ("-", "-", "0"):
        page.key(name)
        page.until(DRAWN)
        after = page.ask("document.getElementById('canvas').toDataURL()")
        assert after != before
        before = after
    assert page.problems == []


# The first divergence


def ring_rows(page: Browser) -> int:
    """Horizontal edges of the colour of text on the canvas, each at least 12 px long: four where
    a double ring is drawn."""
    return int(
        page.ask(
            """(() => {
              const c = document.getElementById('canvas');
              const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
              let edges = 0, inside = false;
              for (let y = 24; y < c.height; y++) {
                let run = 0, longest = 0;
                for (let x = 60; x < c.width; x++) {
                  const i = 4 * (y * c.width + x);
                  run = d[i] < 90 && d[i + 1] < 90 && d[i + 2] < 90 ? run + 1 : 0;
                  longest = Math.max(longest, run);
                }
                if (longest >= 12 && !inside) edges++;
                inside = longest >= 12;
              }
              return edges;
            })()"""
        )
    )


def large(first: str = "t40_l22_ks") -> Tree:
    return run_of(16, 64, trees.FIELDS[:6], first)


def strokes(page: Browser) -> list[list[str]]:
    """Width and colour of the strokes whose difference is the double ring."""
    found: list[list[str]] = page.ask(
        """[...document.querySelectorAll('.ring-outer, .ring-gap')].map((node) => {
          const style = getComputedStyle(node);
          return [style.strokeWidth, style.stroke];
        })"""
    )
    return found


def test_double_ring_and_label_on_the_drawing(load: Load) -> None:
    page = load(born_tree(BIRTHS))
    focus_map(page)
    page.key("f")
    assert strokes(page) == [["7px", "rgb(21, 24, 28)"], ["3.4px", "rgb(255, 255, 255)"]]
    assert text(page, ".tag.first") == "first: t33_l7_attn"
    apart = page.ask(
        """(() => { const [a, b] = ['.ring-outer', '#cursor'].map((q) =>
          document.querySelector(q).getBoundingClientRect());
          return [Math.abs(a.left - b.left), Math.abs(a.top + a.height / 2 - b.top - b.height / 2)];
        })()"""
    )
    assert max(apart) < 2


def test_double_ring_on_the_canvas(load: Load) -> None:
    page = load(large())
    page.until("document.getElementById('canvas').dataset.ms")
    focus_map(page)
    page.key("ArrowDown")  # the cursor's own frame out of the way
    page.key("ArrowDown")
    for _ in range(3):
        page.key("PageDown")
    page.until(DRAWN)
    assert ring_rows(page) == 4


def test_red_a_ring_dropped_from_the_drawing_is_seen(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html_map, "rings", lambda tree, sheet: [])
    assert strokes(load(born_tree(BIRTHS))) == []


def test_red_a_dropped_ring_is_seen(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "frame(D.first, ink.text, 2, 6);", "")
    page = load(large())
    focus_map(page)
    for name in ("ArrowDown", "ArrowDown", "PageDown", "PageDown", "PageDown"):
        page.key(name)
    page.until(DRAWN)
    assert ring_rows(page) == 2


def test_red_a_wrong_first_key_is_seen(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    page = load(trees.red())
    assert current(page) == text(page, ".bar .at") == trees.FIRST
    monkeypatch.setattr(html_data, "first_index", lambda tree: 3)
    page = load(trees.red())
    assert text(page, ".bar .at") == trees.FIRST
    assert current(page) == trees.red().keys[3].key == Key(33, 6, "k").tag


# Copying, print, no script


def test_copy_takes_the_whole_command(load: Load) -> None:
    tree = replace(trees.red(), reproduce=f"{trees.COMMAND} --note 'a<b>&\"c\"  [/fast]'")
    page = load(tree)
    page.allow_clipboard()
    page.click("[data-copy=command]")
    page.until("document.querySelector('[data-copy=command]').textContent === 'Copied'")
    assert page.ask("navigator.clipboard.readText()") == tree.reproduce
    assert page.problems == []


def test_copy_without_a_clipboard_selects(load: Load) -> None:
    page = load(trees.red())
    page.ask("navigator.clipboard.writeText = () => Promise.reject(new Error('no'))")
    page.click("[data-copy=command]")
    page.until("document.querySelector('[data-copy=command]').textContent === 'Selected'")
    assert page.ask("String(getSelection())") == trees.COMMAND


def shown(page: Browser, selector: str) -> bool:
    code = f"document.querySelector({json.dumps(selector)}).checkVisibility()"
    return bool(page.ask(code))


def test_print_shows_the_drawing_and_no_buttons(load: Load) -> None:
    page = load(large())
    assert (shown(page, "#sheet"), shown(page, "#drawing")) == (True, False)
    page.look("print")
    assert (shown(page, "#sheet"), shown(page, "#drawing")) == (False, True)
    assert not shown(page, "[data-copy]")
    light = "getComputedStyle(document.body).backgroundColor"
    page.look("print", prefers_color_scheme="dark")
    assert page.ask(light) == "rgb(255, 255, 255)"


def test_without_script_everything_but_the_cursor_is_there(load: Load, chromium: Browser) -> None:
    chromium.scripts(False)
    try:
        for tree in (trees.explained(), large()):
            page = load(tree)
            assert shown(page, "#drawing .marks path")
            assert shown(page, ".ring-outer")
            assert shown(page, "#key .key") or tree.elements is None
            assert not shown(page, "[data-copy]")
            assert not shown(page, ".keys")
    finally:
        chromium.scripts(True)


# Escaping

SCRIPT = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"


def test_hostile_markup_runs_nowhere(load: Load) -> None:
    rows = [replace(row, segment=SCRIPT) for row in trees.red().keys]
    for tree in (hostile_tree(SCRIPT), replace(trees.red(), keys=rows)):
        page = load(tree)
        if page.ask("Boolean(document.getElementById('field'))"):
            focus_map(page)
            for name in ("ArrowDown", "Enter", "f", "Enter"):
                page.key(name)
            assert f"segment {SCRIPT}" in text(page, "#read")
        assert page.ask("document.title") != "owned"
        assert page.ask("document.querySelectorAll('img').length") == 0
        assert page.problems == []


def test_red_a_presenter_that_forgets_escaping_is_seen(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = html_shell.environment()
    monkeypatch.setattr(environment, "autoescape", False)
    monkeypatch.setattr(environment, "cache", None)
    page = load(hostile_tree(SCRIPT))
    page.until("document.querySelectorAll('img').length > 0")
    assert page.ask("document.title") != "owned"  # the policy still stands before it
    assert any("Content Security Policy" in line for line in page.problems)
