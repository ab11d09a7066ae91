"""For the site: docstrings in the API reference get links for roles as :meth:`Client.fetch`, and code for ``>>>``."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.MULTILINE)
_ROLE = re.compile(r":(?:meth|attr|class|func|mod):`~?([\w.]+)`")
#: Where everything public is documented.
_PACKAGE = "sbp_native"


class Docstrings(griffe.Extension):
    """Called by griffe with every object that has a docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites its docstring."""
        if obj.docstring is not None:
            text = _ROLE.sub(lambda found: _link(found[1], obj), obj.docstring.value)
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", text)


def _link(target: str, obj: griffe.Object) -> str:
    """A link to what is named: by its whole path, from the package, or beside the object itself."""
    short = target.removeprefix(f"{_PACKAGE}.")
    owner = obj if obj.is_class else obj.parent
    if owner is not None and owner.is_class and short in owner.members:
        return f"[`{short}`][{_PACKAGE}.{owner.name}.{short}]"
    return f"[`{short}`][{_PACKAGE}.{short}]" if short != _PACKAGE else f"`{short}`"
