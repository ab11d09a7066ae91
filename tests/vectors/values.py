"""The values of the vectors: every scalar takes the next number, so that no two fields can be taken for each other.

The Rust tests count in the same order and must come to the same values.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from .schema import Field, Schema

# What a vector's file is about: the tables that are a header of their own.
MESSAGES = [
    *("GoAway", "SystemErrorResponse", "PlacementDriverCluster"),
    *("HeartbeatRequest", "HeartbeatResponse", "IdAllocationRequest", "IdAllocationResponse"),
    *("AppendRequest", "AppendResponse", "FetchRequest", "FetchResponse"),
    *("ListRangesRequest", "ListRangesResponse", "SealRangesRequest", "SealRangesResponse"),
    *("SyncRangesRequest", "SyncRangesResponse", "CreateRangeRequest", "CreateRangeResponse"),
    *("DescribeRangesRequest", "DescribeRangesResponse", "CreateStreamsRequest", "CreateStreamsResponse"),
    *("DeleteStreamsRequest", "DeleteStreamsResponse", "UpdateStreamsRequest", "UpdateStreamsResponse"),
    *("DescribeStreamsRequest", "DescribeStreamsResponse", "TrimStreamsRequest", "TrimStreamsResponse"),
    *("ReportMetricsRequest", "ReportMetricsResponse"),
    *("DescribePlacementDriverClusterRequest", "DescribePlacementDriverClusterResponse"),
]

_ENUM_VALUES = {
    "ErrorCode": "NOT_FOUND",
    "ClientRole": "CLIENT",
    "SealKind": "PLACEMENT_DRIVER",
    "ReplicaEntry": "CONFIRMED",
    "ReplicaState": "COPYING",
    "ServerState": "DRAINING",
}
# Fields of bytes that have a length of their own.
_BYTES = {"identity": 16}


class Case(Enum):
    """Which fields a vector has."""

    ALL = "every field, no two alike"
    SUCCESS = "every field, with success for a status"
    PLAIN = "what a peer without extensions writes"


def cases(schema: Schema, message: str) -> list[Case]:
    """The cases that a message has."""
    found = [Case.ALL]
    if message.endswith("Response") and message != "SystemErrorResponse":
        found.append(Case.SUCCESS)
    if schema.has_extension(message):
        found.append(Case.PLAIN)
    return found


class Counter:
    """Gives the fields of a table the next numbers, in the order of their ids, depth first."""

    def __init__(self, schema: Schema, case: Case) -> None:
        self.schema = schema
        self.case = case
        self.number = 0

    def table(self, name: str) -> dict[str, Any]:
        """The table with its fields filled in. A list of tables gets two."""
        if name == "Status" and self.case is Case.SUCCESS:
            return {"code": "NONE"}
        fields = self.schema.tables[name]
        return {f.name: self.value(f) for f in fields if not (f.extension and self.case is Case.PLAIN)}

    def value(self, field: Field) -> Any:
        """The next value of a field's type."""
        if field.type.startswith("["):
            item = field.type.strip("[]")
            count = _BYTES.get(field.name, 3) if item == "ubyte" else 2
            return [self.single(item) for _ in range(count)]
        return self.single(field.type)

    def single(self, kind: str) -> Any:
        """The next value of a type that is no list."""
        if kind in self.schema.tables:
            return self.table(kind)
        if kind in self.schema.enums:
            return _ENUM_VALUES[kind]
        if kind == "bool":
            return True
        self.number += 1
        wide = {
            "ubyte": self.number % 100,
            "byte": self.number % 100,
            "short": 1_000 + self.number,
            "int": (1 << 24) + self.number,
            "long": (1 << 40) + self.number,
            "string": f"text {self.number}",
        }
        return wide[kind]
