"""A user's own function as an implementation: ``module:function``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from parity.dtypes import value_text
from parity.errors import InputError
from parity.registry import foreign_object

Floats = npt.NDArray[np.float32]

WANTED = "return float32 results, one for each argument"
# What a function over one number says to an array: which of the two it is shows in this.
_NOT_FOR_ARRAYS = (TypeError, ValueError)


class ForeignFunction:
    """A function of the user's, whatever FN the command names.

    It takes a float32 array and returns one of the same shape, or takes one ``numpy.float32`` and
    returns one; which of the two is seen at the first call. A Python float of one number is rounded
    to float32, once. Raises InputError for a module or a function that is not there.
    """

    def __init__(self, path: str, functions: tuple[str, ...]) -> None:
        self.name = path
        self.functions = functions
        found = foreign_object(path, "implementation", "a function")
        if not callable(found):
            raise InputError(f"implementation {path} is no function", "name a function")
        self._function: Callable[[Any], Any] = found
        self._rounded = False
        self._over_arrays = self._takes_arrays()

    def describe(self) -> Mapping[str, str]:
        """Where it comes from, and how it is called."""
        how = "a float32 array" if self._over_arrays else "one number at a time"
        if self._rounded:
            how += ", rounded to float32"
        return {"library": f"user's function {self.name}", "called": how}

    def evaluate(self, function: str, x: Floats) -> Floats:
        """The user's function of x, which it may read and not write.

        Raises InputError when it raises, or returns another dtype or shape.
        """
        if self._over_arrays:
            view = x.view()
            view.flags.writeable = False
            return self._checked(self._called(view), x.shape)
        singles = [self._single(value) for value in x]
        return np.array(singles, np.float32).reshape(x.shape)

    def _single(self, x: np.float32) -> Floats:
        result = self._called(x, _at(x))
        if type(result) is float:  # not float64, which is one too: there the user chose the type
            self._rounded = True
            with np.errstate(all="ignore"):
                result = np.float32(result)
        return self._checked(result, (), _at(x))

    def _takes_arrays(self) -> bool:
        try:
            with np.errstate(all="ignore"):
                self._function(np.array([0.5, 1.0], np.float32))
        except _NOT_FOR_ARRAYS as error:
            self._require_single(error)
            return False
        except (Exception, SystemExit) as error:
            raise self._raised(error) from error
        return True

    def _require_single(self, error: Exception) -> None:
        """When one number is refused too, it is the array's ``error`` that tells why."""
        try:
            with np.errstate(all="ignore"):
                self._rounded = type(self._function(np.float32(0.5))) is float
        except (Exception, SystemExit):
            raise self._raised(error) from error

    def _called(self, x: Any, where: str = "") -> Any:
        try:
            with np.errstate(all="ignore"):
                return self._function(x)
        except MemoryError:
            raise  # no fault of the function: there are too many inputs
        except (Exception, SystemExit) as error:
            raise self._raised(error, where) from error

    def _checked(self, result: Any, shape: tuple[int, ...], where: str = "") -> Floats:
        """A copy of the result: the function may hand out the same array at each call."""
        dtype = getattr(result, "dtype", type(result).__name__)
        if dtype != np.float32:
            raise InputError(f"implementation {self.name} returned {dtype}{where}", WANTED)
        if np.shape(result) != shape:
            raise InputError(
                f"implementation {self.name} returned shape {np.shape(result)} for {shape}{where}",
                WANTED,
            )
        return np.array(result)

    def _raised(self, error: BaseException, where: str = "") -> InputError:
        said = str(error).partition("\n")[0]
        return InputError(
            f"implementation {self.name} raised {type(error).__name__}{where}: {said}",
            "it must take every float32, NaN and infinities too, and leave its argument as it is",
        )


def _at(x: np.float32) -> str:
    """`` at 42b20000 (+8.90000000e+01)``."""
    word = int(x.view(np.uint32))
    return f" at {word:08x} ({value_text(word, 'f32')})"
