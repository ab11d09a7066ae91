"""The reference on the site: every public name stands on one of its pages."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import sbp_native as sbp
import sbp_native.pravega
import sbp_native.seastar
import sbp_native.spark
import sbp_native.tank

PAGES = Path(__file__).resolve().parents[2] / "docs" / "api"
SHOWN = Counter(
    name for page in PAGES.glob("*.md") for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)
)
#: Modules that are shown whole, with all that their `__all__` names.
MODULES = {"sbp_native.errors": sbp.errors}


def public() -> list[str]:
    """Every name that users import, with its module."""
    whole = {name for module in MODULES.values() for name in module.__all__}
    names = [f"sbp_native.{name}" for name in sbp.__all__ if name not in whole | {"aio", "__version__"}]
    return [
        *names,
        "sbp_native._native.aio_connect",
        "sbp_native._native.tank_connect",
        "sbp_native._native.tank_aio_connect",
        "sbp_native._native.pravega_connect",
        "sbp_native._native.pravega_aio_connect",
        "sbp_native._native.seastar_connect",
        "sbp_native._native.seastar_aio_connect",
        *(
            f"{module.__name__}.{name}"
            for module in (sbp_native.tank, sbp_native.pravega, sbp_native.seastar)
            for name in module.__all__
            if name not in whole | {"aio", "connect"}
        ),
        *(f"sbp_native.spark.{name}" for name in sbp_native.spark.__all__),
    ]


@pytest.mark.parametrize("name", public())
def test_a_public_name_has_a_place(name: str) -> None:
    assert SHOWN[name] == 1
