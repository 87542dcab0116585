"""Digests of what a loaded module holds, by our names where we have any."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.dump import TensorType
from parity.model.config import MODULES
from parity.model.folder.names import Made
from parity.model.model import Model, weight_shapes
from parity_torch.arrays import digests_of, host, type_of
from parity_torch.building import made_for, rotary_tables, taken

if TYPE_CHECKING:
    from torch import nn

_Reading = Callable[[], np.ndarray]


def weights_of(module: nn.Module, model: Model) -> dict[str, tuple[TensorType, int]]:
    """Type and digest of every tensor that ``module`` holds, in the order of ``model``'s names.

    Under our names and in our layout for an architecture that we know, so that equal weights have
    equal digests on every side; under the library's names for any other. Norms that the library
    holds as an offset from 1 are told with 1 added, in f32.
    """
    known = model.config.family != MODULES
    readings = dict(_ours(module, model) if known else _own(module))
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # one hash is a chain of its bytes
        return dict(zip(readings, pool.map(_told, readings.values()), strict=True))


def _told(read: _Reading) -> tuple[TensorType, int]:
    array = read()
    return type_of(array), digests_of([array])[0]


def _own(module: nn.Module) -> Iterator[tuple[str, _Reading]]:
    for name, tensor in module.state_dict().items():
        yield name, partial(host, tensor)


def _ours(module: nn.Module, model: Model) -> Iterator[tuple[str, _Reading]]:
    parameters, made = dict(module.named_parameters()), made_for(module, model.config)
    tables = list(rotary_tables(module))
    for name in model.names():
        if name in made:
            yield name, partial(_made, parameters, made[name], name, model.config)
        elif tables:  # inv_freq: every table of the library is the same
            yield name, partial(host, tables[0])


def _made(parameters: dict[str, Any], made: Made, name: str, config: Any) -> np.ndarray:
    """One of our tensors, C-contiguous, of the dtype that its parameter has."""
    stored = host(parameters[made.pieces[0].name])
    parts = [taken(piece, stored).reshape(-1) for piece in made.pieces]
    values = np.concatenate(parts) if parts[1:] else parts[0]
    values = values.reshape(weight_shapes(config)[name].shape)
    return values.astype(np.float32) + np.float32(1) if made.offset else values
