from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.postgres import Postgres, serving
from tests.outbox.databases import Alchemy, Base, OnServer, Sqlite


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with serving() as server:
        yield server


@pytest.fixture
def server(postgres: Postgres) -> OnServer:
    return OnServer(postgres)


@pytest.fixture(
    params=[
        "sqlite",
        "sqlalchemy",
        pytest.param("postgres", marks=pytest.mark.engine),
        pytest.param("sqlalchemy on postgres", marks=pytest.mark.engine),
    ]
)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Base:
    """An empty database with pylog's tables."""
    if request.param == "sqlite":
        return Sqlite(tmp_path / "app.db")
    if request.param == "sqlalchemy":
        return Alchemy(f"sqlite:///{tmp_path / 'app.db'}")
    found = OnServer(server := request.getfixturevalue("postgres"))
    if request.param == "postgres":
        return found
    return Alchemy(f"postgresql+psycopg://test@/{found.name}?host={server.home}")
