"""Files of a volume as file objects of io, and the set of objects to close with a volume.

Not here: opening (`Subvolume.open`).
"""

import errno
import io
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _ubtrfs

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

Name = Union[str, bytes]


#: The maximum size of one copy when reading into a buffer.
_PART_BYTES = 1 << 20


#: The objects that have locks. Another thread may hold one while this thread forks.
_locked: "weakref.WeakSet[Any]" = weakref.WeakSet()


def _unlock_in_child() -> None:
    for each in list(_locked):
        each._lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock_in_child)


class Opened:
    """The open files, listings and subvolumes of a volume. Threads may share it."""

    def __init__(self) -> None:
        # Reentrant, because a finalizer may open and close files while this thread holds the lock.
        self._lock = threading.RLock()
        _locked.add(self)
        self._all: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._is_closed = False

    def add(self, opened: Any) -> None:
        with self._lock:
            if not self._is_closed:
                self._all.add(opened)
                return
        opened.close()
        raise ValueError("operation on a closed volume or file")

    def close(self) -> Optional[Exception]:
        """Closes all, and returns the first error. Later opens by other threads are refused."""
        with self._lock:
            self._is_closed = True
            opened = list(self._all)
        first: Optional[Exception] = None
        # Closes files before the handles below them, because a file flushes its buffer.
        for each in sorted(opened, key=lambda each: not isinstance(each, io.IOBase)):
            try:
                each.close()
            except Exception as error:
                first = first or error
        return first


class RawFile(io.RawIOBase):
    """An open file without a buffer. A write writes all bytes. Reads and writes of several threads are serialized."""

    def __init__(self, native: _ubtrfs.File, name: Name, mode: str) -> None:
        self._native = native
        # Guards the position during reads and writes. Reentrant, because a signal handler may use the file, too.
        self._lock = threading.RLock()
        _locked.add(self)
        self._position = 0
        self._appends = "a" in mode
        self._reads = "r" in mode or "+" in mode
        self._writes = mode != "rb"
        self.name = name
        self.mode = mode
        if self._appends:
            self._position = native.size()

    def __repr__(self) -> str:
        return f"<{type(self).__qualname__} name={self.name!r} mode={self.mode!r}>"

    def readable(self) -> bool:
        self._check_open()
        return self._reads

    def writable(self) -> bool:
        self._check_open()
        return self._writes

    def seekable(self) -> bool:
        self._check_open()
        return True

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _check(self, allowed: bool, what: str) -> None:
        self._check_open()
        if not allowed:
            raise io.UnsupportedOperation(f"file not open for {what}")

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        self._check(self._reads, "reading")
        view = memoryview(buffer).cast("B")
        filled = 0
        with self._lock:
            while filled < len(view):
                data = self._native.read(min(len(view) - filled, _PART_BYTES), self._position)
                if not data:
                    break
                view[filled : filled + len(data)] = data
                filled += len(data)
                self._position += len(data)
        return filled

    def readall(self) -> bytes:
        self._check(self._reads, "reading")
        with self._lock:
            left = max(0, self._native.size() - self._position)
            data = self._native.read(left, self._position)
            self._position += len(data)
        return data

    def write(self, data: "ReadableBuffer", /) -> int:
        self._check(self._writes, "writing")
        content = data if isinstance(data, bytes) else memoryview(data).tobytes()
        with self._lock:
            self._native.write(content, self._position)
            if self._appends:
                self._position = self._native.size()
            else:
                self._position += len(content)
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check_open()
        with self._lock:
            if whence == io.SEEK_SET:
                position = offset
            elif whence == io.SEEK_CUR:
                position = self._position + offset
            elif whence == io.SEEK_END:
                position = self._native.size() + offset
            elif whence in (os.SEEK_DATA, os.SEEK_HOLE):
                find = self._native.seek_data if whence == os.SEEK_DATA else self._native.seek_hole
                found = find(offset) if offset >= 0 else None
                if found is None:
                    raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
                position = found
            else:
                raise ValueError(f"invalid whence: {whence}")
            if position < 0:
                raise ValueError(f"negative seek position {position}")
            self._position = position
        return position

    def tell(self) -> int:
        self._check_open()
        return self._position

    def truncate(self, size: "int | None" = None, /) -> int:
        self._check(self._writes, "writing")
        with self._lock:
            wanted = self._position if size is None else size
            self._native.truncate(wanted)
        return wanted

    def allocate(self, offset: int, size: int) -> None:
        """Reserves space for a range, like os.posix_fallocate."""
        self._check(self._writes, "writing")
        self._native.allocate(offset, size)

    def punch_hole(self, offset: int, size: int) -> None:
        """Frees the space of a range, which then reads as zeros. Flush buffers above this file first."""
        self._check(self._writes, "writing")
        self._native.punch_hole(offset, size)

    def clone_range(self, source: "RawFile", source_offset: int, size: int, offset: int) -> None:
        """Makes a range share data of `source`. Ranges begin at block boundaries. Flush buffers above both first."""
        self._check(self._writes, "writing")
        self._native.clone_range(source._native, source_offset, size, offset)

    def sync(self) -> None:
        """Makes the file durable, with its name if it is new. Flush buffers above this file first."""
        self._check_open()
        self._native.sync()

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                self._native.close()


def buffered(raw: RawFile, size: int) -> Any:
    if "+" in raw.mode:
        return io.BufferedRandom(raw, size)
    if raw.mode == "rb":
        return io.BufferedReader(raw, size)
    return io.BufferedWriter(raw, size)
