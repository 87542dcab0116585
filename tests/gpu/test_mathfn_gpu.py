"""mathfn on a device: its tally is the host's, every float takes seconds, Kestrel's table holds."""

from __future__ import annotations

import numpy as np
import pytest

from parity.elementary.functions import ResidentImplementation, open_implementation
from parity.elementary.mathfn import BOUNDED, Ask, Sweep
from parity.elementary.tally import EVERY_FLOAT, Tally
from parity.progress import Progress
from parity.status import Verdict
from parity_probes.mathfn import HostPairs, Mathfn
from parity_reports.mathfn_wording import headline, measured_text, time_text

pytestmark = pytest.mark.gpu

FUNCTIONS = ("expf", "cosf", "sinf", "logf", "rsqrt", "sigmoid", "silu", "softplus")
COUNT = 1 << 22
STARTS = (0x3F000000, 0x7F800000 - COUNT // 2, 0x80000000 - COUNT // 2, EVERY_FLOAT - COUNT)


@pytest.fixture(scope="module")
def sides() -> tuple[ResidentImplementation, ResidentImplementation]:
    ref, dut = open_implementation("ucrt@cuda"), open_implementation("cuda")
    assert isinstance(ref, ResidentImplementation)
    assert isinstance(dut, ResidentImplementation)
    assert ref.backend is dut.backend
    return ref, dut


def ask(function: str, **options: object) -> Ask:
    settings = {"exhaustive": True, "positions": False, **options}
    return Ask(function, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_tally_on_the_device_is_the_hosts(
    sides: tuple[ResidentImplementation, ResidentImplementation], function: str
) -> None:
    for start in STARTS:
        there, here = Tally(), Tally()
        device = sides[0].pair_source(function, sides[1], function in BOUNDED)
        host = HostPairs(ask(function), *sides)
        for source, total in ((device, there), (host, here)):
            source.add_range(start, COUNT)
            source.move_to(total)
            total.add_range(start, start + COUNT)
            total.check(COUNT)
        assert np.flatnonzero(there.words != here.words).tolist() == []


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_float_in_seconds(
    sides: tuple[ResidentImplementation, ResidentImplementation], function: str
) -> None:
    found = sweep(function, *sides)
    assert (found.where, found.pairs) == ("device", EVERY_FLOAT)
    assert found.differ > 0
    assert found.seconds < 30


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_float_against_itself(
    sides: tuple[ResidentImplementation, ResidentImplementation], function: str
) -> None:
    found = sweep(function, sides[0], sides[0], chunk=(1 << 27) - 12_345)
    assert (found.verdict, found.differ) == (Verdict.SAME, 0)
    assert found.input_classes == [16_777_214, 2, 2, 16_777_214, 4_261_412_864]


def sweep(
    function: str, ref: ResidentImplementation, dut: ResidentImplementation, **options: object
) -> Sweep:
    found = Mathfn().run(ask(function, **options), ref, dut, Progress(quiet=True))
    print(f"\n{ref.name} against {dut.name}: {headline(found)}; {time_text(found)}")
    return found


def test_kestrels_table() -> None:
    table = Mathfn().table(7, "parity mathfn --table", Progress(quiet=True))
    print()
    for row in table.rows:
        print(f"{row.name:45} {row.inputs:40} {measured_text(row)}")
    assert [row.name for row in table.rows if row.verdict is Verdict.NOT_RUN] == []
    assert [row.name for row in table.rows if row.verdict is not Verdict.SAME] == []
