"""Reports of a volume about itself, as plain values."""

import uuid
from dataclasses import dataclass
from typing import List, Optional, Tuple


@dataclass(frozen=True)
class BlockGroups:
    """The block groups of one kind and profile, in bytes of content."""

    #: "data", "metadata", "system" or "mixed".
    kind: str
    #: Such as "RAID1" or "single". None if it is not known.
    profile: Optional[str]
    total: int
    used: int


@dataclass(frozen=True)
class Space:
    """The space of a volume, in bytes, as the kernel's btrfs reports it for the same volume."""

    #: The size as df shows it: that of the devices, divided by the copies that data has.
    total: int
    free: int
    #: Bytes that data can be written to.
    available: int
    #: Bytes held back so that files can be deleted on a full volume.
    reserve: int
    block_groups: Tuple[BlockGroups, ...]


@dataclass(frozen=True)
class Device:
    """A device of a volume."""

    id: int
    uuid: uuid.UUID
    #: None if it is missing.
    path: Optional[str]
    #: The bytes that the volume takes of it.
    total: int
    #: The bytes of that in block groups.
    allocated: int


@dataclass(frozen=True)
class DeviceErrors:
    """The errors of a device that the kernel's btrfs has counted, as `btrfs device stats` has them."""

    #: The id of the device.
    id: int
    write: int
    read: int
    flush: int
    #: Blocks whose checksum was another.
    corruption: int
    #: Tree blocks of another transaction than the one that was meant.
    generation: int


@dataclass(frozen=True)
class Statistics:
    """Counts since a volume was opened for writing."""

    commits: int
    #: Syncs of files that wrote a log in place of a commit.
    logs: int
    #: Syncs of data written in place that needed neither a log nor a commit, only a flush of the devices.
    data_flushes: int
    #: Data written; one copy of each.
    data_bytes: int
    #: Tree blocks written by commits; one copy of each.
    metadata_bytes: int
    #: Tree blocks written for logs; one copy of each.
    log_bytes: int


@dataclass(frozen=True)
class CheckIssue:
    """Something that is wrong with a volume."""

    #: "note", "warning" or "error".
    severity: str
    #: It stays from release to release. docs/check.md lists them.
    number: int
    message: str


@dataclass(frozen=True)
class CheckReport:
    """The findings of a check."""

    errors: int
    warnings: int
    #: Findings that sound operation leaves, such as a power cut.
    notes: int
    #: The first 1000.
    issues: Tuple[CheckIssue, ...]

    @property
    def clean(self) -> bool:
        """Whether there is no error. Warnings and notes are none."""
        return self.errors == 0


@dataclass(frozen=True)
class Change:
    """A change of a name between two snapshots, or of what it leads to."""

    #: "removed", "added", "renamed" or "changed".
    kind: str
    #: From the root of the snapshot, without a slash before it; empty for the root.
    path: str
    renamed_from: Optional[str]


@dataclass(frozen=True)
class Progress:
    """How far a long call is. Counts are of the whole call, and 0 where they mean nothing to it."""

    #: The file that the call is at. Of a stream that is received, the subvolume and the path within.
    path: Optional[str]
    #: The subject of a check, for people, such as "extents".
    subject: Optional[str]
    #: The number of the phase of a check, from 1.
    phase: int
    phases: int
    #: Files of a tree that were begun or removed, or commands of a stream that is received.
    files: int
    #: Bytes of data copied or archived, of the stream sent or received, or of trimmed space. Data that copies share is not
    #: among them.
    bytes: int
    #: Tree blocks that a check has read.
    blocks: int
    #: Issues that a check has found.
    issues: int


@dataclass(frozen=True)
class Problem:
    """A file that was not transferred or removed."""

    path: str
    message: str


class TransferError(OSError):
    """Some files of a tree were not transferred or removed, like shutil.Error. All others were."""

    def __init__(self, count: int, problems: List[Problem]) -> None:
        first = f": {problems[0].path}: {problems[0].message}" if problems else ""
        super().__init__(f"{count} files failed{first}")
        #: How many there are.
        self.count = count
        #: The first 1000.
        self.problems = problems
