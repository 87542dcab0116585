"""What ``parity mathfn`` asks and finds: settings, results with a versioned JSON form.

A probe fills these in, presenters read them and compute nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from parity.builds.provenance import COMPILED, PACKAGES
from parity.errors import InputError, ParityError
from parity.presenting import Options
from parity.status import Verdict

if TYPE_CHECKING:
    from parity.elementary.functions import Implementation
    from parity.progress import Progress

FORMAT = "parity-mathfn"
VERSION = 1
SAMPLES = 400_002  # as many as the Kestrel articles draw
# Drawn from unless --domain is given: where the models call the function, or what Kestrel drew.
DOMAINS = {
    "expf": (-100.0, 0.0),
    "cosf": (-10_000.0, 10_000.0),
    "sinf": (-10_000.0, 10_000.0),
    "logf": (0.0, 100.0),
    "rsqrt": (0.0, 100.0),
    "sigmoid": (-20.0, 20.0),
    "silu": (-20.0, 20.0),
    "softplus": (-20.0, 20.0),
}
# Labels of an implementation's description that a line of text leaves out.
UNTOLD = ("name", "options", "kernels", "emulated", "launches", "schedule", COMPILED, PACKAGES)
NAN_PAYLOAD = "NaN payload"  # the bin and the kind of NaN against NaN; see elements.KINDS
BOUNDED = ("cosf", "sinf")  # a result beyond 1 in size is remarked


class StoppedError(ParityError):
    """A sweep that was stopped half-way; nothing is known of the rest.

    Cause: Ctrl-C. Way out: the command that goes on where it stopped.
    """


@dataclass(frozen=True)
class Ask:
    """What the user wants of one function.

    ``samples`` drawn uniformly from ``domain`` by ``seed``; or, with ``exhaustive``, the inputs of
    the bit patterns ``span[0]`` to ``span[1] - 1``, ``chunk`` at a time (0: as many as suit the
    memory). ``special``: the fixed list of special values too. ``positions``: check that a result
    does not depend on where its input sits. ``state``: the file that a stopped sweep goes on from.
    ``typed``: the command line; ``reproduce``: the same without what a rerun does not need.
    """

    function: str
    samples: int = SAMPLES
    domain: tuple[float, float] = (0.0, 1.0)
    seed: int = 7
    exhaustive: bool = False
    span: tuple[int, int] = (0, 1 << 32)
    chunk: int = 0
    special: bool = True
    positions: bool = True
    state: str = ""
    reproduce: str = ""
    typed: str = ""


@dataclass(frozen=True)
class Example:
    """One input with both results, in hex and as text. ``ulp``: signed, + when the dut is the
    larger; None where there is no distance. ``kind``: as in ``elements.KINDS``, or
    ``equal``."""

    x_hex: str
    ref_hex: str
    dut_hex: str
    x: str
    ref: str
    dut: str
    ulp: int | None
    kind: str


@dataclass(frozen=True)
class Bin:
    """Differing pairs of one bin of the histogram; for ULP bins split by where the dut lies."""

    name: str
    count: int
    below: int | None = None
    above: int | None = None


@dataclass(frozen=True)
class Exponent:
    """Pairs whose input has this sign ("+", "-") and biased exponent (0: zeros and subnormals,
    255: infinities and NaNs)."""

    sign: str
    exponent: int
    pairs: int
    differ: int
    max_ulp: int

    @property
    def name(self) -> str:
        """``+2^-3``, ``-0`` (zero and subnormals), ``+inf/NaN``."""
        edges = {0: "0", 255: "inf/NaN"}
        return f"{self.sign}{edges.get(self.exponent, f'2^{self.exponent - 127}')}"


@dataclass(frozen=True)
class Special:
    """The special values, counted apart: pairs, how many differ, and those that do."""

    pairs: int
    differ: int
    examples: list[Example] = field(default_factory=list)


@dataclass(frozen=True)
class Placed:
    """Whether results depend on where an input sits. ``inputs``: how many were tried. ``side``:
    who broke the rule, or empty; ``text``: the first input it broke it at; ``count``: how many
    results were other ones. ``repeats``: False where that was in one and the same place."""

    inputs: int
    side: str = ""
    text: str = ""
    count: int = 0
    repeats: bool = True


@dataclass
class Sweep:
    """Two implementations of one function, compared bit for bit.

    ``inputs``: how they were chosen, label to text. ``bins``: "equal" first; they add up to
    ``pairs``. ``results``: pairs by class of the ref's result (rows) and of the dut's (columns),
    classes in the order of ``tally.CLASSES``, as are ``input_classes``. ``examples``: list
    name to examples, as in ``tally.LISTS``. ``outside``: results beyond 1 in size by ref and
    dut, None where that is no fault. ``where``: the memory the sweep ran in.
    """

    verdict: Verdict
    function: str
    ref: dict[str, str]
    dut: dict[str, str]
    inputs: dict[str, str]
    pairs: int
    differ: int = 0
    max_ulp: int | None = None
    bins: list[Bin] = field(default_factory=list)
    results: list[list[int]] = field(default_factory=list)
    input_classes: list[int] = field(default_factory=list)
    exponents: list[Exponent] = field(default_factory=list)
    examples: dict[str, list[Example]] = field(default_factory=dict)
    outside: tuple[int, int] | None = None
    special: Special | None = None
    placed: Placed | None = None
    remarks: list[str] = field(default_factory=list)
    where: str = "host"
    reproduce: str = ""
    seconds: float = 0.0

    @property
    def nan_bits(self) -> int:
        """Pairs that are NaN on both sides, with other bits."""
        return next((one.count for one in self.bins if one.name == NAN_PAYLOAD), 0)

    def to_json(self) -> str:
        """Versioned JSON text (UTF-8, one object)."""
        return _dumped("sweep", asdict(self))

    @classmethod
    def from_plain(cls, body: dict[str, Any]) -> Sweep:
        """From the object that ``to_json`` writes; KeyError or TypeError for any other."""
        body["verdict"] = Verdict(body["verdict"])
        body["bins"] = [Bin(**one) for one in body["bins"]]
        body["exponents"] = [Exponent(**one) for one in body["exponents"]]
        body["examples"] = {
            name: [Example(**one) for one in found] for name, found in body["examples"].items()
        }
        body["outside"] = body["outside"] and tuple(body["outside"])
        if body["special"]:
            examples = [Example(**one) for one in body["special"].pop("examples")]
            body["special"] = Special(**body["special"], examples=examples)
        body["placed"] = body["placed"] and Placed(**body["placed"])
        return cls(**body)


@dataclass(frozen=True)
class Expected:
    """What an article reports of one row, and the range a rerun has to fall into. ``share``: least
    and most differing inputs in percent; ``count``: the same as a number; ``max_ulp``: the most."""

    reported: str
    share: tuple[float, float] | None = None
    count: tuple[int, int] | None = None
    max_ulp: int | None = None


@dataclass
class TableRow:
    """One comparison of the table. ``verdict``: SAME when within what is ``expected``, or nothing
    is; DIVERGED when outside; NOT_RUN with a ``reason``. ``unit``: "f32" or "f64"."""

    name: str
    ref: str
    dut: str
    inputs: str
    expected: Expected
    verdict: Verdict
    reason: str = ""
    unit: str = "f32"
    pairs: int = 0
    differ: int = 0
    max_ulp: int | None = None
    first: Example | None = None


@dataclass
class Table:
    """Kestrel's table, measured again. ``about``: versions, label to text. ``next_step``: how the
    rows that were not run can be run."""

    verdict: Verdict
    seed: int
    rows: list[TableRow]
    about: dict[str, str]
    reproduce: str = ""
    seconds: float = 0.0
    next_step: str = ""

    def to_json(self) -> str:
        """Versioned JSON text (UTF-8, one object)."""
        return _dumped("table", asdict(self))

    @classmethod
    def from_plain(cls, body: dict[str, Any]) -> Table:
        """From the object that ``to_json`` writes; KeyError or TypeError for any other."""
        body["verdict"] = Verdict(body["verdict"])
        body["rows"] = [_table_row(row) for row in body["rows"]]
        return cls(**body)


def read_result(text: str, where: str) -> Sweep | Table | None:
    """The result in a JSON text, or None where it is of another format.

    Raises InputError naming ``where`` for a damaged one, or one of another version.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or body.pop("format", None) != FORMAT:
        return None
    version, what = body.pop("version", None), body.pop("what", None)
    kinds: dict[Any, type[Sweep] | type[Table]] = {"sweep": Sweep, "table": Table}
    if version != VERSION:
        raise InputError(
            f"{where}: version {version} of {FORMAT}, this parity reads {VERSION}",
            "render it with the parity that wrote it",
        )
    if what not in kinds:
        raise InputError(f"{where}: damaged: no {FORMAT} of that kind", "write the report again")
    try:
        return kinds[what].from_plain(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"{where}: damaged: a field is missing, or a value of another kind"
        raise InputError(problem, "write the report again") from error


class FunctionProbe(Protocol):
    """Compares implementations; found as ``mathfn`` in the entry-point group ``parity.probes``."""

    name: str
    claim: str

    def run(self, ask: Ask, ref: Implementation, dut: Implementation, progress: Progress) -> Sweep:
        """Both implementations over the inputs of ``ask``."""
        ...

    def table(self, seed: int, reproduce: str, progress: Progress) -> Table:
        """The rows that Kestrel's articles report, as far as this machine can run them."""
        ...


class FunctionPresenter(Protocol):
    """One report format of the group ``parity.function_reports``. Computes nothing."""

    name: str

    def write(self, found: Sweep | Table, stream: TextIO, options: Options) -> None:
        """Write the whole report."""
        ...


def percent(differ: int, pairs: int) -> str:
    """``26.4 %``, with as many digits as a small share needs; 0 and 100 only for none and all."""
    share = 100 * differ / pairs if pairs else 0.0
    if differ in (0, pairs):
        return f"{share:.0f} %"
    if share >= 1:
        return f"{share:.1f} %" if share < 99.95 else "over 99.9 %"
    return f"{share:.2g} %" if share >= 0.001 else f"{share:.1e} %"


def share_text(found: Sweep) -> str:
    """``105,600 of 400,002 inputs differ (26.4 %), at most 2 ULP``; or, with NaNs of other bits,
    ``193,924 of 4,294,967,296 inputs differ by at most 1 ULP, and 8,388,607 NaN in other bits``."""
    nans = found.nan_bits
    text = f"{found.differ - nans:,} of {found.pairs:,} inputs differ"
    if not found.differ:
        return text
    if nans == found.differ:
        return f"{nans:,} of {found.pairs:,} inputs differ, all NaN in other bits"
    if nans:
        most = "" if found.max_ulp is None else f" by at most {found.max_ulp:,} ULP"
        return f"{text}{most}, and {nans:,} NaN in other bits"
    text += f" ({percent(found.differ, found.pairs)})"
    return text if found.max_ulp is None else f"{text}, at most {found.max_ulp:,} ULP"


def implementation_facts(about: Mapping[str, str]) -> str:
    """``glibc 2.36 (libm.so.6); x86_64 with fma``: what a reader must know of a side beside its
    name. The rest stands in the JSON and HTML reports."""
    texts = [text for label, text in about.items() if label not in UNTOLD]
    return "; ".join([*texts, "emulated"] if about.get("emulated") == "yes" else texts)


def _table_row(row: dict[str, Any]) -> TableRow:
    row["verdict"] = Verdict(row["verdict"])
    expected = row["expected"]
    for name in ("share", "count"):
        expected[name] = expected[name] and tuple(expected[name])
    row["expected"] = Expected(**expected)
    row["first"] = row["first"] and Example(**row["first"])
    return TableRow(**row)


def _dumped(what: str, body: dict[str, Any]) -> str:
    return json.dumps({"format": FORMAT, "version": VERSION, "what": what, **body}, indent=1) + "\n"
