"""docs/recipes.md: our code runs, theirs compiles, and the lines are counted."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

import sbp_native as sbp

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
CLIENTS = ("confluent-kafka", "aiokafka", "sbp-native")
# What a recipe prints on streams that hold what `_fill` wrote; the last line of those that go on for ever.
PRINTS = {
    1: "2\n",
    2: "0\n",
    3: "0 b'first'\n1 b'second'\n",
    4: "orders b'second'",
    5: "b'second'",
    6: "",
    7: None,
    8: "0 2\n",
    9: None,
    10: None,
}
ENDLESS = {4, 5}


def _recipes() -> dict[int, tuple[str, dict[str, str]]]:
    """By number: the title, and each client's code."""
    recipes = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, body = section.split("\n", 1)
        number, name = title.split(". ", 1)
        code = {}
        for tab in body.split('=== "')[1:]:
            client, rest = tab.split('"\n', 1)
            found = re.search(r"    ```python\n(.*?)    ```", rest, re.DOTALL)
            if found:
                code[client] = textwrap.dedent(found[1])
        recipes[int(number)] = (name, code)
    return recipes


RECIPES = _recipes()


def _lines(code: str) -> int:
    return sum(1 for line in code.splitlines() if line.strip() and not line.strip().startswith("#"))


def _fill(address: str) -> None:
    with sbp.connect(address) as client:
        client.create_stream("orders").append([b"first", b"second"])
        client.create_stream("payments").append(b"paid")


def _run(script: str, number: int) -> str:
    child = subprocess.Popen(
        [sys.executable, "-u", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        if number not in ENDLESS:
            output, errors = child.communicate(timeout=50)
            assert child.returncode == 0, errors
            return output
        assert child.stdout is not None
        for line in child.stdout:
            if line.strip() == PRINTS[number]:
                return line
        assert child.stderr is not None
        raise AssertionError(child.stderr.read())
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("number", RECIPES, ids=lambda number: RECIPES[number][0])
def test_ours_does_what_the_page_says(number: int) -> None:
    with sbp.Server() as server:
        _fill(server.address)
        script = RECIPES[number][1]["sbp-native"].replace("127.0.0.1:12378", server.address)
        output = _run(script, number)
        if number not in ENDLESS and PRINTS[number] is not None:
            assert output == PRINTS[number]
        match number:
            case 6:
                again = _run(script, number)
                assert again == ""
                with sbp.connect(server.address) as client:
                    assert client.stream("imports").positions().latest == 3
            case 7:
                assert re.fullmatch(
                    r"accounts\S+ \[\(b'alice', b'\+10'\)\]\naccounts\S+ \[\(b'alice', b'-3'\)\]\n", output
                )
            case 9:
                assert "second" in output
            case 10:
                assert output.startswith("[SBP-")


@pytest.mark.parametrize(
    ("settings", "columns"),
    [
        ({}, ["offset", "timestamp", "key", "value", "headers"]),
        ({"schema": pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])}, ["n", "text"]),
    ],
    ids=["records", "columns"],
)
def test_a_stream_without_records_is_a_frame_without_rows(settings: dict[str, pa.Schema], columns: list[str]) -> None:
    with sbp.Server(durability="none") as server:
        with sbp.connect(server.address) as client:
            stream = client.create_stream("orders", **settings)
        code = RECIPES[9][1]["sbp-native"].replace("127.0.0.1:12378", server.address)
        assert re.sub(r"\s+", " ", _run(code, 9)) == f"Empty DataFrame Columns: [{', '.join(columns)}] Index: [] "
        with sbp.connect(server.address) as client:
            stream = client.stream("orders")
            rows = pa.table(stream.read())
            assert (rows.num_rows, rows.column_names) == (0, columns)
            stream.append(pa.table({"n": [1], "text": ["a"]}) if settings else b"first")
            assert pa.table(stream.read()).schema == rows.schema, "as with records"


@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka"])
def test_theirs_is_python(client: str) -> None:
    for _name, code in RECIPES.values():
        if client in code:
            compile(code[client], client, "exec")


def test_the_page_counts_its_lines() -> None:
    table = re.findall(r"^\| (\d+)\. ([^|]+) \|(.+)\|$", PAGE.read_text(), re.MULTILINE)
    counted = {int(number): [cell.strip() for cell in cells.split("|")] for number, _name, cells in table}
    wanted = {
        number: [str(_lines(code[client])) if client in code else "-" for client in CLIENTS]
        for number, (_name, code) in RECIPES.items()
    }
    assert counted == wanted
