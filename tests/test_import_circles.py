"""No circle of imports: neither between modules nor between rooms. Imports in functions and for the
type checker count, too."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.findings import expect_none
from tests.test_architecture import PACKAGE, imports

CUT_IT = "Each imports the next, and the last the first. Move what both need below both, or pass it as an argument"

Graph = Mapping[str, Iterable[str]]


def module_of(file: str) -> str:
    """``catalog/topic.py`` is ``catalog.topic``, and ``catalog/__init__.py`` is ``catalog``; the
    package itself is ``pylog``."""
    parts = Path(file).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "pylog"


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Which modules each module imports, of those in ``sources`` (by file below src/pylog)."""
    files = {module_of(file): file for file in sources}
    graph: dict[str, set[str]] = {}
    for module, file in files.items():
        targets = graph[module] = set()
        for item in imports(file, ast.parse(sources[file])):
            top, _, name = item.name.partition(".")
            while name and name not in files:
                name = name.rpartition(".")[0]
            if top == "pylog" and name != module:
                targets.add(name or "pylog")
    return graph


def rooms_of(module: str) -> list[str]:
    """The rooms that a module is in, from the outside in: ``partition``, and ``partition.read`` for
    its readers."""
    parts = module.split(".")
    return [".".join(parts[:depth]) for depth in (1, 2) if depth == 1 or len(parts) > depth]


def between_rooms(graph: Graph) -> dict[str, set[str]]:
    """Which room imports which other one beside it: of the house, or of the room that both are
    in."""
    rooms: dict[str, set[str]] = {}
    for module, targets in graph.items():
        for target in targets:
            beside = [(a, b) for a, b in zip(rooms_of(module), rooms_of(target), strict=False) if a != b]
            if beside:
                room, other = beside[0]
                rooms.setdefault(room, set()).add(other)
    return rooms


def circles(graph: Graph) -> list[list[str]]:
    """A circle for each arrow that leads back to a node on the way to it: none at all if there is
    none."""
    found: list[list[str]] = []
    done: set[str] = set()

    def visit(node: str, way: list[str]) -> None:
        if node in way:
            circle = way[way.index(node) :]
            least = circle.index(min(circle))
            found.append([*circle[least:], *circle[:least]])
        elif node not in done:
            for target in sorted(graph.get(node, ())):
                visit(target, [*way, node])
            done.add(node)

    for node in sorted(graph):
        visit(node, [])
    return found


@functools.cache
def graph_of_the_package() -> Graph:
    return import_graph({str(file.relative_to(PACKAGE)): file.read_text() for file in PACKAGE.rglob("*.py")})


def test_no_module_imports_itself_by_way_of_others() -> None:
    expect_none(map(" -> ".join, circles(graph_of_the_package())), CUT_IT)


def test_no_room_imports_itself_by_way_of_others() -> None:
    expect_none(map(" -> ".join, circles(between_rooms(graph_of_the_package()))), CUT_IT)


def test_a_circle_is_found_wherever_its_imports_stand() -> None:
    graph = import_graph(
        {
            "log.py": "def f():\n    from pylog.group.admin import GroupAdmin\n",
            "group/__init__.py": "",
            "group/admin.py": "from pylog.group.offsets import x\n",
            "group/offsets.py": "if TYPE_CHECKING:\n    from pylog.log import Log\nimport struct\n",
        }
    )
    assert graph == {
        "log": {"group.admin"},
        "group": set(),
        "group.admin": {"group.offsets"},
        "group.offsets": {"log"},
    }
    assert circles(graph) == [["group.admin", "group.offsets", "log"]]
    assert circles(between_rooms(graph)) == [["group", "log"]]


def test_a_circle_between_rooms_is_found_though_no_module_is_in_one() -> None:
    graph = import_graph(
        {
            "partition/read/reader.py": "from pylog.partition.write.lock import x\n",
            "partition/write/lock.py": "",
            "partition/write/writer.py": "from ..read import published\nfrom pylog.codec import batch\n",
            "partition/read/published.py": "from pylog.partition.directory import x\n",
            "partition/directory.py": "",
        }
    )
    assert circles(graph) == []
    assert circles(between_rooms(graph)) == [["partition.read", "partition.write"]]
