"""The public functions: what the commands of the same names do, as values.

Nothing is printed; a command's exit status is the result's ``exit_status``, and what a command
refuses raises here: InputError (bad input, exit status 2), NotRunError (no device, a capability is
missing, nothing to compare: 3). Both stand in ``parity.errors``; ``next_step`` says what to do.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from parity.divergence import DivergedError, Divergence, ProbeResult
from parity.dump import MAIN, Dump, Entry, TensorType
from parity.dumps.recording import Recorder, record, whole_number
from parity.errors import InputError, ParityBug, ParityError
from parity.registry import ENGINES, checked_engine, plugins
from parity.spec import EngineSpec, FileSpec, Spec, parse_spec
from parity.status import Level

if TYPE_CHECKING:
    from parity.comparison.files import Source
    from parity.model.model import Model
    from parity.protocol import Engine

__all__ = ["DivergedError", "Divergence", "ProbeResult", "compare", "diff", "isodiff", "record"]

Name = str | os.PathLike[str]
Numbers = int | Iterable[int]

# Options of the command line in its messages, which a caller in Python knows as keywords.
_OPTIONS = (
    *("alias", "batch", "bisect", "chunks", "dump-prefill", "dut", "engine", "fields", "hash"),
    "level",
    *("m", "model", "n", "pos", "prefill", "profile", "prompt", "ref", "repro", "seed", "seeds"),
    *("synthetic", "tokenizer", "tokens", "tokens-from", "weights", "partial"),
)
_OPTION = re.compile(rf"--({'|'.join(sorted(_OPTIONS, key=len, reverse=True))})(?![\w-])")


def diff(
    ref: Name | type[Engine] | Engine = "cpu",
    dut: Name | type[Engine] | Engine | None = None,
    *,
    model: Name | Model = "",
    seed: int = 7,
    weights: Literal["q4", "f32"] | None = None,
    tokens: Sequence[int] | None = None,
    prompt: str | None = None,
    tokenizer: Name | None = None,
    n: int = 4,
    prefill: Literal["own", "ref"] = "own",
    dump_prefill: bool = False,
    tokens_from: Literal["ref", "own"] = "ref",
    fields: Sequence[str] = (),
    hash: Literal["fnv1a64", "kestrel-fnv"] = "fnv1a64",
    level: Literal["bit", "logits", "greedy"] | None = None,
    profile: bool = False,
    bisect: bool = False,
    alias: Name | None = None,
    repro: Name | None = None,
    progress: bool = False,
) -> Divergence:
    """Run the same model on the same tokens on two sides and compare every key: ``parity diff``.

    ``ref``, ``dut``: a spec (``"cpu"``, ``"cuda:fast"``, ``"run.dump"``, ``"exec:./engine"``,
    ``"module:Engine"``), a path, an engine's class (opened with its first tier) or an engine that
    is open already, of which each side needs its own. ``dut`` by default: ``cuda`` where a device
    works, else ``emu``. ``model``: a preset with weights from ``seed``, a GGUF file, a Hugging Face
    folder, or a ``parity.model.model.Model``; by default the one that a side names
    (``"hf:FOLDER"``), else moe-tiny. ``weights``: how a preset (by default q4) or a folder
    (f32) stores its matrices. ``tokens``: the prompt, ids; by default 32 from the seed.
    ``prompt``: the prompt as text, for the model's tokenizer or the one in the folder
    ``tokenizer``. ``n``: tokens decoded after it.
    ``prefill``: each side its own, or the dut takes over the ref's state. ``fields``: optional
    fields to dump too. ``level``: what ``exit_status`` 0 requires; by default bit, or
    greedy where one side alone adds in an order of its own (``Engine.order``). ``profile``: measure
    every field. ``alias``: a file of rules for other names, with a dut that was written.
    ``repro``: a new folder for the op of a red run.
    ``progress``: show it on stderr.

    Raises InputError for a side or a setting that cannot be, NotRunError where a side cannot run
    here.

    >>> import parity
    >>> found = parity.diff("cpu", "cpu", n=1)
    >>> found
    <Divergence same, 46 of 46 keys same, level bit>
    >>> red = parity.diff("cpu", "cpu:fast", n=1, prefill="ref")
    >>> red.verdict.value, int(red.exit_status), red.first
    ('diverged', 1, 't32_l0_kraw')
    >>> red.elements.rows[0].ulp
    -2
    """
    from parity.progress import Progress
    from parity.runs.carried import model_text
    from parity.runs.engine_diff import Ask
    from parity.runs.settings import run_settings
    from parity.runs.side_diff import FALLBACK, FELL_BACK, default_dut, diff_sides

    settings = {
        **{"model": _model(model), "seed": whole_number(seed, "seed"), "weights": weights},
        **{"tokens": _token_ids(tokens), "n": whole_number(n, "n"), "prompt": prompt},
        **{"tokenizer": None if tokenizer is None else Path(tokenizer)},
        **{"prefill": prefill, "dump_prefill": dump_prefill, "tokens_from": tokens_from},
        **{"fields": [field.removeprefix("+") for field in _names("fields", fields)]},
    }
    with _keywords():
        asked = _choice("level", level or "bit", ("bit", "logits", "greedy"))
        _check_settings(weights=weights, prefill=prefill, tokens_from=tokens_from, hash=hash)
        chosen = default_dut() if dut is None else dut
        specs = (_spec("ref", ref), _spec("dut", chosen))
        _require_two(ref, chosen)
        typed = settings["model"]
        named = model_text(specs, typed) if isinstance(typed, str) else typed
        run = run_settings(**{**settings, "model": named}, hash_name=hash, sides=specs)  # type: ignore[arg-type]
        folder = None if repro is None else _new_folder(repro)
        told: dict[str, Any] = {"hash": hash, "level": level, "profile": profile}
        told |= {"bisect": bisect, "alias": alias and str(alias)}
        line = _command("diff", specs, settings | told)
        with Progress(quiet=not progress) as shown:
            tree = diff_sides(
                specs,
                run,
                Ask(
                    Level(asked),
                    line,
                    seed,
                    typed=level is not None,
                    profile=profile,
                    orders=True,
                ),
                shown,
                bisect=bisect,
                repro=folder,
                alias=None if alias is None else Path(alias),
            )
    if dut is None and chosen == FALLBACK:
        tree.notes.append(FELL_BACK)
    return Divergence(tree)


def isodiff(
    engine: Name | type[Engine] | Engine = "cpu",
    m: Numbers = (2, 4, 8),
    *,
    rb: bool = False,
    rb_only: bool = False,
    chunks: Numbers = (),
    batch: bool = False,
    pos: Numbers = range(33, 39),
    model: Name = "",
    seed: int = 7,
    seeds: int = 1,
    weights: Literal["q4", "f32"] | None = None,
    tokens: Sequence[int] | None = None,
    prompt: str | None = None,
    tokenizer: Name | None = None,
    synthetic: Literal["", "gdn", "attn"] = "",
    progress: bool = False,
) -> ProbeResult:
    """Prove that M rows in one forward equal M single steps, bit for bit: ``parity isodiff``.

    ``m``: one M or several. ``rb``: check mark and rollback too; ``rb_only``: them alone.
    ``chunks``: check prompt chunks of these sizes alone. ``batch``: check batches of ``m``
    unrelated sequences alone. ``pos``: first positions of a block.
    ``seeds``: how many models, from ``seed`` on; of a file, whose weights are what they are, how
    many prompts. ``tokens`` or ``prompt``: what is fed first, the seed draws the rest.
    ``synthetic``: every layer of a hybrid is that kind. ``engine`` and the rest: as in ``diff``;
    ``model`` by default the engine's own (``"hf:FOLDER"``), else moe-tiny, hybrid-tiny with
    ``synthetic``. An engine that lacks a capability
    gives a result that is not_run.

    Raises InputError for a setting that cannot be, NotRunError where the engine cannot run here.

    >>> import parity
    >>> parity.isodiff("cpu", m=2, pos=33).verdict.value
    'same'
    """
    from parity.progress import Progress
    from parity.runs.probe_run import probe_settings, run_probe

    names = ("rollback",) if rb_only else ("isodiff", "rollback") if rb else ("isodiff",)
    if _numbers("chunks", chunks):
        if rb or rb_only or batch:
            raise InputError("chunks is a check of its own", "give it without rb and batch")
        names = ("chunks",)
    if batch:
        if rb or rb_only:
            raise InputError("batch is a check of its own", "give it without rb")
        names = ("batch",)
    with _keywords():
        _check_settings(weights=weights)
        _choice("synthetic", synthetic, ("", "gdn", "attn"))
        spec = _spec("engine", engine)
        if isinstance(spec, FileSpec):
            raise InputError(f"{spec.text}: not an engine", "parity engines lists them")
        ask = probe_settings(
            sizes=_some("m", _numbers("m", m)),
            starts=_some("pos", _numbers("pos", pos)),
            model=os.fspath(model),
            weights=weights,
            only=synthetic,
            seed=seed,
            seeds=seeds,
            tokens=_token_ids(tokens),
            prompt=prompt,
            tokenizer=None if tokenizer is None else Path(tokenizer),
            chunks=_numbers("chunks", chunks),
            sides=(spec,),
        )
        with Progress(quiet=not progress) as shown:
            return ProbeResult(tuple(run_probe(name, spec, ask, shown) for name in names))


def compare(
    ref: Name | Mapping[str, Any] | Dump | Recorder,
    dut: Name | Mapping[str, Any] | Dump | Recorder,
    *,
    level: Literal["bit", "logits", "greedy"] = "bit",
    alias: Name | None = None,
    partial: bool = False,
    elements: int = 12,
) -> Divergence:
    """Compare what two sides left, key by key; no engine runs: ``parity compare``.

    ``ref``, ``dut``: a path (a dump, a ``.npz``, a ``.safetensors``, a folder of ``.npy``), a
    mapping from names to arrays (NumPy, PyTorch, CuPy, as for ``record``), a ``parity.dump.Dump``,
    or a recording that has ended. Where both sides hold values the first key that differs is shown
    to the bit: up to ``elements`` of its elements. ``alias``: a file of rules for other names.
    ``partial``: admit a dump that is cut or was interrupted, as far as it goes; never same then.

    Names of the form ``t<pos>_l<layer>_<field>`` compare in dataflow order, other names before
    them in the ref's order. Raises InputError for what cannot be read, or was hashed otherwise.

    >>> import numpy, parity
    >>> ref = {"attn": numpy.array([1.0, 2.0], numpy.float32)}
    >>> dut = {"attn": numpy.nextafter(ref["attn"], numpy.float32(9))}
    >>> found = parity.compare(ref, dut)
    >>> found.first, found.elements.differ, found.elements.max_ulp
    ('attn', 2, 1)
    >>> found.elements.rows[0].ref_hex, found.elements.rows[0].dut_hex
    ('3f800000', '3f800001')
    >>> parity.compare(ref, ref).same
    True
    """
    from parity.comparison.alias import read_aliases
    from parity.comparison.files import CONTROL_SEED, compare_files, compare_sources
    from parity.runs.engine_diff import Ask

    with _keywords():
        ask = Ask(Level(_choice("level", level, ("bit", "logits", "greedy"))), "", CONTROL_SEED)
        rules = None if alias is None else Path(alias)
        if isinstance(ref, str | os.PathLike) and isinstance(dut, str | os.PathLike):
            paths = Path(ref), Path(dut)
            asked = None if level == "bit" else level  # what the command asks for by itself
            options = {"level": asked, "alias": alias and str(alias), "partial": partial}
            line = _line("parity compare", [str(path) for path in paths], options)
            ask = Ask(ask.level, line, CONTROL_SEED)
            return Divergence(
                compare_files(*paths, ask, alias=rules, partial=partial, limit=elements)
            )
        sources = _sources(ref, dut, partial)
        tree = compare_sources(
            *sources,
            ask,
            rules=[] if rules is None else read_aliases(rules),
            partial=partial,
            limit=elements,
        )
    return Divergence(tree)


# --- sides ---------------------------------------------------------------------------------------


def _spec(role: str, side: Any) -> Spec:
    """What ``side`` is; raises InputError where it is none."""
    if isinstance(side, os.PathLike):
        path = Path(side)
        return FileSpec(str(path), path)
    if isinstance(side, str):
        return parse_spec(side, plugins(ENGINES))
    kind = side if isinstance(side, type) else type(side)
    text = f"{kind.__module__}:{kind.__qualname__}"
    try:
        checked_engine(kind, f"{role} {text}")
    except ParityBug as error:
        raise InputError(
            str(error), "give a spec, a path, an engine's class, or an engine"
        ) from error
    return EngineSpec(text, text, foreign=True, given=side)


def _require_two(ref: object, dut: object) -> None:
    if ref is dut and not isinstance(ref, str | os.PathLike | type):
        raise InputError("ref and dut are one engine, with one state", "open two of them")


def _sources(ref: Any, dut: Any, partial: bool) -> tuple[Source, Source]:
    """Both sides, in memory. Tensors are hashed as the side is that was hashed before."""
    hashed = [_written(side, partial) for side in (ref, dut)]
    names = {found.dump.hash_name for found in hashed if found is not None}
    name = names.pop() if len(names) == 1 else "fnv1a64"
    ref_source, dut_source = (
        found or _tensors(side, role, name)
        for found, side, role in zip(hashed, (ref, dut), ("ref", "dut"), strict=True)
    )
    return ref_source, dut_source


def _written(side: Any, partial: bool) -> Source | None:
    """The source of a side that holds digests; None for tensors."""
    from parity.comparison.files import Source, read_source
    from parity.dumps.tensor_files import is_tensor_path

    if isinstance(side, Dump):
        return Source(side)
    if isinstance(side, Recorder):
        return Source(side.dump, side.load)
    if isinstance(side, str | os.PathLike) and not is_tensor_path(Path(side)):
        return read_source(Path(side), partial)
    return None


def _tensors(side: Any, role: str, hash_name: str) -> Source:
    from parity.comparison.files import Source, read_source
    from parity.dumps.host_arrays import host_tensor
    from parity.dumps.tensor_files import Tensor, unique_names
    from parity.fnv import BASES, fnv1a64_array
    from parity.keys import Key

    if isinstance(side, str | os.PathLike):
        return read_source(Path(side), hash_name=hash_name)
    if not isinstance(side, Mapping):
        raise InputError(
            f"{role}: {type(side).__name__} cannot be compared",
            "give a path, a mapping from names to arrays, a Dump or a recording",
        )

    def load(name: str) -> Tensor:
        try:
            return host_tensor(side[name])
        except InputError as error:
            raise InputError(f"{role} {name}: {error.message}", error.next_step) from error

    entries = []
    for name in unique_names(role, side):
        tensor = load(name)
        kind = TensorType(tensor.dtype, tensor.array.shape)
        digest = fnv1a64_array(tensor.array, BASES[hash_name])
        entries.append(Entry(Key.of_name(name), digest, kind))
    return Source(Dump({"hash": hash_name}, {MAIN: entries}, f"{role} arrays"), load)


# --- settings ------------------------------------------------------------------------------------


@contextmanager
def _keywords() -> Iterator[None]:
    """Name keywords in messages that were written for the command line's options."""
    try:
        yield
    except ParityError as error:
        error.message, error.next_step = (
            _OPTION.sub(lambda found: found[1].replace("-", "_"), text)
            for text in (error.message, error.next_step)
        )
        error.args = (error.message,)
        raise


def _choice(name: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        said = ", ".join(map(repr, known))
        raise InputError(f"{name} {value!r}: no such {name}", f"give one of {said}")
    return value


def _model(given: Name | Model) -> str | Model:
    """A preset or a path as text; a model as it is."""
    return os.fspath(given) if isinstance(given, str | os.PathLike) else given


def _check_settings(**given: str | None) -> None:
    known = {
        **{"weights": ("q4", "f32"), "prefill": ("own", "ref"), "tokens_from": ("ref", "own")},
        "hash": ("fnv1a64", "kestrel-fnv"),
    }
    for name, value in given.items():
        if value is not None:
            _choice(name, value, known[name])


def _token_ids(given: Any) -> list[int] | None:
    """Ids from a list, an array or a tensor of one axis; InputError for anything else."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"tokens={given!r}: not token ids", "write tokens=[1, 2, 3]")
    found = [whole_number(token, "token") for token in given]
    if not found:
        raise InputError("tokens is empty: a prompt has one token or more", "leave tokens out")
    return found


def _names(name: str, given: Sequence[str]) -> Sequence[str]:
    if isinstance(given, str):
        raise InputError(f"{name}={given!r}: a text, not names", f"write {name}=[{given!r}]")
    return given


def _numbers(name: str, given: Numbers) -> tuple[int, ...]:
    """One number or several, each once; InputError for what is none or below 1."""
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    bad = any(isinstance(one, bool) or not hasattr(one, "__index__") for one in found)
    if bad or min(found, default=1) < (0 if name == "pos" else 1):
        raise InputError(f"{name}={given!r}: not numbers from 1", f"write {name}=4 or a list")
    return tuple(dict.fromkeys(map(int, found)))


def _some(name: str, found: tuple[int, ...]) -> tuple[int, ...]:
    if not found:
        raise InputError(f"{name} is empty: nothing to run", f"write {name}=4 or a list")
    return found


def _new_folder(path: Name) -> str:
    from parity.explain.repro import require_new_folder

    require_new_folder(os.fspath(path))
    return os.fspath(path)


# --- the line that makes a run again -------------------------------------------------------------

_DEFAULTS = {
    **{"model": "moe-tiny", "seed": 7, "n": 4, "prefill": "own"},
    **{"tokens_from": "ref", "hash": "fnv1a64"},
}


def _command(name: str, specs: tuple[Spec, Spec], options: Mapping[str, Any]) -> str:
    """The command that does the same; "" where a side or the model is an object that none names."""
    nameable = all(not isinstance(spec, EngineSpec) or _nameable(spec) for spec in specs)
    if not nameable or not isinstance(options["model"], str):
        return ""
    fields = ",".join(f"+{field}" for field in options["fields"])
    tokens = options["tokens"] and ",".join(map(str, options["tokens"]))
    told = {**options, "fields": fields, "tokens": tokens}
    sides = ["--ref", specs[0].text, "--dut", specs[1].text]
    return _line(f"parity {name}", sides, told)


def _nameable(spec: EngineSpec) -> bool:
    """Whether ``module:attr`` leads to the class that was given; an open engine has settings that
    it does not tell."""
    import sys

    module, _, attribute = spec.name.partition(":")
    found = getattr(sys.modules.get(module), attribute, None)
    return spec.given is None or (found is spec.given and module != "__main__")


def _line(command: str, words: Sequence[str], options: Mapping[str, Any]) -> str:
    for name, value in options.items():
        if value and value != _DEFAULTS.get(name):
            option = f"--{name.replace('_', '-')}"
            words = [*words, option] if value is True else [*words, option, str(value)]
    return f"{command} {shlex.join(words)}"
