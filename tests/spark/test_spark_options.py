"""The options, without Spark."""

from __future__ import annotations

import pickle

import pytest

from sbp_native.spark.errors import SbpOptionError, SbpSparkError, explained, nearest
from sbp_native.spark.options import EARLIEST, LATEST, OPTIONS, Places, SbpOptions, Use

SERVERS = {"servers": "127.0.0.1:12378"}


def parse(**options: str) -> SbpOptions:
    return SbpOptions.parse(SERVERS | options)


def refusal(**options: str) -> str:
    with pytest.raises(SbpOptionError) as caught:
        parse(**options)
    return str(caught.value)


def test_defaults() -> None:
    options = parse(path="orders")
    assert options.streams == ("orders",)
    assert options.starting is options.ending is options.columns is options.body is options.stream is None
    assert options.max_offsets_per_trigger is None
    assert options.create_streams is False
    assert options.timeout == 30.0


def test_keys_come_in_any_case() -> None:
    options = parse(
        STREAMS="a, b,17", startingoffsets="Earliest", MaxOffsetsPerTrigger="5", COLUMNS="Kafka", TimeOut="2.5"
    )
    assert options.streams == ("a", "b", "17")
    assert options.starting == Places(EARLIEST)
    assert options.max_offsets_per_trigger == 5
    assert options.columns == "kafka"
    assert options.timeout == 2.5


def test_places_per_stream_by_name_and_id() -> None:
    places = parse(startingOffsets='{"orders": 23, "17": -2, "late": -1}').starting
    assert places is not None
    assert places.of("orders", 4) == 23
    assert places.of("anything", 17) == EARLIEST
    assert places.of("late", 5) == LATEST
    assert places.of("other", 6) is None


def test_options_travel() -> None:
    options = parse(path="orders", startingOffsets='{"orders": 1}')
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_option_is_good_for_something(name: str) -> None:
    assert OPTIONS[name]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"strems": "a"}, "there is no option 'strems': did you mean 'streams'?"),
        ({"startingOffset": "a"}, "did you mean 'startingOffsets'?"),
        ({"subscribe": "a"}, "it is called 'streams' here"),
        ({"kafka.bootstrap.servers": "a:1"}, "it is called 'servers' here"),
        ({"kafka.group.id": "a"}, "there are no consumer groups"),
        ({"xyzzy": "a"}, "there are: body, columns, createStreams"),
        ({"servers": "localhost"}, "'localhost', which is not 'host:port'"),
        ({"servers": "a:1,b:99999"}, "'b:99999', which is not 'host:port'"),
        ({"servers": " "}, "option 'servers' is missing"),
        ({"streams": "a", "path": "b"}, "streams are given twice"),
        ({"stream": "a", "path": "b"}, "the stream is given twice"),
        ({"streams": "a,a"}, "stream 'a' is listed twice"),
        ({"streams": "a,,b"}, "'' names no stream"),
        ({"streams": "7up"}, "'7up' names no stream"),
        ({"columns": "arow"}, "option 'columns' is 'arow': did you mean 'arrow'?"),
        ({"body": "kafka"}, "option 'body' is 'kafka': there are: arrow, records"),
        ({"createStreams": "yes"}, "option 'createStreams' is 'yes'"),
        ({"maxOffsetsPerTrigger": "0"}, "must be a whole number above 0"),
        ({"maxOffsetsPerTrigger": "1e6"}, "must be a whole number above 0"),
        ({"timeout": "soon"}, "must be a number of seconds above 0"),
        ({"timeout": "inf"}, "must be a number of seconds above 0"),
        ({"startingOffsets": "newest"}, "it must be 'earliest', 'latest' or JSON"),
        ({"startingOffsets": "[1]"}, "it must be 'earliest', 'latest' or JSON"),
        ({"startingOffsets": "{}"}, "it must be 'earliest', 'latest' or JSON"),
        ({"startingOffsets": '{"a": -3}'}, "gives stream 'a' the offset -3"),
        ({"startingOffsets": '{"a": true}'}, "gives stream 'a' the offset True"),
        ({"startingOffsets": '{"a": 1.5}'}, "gives stream 'a' the offset 1.5"),
        ({"endingOffsets": "earliest"}, "cannot be 'earliest' (-2): nothing lies before the earliest record"),
        ({"endingOffsets": '{"a": -2}'}, "cannot be 'earliest' (-2)"),
    ],
)
def test_refused(options: dict[str, str], expected: str) -> None:
    text = refusal(**options)
    assert text.startswith("[SBP-92")
    assert expected in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("use", "options", "expected"),
    [
        (Use.BATCH_READ, {"maxOffsetsPerTrigger": "5"}, "'maxOffsetsPerTrigger' is for a streaming read"),
        (Use.STREAM_READ, {"endingOffsets": "latest"}, "'endingOffsets' is for a batch read, this is a streaming read"),
        (
            Use.BATCH_READ,
            {"stream": "x"},
            "'stream' is for a batch write, this is a batch read: leave it out, or use 'streams'",
        ),
        (Use.BATCH_READ, {"body": "arrow"}, "or use 'columns'"),
        (Use.BATCH_READ, {"startingOffsets": "latest"}, "a batch read that starts at the end reads nothing"),
        (Use.BATCH_READ, {"startingOffsets": '{"a": -1}'}, "a batch read that starts at the end reads nothing"),
    ],
)
def test_refused_for_a_read(use: Use, options: dict[str, str], expected: str) -> None:
    with pytest.raises(SbpOptionError) as caught:
        parse(path="a", **options).for_read(use) if "stream" not in options else parse(**options).for_read(use)
    assert expected in str(caught.value)


def test_a_read_names_streams() -> None:
    with pytest.raises(SbpOptionError, match="no stream is named"):
        parse().for_read(Use.BATCH_READ)


def test_a_write_has_one_target() -> None:
    assert parse(path="a").target() == "a"
    assert parse(stream="a").target() == "a"
    assert parse().target() is None
    with pytest.raises(SbpOptionError, match="names 2 streams"):
        parse(path="a,b").target()


def test_nearest() -> None:
    assert nearest("flights/UAA", ["flights/UA", "weather"]) == "did you mean 'flights/UA'?"
    assert nearest("qqqq", [f"s{n:02}" for n in range(20)]).endswith("and 8 more")
    assert nearest("a", []) == ""


class _ClientError(Exception):
    code = 1463
    stream = "orders"
    offset = 17
    endpoint = "127.0.0.1:1"
    attempts = 3
    retriable = False


def test_an_error_of_the_client_becomes_one_line() -> None:
    with pytest.raises(SbpSparkError) as caught, explained("reading", "127.0.0.1:1"):
        raise _ClientError("out of\nrange")
    assert str(caught.value) == (
        "[SBP-1463] reading: out of range, stream orders, offset 17, endpoint 127.0.0.1:1, attempts 3 "
        "(not worth trying again unchanged)"
    )
    assert isinstance(caught.value.__cause__, _ClientError)


def test_what_the_client_said_is_not_said_again() -> None:
    with pytest.raises(SbpSparkError) as caught, explained("reading", "127.0.0.1:1"):
        raise _ClientError("[SBP-1463] orders at 17; 127.0.0.1:1; 3 attempts; not worth trying again unchanged")
    assert str(caught.value) == (
        "[SBP-1463] reading: orders at 17; 127.0.0.1:1; 3 attempts; not worth trying again unchanged"
    )


def test_other_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), explained("dividing", "nowhere:1"):
        1 / 0  # noqa: B018 - the error is the point
