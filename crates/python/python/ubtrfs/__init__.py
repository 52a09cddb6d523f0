"""btrfs in user space: volumes with snapshots, in a file or in memory.

    import ubtrfs

    with ubtrfs.Volume.create("archive.img", 1 << 30) as volume:
        with volume.root.open("/notes", "w") as file:
            file.write("first")
        volume.snapshot("/", "/before")

Paths are str, bytes or os.PathLike. They begin at the root of the volume or subvolume, with or without a leading slash.
Errors are raised as OSError, with errno and filename; a call on a closed volume or file raises ValueError. No permission
is checked, and no umask applies.
"""

import errno as _errno
import io
import os
import uuid as _uuid
from dataclasses import dataclass
from types import TracebackType
from typing import (
    IO,
    TYPE_CHECKING,
    Any,
    AnyStr,
    BinaryIO,
    Callable,
    Dict,
    Generic,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Protocol,
    Tuple,
    Type,
    TypeVar,
    Union,
    overload,
)

from . import _ubtrfs
from ._files import Opened, RawFile, buffered
from ._options import CheckOptions, CopyOptions, MkfsOptions, OpenOptions, ReceiveOptions
from ._reports import (
    BlockGroups,
    Change,
    CheckIssue,
    CheckReport,
    Device,
    DeviceErrors,
    Problem,
    Progress,
    Space,
    Statistics,
    TransferError,
)

if TYPE_CHECKING:
    from _typeshed import OpenBinaryMode, OpenTextMode, ReadableBuffer
    from typing_extensions import Unpack

__all__ = [
    "BlockGroups",
    "Change",
    "Changes",
    "CheckIssue",
    "CheckOptions",
    "CheckReport",
    "CopyOptions",
    "Device",
    "DeviceErrors",
    "DirEntry",
    "MakeOptions",
    "MkfsOptions",
    "OpenOptions",
    "Problem",
    "Progress",
    "RawFile",
    "ReceiveOptions",
    "ScandirIterator",
    "Space",
    "Statistics",
    "Subvolume",
    "SubvolumeInfo",
    "TransferError",
    "Volume",
    "check",
]
__version__ = _ubtrfs.__version__

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_T = TypeVar("_T")
_Hears = Optional[Callable[[Progress], object]]


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Writable(Protocol):
    def write(self, data: bytes, /) -> Any: ...


_BUFFER_BYTES = 128 << 10
_SECOND_NS = 10**9


def _ns(time: Tuple[int, int]) -> int:
    return time[0] * _SECOND_NS + time[1]


def _os_error(errno: int, path: Path) -> OSError:
    return OSError(errno, os.strerror(errno), os.fspath(path))


def _stat_result(stat: Any) -> os.stat_result:
    (mode, ino, subvolume, nlink, uid, gid, size, blocks, rdev), times = stat
    atime, mtime, ctime, _ = map(_ns, times)
    seconds = tuple(ns // _SECOND_NS for ns in (atime, mtime, ctime))
    return os.stat_result(
        (mode, ino, subvolume, nlink, uid, gid, size) + seconds,
        {
            "st_atime": atime / _SECOND_NS,
            "st_mtime": mtime / _SECOND_NS,
            "st_ctime": ctime / _SECOND_NS,
            "st_atime_ns": atime,
            "st_mtime_ns": mtime,
            "st_ctime_ns": ctime,
            "st_blksize": 4096,
            "st_blocks": blocks,
            "st_rdev": rdev,
        },
    )


@dataclass(frozen=True)
class SubvolumeInfo:
    """Properties of a subvolume, as of the time of the call."""

    id: int
    #: The path from the top level, without a leading slash. None while it is being deleted.
    path: Optional[str]
    uuid: _uuid.UUID
    parent_uuid: Optional[_uuid.UUID]
    received_uuid: Optional[_uuid.UUID]
    read_only: bool
    deleted: bool
    generation: int
    created_generation: int
    created_ns: int
    changed_ns: int


class DirEntry(Generic[AnyStr]):
    """An entry of a directory, like os.DirEntry."""

    name: AnyStr
    path: AnyStr

    def __init__(self, of: "Subvolume", name: AnyStr, path: AnyStr, entry: Any) -> None:
        self.name = name
        self.path = path
        self._of = of
        _, _, self._inode, (self._is_dir, self._is_file, self._is_symlink), self._is_subvolume = entry

    def __fspath__(self) -> AnyStr:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def inode(self) -> int:
        return self._inode  # type: ignore[no-any-return]

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        if self._is_symlink and follow_symlinks:
            return self._of.isdir(self.path)
        return self._is_dir  # type: ignore[no-any-return]

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        if self._is_symlink and follow_symlinks:
            return self._of.isfile(self.path)
        return self._is_file  # type: ignore[no-any-return]

    def is_symlink(self) -> bool:
        return self._is_symlink  # type: ignore[no-any-return]

    def is_subvolume(self) -> bool:
        return self._is_subvolume  # type: ignore[no-any-return]

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._of.stat(self.path, follow_symlinks=follow_symlinks)


class ScandirIterator(Generic[AnyStr]):
    """The entries of a directory, in the order of their creation. Memory use does not depend on their number."""

    def __init__(self, of: "Subvolume", native: _ubtrfs.Listing, as_bytes: bool) -> None:
        self._of = of
        self._native = native
        self._as_bytes = as_bytes
        self._batch: List[Any] = []

    def __iter__(self) -> "ScandirIterator[AnyStr]":
        return self

    def __next__(self) -> DirEntry[AnyStr]:
        if not self._batch:
            self._batch = self._native.next_entries()[::-1]
            if not self._batch:
                raise StopIteration
        entry = self._batch.pop()
        # The library has built the path, so a name from a damaged volume cannot lead out of the directory.
        named: Any = entry[:2] if self._as_bytes else map(os.fsdecode, entry[:2])
        name, path = named
        return DirEntry(self._of, name, path, entry)

    def close(self) -> None:
        self._native.close()

    def __enter__(self) -> "ScandirIterator[AnyStr]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Subvolume:
    """A tree of files. Its methods work like the functions of os and os.path; paths begin at its root."""

    def __init__(self, native: _ubtrfs.Subvolume, opened: Opened) -> None:
        self._tree = native
        self._opened = opened
        opened.add(native)

    def _sub(self, native: _ubtrfs.Subvolume) -> "Subvolume":
        return Subvolume(native, self._opened)

    @property
    def id(self) -> int:
        """The id within the volume. The top level has 5."""
        return self._tree.id()

    @property
    def read_only(self) -> bool:
        return self._tree.is_read_only()

    @read_only.setter
    def read_only(self, read_only: bool) -> None:
        self._tree.set_read_only(read_only)

    def subvolume(self, path: Path) -> "Subvolume":
        """Opens the subvolume at a path."""
        return self._sub(self._tree.subvolume(os.fsencode(path)))

    def create_subvolume(self, path: Path) -> "Subvolume":
        """Creates an empty subvolume, and commits."""
        return self._sub(self._tree.create_subvolume(os.fsencode(path)))

    def snapshot(self, source: Path, to: Path, *, read_only: bool = False) -> "Subvolume":
        """Creates a snapshot at `to` of the subvolume at `source`, and commits. "/" is this subvolume itself.

        The snapshot is writable unless `read_only` is true, as in `btrfs subvolume snapshot`. Streams and comparisons
        need read-only snapshots.
        """
        return self._sub(self._tree.snapshot(os.fsencode(source), os.fsencode(to), read_only))

    def delete_subvolume(self, path: Path) -> None:
        """Deletes a subvolume with all its contents. It must not contain nested subvolumes."""
        self._tree.delete_subvolume(os.fsencode(path))

    def stat(self, path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        """Like os.stat; st_dev is the id of the subvolume."""
        return _stat_result(self._tree.stat(os.fsencode(path), follow_symlinks))

    def lstat(self, path: Path) -> os.stat_result:
        return self.stat(path, follow_symlinks=False)

    def birthtime_ns(self, path: Path, *, follow_symlinks: bool = True) -> int:
        """Returns the time of creation in nanoseconds since 1970. os.stat_result has no such field on Linux."""
        _, times = self._tree.stat(os.fsencode(path), follow_symlinks)
        return _ns(times[3])

    def _mode(self, path: Path) -> int:
        try:
            return self.stat(path).st_mode
        except OSError as error:
            if error.errno in (_errno.ENOENT, _errno.ENOTDIR, _errno.ELOOP):
                return 0
            raise

    def exists(self, path: Path) -> bool:
        return self._mode(path) != 0

    def isdir(self, path: Path) -> bool:
        return self._mode(path) & 0o170000 == 0o040000

    def isfile(self, path: Path) -> bool:
        return self._mode(path) & 0o170000 == 0o100000

    @overload
    def scandir(self, path: bytes) -> ScandirIterator[bytes]: ...
    @overload
    def scandir(self, path: "Union[str, os.PathLike[str]]" = "/") -> ScandirIterator[str]: ...
    def scandir(self, path: Any = "/") -> Any:
        native = self._tree.list(os.fsencode(path))
        self._opened.add(native)
        return ScandirIterator(self, native, isinstance(os.fspath(path), bytes))

    @overload
    def listdir(self, path: bytes) -> List[bytes]: ...
    @overload
    def listdir(self, path: "Union[str, os.PathLike[str]]" = "/") -> List[str]: ...
    def listdir(self, path: Any = "/") -> Any:
        with self.scandir(path) as entries:
            return [entry.name for entry in entries]

    @overload
    def open(
        self,
        path: Path,
        mode: "OpenTextMode" = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> io.TextIOWrapper: ...
    @overload
    def open(self, path: Path, mode: "OpenBinaryMode", buffering: int = -1) -> BinaryIO: ...
    @overload
    def open(
        self,
        path: Path,
        mode: str,
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> IO[Any]: ...
    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> Any:
        """Opens a file like the built-in open, with the same arguments."""
        letters = set(mode)
        main = letters & set("rwxa")
        if letters - set("rwxabt+") or len(mode) != len(letters) or len(main) != 1:
            raise ValueError(f"invalid mode: {mode!r}")
        binary = "b" in letters
        if binary and "t" in letters:
            raise ValueError("can't have text and binary mode at once")
        if binary and not (encoding is None and errors is None and newline is None):
            raise ValueError("binary mode takes no encoding, errors or newline argument")
        if buffering == 0 and not binary:
            raise ValueError("can't have unbuffered text I/O")
        both = "+" in letters
        (first,) = main
        access = {"r": "w" if both else "", "w": "w", "x": "w", "a": "a"}[first]
        access += "r" if first == "r" or both else ""
        making = {"r": "", "w": "c", "a": "c", "x": "x"}[first]
        native = self._tree.open(os.fsencode(path), access, making, first == "w")
        self._opened.add(native)
        name = os.fspath(path)
        raw = RawFile(native, name, first + "b" + ("+" if both else ""))
        if buffering == 0:
            self._opened.add(raw)
            return raw
        file = buffered(raw, buffering if buffering > 1 else _BUFFER_BYTES)
        if not binary:
            text = io.TextIOWrapper(file, encoding, errors, newline, buffering == 1)
            text.mode = mode  # type: ignore[misc]
            file = text
        self._opened.add(file)
        return file

    def mkdir(self, path: Path, mode: int = 0o755) -> None:
        self._tree.mkdir(os.fsencode(path), mode)

    def makedirs(self, path: Path, mode: int = 0o755, exist_ok: bool = False) -> None:
        whole = os.fsencode(path).rstrip(b"/") or b"/"
        above = os.path.dirname(whole)
        if above not in (b"", b"/") and not self.exists(above):
            self.makedirs(above, exist_ok=True)
        try:
            self.mkdir(whole, mode)
        except FileExistsError:
            if not exist_ok or not self.isdir(whole):
                raise

    def unlink(self, path: Path) -> None:
        self._tree.unlink(os.fsencode(path))

    remove = unlink

    def rmdir(self, path: Path) -> None:
        self._tree.rmdir(os.fsencode(path))

    def rmtree(self, path: Path) -> None:
        """Removes a directory with all its contents. If it contains a subvolume, nothing is removed."""
        self._tree.rmtree(os.fsencode(path))

    def rename(self, src: Path, dst: Path) -> None:
        self._tree.rename(os.fsencode(src), os.fsencode(dst))

    replace = rename

    def symlink(self, src: Path, dst: Path) -> None:
        self._tree.symlink(os.fsencode(src), os.fsencode(dst))

    @overload
    def readlink(self, path: "Union[bytes, os.PathLike[bytes]]") -> bytes: ...
    @overload
    def readlink(self, path: "Union[str, os.PathLike[str]]") -> str: ...
    def readlink(self, path: Any) -> Any:
        target = self._tree.readlink(os.fsencode(path))
        return target if isinstance(os.fspath(path), bytes) else os.fsdecode(target)

    def link(self, src: Path, dst: Path) -> None:
        self._tree.link(os.fsencode(src), os.fsencode(dst))

    def reflink(self, src: Path, dst: Path) -> None:
        """Makes `dst` share the content of `src`, without copying data."""
        self._tree.reflink(os.fsencode(src), os.fsencode(dst))

    def chmod(self, path: Path, mode: int) -> None:
        self._tree.chmod(os.fsencode(path), mode)

    def chown(self, path: Path, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """Like os.chown: -1 leaves an id unchanged."""
        user = None if uid == -1 else uid
        group = None if gid == -1 else gid
        self._tree.chown(os.fsencode(path), user, group, follow_symlinks)

    def utime(
        self,
        path: Path,
        times: Optional[Tuple[float, float]] = None,
        *,
        ns: Optional[Tuple[int, int]] = None,
        follow_symlinks: bool = True,
    ) -> None:
        if times is not None and ns is not None:
            raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
        if times is not None:
            ns = (_to_ns(times[0]), _to_ns(times[1]))
        both = None if ns is None else (divmod(ns[0], _SECOND_NS), divmod(ns[1], _SECOND_NS))
        self._tree.utime(os.fsencode(path), both, follow_symlinks)

    def getxattr(self, path: Path, attribute: Path, *, follow_symlinks: bool = True) -> bytes:
        name = os.fsencode(attribute)
        value = self._tree.getxattr(os.fsencode(path), name, follow_symlinks)
        if value is None:
            raise _os_error(_errno.ENODATA, path)
        return value

    def listxattr(self, path: Path, *, follow_symlinks: bool = True) -> List[str]:
        return [os.fsdecode(name) for name in self._tree.listxattr(os.fsencode(path), follow_symlinks)]

    def setxattr(
        self,
        path: Path,
        attribute: Path,
        value: "ReadableBuffer",
        flags: int = 0,
        *,
        follow_symlinks: bool = True,
    ) -> None:
        """Like os.setxattr; `flags` is 0, os.XATTR_CREATE or os.XATTR_REPLACE."""
        making = {0: "", os.XATTR_CREATE: "c", os.XATTR_REPLACE: "r"}.get(flags)
        if making is None:
            raise _os_error(_errno.EINVAL, path)
        name, content = os.fsencode(attribute), memoryview(value).tobytes()
        self._tree.setxattr(os.fsencode(path), name, content, making, follow_symlinks)

    def removexattr(self, path: Path, attribute: Path, *, follow_symlinks: bool = True) -> None:
        self._tree.removexattr(os.fsencode(path), os.fsencode(attribute), follow_symlinks)

    def copy_tree(
        self, src: Path, dst: Path, *, progress: _Hears = None, **options: "Unpack[CopyOptions]"
    ) -> None:
        """Copies a file, or a directory with all its contents. Data is shared.

        `CopyOptions` has the other keyword arguments, as for all copies.

        If files cannot be copied, the others are, and TransferError is raised at the end. `progress` is called with a
        Progress before each file, after each part of its data and for each problem, as in all long calls. If it raises
        an exception, the call ends with that exception, and completed work is kept.
        """
        named = _named("Subvolume.copy_tree", CopyOptions, options)
        _raise_problems(_ubtrfs.copy_tree(self._tree, os.fsencode(src), os.fsencode(dst), named, _hearing(progress)))

    def copy_from_host(
        self, host: Path, dst: Path, *, progress: _Hears = None, **options: "Unpack[CopyOptions]"
    ) -> None:
        """Copies a file of the host, or a directory with all its contents, into the volume."""
        named = _named("Subvolume.copy_from_host", CopyOptions, options)
        hears = _hearing(progress)
        _raise_problems(_ubtrfs.copy_from_host(self._tree, os.fsencode(host), os.fsencode(dst), named, hears))

    def copy_to_host(
        self, src: Path, host: Path, *, progress: _Hears = None, **options: "Unpack[CopyOptions]"
    ) -> None:
        """Copies a file, or a directory with all its contents, to the host."""
        named = _named("Subvolume.copy_to_host", CopyOptions, options)
        hears = _hearing(progress)
        _raise_problems(_ubtrfs.copy_to_host(self._tree, os.fsencode(src), os.fsencode(host), named, hears))

    def remove_tree(self, path: Path, *, enter_subvolumes: bool = False, progress: _Hears = None) -> None:
        """Removes a file, or a directory with all its contents.

        Continues after files that cannot be removed, and raises TransferError at the end. Subvolumes are such files,
        unless `enter_subvolumes` is true.
        """
        _raise_problems(_ubtrfs.remove_tree(self._tree, os.fsencode(path), enter_subvolumes, _hearing(progress)))

    def export_tar(self, path: Path, out: _Writable, *, progress: _Hears = None) -> None:
        """Writes a file, or a directory with all its contents, as a tar archive to a binary file object."""
        _raise_problems(_ubtrfs.export_tar(self._tree, os.fsencode(path), out, _hearing(progress)))

    def import_tar(self, archive: Path, path: Path = "/", *, progress: _Hears = None) -> None:
        """Unpacks a tar archive at a path of the host, compressed or not, into a directory."""
        _raise_problems(_ubtrfs.import_tar(self._tree, os.fsencode(archive), os.fsencode(path), _hearing(progress)))

    def send(
        self,
        out: _Writable,
        *,
        parent: "Optional[Subvolume]" = None,
        clone_sources: "Iterable[Subvolume]" = (),
        compressed: bool = False,
        no_data: bool = False,
        progress: _Hears = None,
    ) -> None:
        """Writes this read-only subvolume to a binary file object, as a stream that `btrfs receive` also accepts.

        With a parent, the stream has only the difference. The receiver must have the parent and the clone sources.
        """
        sources = [source._tree for source in clone_sources]
        above = None if parent is None else parent._tree
        _ubtrfs.send(self._tree, out, above, sources, compressed, no_data, _hearing(progress))

    def receive(
        self,
        stream: _Readable,
        path: Path = "/",
        *,
        progress: _Hears = None,
        **options: "Unpack[ReceiveOptions]",
    ) -> List[str]:
        """Creates the subvolumes of a stream, read from a binary file object, in a directory. Returns their names.

        `ReceiveOptions` has the other keyword arguments.
        """
        hears = _hearing(progress)
        named = _named("Subvolume.receive", ReceiveOptions, options)
        names = _ubtrfs.receive(self._tree, os.fsencode(path), stream, named, hears)
        return [os.fsdecode(name) for name in names]

    def changes_since(self, old: "Subvolume") -> "Changes":
        """Lists the changes from another read-only subvolume to this one, in the order of paths."""
        native = _ubtrfs.changes_since(self._tree, old._tree)
        self._opened.add(native)
        return Changes(native)


class Changes:
    """The changes between two snapshots. Memory use does not depend on their number."""

    def __init__(self, native: _ubtrfs.Changes) -> None:
        self._native = native
        self._batch: List[Any] = []

    def __iter__(self) -> "Changes":
        return self

    def __next__(self) -> Change:
        if not self._batch:
            self._batch = self._native.next_changes()[::-1]
            if not self._batch:
                raise StopIteration
        kind, path, old = self._batch.pop()
        return Change(kind, os.fsdecode(path), None if old is None else os.fsdecode(old))

    def close(self) -> None:
        self._native.close()

    def __enter__(self) -> "Changes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _hearing(progress: _Hears) -> "_ubtrfs._Hears":
    if progress is None:
        return None
    hear = progress

    def report(
        event: str,
        path: Optional[bytes],
        message: Optional[str],
        subject: Optional[str],
        phases: Tuple[int, int],
        counts: Tuple[int, int, int, int],
    ) -> None:
        hear(Progress(event, None if path is None else os.fsdecode(path), message, subject, *phases, *counts))

    return report


def _raise_problems(problems: Tuple[int, List[Tuple[bytes, str]]]) -> None:
    count, listed = problems
    if count:
        raise TransferError(count, [Problem(os.fsdecode(bytes(path)), text) for path, text in listed])


def check(
    path: Path,
    *,
    devices: Iterable[Path] = (),
    scan: Iterable[Path] = (),
    volume: Optional[str] = None,
    progress: _Hears = None,
    **options: "Unpack[CheckOptions]",
) -> CheckReport:
    """Checks a volume that no program writes to. The check only reads. Above single trees it shares no code with the
    writer.

    `devices`, `scan` and `volume` are as in `Volume.open`, and `progress` as in `Subvolume.copy_tree`. `CheckOptions`
    has the other keyword arguments.
    """
    places = [os.fsencode(place) for place in scan]
    hears = _hearing(progress)
    named = _named("check", CheckOptions, options)
    counts, issues = _ubtrfs.check(_paths(path, devices), places, volume, named, hears)
    return CheckReport(*counts, tuple(CheckIssue(*issue) for issue in issues))


def _paths(path: Path, devices: Iterable[Path]) -> List[bytes]:
    return [os.fsencode(path), *map(os.fsencode, devices)]


class MakeOptions(MkfsOptions, OpenOptions, total=False):
    """The options of a new volume: those of `MkfsOptions`, those of `OpenOptions` except that it is for writing, and

    - `progress`: as in `Subvolume.copy_tree`, while the volume is filled. After an exception no volume exists
    """

    progress: "_Hears"


def _new(method: str, options: MakeOptions) -> "Tuple[_ubtrfs._Named, _ubtrfs._Opening, _ubtrfs._Hears]":
    making: _ubtrfs._Named = []
    opening: Dict[str, Any] = {}
    for name, value in options.items():
        if name in MkfsOptions.__annotations__:
            making += [(name, text) for text in _texts(name, value)]
        elif name != "progress":
            opening[name] = value
    return making, _opening(method, opening), _hearing(options.get("progress"))


def _named(method: str, kind: Any, options: Mapping[str, Any]) -> "_ubtrfs._Named":
    for name in options:
        if name not in kind.__annotations__:
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}")
    return [(name, text) for name, value in options.items() for text in _texts(name, value)]


def _texts(name: str, value: Any) -> List[bytes]:
    """Returns the texts of an option, which are set one after the other."""
    if value is None:
        return []
    if isinstance(value, (str, bytes, os.PathLike)):
        return [os.fsencode(value)]
    if isinstance(value, bool):
        return [b"true" if value else b"false"]
    if name == "umask":
        return [b"%o" % value]
    if isinstance(value, (int, _uuid.UUID)):
        return [str(value).encode()]
    values = list(value)
    if all(isinstance(number, int) for number in values):
        return [":".join(map(str, values)).encode()] if values else []
    return [os.fsencode(path) for path in values]


def _opening(method: str, options: Mapping[str, Any]) -> "_ubtrfs._Opening":
    for name in options:
        if name not in OpenOptions.__annotations__:
            raise TypeError(f"Volume.{method}() got an unexpected keyword argument {name!r}")
    opening = dict(options)
    if "scan" in opening:
        opening["scan"] = [os.fsencode(place) for place in opening["scan"]]
    return opening


def _to_ns(seconds: float) -> int:
    whole = int(seconds // 1)
    return whole * _SECOND_NS + int((seconds - whole) * _SECOND_NS)


class Volume:
    """An open volume. Use it in a `with` statement, or close it. Files are reached through subvolumes."""

    #: The top level: the subvolume that contains all others.
    root: Subvolume

    def __init__(self, native: _ubtrfs.Volume) -> None:
        self._volume = native
        self._pid = os.getpid()
        self._opened = Opened()
        self.root = Subvolume(native.root(), self._opened)

    @classmethod
    def create(
        cls,
        path: Path,
        size: int,
        *,
        devices: Iterable[Path] = (),
        **options: "Unpack[MakeOptions]",
    ) -> "Volume":
        """Creates a volume in a file that must not exist, and opens it. The file is sparse.

        `devices` are further files of the same size. `MakeOptions` has the other keyword arguments.
        """
        return cls(_ubtrfs.Volume.create(_paths(path, devices), size, _new("create", options)))

    @classmethod
    def format(
        cls,
        path: Path,
        *,
        devices: Iterable[Path] = (),
        force: bool = False,
        **options: "Unpack[MakeOptions]",
    ) -> "Volume":
        """Creates a volume on an existing file or block device of any size, and opens it. Its contents are lost.

        Raises FileExistsError if it contains a file system, a partition table or similar, unless `force` is true.
        `devices` are further files and devices. `MakeOptions` has the other keyword arguments.
        """
        return cls(_ubtrfs.Volume.format(_paths(path, devices), force, _new("format", options)))

    @classmethod
    def in_memory(cls, size: int, **options: "Unpack[MakeOptions]") -> "Volume":
        """Creates a volume in memory. `MakeOptions` has the keyword arguments."""
        return cls(_ubtrfs.Volume.in_memory(size, _new("in_memory", options)))

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        devices: Iterable[Path] = (),
        **options: "Unpack[OpenOptions]",
    ) -> "Volume":
        """Opens the volume in a file or on a device. Opening for writing is exclusive.

        `devices` are further devices of the volume. `OpenOptions` has the other keyword arguments.
        """
        return cls(_ubtrfs.Volume.open(_paths(path, devices), _opening("open", options)))

    @property
    def label(self) -> str:
        """The label as of the last commit."""
        return os.fsdecode(self._volume.label())

    @label.setter
    def label(self, label: str) -> None:
        self._volume.set_label(os.fsencode(label))

    @property
    def uuid(self) -> _uuid.UUID:
        return _uuid.UUID(bytes=self._volume.uuid())

    @property
    def read_only(self) -> bool:
        """Whether the volume was opened read-only."""
        return self._volume.is_read_only()

    def subvolume(self, path: Path) -> Subvolume:
        """Opens the subvolume at a path from the top level."""
        return self.root.subvolume(path)

    def subvolume_by_id(self, id: int) -> Subvolume:
        """Opens a subvolume by its id."""
        return Subvolume(self._volume.subvolume_by_id(id), self._opened)

    @property
    def default_subvolume(self) -> Subvolume:
        """The subvolume that mounts use unless another one is named."""
        return Subvolume(self._volume.default_subvolume(), self._opened)

    @default_subvolume.setter
    def default_subvolume(self, subvolume: Subvolume) -> None:
        self._volume.set_default_subvolume(subvolume._tree)

    def free_deleted_subvolumes(self) -> None:
        """Runs commits until the space of all deleted subvolumes is free."""
        self._volume.free_deleted_subvolumes()

    def create_subvolume(self, path: Path) -> Subvolume:
        """Creates an empty subvolume, and commits."""
        return self.root.create_subvolume(path)

    def snapshot(self, source: Path, to: Path, *, read_only: bool = False) -> Subvolume:
        """Creates a snapshot at `to` of the subvolume at `source`, and commits. Writable unless `read_only` is true."""
        return self.root.snapshot(source, to, read_only=read_only)

    def delete_subvolume(self, path: Path) -> None:
        """Deletes a subvolume with all its contents. It must not contain nested subvolumes."""
        self.root.delete_subvolume(path)

    def subvolumes(self) -> List[SubvolumeInfo]:
        """Lists all subvolumes by ascending id, the top level first."""
        return [_info(*info) for info in self._volume.subvolumes()]

    def space(self) -> Space:
        """Returns the size and use of space."""
        sums, groups = self._volume.space()
        return Space(*sums, tuple(BlockGroups(*group) for group in groups))

    def devices(self) -> List[Device]:
        """Lists the devices by ascending id, including missing ones."""
        return [_device(*device) for device in self._volume.devices()]

    def device_errors(self) -> List[DeviceErrors]:
        """Reads the error counters of each device, by ascending id."""
        return [DeviceErrors(*errors) for errors in self._volume.device_errors()]

    def statistics(self) -> Statistics:
        """Returns the counts since the volume was opened; zeros if it was opened read-only."""
        return Statistics(*self._volume.statistics())

    def trim(self, *, progress: _Hears = None) -> int:
        """Discards all unused space on the devices, which shrinks an image file. Returns the number of bytes."""
        return self._volume.trim(_hearing(progress))

    def group(self, work: Callable[[], _T]) -> _T:
        """Calls `work`, and commits all its changes atomically: after a power cut either all exist or none does.

        Changes by other threads wait for the call, so `work` must not wait for a thread that changes this volume.
        Operations that commit by themselves raise OSError with EDQUOT inside `work`. If `work` raises, its changes are
        kept, and become durable with the next commit. Flush files inside `work`: Python buffers them itself.
        """
        return self._volume.group(work)

    def sync(self) -> None:
        """Commits all earlier changes. Flush files first: Python buffers them itself."""
        self._volume.sync()

    def close(self) -> None:
        """Closes all files, which flushes them, then commits and closes the volume. In a fork it is an OSError of EBUSY."""
        # In a fork the files are the parent's: another thread of it may hold the lock of a buffer.
        first = self._opened.close() if self._is_own() else None
        self._volume.close()
        if first is not None:
            raise first

    def __enter__(self) -> "Volume":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            self.close()
        except OSError:
            # The volume is the parent's. In a fork the exception that leaves the block, such as SystemExit, matters more.
            if error is None or self._is_own():
                raise

    def _is_own(self) -> bool:
        """Returns whether this process opened the volume, rather than a process that it is a fork of."""
        return os.getpid() == self._pid


def _device(id: int, uuid: bytes, path: Optional[bytes], sizes: Tuple[int, int]) -> Device:
    where = None if path is None else os.fsdecode(bytes(path))
    return Device(id, _uuid.UUID(bytes=bytes(uuid)), where, *sizes)


def _info(
    id: int,
    path: Optional[bytes],
    uuids: Tuple[bytes, Optional[bytes], Optional[bytes]],
    flags: Tuple[bool, bool],
    generations: Tuple[int, int],
    times: Tuple[Tuple[int, int], Tuple[int, int]],
) -> SubvolumeInfo:
    def uuid(value: bytes) -> _uuid.UUID:
        return _uuid.UUID(bytes=bytes(value))

    def optional(value: Optional[bytes]) -> Optional[_uuid.UUID]:
        return None if value is None else uuid(value)

    return SubvolumeInfo(
        id,
        None if path is None else os.fsdecode(bytes(path)),
        uuid(uuids[0]),
        optional(uuids[1]),
        optional(uuids[2]),
        *flags,
        *generations,
        *map(_ns, times),
    )
