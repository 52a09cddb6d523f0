"""Files of a volume as the file objects of io.

Not here: opening (`Subvolume.open`).
"""

import io
from typing import TYPE_CHECKING, Any, Union

from . import _ubtrfs

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

Name = Union[str, bytes]


class RawFile(io.RawIOBase):
    """An open file without a buffer. A write takes all bytes."""

    def __init__(self, native: _ubtrfs.File, name: Name, mode: str) -> None:
        self._native = native
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
        data = self._native.read(len(view), self._position)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self) -> bytes:
        self._check(self._reads, "reading")
        left = max(0, self._native.size() - self._position)
        data = self._native.read(left, self._position)
        self._position += len(data)
        return data

    def write(self, data: "ReadableBuffer", /) -> int:
        self._check(self._writes, "writing")
        content = data if isinstance(data, bytes) else bytes(data)
        self._native.write(content, self._position)
        if self._appends:
            self._position = self._native.size()
        else:
            self._position += len(content)
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check_open()
        if whence == io.SEEK_SET:
            position = offset
        elif whence == io.SEEK_CUR:
            position = self._position + offset
        elif whence == io.SEEK_END:
            position = self._native.size() + offset
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
        wanted = self._position if size is None else size
        self._native.truncate(wanted)
        return wanted

    def sync(self) -> None:
        """Makes the file durable, with its name if it is new. Flush what lies above first."""
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
