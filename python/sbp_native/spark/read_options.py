"""What every read needs to know, whatever service it reads from: parsed and judged once, on the driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from . import places, values
from .errors import INVALID_VALUE, MISPLACED_OPTION, UNKNOWN_OPTION, SbpOptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .places import Places
    from .service import Service

Columns = Literal["records", "kafka", "arrow"]

DEFAULT_TIMEOUT: Final = 30.0


class Use(Enum):
    """What a load or a save is for; the value is how a message calls it."""

    BATCH_READ = "a batch read"
    STREAM_READ = "a streaming read"
    BATCH_WRITE = "a batch write"
    STREAM_WRITE = "a streaming write"


class Option(NamedTuple):
    """One option: what it is good for, what holds without it, and what it means."""

    uses: frozenset[Use]
    default: str
    meaning: str


@dataclass(frozen=True)
class ReadOptions(ABC):
    """The options of one load. Carries nothing that could not be pickled into every task."""

    #: Every option of the format, as it is spelled.
    table: ClassVar[Mapping[str, Option]]
    #: What a message says beside "leave it out" of an option that is for another use, if there is more to say.
    twins: ClassVar[Mapping[str, str]] = {}
    #: The service whose streams are told apart by name, as checkpoints say it; None for SBP.
    of: ClassVar[str | None] = None
    #: Whether a span may be cut anywhere; else it is read whole.
    cuts_spans: ClassVar[bool] = True
    #: What a message asks for when no stream is named.
    wanted: ClassVar[str]

    #: Addresses, separated by commas.
    servers: str
    streams: tuple[str, ...] = ()
    streams_pattern: str | None = None
    starting: Places | None = None
    ending: Places | None = None
    fail_on_data_loss: bool = True
    on_data_loss: Literal["warn", "rows"] = "warn"
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_partitions: int | None = None
    include_headers: bool | None = None
    columns: Columns | None = None
    push_filters: bool | None = None
    timeout: float = DEFAULT_TIMEOUT
    worker_gc_freeze: bool = True
    given: frozenset[str] = frozenset()

    @classmethod
    @abstractmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Reads the options as Spark gives them: keys in any case, values as text.

        Raises `SbpOptionError` for an option that does not exist and for a value that cannot be meant.
        """

    @abstractmethod
    def service(self) -> Service:
        """Who is asked."""

    @property
    @abstractmethod
    def where(self) -> str:
        """The service, for messages."""

    @property
    def gaps_as_rows(self) -> bool:
        """Whether records that are gone are reported as rows."""
        return not self.fail_on_data_loss and self.on_data_loss == "rows"

    def refuse_all_but(self, *uses: Use) -> None:
        """Raises `SbpOptionError` for the first option given that serves none of `uses`."""
        for name in sorted(self.given):
            if not self.table[name].uses & set(uses):
                good_for = _either([use.value for use in Use if use in self.table[name].uses])
                here = _either([use.value for use in uses])
                raise SbpOptionError(
                    MISPLACED_OPTION,
                    f"option {name!r} is for {good_for}, this is {here}: leave it out{self._twin(name, uses)}",
                )

    def for_read(self, use: Use) -> ReadOptions:
        """These options, found fit for one kind of read."""
        self.refuse_all_but(use)
        self.check_streams()
        if use is Use.BATCH_READ and self.starting is not None and self.starting.anywhere("latest"):
            raise SbpOptionError(
                INVALID_VALUE,
                f"option {self.starting.option!r} cannot be 'latest' (-1): a batch read that starts at the end reads "
                "nothing",
            )
        return self

    def check_streams(self) -> None:
        """Raises `SbpOptionError` unless a read knows its streams."""
        if not self.streams and self.streams_pattern is None:
            raise SbpOptionError(INVALID_VALUE, self.wanted)

    def _twin(self, name: str, uses: tuple[Use, ...]) -> str:
        twin = self.twins.get(name)
        return f", or use {twin!r}" if twin and self.table[twin].uses & set(uses) else ""

    def _check_reading(self) -> None:
        """Refuses options of reads that contradict each other, or do nothing without another."""
        given = self.given
        if "maxTriggerDelay" in given and "minOffsetsPerTrigger" not in given:
            raise does_nothing("maxTriggerDelay", "minOffsetsPerTrigger")
        if "onDataLoss" in given and self.fail_on_data_loss:
            raise SbpOptionError(
                INVALID_VALUE, "option 'onDataLoss' does nothing while a read fails on loss: add failOnDataLoss=false"
            )
        for one, least, other, most in (
            (
                "minOffsetsPerTrigger",
                self.min_offsets_per_trigger,
                "maxOffsetsPerTrigger",
                self.max_offsets_per_trigger,
            ),
            ("minPartitions", self.min_partitions, "maxPartitions", self.max_partitions),
        ):
            if least is not None and most is not None and least > most:
                raise SbpOptionError(
                    INVALID_VALUE,
                    f"option {one!r} is {least}, above {other!r}, {most}: lower one, raise the other",
                )


def of_reads(given: Mapping[str, str], named: Callable[[str], str] = values.stream_name) -> dict[str, Any]:
    """What the options say that all reads have, by the fields of `ReadOptions`; `named` checks the name of a stream."""
    return {
        "starting": places.starting(given, named),
        "ending": places.ending(given, named),
        "fail_on_data_loss": values.flag("failOnDataLoss", given) is not False,
        "on_data_loss": values.word("onDataLoss", given, ("warn", "rows")) or "warn",
        "max_offsets_per_trigger": values.number("maxOffsetsPerTrigger", given),
        "min_offsets_per_trigger": values.number("minOffsetsPerTrigger", given),
        "max_trigger_delay": values.duration("maxTriggerDelay", given, "ms") or ReadOptions.max_trigger_delay,
        "min_partitions": values.number("minPartitions", given),
        "max_records_per_partition": values.number("maxRecordsPerPartition", given),
        "max_partitions": values.number("maxPartitions", given),
        "include_headers": values.flag("includeHeaders", given),
        "push_filters": values.flag("pushFilters", given),
        "timeout": values.duration("timeout", given, "s") or DEFAULT_TIMEOUT,
        "worker_gc_freeze": values.flag("workerGcFreeze", given) is not False,
    }


def spelled(
    options: Mapping[str, str], table: Mapping[str, Option], instead_of: Callable[[str], str]
) -> dict[str, str]:
    """The options as the table spells them; `instead_of` says what to use in place of one that there is not."""
    known = {name.lower(): name for name in table}
    found: dict[str, str] = {}
    for key in options:
        name = known.get(key.lower())
        if name is None:
            raise SbpOptionError(UNKNOWN_OPTION, f"there is no option {key!r}: {instead_of(key)}")
        found[name] = str(options[key])
    return found


def check_twice(given: frozenset[str], pairs: tuple[tuple[str, str, str], ...]) -> None:
    """Refuses two options that say the same: of each pair both, and what to say of it."""
    for one, other, what in pairs:
        if one in given and other in given:
            raise SbpOptionError(INVALID_VALUE, f"{what}, not both")


def does_nothing(one: str, other: str) -> SbpOptionError:
    """The error for an option without the other that it goes with."""
    return SbpOptionError(INVALID_VALUE, f"option {one!r} does nothing without {other!r}: give both, or none")


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
