"""Large runs in a real Chromium: how long a redraw takes. Only with --slow."""

import pytest

from parity_reports.html_report import render
from tests.reports import trees
from tests.reports.browser import Load
from tests.reports.test_html_map import run_of

FRAMES = """(async () => {
  const canvas = document.getElementById('canvas'), pane = document.getElementById('pane');
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const timed = async (times, act) => {
    const found = [];
    for (let at = 0; at < times; at++) {
      act(at); await frame(); await frame(); found.push(Number(canvas.dataset.ms));
    }
    return found.sort((a, b) => a - b)[times >> 1];
  };
  const box = pane.getBoundingClientRect();
  const send = (type, x, y) => pane.dispatchEvent(new PointerEvent(type, {
    clientX: box.left + x, clientY: box.top + y, buttons: 1, pointerId: 1, bubbles: true }));
  pane.setPointerCapture = () => {};
  const press = (key) => pane.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  const pan = async () => {
    send('pointerdown', 400, 400);
    const found = await timed(40, (at) => send('pointermove', 400, 400 - 5 * at));
    send('pointerup', 400, 200);
    return found;
  };
  const found = {};
  found.layers = await pan();
  document.querySelector('[data-zoom=run]').click();
  await frame();
  found.zoom = await timed(12, (at) => press(at < 6 ? '+' : '-'));
  press('+');
  await frame(); await frame();
  found.dense = await pan();
  return found;
})()"""


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "keys"), [(64, 361_472), (178, 1_003_520)])
def test_large_runs_stay_fluid(layers: int, keys: int, load: Load) -> None:
    tree = run_of(512, layers, trees.FIELDS, "t32_l0_nrm")
    assert len(tree.keys) == keys
    page = load(tree)
    found = page.ask(FRAMES)
    assert found["layers"] < 16, found
    assert found["dense"] < 16, found
    assert found["zoom"] < 100, found
    assert page.problems == []
    assert len(render(tree)) < 2_000_000
