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


@dataclass(frozen=True)
class Shared:
    """A method that a pair of classes is given together: its line, the pair, and which of the two is meant."""

    line: int
    pair: str
    side: str


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
        seen, indent = False, " " * 4
        for number, line in enumerate(self.lines):
            if re.match(rf"(pub\(crate\) )?struct {struct} ", line):
                seen = any("get_all" in above for above in self.lines[max(0, number - 3) : number])
            elif line == "}":
                seen, indent = False, " " * 4
            elif line == "blocking_and_asyncio! {":
                # Blocks of a pair of classes, given to a macro.
                indent = " " * 8
            elif line.startswith("impl"):
                seen = line.startswith(f"impl {struct} ") and "#[pymethods]" in self.lines[number - 1]
            elif len(indent) > 4 and re.match(r"    \S", line):
                seen = line == f"    impl {struct} {{"
            elif seen and re.match(rf"{indent}(pub\(crate\) )?(fn {member}\b|{member}:)", line):
                return number
        return None

    def shared(self, struct: str, member: str) -> Shared | None:
        """Where a pair of classes is given a method of both."""
        pair, side, seen = "", None, False
        for number, line in enumerate(self.lines):
            if found := re.match(r"    impl (\w+) and (\w+) {$", line):
                pair = f"{found[1]} and {found[2]}"
                side = {found[1]: "blocking", found[2]: "asyncio"}.get(struct)
                seen = True
            elif line == "    writer {":
                seen = True
            elif line == "    }":
                seen = False
            elif line == "}":
                side = None
            elif side and seen and re.match(rf"        fn {member}\b", line):
                return Shared(number, pair, side)
        return None

    def replace_shared(self, number: int, texts: dict[str, list[str]]) -> bool:
        """Writes what both classes say of a method, and behind it what each says for itself."""
        begin = number
        while re.match(r" {8}(///|blocking {|asyncio {|})| {12}///", self.lines[begin - 1]):
            begin -= 1
        common = 0
        for lines in zip(*texts.values(), strict=False):
            if len(set(lines)) > 1:
                break
            common += 1
        wanted = [f"        /// {line}".rstrip() for line in next(iter(texts.values()))[:common]]
        for side, text in texts.items():
            if own := [f"            /// {line}".rstrip() for line in text[common:]]:
                wanted += [f"        {side} {{", *own, "        }"]
        changed = self.lines[begin:number] != wanted
        self.lines[begin:number] = wanted
        return changed

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
    pairs: dict[tuple[str, str], tuple[Source, str, dict[str, Text]]] = {}
    for text in texts():
        for source in sources:
            if struct := source.struct(text.owner):
                break
        else:
            missing.append(text.name)
            continue
        if text.member is None:
            if source.replace_comment(struct[1], "", text.lines):
                changed.append(text.name)
            continue
        for where in [source, *sources]:
            if found := where.shared(struct[0], text.member):
                of_pair = pairs.setdefault((found.pair, text.member), (where, struct[0], {}))
                of_pair[2][found.side] = text
                break
            if (number := where.method(struct[0], text.member)) is not None:
                indent = re.match(" *", where.lines[number])
                if where.replace_comment(number, indent[0] if indent else "", text.lines):
                    changed.append(text.name)
                break
        else:
            missing.append(text.name)
    for (_, member), (where, struct_name, of_pair_texts) in pairs.items():
        found = where.shared(struct_name, member)
        sides = {side: text.lines for side, text in sorted(of_pair_texts.items(), reverse=True)}
        if found and where.replace_shared(found.line, sides):
            changed += [text.name for text in of_pair_texts.values()]
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
