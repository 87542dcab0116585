"""What only the dev extra brings: where CI lacks it the run fails, elsewhere a skip is counted."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest


def lack(reason: str, env: Mapping[str, str] = os.environ) -> None:
    """Skip the running test for ``reason``; fail it with CI set, where a skip would hide a hole."""
    if env.get("CI"):
        pytest.fail(f"{reason}: CI must install it (scripts/setup.sh dev)", pytrace=False)
    pytest.skip(reason)
