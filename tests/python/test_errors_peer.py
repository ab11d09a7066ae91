"""What a server may answer, said by a scripted peer where ours would not say it: class, repetition, and words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import sbp_native as sbp
from python.provoked import TABLE
from python.scripted_peer import APPEND, ScriptedPeer, refuse


@pytest.fixture
def stream(peer: ScriptedPeer, name: str) -> Iterator[sbp.Stream]:
    """A stream behind the peer."""
    with sbp.connect(peer.address, timeout=20) as client:
        yield client.create_stream(name)


@pytest.mark.provokes(1, 2, 3, 1401, 1403, by="peer")
def test_a_refusal_that_is_final(peer: ScriptedPeer, stream: sbp.Stream, code: int) -> None:
    peer.once(APPEND, refuse(code))
    with pytest.raises(sbp.SbpError) as caught:
        stream.append(b"x")
    assert caught.value.code == code
    assert caught.value.indeterminate == TABLE[code].may_have_been_done
    assert peer.times(APPEND) == 1
