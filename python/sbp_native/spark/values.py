"""Reading one option's text: numbers, sizes, durations, words, names. Every refusal says what would be right."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from .errors import INVALID_VALUE, SbpOptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9._/-]{0,254}")
_ID: Final = re.compile(r"[1-9][0-9]{0,18}")
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|min|h|d)")
_SIZE: Final = re.compile(r"([0-9]+)\s*(b|k|kb|kib|m|mb|mib|g|gb|gib)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def refuse(name: str, text: str, wanted: str) -> SbpOptionError:
    """The error for a value that cannot be meant."""
    return SbpOptionError(INVALID_VALUE, f"option {name!r} is {text!r}: {wanted}")


def address(text: str) -> str:
    """One `host:port`, perhaps with `sbp://` or `sbps://` in front of it."""
    scheme, slashes, plain = text.rpartition("://")
    if slashes and scheme.lower() not in ("sbp", "sbps"):
        raise SbpOptionError(
            INVALID_VALUE,
            f"option 'servers' holds {text!r}: leave out '{scheme}://' and write {plain.partition('/')[0]!r}, or "
            "'sbps://' for TLS",
        )
    host, colon, port = plain.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise SbpOptionError(INVALID_VALUE, f"option 'servers' holds {text!r}, which is not 'host:port'")
    return text


def addresses(values: Mapping[str, str]) -> str:
    """The servers, with the blanks taken out."""
    servers = values.get("servers", "").strip()
    if not servers:
        raise SbpOptionError(INVALID_VALUE, "option 'servers' is missing: give 'host:port' or 'host:port,host:port'")
    return ",".join(address(part.strip()) for part in servers.split(","))


def one_address(name: str, text: str, several: str) -> str:
    """The value of an option that is one `host:port`; `several` says what to do in place of giving more."""
    address = text.strip()
    if "," in address:
        raise refuse(name, address, several)
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise refuse(name, address, "it must be 'host:port'")
    return address


def parts(text: str, named: Callable[[str], str], whole_of: Callable[[str], str]) -> tuple[str, ...]:
    """Names between commas, of wholes and of parts of them, none twice; `named` checks one."""
    names = tuple(named(part) for part in text.split(","))
    for place, name in enumerate(names):
        if name in names[:place]:
            raise SbpOptionError(INVALID_VALUE, f"{name!r} is listed twice: name it once")
        whole = whole_of(name)
        if whole != name and whole in names:
            raise SbpOptionError(
                INVALID_VALUE, f"{name!r} is a part of {whole!r}, which is listed too: name one of them"
            )
    return names


def stream_name(text: str) -> str:
    """A stream's name or its decimal id."""
    name = text.strip()
    if not _NAME.fullmatch(name) and not _ID.fullmatch(name):
        raise SbpOptionError(
            INVALID_VALUE,
            f"{name!r} names no stream: use its id, or its name: letters, digits and ._/-, first a letter or '_'",
        )
    return name


def stream_names(text: str) -> tuple[str, ...]:
    """Names or ids between commas, none of them twice."""
    names = tuple(stream_name(part) for part in text.split(","))
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SbpOptionError(INVALID_VALUE, f"stream {name!r} is listed twice: name it once")
        seen.add(name)
    return names


def pattern(name: str, values: Mapping[str, str]) -> str | None:
    """A regular expression."""
    text = values.get(name)
    if text is None:
        return None
    try:
        re.compile(text)
    except re.error as error:
        raise refuse(name, text, f"it must be a regular expression of Python's re module ({error})") from error
    return text


def word(name: str, values: Mapping[str, str], allowed: Sequence[str]) -> str | None:
    """One of a few words, in any case."""
    text = values.get(name)
    if text is None:
        return None
    if text.strip().lower() not in allowed:
        raise refuse(name, text, nearest(text, allowed))
    return text.strip().lower()


def flag(name: str, values: Mapping[str, str]) -> bool | None:
    """`true` or `false`."""
    text = word(name, values, ("true", "false"))
    return None if text is None else text == "true"


def label(name: str, values: Mapping[str, str]) -> str | None:
    """Free text that is not empty and fits where it is sent."""
    text = values.get(name)
    if text is not None and not 0 < len(text.strip().encode()) <= 200:
        raise refuse(name, text, "it must be a text of 1 to 200 bytes")
    return text.strip() if text is not None else None


def number(name: str, values: Mapping[str, str], least: int = 1, most: int = 2**63 - 1) -> int | None:
    """A whole number from `least` on, up to `most`."""
    text = values.get(name)
    if text is None:
        return None
    try:
        found = int(text)
    except ValueError:
        found = least - 1
    if not least <= found <= most:
        wanted = f"above {least - 1}" if least > 0 else f"from {least} on"
        if found > most and most < 2**63 - 1:
            wanted = f"from {least} to {most}"
        raise refuse(name, text, f"it must be a whole number {wanted}")
    return found


def size(name: str, values: Mapping[str, str]) -> int | None:
    """Bytes, as a number or with k, m or g behind it (powers of 1,024)."""
    text = values.get(name)
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip().lower())
    unit = (found[2] or "b")[0] if found else "b"
    count = int(found[1]) << {"b": 0, "k": 10, "m": 20, "g": 30}[unit] if found else 0
    if not 0 < count < 2**31:
        raise refuse(name, text, "it must be bytes between 1 and 2 GiB, such as 1048576 or '1m'")
    return count


def duration(name: str, values: Mapping[str, str], plain: str) -> float | None:
    """Seconds; a number alone counts units of `plain` ("s" or "ms")."""
    text = values.get(name)
    if text is None:
        return None
    found = _DURATION.fullmatch(text.strip().lower())
    try:
        seconds = float(found[1]) * _SECONDS[found[2]] if found else float(text) * _SECONDS[plain]
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        unit = "seconds" if plain == "s" else "milliseconds"
        raise refuse(name, text, f"it must be a number of {unit} above 0, or a duration such as '30s' or '15m'")
    return seconds
