"""`schemas/sbp.fbs` as data, as far as the vectors need it: tables, their fields in order, what is an extension."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "schemas" / "sbp.fbs"

_FIELD = re.compile(r"  (?P<name>\w+):(?P<type>[\w\[\]]+)(?: = (?P<default>[\w.-]+))? \(id: (?P<id>\d+)\);")


@dataclass(frozen=True)
class Field:
    """A field of a table; `extension` where a peer of plain v0.1 has none."""

    name: str
    type: str
    default: str | None
    extension: bool


@dataclass
class Schema:
    """The tables by name, and the names of the enumerations."""

    tables: dict[str, list[Field]] = field(default_factory=dict)
    enums: set[str] = field(default_factory=set)

    def has_extension(self, table: str) -> bool:
        """Whether the table, or one that it holds, has fields that plain v0.1 has not."""
        return any(
            f.extension or (f.type.strip("[]") in self.tables and self.has_extension(f.type.strip("[]")))
            for f in self.tables[table]
        )


def load() -> Schema:
    """Reads the schema. Its lines are regular: one field each, ids in order."""
    schema = Schema()
    fields: list[Field] = []
    extension = False
    for line in SCHEMA.read_text().splitlines():
        if match := re.match(r"table (\w+) \{", line):
            fields, extension = [], False
            schema.tables[match[1]] = fields
        elif match := re.match(r"enum (\w+) ", line):
            schema.enums.add(match[1])
        elif line.strip().startswith("// extension"):
            extension = True
        elif match := _FIELD.match(line):
            if int(match["id"]) != len(fields):
                raise ValueError(f"{line.strip()}: ids are expected in order")
            fields.append(Field(match["name"], match["type"], match["default"], extension))
    return schema
