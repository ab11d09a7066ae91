"""The vectors' text form.

    == name · what it is
    {"the": "value"}
    flatc  0c000000 ...
    sbp    10000000 ...

Each line of a part has up to 32 bytes in hexadecimal.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_WIDTH = 32


@dataclass
class Vector:
    """One value, and its bytes by who wrote them."""

    name: str
    about: str
    value: str
    parts: dict[str, bytes] = field(default_factory=dict)


def render(vectors: list[Vector]) -> str:
    """The text of a file."""
    lines = []
    for vector in vectors:
        lines += [f"== {vector.name} · {vector.about}", vector.value]
        for who, content in vector.parts.items():
            chunks = [content[at : at + _WIDTH] for at in range(0, len(content), _WIDTH)] or [b""]
            lines += [f"{who:<7}{chunk.hex(' ', -4)}".rstrip() for chunk in chunks]
        lines.append("")
    return "\n".join(lines)


def parse(text: str) -> list[Vector]:
    """The vectors of a file."""
    vectors: list[Vector] = []
    for line in text.splitlines():
        if line.startswith("== "):
            name, _, about = line[3:].partition(" · ")
            vectors.append(Vector(name, about, ""))
        elif line.startswith("{"):
            vectors[-1].value = line
        elif line:
            who, _, digits = line.partition(" ")
            parts = vectors[-1].parts
            parts[who] = parts.get(who, b"") + bytes.fromhex(digits)
    return vectors
