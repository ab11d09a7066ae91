"""What the package is before anything is called: its names, its types, what importing it does."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import sbp_native as sbp
from sbp_native import _native, errors, pravega, seastar, tank, testing

Run = Callable[..., "subprocess.CompletedProcess[str]"]

PUBLIC = """
AccessDeniedError Ack AlreadyExistsError AsyncBatches AsyncClient AsyncCursor AsyncKeyed AsyncKeyedWriter AsyncStream
AsyncWriter BackPressureError Batch BatchCorruptError Batches Client ClosedError ClusterInfo ClusterMember
ConnectionFailedError ConnectionLostError Cursor CursorTakenError DataCorruptedError DataLossError
DeadlineExceededError DeliveryReport DirectoryLockedError ForkedClientError Histogram IndeterminateError
InvalidRequestError Keyed KeyedWriter LogFailedError NotFoundError OffsetOutOfRangeError Operation
OutcomeUnknownTimeoutError Payload PayloadTooLargeError PortTakenError Positions PreconditionFailedError ProtocolError
Proxy RangeInfo RangeNotFoundError RangeSealedError RangeServerInfo Record RejectedError Relative SbpError
SchemaMismatchError SequenceError Server ServerConfigError ServerError ServerStartError StorageFullError Stream
StreamInfo StreamNotFoundError StreamReplacedError ThrottledError Tls TlsError UnavailableError UnsupportedError Writer
WriterFencedError __version__ aio connect errors keyed
""".split()


def test_the_public_names_are_these() -> None:
    assert sorted(sbp.__all__) == sorted(PUBLIC)
    for name in PUBLIC:
        assert hasattr(sbp, name)


def test_every_public_type_says_it_lives_in_the_package() -> None:
    for name in PUBLIC:
        value = getattr(sbp, name)
        if inspect.isclass(value):
            assert value.__module__ in ("sbp_native", "sbp_native.errors"), name


def test_the_version_is_the_distributions() -> None:
    assert importlib.metadata.version("sbp-native") == sbp.__version__


@pytest.mark.alone
def test_importing_starts_nothing_and_needs_nothing(run_python: Run) -> None:
    run_python("""
        import os, sys, threading, time
        import sysconfig
        for absent in ("pyarrow", "pyspark", "pandas", "numpy"):
            sys.modules[absent] = None          # an import of it fails
        before = set(os.listdir("/proc/self/fd"))
        started = time.process_time()       # of this process: other load does not count
        import sbp_native
        elapsed = time.process_time() - started
        assert len(os.listdir("/proc/self/task")) == 1, "a thread was started"
        assert set(os.listdir("/proc/self/fd")) == before, "a descriptor was opened"
        assert threading.active_count() == 1
        assert not any(name.startswith("sbp_native.spark") for name in sys.modules)
        assert elapsed < 0.1, elapsed
    """)


def test_first_use_imports_nothing(run_python: Run) -> None:
    # A child that is forked while a module is being imported inherits the module's lock, for ever locked.
    done = run_python("""
        import pickle, sys
        import sbp_native as sbp

        def imported(before=set()):
            new = set(sys.modules) - before
            before |= new
            return sorted(new)

        def blocking():
            with sbp.Server(durability="none") as server, sbp.connect(server.address) as client:
                stream = client.create_stream("plain")
                stream.append([b"a", b"b"], key=[b"k", None])
                with stream.writer(writer_id="job") as writer:
                    writer.append(b"c")
                client.cursor("job", ["plain"]).commit({"plain": 1})
                client.keyed("keyed", streams=2).append(b"k", b"v")
                list(stream.read())
                try:
                    client.stream("absent")
                except sbp.StreamNotFoundError as error:
                    pickle.loads(pickle.dumps(error))
                pickle.loads(pickle.dumps(client)).close()
                with sbp.Proxy(server) as proxy, sbp.connect(proxy.address) as behind:
                    behind.ping()

        imported()
        blocking()
        new = imported()
        assert not new, new
        import asyncio
        imported()

        async def asynchronous():
            async with sbp.Server(durability="none") as server, sbp.aio.connect(server.address) as client:
                stream = await client.create_stream("plain")
                await stream.append([b"a", b"b"])
                async with stream.writer(writer_id="job") as writer:
                    await writer.append(b"c")
                cursor = await client.cursor("job", ["plain"])
                await cursor.commit({"plain": 1})
                async for _batch in stream.read():
                    pass

        asyncio.run(asynchronous())
        new = imported()
        assert not new, new
    """)
    assert not done.stderr


def test_the_core_works_without_pyarrow(run_python: Run) -> None:
    run_python("""
        import sys
        for absent in ("pyarrow", "pyspark", "pandas", "numpy"):
            sys.modules[absent] = None
        import sbp_native as sbp
        with sbp.Server() as server, sbp.connect(server.address) as client:
            stream = client.create_stream("plain")
            stream.append([b"a", b"b"])
            assert [r.value for batch in stream.read() for r in batch.records()] == [b"a", b"b"]
    """)


def test_a_library_that_is_absent_is_asked_for_by_name(run_python: Run) -> None:
    run_python("""
        import sys
        class Absent:
            def find_spec(self, name, *_):
                if name.partition(".")[0] in ("pyarrow", "pandas", "polars"):
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        sys.meta_path.insert(0, Absent())
        import sbp_native as sbp
        with sbp.Server(durability="none") as server, sbp.connect(server.address) as client:
            stream = client.create_stream("plain")
            stream.append([b"a", b"b"])
            batch = next(stream.read())
            for call, library, extra in (
                (batch.to_arrow, "pyarrow", "'sbp-native[arrow]'"),
                (batch.to_pandas, "pandas", "'sbp-native[arrow]' pandas"),
                (batch.to_polars, "polars", "polars"),
            ):
                try:
                    call()
                except ModuleNotFoundError as error:
                    wanted = f"Batch.{call.__name__} needs {library}, which is not installed: pip install {extra}"
                    assert str(error) == wanted, error
                    assert error.name == library
                    assert isinstance(error.__cause__, ModuleNotFoundError)
                else:
                    raise AssertionError(f"{library} was found")
            assert batch.values == [b"a", b"b"]
    """)


def test_a_subinterpreter_is_refused(run_python: Run) -> None:
    run_python("""
        import _xxsubinterpreters as interpreters

        def refused():
            other = interpreters.create()
            try:
                interpreters.run_string(other, "import sbp_native")
            except interpreters.RunFailedError as error:
                assert "ImportError" in str(error) and "main interpreter" in str(error), error
            else:
                raise AssertionError("it was imported")
            interpreters.destroy(other)

        refused()                       # before the main interpreter has imported it, and after
        import sbp_native as sbp
        refused()
        with sbp.Server(durability="none") as server, sbp.connect(server.address) as client:
            client.ping()
        refused()
    """)


# The tree of exceptions, parents first: the class, the class of ours it derives from, the built-in one that it also is.
TREE = """
    SbpError - -
    RejectedError SbpError -
    IndeterminateError SbpError -
    InvalidRequestError RejectedError ValueError
    PayloadTooLargeError InvalidRequestError -
    SchemaMismatchError InvalidRequestError -
    BatchCorruptError InvalidRequestError -
    UnsupportedError RejectedError -
    AccessDeniedError RejectedError PermissionError
    NotFoundError RejectedError LookupError
    StreamNotFoundError NotFoundError -
    StreamReplacedError StreamNotFoundError -
    RangeNotFoundError NotFoundError -
    AlreadyExistsError RejectedError -
    PreconditionFailedError RejectedError -
    CursorTakenError PreconditionFailedError -
    SequenceError RejectedError -
    WriterFencedError RejectedError -
    RangeSealedError RejectedError -
    OffsetOutOfRangeError RejectedError -
    ThrottledError RejectedError -
    BackPressureError ThrottledError -
    UnavailableError RejectedError -
    ConnectionFailedError UnavailableError ConnectionError
    TlsError ConnectionFailedError -
    StorageFullError RejectedError -
    DataCorruptedError RejectedError -
    DataLossError RejectedError -
    DeadlineExceededError RejectedError TimeoutError
    ClosedError RejectedError -
    ForkedClientError ClosedError -
    ServerStartError RejectedError -
    PortTakenError ServerStartError OSError
    DirectoryLockedError ServerStartError OSError
    ServerConfigError ServerStartError ValueError
    ServerError IndeterminateError -
    LogFailedError ServerError -
    ProtocolError IndeterminateError -
    ConnectionLostError IndeterminateError ConnectionError
    OutcomeUnknownTimeoutError IndeterminateError TimeoutError
    TankError RejectedError -
    TankFramingError TankError -
    TankLimitError TankError ValueError
    TankCompressionError TankError -
    TankPeerError TankError -
    TankRefusedError TankError -
    TankLostError TankError ConnectionError
    TankUnknownNameError TankError LookupError
    TankOutOfRangeError TankError -
    SeastarError RejectedError -
    SeastarFramingError SeastarError -
    SeastarLimitError SeastarError ValueError
    SeastarCompressionError SeastarError -
    SeastarPeerError SeastarError -
    SeastarRefusedError SeastarError -
    SeastarLostError SeastarError ConnectionError
    SeastarUnknownVerbError SeastarError LookupError
    SeastarOutOfRangeError SeastarError ValueError
"""


def test_the_exceptions_are_those_of_the_error_table() -> None:
    builtins = importlib.import_module("builtins")
    for row in TREE.strip().splitlines():
        name, base, builtin = (word.strip("-") for word in row.split())
        found = getattr(errors, name)
        assert found.__doc__
        assert found.__bases__[0].__name__ == (base or "Exception"), name
        also = [cls.__name__ for cls in found.__bases__[1:]]
        assert also == ([builtin] if builtin else []), name
        if builtin:
            assert issubclass(found, getattr(builtins, builtin))


def test_every_code_has_a_class_of_the_half_its_outcome_belongs_to() -> None:
    for code, name, class_name, _, perhaps, meaning, advice in _native.error_codes():
        found = getattr(errors, class_name)
        assert advice, name
        assert meaning, name
        if code:
            assert issubclass(found, errors.IndeterminateError if perhaps else errors.RejectedError), name


def test_errors_survive_pickling() -> None:
    pickle = importlib.import_module("pickle")
    for name in errors.__all__:
        cls = getattr(errors, name)
        error = cls(
            "[SBP-1] what; what to do", code=7, retriable=True, stream="s", offset=3, endpoint="h:1", attempts=2
        )
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is cls
        assert str(copy) == str(error) == "[SBP-1] what; what to do"
        assert (copy.code, copy.retriable, copy.stream, copy.offset, copy.endpoint) == (7, True, "s", 3, "h:1")


def test_an_io_thread_cannot_attach(capfd: pytest.CaptureFixture[str]) -> None:
    assert _native.io_threads_attach() is False
    assert "must not attach" in capfd.readouterr().err


def test_an_io_thread_that_drops_a_python_object_ends_the_process(run_python: Run) -> None:
    done = run_python(
        "from sbp_native import _native; _native.io_threads_drop(object()); print('went on')", status=-signal.SIGABRT
    )
    assert "went on" not in done.stdout
    assert "without the thread being attached" in done.stderr


STUB = ast.parse((Path(__file__).resolve().parents[2] / "python" / "sbp_native" / "_native.pyi").read_text())


def test_help_says_what_the_stub_says() -> None:
    told = 0
    for node in STUB.body:
        if not isinstance(node, ast.ClassDef):
            continue
        found = next(
            (
                getattr(module, node.name)
                for module in (sbp, testing, tank, pravega, seastar)
                if hasattr(module, node.name)
            ),
            None,
        )
        if found is None:
            continue
        pairs = [(node.name, found.__doc__, ast.get_docstring(node))]
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                said = getattr(found, member.name).__doc__
                pairs.append((f"{node.name}.{member.name}", said, ast.get_docstring(member)))
        for name, said, text in pairs:
            if text is not None:
                assert inspect.cleandoc(said or "") == text, name
                told += 1
    assert told > 150


PAIRS = (
    "Client",
    "Stream",
    "Keyed",
    "Cursor",
    "Writer",
    "Batches",
    "KeyedWriter",
    "Broker",
    "Rpc",
    "RpcStream",
    "Verb",
    "Pravega",
    "PravegaWriter",
)


@pytest.mark.parametrize("name", PAIRS)
def test_a_class_and_its_twin_for_asyncio_take_the_same_arguments(name: str) -> None:
    module = next(module for module in (tank, pravega, seastar, sbp) if hasattr(module, name))
    blocking, asynchronous = getattr(module, name), getattr(module, f"Async{name}")
    methods = {member for member in dir(blocking) if not member.startswith("_") and callable(getattr(blocking, member))}
    assert methods <= set(dir(asynchronous))
    for member in methods:
        one, other = (inspect.signature(getattr(owner, member)) for owner in (blocking, asynchronous))
        taken = [[(p.name, p.kind, p.default) for p in signature.parameters.values()] for signature in (one, other)]
        assert taken[0] == taken[1], member
