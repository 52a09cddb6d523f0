"""Reports of a volume about itself, as plain values."""

import uuid
from dataclasses import dataclass
from typing import List, Optional, Tuple


@dataclass(frozen=True)
class BlockGroups:
    """The block groups of one kind and profile, in bytes of content."""

    #: "data", "metadata", "system" or "mixed".
    kind: str
    #: The profile, such as "RAID1" or "single". None if it is unknown.
    profile: Optional[str]
    total: int
    used: int


@dataclass(frozen=True)
class Space:
    """The space of a volume, in bytes, as the kernel's btrfs reports it for the same volume."""

    #: The size as in df: the sum of the devices, divided by the number of copies of data.
    total: int
    free: int
    #: The number of bytes that data can be written to.
    available: int
    #: The number of bytes reserved for deleting files on a full volume.
    reserve: int
    block_groups: Tuple[BlockGroups, ...]


@dataclass(frozen=True)
class Device:
    """A device of a volume."""

    id: int
    uuid: uuid.UUID
    #: None if it is missing.
    path: Optional[str]
    #: The number of bytes of the device that the volume uses.
    total: int
    #: The number of bytes that are allocated to block groups.
    allocated: int


@dataclass(frozen=True)
class DeviceErrors:
    """The error counters of a device, as in `btrfs device stats`, including errors counted by the kernel's btrfs."""

    #: The id of the device.
    id: int
    write: int
    read: int
    flush: int
    #: Blocks with a wrong checksum.
    corruption: int
    #: Tree blocks with a wrong transaction id.
    generation: int


@dataclass(frozen=True)
class Statistics:
    """Counts since a volume was opened for writing."""

    commits: int
    #: fsyncs that wrote a log in place of a commit.
    logs: int
    #: fsyncs after overwriting data in place that needed neither a log nor a commit, only a flush of the devices.
    data_flushes: int
    #: Written data, counting one copy.
    data_bytes: int
    #: Tree blocks written by commits, counting one copy.
    metadata_bytes: int
    #: Tree blocks written for logs, counting one copy.
    log_bytes: int


@dataclass(frozen=True)
class CheckIssue:
    """A problem of a volume."""

    #: "note", "warning" or "error".
    severity: str
    #: The kind of issue, which is stable across releases. docs/check.md lists them.
    number: int
    message: str


@dataclass(frozen=True)
class CheckReport:
    """The findings of a check."""

    errors: int
    warnings: int
    #: Harmless leftovers of normal operation, such as of a power cut.
    notes: int
    #: The first issues, up to `max_issues`.
    issues: Tuple[CheckIssue, ...]

    @property
    def clean(self) -> bool:
        """Whether there is no error. Warnings and notes do not count as errors."""
        return self.errors == 0


@dataclass(frozen=True)
class Change:
    """A change of a name, or of its file, between two snapshots."""

    #: "removed", "added", "renamed" or "changed".
    kind: str
    #: The path from the root of the snapshot, without a leading slash; empty for the root.
    path: str
    renamed_from: Optional[str]


@dataclass(frozen=True)
class Progress:
    """The progress of a long call. Counts are totals of the whole call, and 0 if they do not apply to it."""

    #: "begin" of a file or command, "advance", "phase" of a check, "problem" of a file or command, "removed", "finished"
    #: or "unfinished" subvolume of a stream. Later versions may have others.
    event: str
    #: The file of the event or the current file. For a received stream, the subvolume and the path within.
    path: Optional[str]
    #: The reason of a problem, for display.
    message: Optional[str]
    #: The subject of a check, for display, such as "extents".
    subject: Optional[str]
    #: The number of the phase of a check, from 1.
    phase: int
    phases: int
    #: The number of files that were begun or removed, or of commands of a received stream.
    files: int
    #: The number of bytes of data copied or archived, of a sent or received stream, or of trimmed space. Shared data is
    #: not counted.
    bytes: int
    #: The number of tree blocks that a check has read.
    blocks: int
    #: The number of issues that a check has found.
    issues: int


@dataclass(frozen=True)
class Problem:
    """A file that was not transferred or removed."""

    path: str
    message: str


class TransferError(OSError):
    """Raised if some files of a tree were not transferred or removed, like shutil.Error. All others were."""

    def __init__(self, count: int, problems: List[Problem]) -> None:
        first = f": {problems[0].path}: {problems[0].message}" if problems else ""
        super().__init__(f"{count} files failed{first}")
        #: The number of problems.
        self.count = count
        #: The first 1000 problems.
        self.problems = problems
