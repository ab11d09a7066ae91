"""The options, without Spark."""

from __future__ import annotations

import json
import pickle
import re

import pytest

from sbp_native import Tls
from sbp_native.spark.errors import SbpOptionError, SbpSparkError, explained, nearest
from sbp_native.spark.options import EARLIEST, LATEST, OPTIONS, Place, Places, SbpOptions, Use

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
    assert places.of("orders", 4) == Place("offset", 23)
    assert places.of("anything", 17) == EARLIEST
    assert places.of("late", 5) == LATEST
    assert places.of("other", 6) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latest-1000", Place("latest", 1000)),
        (" Latest - 7 ", Place("latest", 7)),
        ("earliest", EARLIEST),
    ],
)
def test_places_by_word(text: str, expected: Place) -> None:
    assert parse(startingOffsets=text).starting == Places(expected)
    assert parse(startingOffsets=json.dumps({"a": text})).starting == Places(None, (("a", expected),))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1370000000123", Place("time", 1_370_000_000_123)),
        ("2013-05-31T11:33:20.123Z", Place("time", 1_370_000_000_123)),
        ("2013-05-31T13:33:20.123+02:00", Place("time", 1_370_000_000_123)),
        ("2013-05-31 11:33:20.123", Place("time", 1_370_000_000_123)),
        ("-10m", Place("ago", 600_000)),
        ("-2d", Place("ago", 172_800_000)),
    ],
)
def test_places_by_time(text: str, expected: Place) -> None:
    assert parse(startingTimestamp=text).starting == Places(expected, option="startingTimestamp")
    starting = parse(startingOffsetsByTimestamp=json.dumps({"a": text})).starting
    assert starting == Places(None, (("a", expected),), option="startingOffsetsByTimestamp")


def test_a_distance_is_measured_from_the_clock() -> None:
    assert Place("ago", 600_000).time_ms(now_ms=1_000_000) == 400_000
    assert Place("ago", 600_000).time_ms(now_ms=1) == 0


def test_a_timestamp_wins() -> None:
    starting = parse(
        startingOffsets="earliest",
        startingTimestamp="5",
        startingOffsetsByTimestamp='{"a": 6}',
        startingOffsetsByTimestampStrategy="latest",
    ).starting
    assert starting == Places(Place("time", 5), option="startingTimestamp", beyond="latest")
    ending = parse(endingOffsets="latest", endingOffsetsByTimestamp='{"a": 6}').ending
    assert ending == Places(None, (("a", Place("time", 6)),), option="endingOffsetsByTimestamp", beyond="latest")


def test_settings_of_the_client() -> None:
    options = parse(
        **{"client.maxinflightbytes": "4m", "client.heartbeatInterval": "500ms", "client.readFrom": "any"},
        clientName="job",
        timeout="2m",
        maxAttempts="7",
        retryBackoffMs="20",
    )
    assert options.connect_settings() == {
        "timeout": 120.0,
        "max_in_flight_bytes": 4 << 20,
        "heartbeat_interval": 0.5,
        "read_from": "any",
        "client_id": "job",
        "max_attempts": 7,
        "retry_backoff": 0.02,
    }
    assert "client.*" in options.given


def test_tls() -> None:
    given = {"tlsCa": " ca.pem ", "tlsCert": "c.pem", "TLSKEY": "k.pem", "tlsServerName": "a"}
    options = parse(**given | {"servers": "sbps://a:1, b:2"})
    assert options.servers == "sbps://a:1,b:2"
    settings = options.connect_settings()
    assert settings["tls"] == Tls(ca="ca.pem", cert="c.pem", key="k.pem", server_name="a")
    assert pickle.loads(pickle.dumps(options)) == options
    assert "tls" not in parse(servers="sbps://a:1").connect_settings()


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"tlsCert": "c.pem"}, "'tlsCert' does nothing without 'tlsKey'"),
        ({"tlsKey": "k.pem"}, "'tlsKey' does nothing without 'tlsCert'"),
        ({"tlsCa": " "}, "'tlsCa' is ' ': it must not be empty"),
        ({"tlsCa": "ca.pem", "servers": "sbp://a:1"}, "sbp://, which is without TLS"),
    ],
)
def test_tls_that_cannot_be_meant(given: dict[str, str], what: str) -> None:
    with pytest.raises(SbpOptionError, match=re.escape(what)):
        parse(**given)


def test_sizes_durations_and_flags() -> None:
    options = parse(
        minOffsetsPerTrigger="5",
        maxTriggerDelay="2m",
        batchBytes="512k",
        failOnDataLoss="False",
        onDataLoss="rows",
        compression="NONE",
        workerGcFreeze="false",
        txnAppId="app",
        txnVersion="0",
    )
    assert options.max_trigger_delay == 120.0
    assert options.batch_bytes == 512 << 10
    assert not options.fail_on_data_loss
    assert options.on_data_loss == "rows"
    assert options.compression is None
    assert not options.worker_gc_freeze
    assert (options.txn_app_id, options.txn_version) == ("app", 0)
    assert parse(minOffsetsPerTrigger="5", maxTriggerDelay="60000").max_trigger_delay == 60.0


def test_copies_of_a_new_target() -> None:
    options = parse(createStreams="true", replicas="3", acks="2")
    assert (options.replicas, options.acks) == (3, 2)
    assert (parse().replicas, parse().acks) == (None, None)


def test_options_travel() -> None:
    options = parse(path="orders", startingOffsets='{"orders": 1}')
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_option_is_good_for_something(name: str) -> None:
    assert OPTIONS[name].uses
    assert OPTIONS[name].meaning


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"strems": "a"}, "there is no option 'strems': did you mean 'streams'?"),
        ({"startingOffset": "a"}, "did you mean 'startingOffsets'?"),
        ({"subscribe": "a"}, "it is called 'streams' here"),
        ({"kafka.bootstrap.servers": "a:1"}, "it is called 'servers' here"),
        ({"kafka.group.id": "a"}, "there are no consumer groups"),
        ({"xyzzy": "a"}, "there are: acks, batchBytes, batchRows"),
        ({"subscribePattern": "a"}, "it is called 'streamsPattern' here"),
        ({"assign": "a"}, "a stream has no partitions; name the streams in 'streams'"),
        ({"fetchOffset.numRetries": "3"}, "it is called 'maxAttempts' here"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "'tokenFile'"),
        ({"token": "x"}, "'tokenFile'"),
        ({"kafka.ssl.truststore.location": "x"}, "'sbps://' in front of a server, and files in PEM format: 'tlsCa'"),
        (
            {"kafka.max.poll.records": "5"},
            "it belongs to Kafka's client; settings of ours are 'client.maxInFlightBytes'",
        ),
        (
            {"client.maxInFlightByte": "5"},
            "no client setting 'client.maxInFlightByte': did you mean 'maxInFlightBytes'?",
        ),
        ({"client.timeout": "5"}, "it is the option 'timeout'"),
        ({"client.maxPinnedBytes": "none"}, "option 'client.maxPinnedBytes' is 'none': it must be bytes"),
        ({"streamsPattern": "a("}, "must be a regular expression of Python's re module (missing ), unterminated"),
        ({"streamsPattern": "a", "path": "b"}, "streams are given twice"),
        ({"streamsPattern": "a", "streams": "b"}, "streams are given twice"),
        ({"maxTriggerDelay": "5m"}, "'maxTriggerDelay' does nothing without 'minOffsetsPerTrigger'"),
        ({"txnAppId": "a"}, "'txnAppId' does nothing without 'txnVersion'"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "must be a whole number from 0 on"),
        ({"onDataLoss": "rows"}, "add failOnDataLoss=false"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is 5, above 'maxOffsetsPerTrigger', 4"),
        ({"minPartitions": "5", "maxPartitions": "4"}, "is 5, above 'maxPartitions', 4"),
        ({"startingTimestamp": "yesterday"}, "option 'startingTimestamp' is 'yesterday': it must be milliseconds"),
        ({"startingTimestamp": "-10"}, "or a distance from now such as '-10m'"),
        ({"startingOffsetsByTimestamp": '{"a": "noon"}'}, "gives stream 'a' the time 'noon'"),
        ({"startingOffsetsByTimestamp": "5"}, "it must be JSON such as"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "needs a time"),
        ({"batchBytes": "4g"}, "it must be bytes between 1 and 2 GiB"),
        ({"compression": "gzip"}, "option 'compression' is 'gzip': there are: lz4, none, zstd"),
        ({"sinkId": " "}, "it must be a text of 1 to 200 bytes"),
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
        ({"createStreams": "true", "replicas": "128"}, "must be a whole number from 1 to 127"),
        ({"createStreams": "true", "acks": "0"}, "must be a whole number above 0"),
        ({"createStreams": "true", "replicas": "2", "acks": "3"}, "3 servers cannot acknowledge what 2 hold"),
        ({"createStreams": "true", "acks": "2"}, "'acks' is 1 to 'replicas', which is 1 when it is not given"),
        ({"replicas": "3"}, "'replicas' does nothing without 'createStreams'"),
        ({"acks": "2"}, "'acks' does nothing without 'createStreams'"),
        ({"maxOffsetsPerTrigger": "0"}, "must be a whole number above 0"),
        ({"maxOffsetsPerTrigger": "1e6"}, "must be a whole number above 0"),
        ({"timeout": "soon"}, "must be a number of seconds above 0"),
        ({"timeout": "inf"}, "must be a number of seconds above 0"),
        ({"startingOffsets": "newest"}, "it must be 'earliest', 'latest', 'latest-1000' or JSON"),
        ({"startingOffsets": "[1]"}, "it must be 'earliest', 'latest', 'latest-1000' or JSON"),
        ({"startingOffsets": "{}"}, "it must be 'earliest', 'latest', 'latest-1000' or JSON"),
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
            "'stream' is for a batch write or a streaming write, this is a batch read: leave it out, or use 'streams'",
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
