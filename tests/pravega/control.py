"""What tests ask of a real controller that no client here asks: streams are scaled and truncated."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

import h2.config
import h2.connection
import h2.events

from .controller import fields, message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbp_native.pravega import Pravega

SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"
#: How long the controller may take for a call, in seconds.
PATIENCE = 60.0


def call(controller: str, name: str, request: bytes) -> dict[int, Any]:
    """One call of gRPC, over a connection of its own: the fields of the answer."""
    host, _, port = controller.rpartition(":")
    http = h2.connection.H2Connection(config=h2.config.H2Configuration(header_encoding="utf-8"))
    http.initiate_connection()
    http.send_headers(
        1,
        [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", controller),
            (":path", SERVICE + name),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        ],
    )
    http.send_data(1, struct.pack(">?I", False, len(request)) + request, end_stream=True)
    answer, status = b"", None
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        while status is None:
            connection.sendall(http.data_to_send())
            data = connection.recv(1 << 16)
            assert data, f"{name}: the controller has closed the connection"
            for event in http.receive_data(data):
                if isinstance(event, h2.events.DataReceived):
                    answer += event.data
                    http.acknowledge_received_data(event.flow_controlled_length, 1)
                elif isinstance(event, h2.events.TrailersReceived | h2.events.ResponseReceived):
                    status = dict(event.headers).get("grpc-status", status)
    assert status == "0", f"{name}: status {status!r} of gRPC"
    return fields(answer[5:])


def _info(stream: str) -> bytes:
    scope, _, name = stream.partition("/")
    return message((1, scope), (2, name))


def scale(client: Pravega, stream: str, cuts: Sequence[float]) -> None:
    """Seals all open segments of a stream and opens one between each of these numbers and the next; returns then."""
    before = client.segments(stream)
    ranges = [message((1, float(low)), (2, float(high))) for low, high in itertools.pairwise(cuts)]
    request = [(1, _info(stream)), *((2, segment.segment_id) for segment in before), *((3, each) for each in ranges)]
    begun = call(client.address, "scale", message(*request, (4, int(time.time() * 1_000))))
    assert begun.get(1, 0) == 0, f"{stream} is not scaled: {begun}"
    gone = {segment.segment_id for segment in before}
    deadline = time.monotonic() + PATIENCE
    while True:
        now = {segment.segment_id for segment in client.segments(stream)}
        if len(now) == len(ranges) and not now & gone:
            return
        assert time.monotonic() < deadline, f"{stream} has the segments {now}, and had {gone}"
        time.sleep(0.1)


def truncate(client: Pravega, stream: str, places: dict[int, int]) -> None:
    """Cuts a stream off in front of these bytes of these segments; the segments before them are deleted."""
    cut = [(2, message((1, id_), (2, place))) for id_, place in places.items()]
    done = call(client.address, "truncateStream", message((1, _info(stream)), *cut))
    assert done.get(1, 0) == 0, f"{stream} is not truncated: {done}"
