"""Both record codecs, so that every test of records runs on each."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

IMPLEMENTATIONS = {"readable": "pylog.codec.records", "compiled": "pylog.codec._records"}


@pytest.fixture(params=IMPLEMENTATIONS, scope="session")
def codec(request: pytest.FixtureRequest) -> ModuleType:
    """The module with RecordEncoder, RecordDecoder and decode_columns."""
    return implementation(request.param)


@pytest.fixture(scope="session")
def both() -> tuple[ModuleType, ModuleType]:
    """The readable and the compiled codec, to compare."""
    return implementation("readable"), implementation("compiled")


def implementation(name: str) -> ModuleType:
    try:
        return importlib.import_module(IMPLEMENTATIONS[name])
    except ImportError as error:
        if name == "readable":
            raise
        pytest.skip(f"the compiled codec is not built: {error}")
