"""``parity order`` and ``parity replay-order``: the order of an op's additions, and its bits."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.cli.probing import parse_sizes
from parity.cli.reporting import require_writable_reports
from parity.cli.rerunning import WRITES, words_without
from parity.errors import InputError, NotRunError
from parity.presenting import STDOUT, Options, write_out, write_text
from parity.progress import Progress
from parity.registry import ORDER_REPORTS, find, foreign_object

if TYPE_CHECKING:
    from parity.order.answer import Answer
    from parity.order.record import OrderPresenter, OrderTable, Row
    from parity.order.sums import Ask
    from parity.order.table import Study

MOST_OUTPUTS = 1 << 32
ROWS, MOST_ROWS = 256, 1 << 16  # of an order file
OUTPUTS = 64  # of a product, unless --N is given
MOST_SEED = (1 << 32) - 1
MOST_THREADS = 1 << 12
UNEXPLAINED = "tree, not explained"
SUFFIX, SOURCE = ".order.json", ".py"
COPIES = 4  # of the inputs that one call keeps: as asked, turned, padded, in the op's dtype
RECORDS = {"--out", "--rows"}
LEFT_OUT = WRITES | RECORDS | {"--loops"}


def run_order(
    typed: str,
    op: str,
    *,
    sizes: str,
    seed: int,
    outputs: int | None,
    rows: int | None,
    out: str | None,
    loops: str | None,
    json_path: str | None,
    html_path: str | None,
    quiet: bool,
    **shape: Any,
) -> int:
    """Run ``parity order``; 0 only where every batch size has a tree and the bits agree."""
    from parity.order.table import study

    ask, batch = make_ask(op, **shape), parse_batch(sizes)
    require_range("--seed", seed, 0, MOST_SEED)
    if outputs is not None:
        require_range("--outputs", outputs, 0, MOST_OUTPUTS)
    kept_rows = ROWS if rows is None else rows
    require_range("--rows", kept_rows, 0, MOST_ROWS)
    if rows is not None and out is None:
        raise InputError(f"--rows {rows}: rows of no order file", f"write --out NAME{SUFFIX} too")
    orders, sources = files_of(out, batch, SUFFIX), files_of(loops, batch, SOURCE)
    paths = {"json": json_path, "html": html_path}
    reports = {name: path for name, path in paths.items() if path is not None}
    files = (*orders.values(), *sources.values(), *reports.values())
    require_writable_reports(*files, inputs=_own_source(ask))
    require_room(ask, max(batch))
    if shape["n_size"] is not None:
        _require_outputs(ask, batch[0])
    with Progress(quiet=quiet) as progress:
        found = study(ask, batch, seed=seed, outputs=outputs, progress=progress)
    kept, unkept, changed = _write_orders(found, orders, kept_rows, seed)
    looped, unlooped = _write_loops(
        found, {size: path for size, path in sources.items() if size not in changed}
    )
    table = replace(
        found.table,
        rows=[_unexplained(row, changed.get(row.M)) for row in found.table.rows],
        reproduce=shlex.join(words_without(typed, LEFT_OUT - RECORDS if changed else LEFT_OUT)),
        written=kept + looped,
        notes=unkept + unlooped,
    )
    _write(table, reports, quiet)
    return int(table.exit_status)


def make_ask(
    op: str,
    *,
    k_size: int,
    n_size: int | None,
    dtype: str,
    device: str,
    terms: str | None,
    threads: int | None,
) -> Ask:
    """What the options ask for; InputError for what makes no sense."""
    from parity.order.sums import LARGEST, Ask, parse_op

    require_range("--K", k_size, 1, LARGEST)
    outputs = OUTPUTS if n_size is None else n_size
    require_range("--N", outputs, 1, LARGEST)
    if threads is not None:
        require_range("--threads", threads, 1, MOST_THREADS)
    return Ask(
        op=op,
        K=k_size,
        N=outputs,
        dtype=dtype,  # type: ignore[arg-type]  # click admits no other
        device=device,
        terms=terms or "",  # type: ignore[arg-type]
        threads=threads or 0,
        options=parse_op(op),
    )


def _require_outputs(ask: Ask, M: int) -> None:
    """InputError where --N was typed for an op that has as many sums with any other N."""
    from parity.order.sums import open_op

    if ":" in ask.name:
        used = ask.terms not in ("values", "squares")
    else:
        one, two = (open_op(replace(ask, N=size), M).rows for size in (ask.N, 2 * ask.N))
        used = one != two
    if not used:
        raise InputError(f"--N {ask.N}: {ask.name} has one sum a row, no N", "leave --N out")


def _own_source(ask: Ask) -> list[Path]:
    """The file of a function of the user's own, which nothing may be written over."""
    module, colon, _ = ask.name.partition(":")
    if not colon:
        return []
    foreign_object(ask.name, "op", "a function")
    source = getattr(sys.modules.get(module), "__file__", None)
    return [Path(source)] if source else []


def parse_batch(sizes: str) -> tuple[int, ...]:
    """``1,8,64`` or ``1..8`` as batch sizes, each once."""
    from parity.order.sums import LARGEST

    batch = parse_sizes(sizes, "--M")
    require_range("--M", max(batch), 1, LARGEST)
    return batch


def files_of(path: str | None, batch: Sequence[int], suffix: str) -> dict[int, str]:
    """A file for each batch size: ``path`` itself for a single one, ``name.m8.order.json`` of
    ``name.order.json`` for several. InputError where ``path`` does not end in ``suffix``."""
    if path is None:
        return {}
    if not path.endswith(suffix) or os.path.basename(path) == suffix:
        raise InputError(f"{path}: its name does not end in {suffix}", f"write NAME{suffix}")
    if len(batch) == 1:
        return {batch[0]: path}
    stem = path.removesuffix(suffix)
    return {size: f"{stem}.m{size}{suffix}" for size in batch}


def require_range(option: str, value: int, least: int, most: int) -> None:
    """InputError for a number of an option that is not within its bounds."""
    if not least <= value <= most:
        raise InputError(f"{option} {value}: not between {least} and {most:,}", "mend the option")


def require_room(ask: Ask, M: int) -> None:
    """NotRunError, with the numbers, for a shape whose arrays would not fit into memory."""
    from parity.model.memory import free_bytes, size_text

    needed = COPIES * 4 * (ask.K * max(ask.N, M) + M * ask.N)
    free = free_bytes()
    if free is not None and needed > free:
        raise NotRunError(
            f"{ask.name}: not enough memory for K {ask.K:,}, N {ask.N:,}, M {M:,}: "
            f"about {size_text(needed)} are needed, {size_text(free)} are free",
            "write a smaller --N or --M",
        )


def write_result(found: OrderTable, name: str, path: str, options: Options) -> None:
    """One report of a table; InputError for a format that there is not."""
    if name == "json":
        write_out(path, lambda stream: write_text(stream, found.to_json()))
        return
    presenter: OrderPresenter = find(ORDER_REPORTS, name).load()()
    write_out(path, lambda stream: presenter.write(found, stream, options))


def _write(found: OrderTable, reports: dict[str, str], quiet: bool) -> None:
    """The reports asked for, then the console, unless one of them has taken stdout."""
    options = Options(quiet=quiet, json_path=reports.get("json", ""))
    for name, path in reports.items():
        write_result(found, name, path, options)
    if STDOUT not in reports.values():
        write_result(found, "console", STDOUT, options)


def _write_orders(
    found: Study, files: dict[int, str], rows: int, seed: int
) -> tuple[list[str], list[str], dict[int, str]]:
    """An order file for each M that has a tree, one without would replay other bits: the files,
    what is said of the others, and by M why rows that were asked later are not the tree's."""
    from parity.order.file import to_text

    written: list[str] = []
    notes: list[str] = []
    changed: dict[int, str] = {}
    for size, path in files.items():
        if not found.answers[size].green:
            notes.append(f"no order file for M = {size}: {found.answers[size].verdict}")
            continue
        try:
            text = to_text(found.order_file(size, rows=rows, seed=seed))
        except NotRunError as error:
            changed[size] = error.message
            notes.append(f"no order file for M = {size}: {UNEXPLAINED}")
            continue
        write_out(path, partial(_put, text=text))
        written.append(path)
    return written, notes, changed


def _unexplained(row: Row, why: str | None) -> Row:
    """A row of the table whose op gave other bits when it was asked again."""
    if why is None:
        return row
    return replace(row, verdict=UNEXPLAINED, name="", evidence=[*row.evidence, f"rows: {why}"])


def _write_loops(found: Study, files: dict[int, str]) -> tuple[list[str], list[str]]:
    """Readable loops for each M whose tree has a short form: the files, and what is said of the
    others."""
    written: list[str] = []
    notes: list[str] = []
    for size, path in files.items():
        text, problem = _loops(found.answers[size])
        if problem:
            notes.append(f"no loops for M = {size}: {problem}")
            continue
        write_out(path, partial(_put, text=text))
        written.append(path)
    return written, notes


def _loops(answer: Answer) -> tuple[str, str]:
    """The source of an answer's tree, and why there is none."""
    from parity.order.loops import loops

    if answer.order is None or not answer.green:
        return "", answer.verdict
    try:
        return loops(answer.order), ""
    except InputError as error:
        return "", error.message


def _put(stream: Any, text: str) -> None:
    write_text(stream, text)
