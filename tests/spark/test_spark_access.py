"""A server that asks who its clients are: read and written by Spark with a token from a file, and without one."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sbp_native as sbp
from python import oauth
from sbp_native.spark.options import SbpOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

ROWS = 500


class Guarded:
    """A server with two names: one that may do everything, and one that may read what is below `open/`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.names = directory / "names.jsonl"
        self.root = self.token("root", "read:*", "write:*", "admin:*")
        self.reader = self.token("reader", "read:open/*")
        self.token("reports", "read:open/*", more=("--subject", oauth.SUBJECT))
        self.busy = self.token("busy", "read:open/*", more=("--quota", "bytes-out=1000"))
        self.server = sbp.Server(
            durability="none",
            auth=self.names,
            jwks=oauth.keys(directory),
            jwt_issuer=oauth.ISSUER,
            jwt_audience=oauth.AUDIENCE,
        )

    def token(self, name: str, *grants: str, more: Sequence[str] = ()) -> Path:
        """Has `sbp token create` make a token, and returns the name of its file."""
        allow = [word for grant in grants for word in ("--allow", grant)]
        create = [sys.executable, "-m", "sbp_native._cli", "token", "create", name]
        command = [*create, *allow, *more, "--auth", str(self.names)]
        made = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        file = self.directory / f"{name}.token"
        file.write_text(made.stdout)
        return file

    def options(self, file: Path | None) -> dict[str, Any]:
        given = {"servers": self.server.address}
        return given if file is None else {**given, "tokenFile": str(file)}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    with made.server:
        yield made


def test_batches_and_queries_have_a_token(spark: SparkSession, guarded: Guarded, checkpoint: str) -> None:
    options = guarded.options(guarded.root)
    rows = spark.range(ROWS).selectExpr("cast(id as string) as value")
    rows.write.format("sbp").mode("append").options(**options, createStreams=True).save("open/numbers")
    read = spark.read.format("sbp").options(**guarded.options(guarded.reader)).load("open/numbers")
    assert {int(row.value) for row in read.select(read.value.cast("string").alias("value")).collect()} == set(
        range(ROWS)
    )
    token = guarded.reader.read_text().strip()
    assert token not in read._jdf.queryExecution().toString()

    stream = spark.readStream.format("sbp").options(**options, startingOffsets="earliest").load("open/numbers")
    sink = stream.select("value").writeStream.format("sbp").options(**options, createStreams=True)
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start("open/copy")
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert spark.read.format("sbp").options(**options).load("open/copy").count() == ROWS


def test_what_is_not_allowed_is_told_with_its_code(spark: SparkSession, guarded: Guarded, tmp_path: Path) -> None:
    with sbp.connect(guarded.server.address, token=guarded.root) as client:
        client.create_stream("open/refused")
        client.create_stream("closed")
    unknown = tmp_path / "unknown.token"
    unknown.write_text("sbp_of_another_server\n")

    def read(file: Path | None, stream: str) -> str:
        with pytest.raises(Exception, match="SBP-") as caught:
            spark.read.format("sbp").options(**guarded.options(file)).load(stream).collect()
        return str(caught.value)

    for file, why in (
        (None, "the client sent no token"),
        (unknown, "does not know the token"),
        (tmp_path / "absent.token", "cannot be read"),
    ):
        said = read(file, "open/refused")
        assert "[SBP-1401]" in said, said
        assert why in said
        assert "sbp_of_another_server" not in said
    said = read(guarded.reader, "closed")
    assert "[SBP-1403]" in said, said
    assert "needs the grant read" in said
    with pytest.raises(Exception, match="SBP-") as caught:
        rows = spark.range(1).selectExpr("cast(id as string) as value")
        rows.write.format("sbp").mode("append").options(**guarded.options(guarded.reader)).save("open/refused")
    assert "[SBP-1403]" in str(caught.value), caught.value
    assert "reader may not append to stream" in str(caught.value)
    assert guarded.reader.read_text().strip() not in str(caught.value)


def test_tasks_get_the_name_of_the_file(guarded: Guarded) -> None:
    travels = pickle.dumps(SbpOptions.parse(guarded.options(guarded.root)))
    assert str(guarded.root).encode() in travels
    assert guarded.root.read_text().strip().encode() not in travels


def test_oauth_tokens_and_quotas(spark: SparkSession, guarded: Guarded, tmp_path: Path) -> None:
    with sbp.connect(guarded.server.address, token=guarded.root) as client:
        client.create_stream("open/signed").append(b"first")
    file = tmp_path / "oauth.token"
    file.write_text(oauth.VALID + "\n")
    read = spark.read.format("sbp").options(**guarded.options(file))
    assert read.load("open/signed").count() == 1

    def refused(file: Path, **more: str) -> str:
        with pytest.raises(Exception, match="SBP-") as caught:
            spark.read.format("sbp").options(**guarded.options(file), **more).load("open/signed").collect()
        return str(caught.value)

    expired = tmp_path / "expired.token"
    expired.write_text(oauth.EXPIRED)
    said = refused(expired)
    assert "[SBP-1401]" in said, said
    assert "OAuth token expired at 2001-01-01" in said
    assert oauth.EXPIRED.rpartition(".")[2] not in said
    with sbp.connect(guarded.server.address, token=guarded.root) as client:
        client.stream("open/signed").append(bytes(100_000))
    with sbp.connect(guarded.server.address, token=guarded.busy) as client:
        assert sum(len(batch) for batch in client.stream("open/signed").read()) == 2
    said = refused(guarded.busy, timeout="2s")
    assert "[SBP-1429]" in said, said
    assert "busy reads at more than twice its quota of 1000 bytes a second" in said
