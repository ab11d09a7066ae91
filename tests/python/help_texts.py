"""Gives the extension the texts of the stub, for ``help()``: `python -m tests.python.help_texts --write`.

The stub is where the texts are written. What the interpreter shows are the comments above the Rust functions; without
`--write` this says which of them differ.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import sbp_native
from sbp_native import testing

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "python" / "sbp_native" / "_native.pyi"
SOURCES = ROOT / "crates" / "sbp-python" / "src"


@dataclass(frozen=True)
class Text:
    """What the stub says of a class, or of a member of one."""

    owner: str
    member: str | None
    lines: list[str]

    @property
    def name(self) -> str:
        """As users write it."""
        return self.owner if self.member is None else f"{self.owner}.{self.member}"


def texts() -> Iterator[Text]:
    """Of the stub's public classes and their public members."""
    for node in ast.parse(STUB.read_text()).body:
        if not isinstance(node, ast.ClassDef) or not any(
            hasattr(module, node.name) for module in (sbp_native, testing)
        ):
            continue
        if said := ast.get_docstring(node):
            yield Text(node.name, None, said.splitlines())
        for member in node.body:
            if not isinstance(member, ast.FunctionDef) or member.name.startswith("_"):
                continue
            if said := ast.get_docstring(member):
                yield Text(node.name, member.name, said.splitlines())


@dataclass
class Source:
    """A file, and where its comments for Python are."""

    path: Path
    lines: list[str]

    def struct(self, owner: str) -> tuple[str, int] | None:
        """The Rust name of a Python class, and the line of its attribute."""
        for number, line in enumerate(self.lines):
            found = re.match(r"#\[pyclass\(", line)
            if not found:
                continue
            attribute = " ".join(self.lines[number : number + 4])
            struct = re.search(r"struct (\w+)", attribute)
            named = re.search(r'name = "(\w+)"', attribute.split("struct")[0])
            if struct and (named[1] if named else struct[1]) == owner:
                return struct[1], number
        return None

    def method(self, struct: str, member: str) -> int | None:
        """The line of a method's `fn` in the blocks that Python sees, or of a field that it sees."""
        seen = False
        for number, line in enumerate(self.lines):
            if re.match(rf"(pub\(crate\) )?struct {struct} ", line):
                seen = any("get_all" in above for above in self.lines[max(0, number - 3) : number])
            elif line == "}":
                seen = False
            elif line.startswith("impl"):
                seen = line.startswith(f"impl {struct} ") and "#[pymethods]" in self.lines[number - 1]
            elif seen and re.match(rf"    (pub\(crate\) )?(fn {member}\b|{member}:)", line):
                return number
        return None

    def replace_comment(self, number: int, indent: str, text: list[str]) -> bool:
        """Writes the comment above the attributes above a line. Whether that changed anything."""

        def ends(above: str) -> bool:
            return not above.strip() or above.endswith(("{", "}")) or above.startswith(f"{indent}///")

        top = number
        while top and not ends(self.lines[top - 1]) and not re.match(rf"{indent}\w+: .*,$", self.lines[top - 1]):
            top -= 1
        begin = top
        while begin and self.lines[begin - 1].startswith(f"{indent}///"):
            begin -= 1
        wanted = [f"{indent}/// {line}".rstrip() for line in text]
        changed = self.lines[begin:top] != wanted
        self.lines[begin:top] = wanted
        return changed


def main() -> int:
    """Writes the comments, or says which differ."""
    sources = [Source(path, path.read_text().splitlines()) for path in sorted(SOURCES.glob("**/*.rs"))]
    changed, missing = [], []
    for text in texts():
        for source in sources:
            if struct := source.struct(text.owner):
                break
        else:
            missing.append(text.name)
            continue
        number: int | None = struct[1]
        where, indent = source, ""
        if text.member is not None:
            indent = "    "
            for where in [source, *sources]:
                number = where.method(struct[0], text.member)
                if number is not None:
                    break
        if number is None:
            missing.append(text.name)
        elif where.replace_comment(number, indent, text.lines):
            changed.append(text.name)
    if "--write" in sys.argv[1:]:
        for source in sources:
            source.path.write_text("\n".join(source.lines) + "\n")
    for name in missing:
        print(f"{name}: nowhere in the extension")
    for name in changed:
        print(f"{name}: {'written' if '--write' in sys.argv[1:] else 'differs'}")
    return 1 if missing or (changed and "--write" not in sys.argv[1:]) else 0


if __name__ == "__main__":
    sys.exit(main())
