"""Streams by key, as a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from ._native import AsyncClient, AsyncKeyed, Client, Keyed, Operation


@overload
def keyed(client: Client, name: str, streams: int | None = None, *, timeout: float | None = None) -> Keyed: ...
@overload
def keyed(
    client: AsyncClient, name: str, streams: int | None = None, *, timeout: float | None = None
) -> Operation[AsyncKeyed]: ...
def keyed(
    client: Client | AsyncClient, name: str, streams: int | None = None, *, timeout: float | None = None
) -> Keyed | Operation[AsyncKeyed]:
    """The streams ``name-0`` to ``name-<n-1>`` with records placed by key; see :meth:`Client.keyed`."""
    return client.keyed(name, streams, timeout=timeout)
