"""The package as Python programs use it, compared with os and io where they have the same operation."""

import errno
import io
import os
import pathlib
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import threading
import uuid

import pytest

import ubtrfs

SIZE = 256 << 20


@pytest.fixture
def image(tmp_path):
    return tmp_path / "volume.img"


@pytest.fixture
def root():
    with ubtrfs.Volume.in_memory(SIZE) as volume:
        yield volume.root


def mirror_member(content, role):
    """Returns a member of an md mirror of two disks, metadata 1.2."""
    sectors, start = len(content) // 512, 128
    block = bytearray(256 + 2 * 384)
    struct.pack_into("<IIII16s32sQiIQII", block, 0, 0xA92B4EFC, 1, 0, 0, b"u" * 16, b"nas:1", 0, 1, 0, sectors, 0, 2)
    struct.pack_into("<QQQQI", block, 128, start, sectors, 8, 0, role)
    struct.pack_into("<QQQII", block, 192, 0, 7, 2**64 - 1, 0, 384)
    struct.pack_into("<384H", block, 256, 0, 1, *[0xFFFF] * 382)
    total = sum(struct.unpack(f"<{len(block) // 4}I", block))
    struct.pack_into("<I", block, 216, (total & 0xFFFFFFFF) + (total >> 32))
    return bytes(4096) + bytes(block).ljust(start * 512 - 4096, b"\0") + content


def test_disks_of_an_array_are_opened_like_devices(tmp_path):
    base, one, two = tmp_path / "base.img", tmp_path / "one.img", tmp_path / "two.img"
    with ubtrfs.Volume.create(base, 256 << 20, label="data") as volume:
        volume.root.mkdir("/homes")
    for role, path in enumerate([one, two]):
        path.write_bytes(mirror_member(base.read_bytes(), role))
    for options in (dict(devices=[two]), dict(scan=[tmp_path], volume="data")):
        with ubtrfs.Volume.open(one, read_only=True, **options) as volume:
            assert volume.label == "data" and volume.root.isdir("/homes")
    with pytest.raises(OSError) as refused:
        ubtrfs.Volume.open(one, devices=[two])
    assert refused.value.errno == errno.EROFS
    assert ubtrfs.check(one, devices=[two], volume="data").clean
    with pytest.raises(FileNotFoundError):
        ubtrfs.check(one, devices=[two], volume="other")


def test_files_last_until_the_volume_is_opened_again(image):
    with ubtrfs.Volume.create(image, SIZE, label="archive") as volume:
        with volume.root.open("/notes", "w", encoding="utf-8", newline="\n") as file:
            file.write("größer\nsecond\n")
    with ubtrfs.Volume.open(image, read_only=True) as volume:
        assert volume.label == "archive" and volume.read_only
        assert list(volume.root.open("notes", encoding="utf-8")) == ["größer\n", "second\n"]
        with pytest.raises(OSError) as error:
            volume.root.open("/new", "x")
        assert error.value.errno == errno.EROFS
        with volume.root.open("/notes", "ab", 0) as file, pytest.raises(OSError) as error:
            file.write(b"third")
        assert error.value.errno == errno.EROFS


@pytest.mark.parametrize("mode", ["rb", "wb", "xb", "ab", "r+b", "w+b", "x+b", "a+b"])
@pytest.mark.parametrize("buffering", [0, 16, -1])
@pytest.mark.parametrize("exists", [False, True])
def test_modes_mean_what_they_mean_to_open(root, tmp_path, mode, buffering, exists):
    def use(open_, name):
        steps = []

        def step(work):
            try:
                steps.append(work())
            except (OSError, ValueError) as error:
                steps.append(type(error))

        if exists:
            with open_(name, "wb") as file:
                file.write(b"old content")
        try:
            file = open_(name, mode, buffering)
        except OSError as error:
            return [type(error)]
        with file:
            steps.append((file.readable(), file.writable(), file.seekable(), file.tell()))
            step(lambda: file.write(b"new"))
            step(lambda: file.seek(0))
            step(lambda: file.read(5))
            step(lambda: file.seek(-2, os.SEEK_END))
            step(lambda: file.write(b"xy"))
            step(lambda: file.truncate(20))
            step(lambda: file.seek(3))
            step(lambda: file.read())
            step(lambda: file.tell())
        step(lambda: file.read())
        with open_(name, "rb") as file:
            steps.append(file.read())
        return steps

    assert use(root.open, "/file") == use(open, tmp_path / "file")


def test_wrong_modes_are_refused(root):
    for mode in ["", "rw", "bt", "rbt", "rr", "U", "r+x"]:
        with pytest.raises(ValueError):
            root.open("/x", mode)
    with pytest.raises(ValueError):
        root.open("/x", "w", 0)
    with pytest.raises(ValueError):
        root.open("/x", "wb", encoding="utf-8")
    assert not root.exists("/x")


def test_errors_are_those_of_os(root):
    root.makedirs("/dir/below")
    root.open("/file", "w").close()
    for work, kind, name in [
        (lambda: root.stat("/none"), FileNotFoundError, "/none"),
        (lambda: root.mkdir("/file"), FileExistsError, "/file"),
        (lambda: root.open("/dir", "w"), IsADirectoryError, "/dir"),
        (lambda: root.open("/dir"), IsADirectoryError, "/dir"),
        (lambda: root.open("/", "rb", 0), IsADirectoryError, "/"),
        (lambda: root.listdir("/file"), NotADirectoryError, "/file"),
        (lambda: root.open("/file", "x"), FileExistsError, "/file"),
    ]:
        with pytest.raises(kind) as error:
            work()
        assert error.value.filename == name
        assert error.value.strerror == os.strerror(error.value.errno)
    with pytest.raises(OSError) as error:
        root.rmdir("/dir")
    assert error.value.errno == errno.ENOTEMPTY
    with pytest.raises(FileNotFoundError) as error:
        root.rename("/none", "/there")
    assert (error.value.filename, error.value.filename2) == ("/none", "/there")


def test_stat_is_a_stat_result(root):
    with root.open("/file", "wb") as file:
        file.write(b"x" * 5000)
    root.chmod("/file", 0o640)
    root.chown("/file", 12, -1)
    root.utime("/file", ns=(-1_500_000_000, 2_000_000_001))
    root.symlink("file", "/link")
    found = root.stat("/link")
    assert isinstance(found, os.stat_result)
    assert stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o640
    assert (found.st_size, found.st_uid, found.st_gid, found.st_nlink) == (5000, 12, 0, 1)
    assert (found.st_atime_ns, found.st_mtime_ns) == (-1_500_000_000, 2_000_000_001)
    assert found.st_mtime == pytest.approx(2.000000001)
    root.utime("/file")
    now = root.stat("/file")
    assert now.st_atime_ns == now.st_mtime_ns == now.st_ctime_ns
    assert stat.S_ISLNK(root.lstat("/link").st_mode)
    assert root.readlink("/link") == "file"
    assert root.readlink(b"/link") == b"file"
    made = root.birthtime_ns("/file")
    assert 0 < made <= found.st_ctime_ns
    assert root.birthtime_ns("/link") == made < root.birthtime_ns("/link", follow_symlinks=False)


def test_paths_are_of_any_kind_and_bytes(root):
    name = os.fsdecode(b"/odd-\xff")
    root.mkdir(pathlib.PurePosixPath("/dir"))
    root.open(b"/odd-\xff", "wb").close()
    assert root.exists(name)
    assert sorted(root.listdir("/")) == ["dir", name[1:]]
    assert sorted(root.listdir(b"/")) == [b"dir", b"odd-\xff"]
    entries = {entry.name: entry for entry in root.scandir("/")}
    assert entries["dir"].is_dir() and not entries["dir"].is_subvolume()
    assert entries[name[1:]].stat().st_ino == entries[name[1:]].inode()
    assert os.fspath(entries["dir"]) == "/dir"
    for path in ["/", b"/", "/dir", "/dir/", b"dir", pathlib.PurePosixPath("/dir")]:
        root.open("/dir/x", "w").close()
        for entry in root.scandir(path):
            assert entry.path == os.path.join(os.fspath(path), entry.name)
    with pytest.raises(FileNotFoundError):
        root.stat("/none")
    with pytest.raises(TypeError):
        root.stat(7)


def test_names_are_made_moved_and_removed(root):
    root.makedirs("/a/b/c")
    root.makedirs("/a/b/c", exist_ok=True)
    with pytest.raises(FileExistsError):
        root.makedirs("/a/b/c")
    with root.open("/a/one", "w") as file:
        file.write("content")
    root.link("/a/one", "/a/two")
    root.reflink("/a/one", "/a/shared")
    root.replace("/a/two", "/three")
    root.unlink("/a/one")
    assert root.open("/three").read() == root.open("/a/shared").read() == "content"
    root.rmtree("/a")
    assert root.listdir() == ["three"]


def test_a_volume_that_is_too_small_says_so(image, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(os.urandom(1 << 20))
    small = 1 << 20
    for make, name, reason in [
        (lambda: ubtrfs.Volume.create(image, small), image, "device 0 of 1048576 bytes is too small"),
        (lambda: ubtrfs.Volume.create(image, small, rootdir=source), image, ""),
        (lambda: ubtrfs.Volume.in_memory(small), "memory", "device 0 of 1048576 bytes is too small"),
    ]:
        with pytest.raises(OSError) as error:
            make()
        assert error.value.errno == errno.ENOSPC
        assert error.value.strerror.startswith(reason)
        assert error.value.strerror != os.strerror(errno.ENOSPC)
        assert os.fspath(error.value.filename) == os.fspath(name)
        assert not os.path.exists(image)


def test_extended_attributes(root):
    root.open("/file", "w").close()
    root.setxattr("/file", "user.note", b"value", os.XATTR_CREATE)
    with pytest.raises(FileExistsError):
        root.setxattr("/file", "user.note", b"", os.XATTR_CREATE)
    assert root.listxattr("/file") == ["user.note"]
    assert root.getxattr("/file", "user.note") == b"value"
    root.removexattr("/file", "user.note")
    with pytest.raises(OSError) as error:
        root.getxattr("/file", "user.note")
    assert error.value.errno == errno.ENODATA
    for flags in (os.XATTR_CREATE | os.XATTR_REPLACE, 64):
        with pytest.raises(OSError) as error:
            root.setxattr("/file", "user.note", b"", flags)
        assert (error.value.errno, error.value.filename) == (errno.EINVAL, "/file")
    with pytest.raises(TypeError):
        root.setxattr("/file", "user.note", 5)


def test_extended_attributes_of_a_link_itself(root):
    root.open("/file", "w").close()
    root.symlink("file", "/link")
    name = "trusted.note"
    with pytest.raises(OSError) as error:
        root.setxattr("/link", name, b"", os.XATTR_REPLACE, follow_symlinks=False)
    assert error.value.errno == errno.ENODATA
    root.setxattr("/link", name, b"one", os.XATTR_CREATE, follow_symlinks=False)
    with pytest.raises(FileExistsError):
        root.setxattr("/link", name, b"", os.XATTR_CREATE, follow_symlinks=False)
    root.setxattr("/link", name, bytearray(b"two"), os.XATTR_REPLACE, follow_symlinks=False)
    assert root.getxattr("/link", name, follow_symlinks=False) == b"two"
    assert root.listxattr("/file") == []


def test_snapshot_is_writable_unless_told_otherwise(root):
    root.snapshot("/", "/writable").open("/new", "w").close()
    with pytest.raises(OSError) as error:
        root.snapshot("/", "/kept", read_only=True).open("/new", "w")
    assert error.value.errno == errno.EROFS


def test_large_reads_end_with_an_error_and_not_the_process(root):
    with root.open("/sparse", "wb") as file:
        file.truncate(1 << 60)
    with root.open("/sparse", "rb") as file:
        with pytest.raises(MemoryError):
            file.read()
        file.seek(1 << 40)
        assert file.read(10) == bytes(10)
    with root.open("/sparse", "rb", 0) as file:
        with pytest.raises(MemoryError):
            file.read()
        assert file.tell() == 0
        assert file.read(3 << 20) == bytes(3 << 20)


def test_threads_that_share_a_raw_file_take_turns(root):
    with root.open("/file", "w+b", 0) as file:
        def write(letter):
            for _ in range(200):
                file.write(letter * 100)

        threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"x", b"y")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        file.seek(0)
        content = file.read()
        assert len(content) == 2 * 200 * 100
        assert {content[at : at + 100] for at in range(0, len(content), 100)} == {b"x" * 100, b"y" * 100}


#: Changes by handles that are still open when the volume is closed.
CHANGES = {
    "write": lambda root, file: file.write(b"x"),
    "truncate": lambda root, file: file.truncate(1),
    "allocate": lambda root, file: file.allocate(0, 4096),
    "punch_hole": lambda root, file: file.punch_hole(0, 4096),
    "clone_range": lambda root, file: file.clone_range(file, 0, 4096, 8192),
    "open": lambda root, file: root.open("/new", "w"),
    "mkdir": lambda root, file: root.mkdir("/new"),
    "unlink": lambda root, file: root.unlink("/file"),
    "rmdir": lambda root, file: root.rmdir("/dir"),
    "rmtree": lambda root, file: root.rmtree("/dir"),
    "rename": lambda root, file: root.rename("/file", "/new"),
    "symlink": lambda root, file: root.symlink("target", "/new"),
    "link": lambda root, file: root.link("/file", "/new"),
    "reflink": lambda root, file: root.reflink("/file", "/new"),
    "chmod": lambda root, file: root.chmod("/file", 0o600),
    "chown": lambda root, file: root.chown("/file", 1, 1),
    "utime": lambda root, file: root.utime("/file"),
    "setxattr": lambda root, file: root.setxattr("/file", "user.new", b"x"),
    "removexattr": lambda root, file: root.removexattr("/file", "user.one"),
    "create_subvolume": lambda root, file: root.create_subvolume("/new"),
    "snapshot": lambda root, file: root.snapshot("/", "/new"),
    "delete_subvolume": lambda root, file: root.delete_subvolume("/sub"),
    "read_only": lambda root, file: setattr(root, "read_only", True),
    "copy_tree": lambda root, file: root.copy_tree("/dir", "/new"),
    "copy_from_host": lambda root, file: root.copy_from_host(__file__, "/new"),
    "remove_tree": lambda root, file: root.remove_tree("/dir"),
    "receive": lambda root, file: root.receive(io.BytesIO(sent())),
}


def sent():
    with ubtrfs.Volume.in_memory(SIZE) as volume:
        volume.root.mkdir("/dir")
        stream = io.BytesIO()
        volume.snapshot("/", "/snapshot", read_only=True).send(stream)
        return stream.getvalue()


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_a_closed_volume_by_an_open_handle_is_a_value_error(name):
    volume = ubtrfs.Volume.in_memory(SIZE)
    root = volume.root
    root.mkdir("/dir")
    root.create_subvolume("/sub")
    file = root.open("/file", "w+b", buffering=0)
    file.write(b"content" * 4096)
    root.setxattr("/file", "user.one", b"1")
    # What is left open is as in a thread that found its handle open just before another one closed the volume.
    volume._volume.close()
    with pytest.raises(ValueError, match="closed volume"):
        CHANGES[name](root, file)
    volume.close()


#: Long calls, given a volume, what closes it and a folder of this machine. Each calls it before its last change.
LONG_CALLS = {
    "copy_from_host": lambda root, close, tmp_path: root.copy_from_host(tmp_path, "/new", progress=close),
    "copy_tree": lambda root, close, tmp_path: root.copy_tree("/tree", "/new", progress=close),
    "remove_tree": lambda root, close, tmp_path: root.remove_tree("/tree", progress=close),
    "import_tar": lambda root, close, tmp_path: root.import_tar(tmp_path / "archive", "/tree", progress=close),
    "receive": lambda root, close, tmp_path: root.receive(io.BytesIO(sent()), progress=close),
    "read of a stream": lambda root, close, tmp_path: root.receive(Closing(close)),
}


class Closing:
    """A stream that closes a volume before its second part is read."""

    def __init__(self, close):
        self.stream = io.BytesIO(sent())
        self.close = close

    def read(self, size):
        if self.stream.tell():
            self.close()
        return self.stream.read(min(size, 100))


@pytest.mark.parametrize("name", LONG_CALLS)
def test_long_call_during_which_the_volume_is_closed_is_a_value_error(name, tmp_path):
    for file in ("one", "two"):
        (tmp_path / file).write_bytes(b"x" * 100_000)
    with tarfile.open(tmp_path / "archive", "w") as archive:
        archive.add(tmp_path / "one", "one")
        archive.add(tmp_path / "two", "two")
    volume = ubtrfs.Volume.in_memory(SIZE)
    volume.root.copy_from_host(tmp_path, "/tree")
    with pytest.raises(ValueError, match="closed volume"):
        LONG_CALLS[name](volume.root, lambda *_: volume.close(), tmp_path)


def test_group_that_closes_the_volume_is_a_value_error():
    volume = ubtrfs.Volume.in_memory(SIZE)

    def work():
        with pytest.raises(OSError) as error:
            volume.close()
        assert error.value.errno == errno.EDQUOT

    with pytest.raises(ValueError, match="closed volume"):
        volume.group(work)


def test_reads_of_a_closed_volume_by_open_handles_end_well_or_are_value_errors():
    volume = ubtrfs.Volume.in_memory(SIZE)
    with volume.root.open("/file", "wb") as file:
        file.write(b"x" * 300_000)
    kept = volume.snapshot("/", "/kept", read_only=True)
    file = volume.root.open("/file", "rb", buffering=0)
    volume._volume.close()
    assert file.read() == b"x" * 300_000
    assert volume.root.listdir() == ["file", "kept"]
    volume.root.export_tar("/file", io.BytesIO())
    # These hold a snapshot against changes, or make a file durable.
    for call in [lambda: kept.send(io.BytesIO()), lambda: kept.changes_since(kept), file.sync]:
        with pytest.raises(ValueError, match="closed volume"):
            call()


def test_volume_closes_while_others_open_its_files(image):
    volume = ubtrfs.Volume.create(image, SIZE)
    started, failures = threading.Event(), []

    def work(number):
        try:
            while True:
                volume.root.open(f"/file{number}", "w").write("x")
                started.set()
        except ValueError:
            pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    volume.close()
    for thread in threads:
        thread.join()
    assert failures == []
    with ubtrfs.Volume.open(image):
        pass


def test_snapshots_keep_what_was(image):
    with ubtrfs.Volume.create(image, SIZE) as volume:
        data = volume.create_subvolume("/data")
        with data.open("/notes", "w") as file:
            file.write("first")
        before = volume.snapshot("/data", "/before", read_only=True)
        with data.open("/notes", "w") as file:
            file.write("second")
        assert before.open("/notes").read() == "first"
        assert before.read_only and not data.read_only
        top, first, second = volume.subvolumes()
        assert (top.id, top.path, first.path, second.path) == (5, "", "data", "before")
        assert second.parent_uuid == first.uuid and second.read_only
        volume.delete_subvolume("/before")
        assert volume.root.listdir() == ["data"]


def test_close_writes_open_files_and_frees_the_image(image):
    volume = ubtrfs.Volume.create(image, SIZE)
    text = volume.root.open("/text", "w")
    text.write("buffered")
    listing = volume.root.scandir("/")
    data = volume.create_subvolume("/data")
    volume.close()
    volume.close()
    assert text.closed
    for work in [lambda: text.write("x"), lambda: data.listdir(), lambda: next(listing), volume.sync]:
        with pytest.raises(ValueError):
            work()
    # The objects still exist, but hold no resources.
    with ubtrfs.Volume.open(image) as volume:
        assert volume.root.open("/text").read() == "buffered"


def test_threads_work_side_by_side(root):
    def work(number):
        for turn in range(20):
            with root.open(f"/{number}-{turn}", "wb") as file:
                file.write(bytes([number]) * 10_000)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(root.listdir()) == 80
    assert root.open("/3-19", "rb").read() == b"\3" * 10_000


def test_raw_files_have_sync_and_no_descriptor(root):
    with root.open("/file", "wb", 0) as file:
        file.write(memoryview(b"content"))
        file.sync()
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()
        with pytest.raises(io.UnsupportedOperation):
            file.read()


PAGE = pathlib.Path(__file__).parents[3] / "docs/embedding.md"
PROGRAMS = [block.split("```")[0] for block in PAGE.read_text().split("```python\n")[1:]]


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_page_shows_programs_that_run(tmp_path, monkeypatch, program):
    monkeypatch.chdir(tmp_path)
    exec(compile(program, str(PAGE), "exec"), {})


def test_copies_take_the_options_of_the_library(root, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(bytes(1 << 20))
    (source / "file").chmod(0o666)
    (tmp_path / "link").symlink_to(source)
    root.mkdir("/copy")
    root.copy_from_host(tmp_path / "link", "/copy", follow=True, contents=True, preserve=False, umask=0o027)
    assert root.stat("/copy/file").st_mode & 0o777 == 0o640
    root.copy_tree("/copy/file", "/hole", sparse="always", reflink="never")
    assert root.stat("/hole").st_blocks == 0
    with pytest.raises(ValueError) as error:
        root.copy_tree("/hole", "/again", sparse="seldom")
    assert str(error.value) == "option 'sparse': bad value 'seldom', expected auto, always or never"
    with pytest.raises(TypeError):
        root.copy_to_host("/hole", tmp_path / "back", shown_as="x")
    with pytest.raises(ValueError):
        root.receive(io.BytesIO(), max_errors="none")


def test_trees_are_copied_and_archived(root, tmp_path):
    source = tmp_path / "source"
    (source / "dir").mkdir(parents=True)
    (source / "dir" / "file").write_text("content")
    (source / "link").symlink_to("dir/file")
    root.copy_from_host(source, "/tree")
    root.copy_tree("/tree", "/again")
    root.copy_to_host("/again", tmp_path / "back")
    assert (tmp_path / "back" / "dir" / "file").read_text() == "content"
    assert os.readlink(tmp_path / "back" / "link") == "dir/file"

    archive = io.BytesIO()
    root.export_tar("/tree", archive)
    (tmp_path / "tree.tar").write_bytes(archive.getvalue())
    root.mkdir("/unpacked")
    root.import_tar(tmp_path / "tree.tar", "/unpacked")
    assert root.open("/unpacked/tree/link").read() == "content"

    with pytest.raises(FileNotFoundError) as error:
        root.import_tar(tmp_path / "none")
    assert error.value.filename == str(tmp_path / "none")
    with pytest.raises(OSError) as error:
        root.copy_tree("/tree", "/tree/dir/below")
    assert error.value.errno == errno.EINVAL


def test_file_that_is_not_copied_is_told_at_the_end(root, tmp_path):
    root.makedirs("/tree")
    for name in ("one", "two"):
        with root.open(f"/tree/{name}", "w") as file:
            file.write(name)
    (tmp_path / "tree" / "one").mkdir(parents=True)
    with pytest.raises(ubtrfs.TransferError) as error:
        root.copy_to_host("/tree", tmp_path / "tree")
    assert error.value.count == 1
    assert error.value.problems[0].path == "/tree/one"
    assert (tmp_path / "tree" / "two").read_text() == "two"


def test_stream_makes_what_was_sent(root):
    data = root.create_subvolume("/data")
    with data.open("/file", "wb") as file:
        file.write(b"x" * 100_000)
    first = root.snapshot("/data", "/first", read_only=True)
    data.rename("/file", "/moved")
    second = root.snapshot("/data", "/second", read_only=True)
    whole, difference = io.BytesIO(), io.BytesIO()
    first.send(whole)
    second.send(difference, parent=first, clone_sources=[first], compressed=True)
    assert len(difference.getvalue()) < 4096 < len(whole.getvalue())
    with ubtrfs.Volume.in_memory(SIZE) as backup:
        backup.root.mkdir("/received")
        for stream, name in ((whole, "first"), (difference, "second")):
            stream.seek(0)
            assert backup.root.receive(stream, "/received") == [name]
        with backup.root.open("/received/second/moved", "rb") as file:
            assert file.read() == b"x" * 100_000
        received = backup.subvolume("/received/second")
        assert received.read_only
        with pytest.raises(OSError) as error:
            backup.root.receive(io.BytesIO(b"no stream"), "/")
        assert error.value.errno is not None
    with pytest.raises(PermissionError):
        data.send(io.BytesIO())


def test_error_of_a_stream_object_reaches_the_caller(root):
    class Broken:
        def write(self, data):
            raise KeyError("write")

        def read(self, size):
            raise KeyError("read")

    class Excessive:
        def write(self, data):
            return len(data) + 1

        def read(self, size):
            return bytes(size + 1)

    snapshot = root.snapshot("/", "/snapshot", read_only=True)
    with pytest.raises(OSError, match="write"):
        snapshot.send(Excessive())
    with pytest.raises(OSError, match="read"):
        root.receive(Excessive())
    with pytest.raises(KeyError, match="write"):
        snapshot.send(Broken())
    with pytest.raises(KeyError, match="write"):
        root.export_tar("/", Broken())
    with pytest.raises(KeyError, match="read"):
        root.receive(Broken())


def test_changes_between_snapshots_are_listed(root):
    data = root.create_subvolume("/data")
    for name in ("kept", "old", "gone"):
        data.open(f"/{name}", "w").close()
    before = root.snapshot("/data", "/before", read_only=True)
    data.rename("/old", "/new")
    data.unlink("/gone")
    with data.open("/kept", "w") as file:
        file.write("more")
    after = root.snapshot("/data", "/after", read_only=True)
    changes = {change.path: change for change in after.changes_since(before)}
    assert changes["gone"].kind == "removed"
    assert changes["kept"].kind == "changed"
    assert (changes["new"].kind, changes["new"].renamed_from) == ("renamed", "old")
    assert list(before.changes_since(before)) == []


def test_group_becomes_durable_as_one(image):
    with ubtrfs.Volume.create(image, SIZE) as volume:
        commits = volume.statistics().commits

        def work():
            for name in ("one", "two"):
                volume.root.open(f"/{name}", "w").close()
            with pytest.raises(OSError) as error:
                volume.sync()
            assert error.value.errno == errno.EDQUOT
            return "done"

        assert volume.group(work) == "done"
        assert volume.statistics().commits == commits + 1

        def fail():
            raise KeyError("on purpose")

        with pytest.raises(KeyError, match="on purpose"):
            volume.group(fail)
    with ubtrfs.Volume.open(image, read_only=True) as volume:
        assert volume.root.listdir() == ["one", "two"]
        with pytest.raises(OSError) as error:
            volume.group(lambda: None)
        assert error.value.errno == errno.EROFS


def test_file_that_another_thread_drops_waits_for_no_group(root):
    with ubtrfs.Volume.in_memory(SIZE) as volume:
        files = [volume.root.open(f"/{name}", "wb", 0) for name in range(8)]
        started = threading.Event()

        def drop():
            started.wait()
            while files:
                files.pop()

        thread = threading.Thread(target=drop)
        thread.start()

        def work():
            started.set()
            for name in range(100):
                volume.root.mkdir(f"/dir{name}")

        volume.group(work)
        thread.join()
        assert len(volume.root.listdir()) == 108


def test_volume_tells_its_space_and_devices(image):
    with ubtrfs.Volume.create(image, SIZE) as volume:
        before = volume.space()
        with volume.root.open("/file", "wb") as file:
            file.write(b"x" * (8 << 20))
        volume.sync()
        space = volume.space()
        assert space.total == SIZE
        assert space.free <= before.free - (8 << 20)
        kinds = {group.kind: group for group in space.block_groups}
        assert kinds["metadata"].profile == "DUP"
        assert kinds["data"].used >= 8 << 20
        (device,) = volume.devices()
        assert (device.id, device.total, device.path) == (1, SIZE, os.fspath(image))
        statistics = volume.statistics()
        assert (statistics.logs, statistics.data_flushes) == (0, 0)
        assert statistics.data_bytes == 8 << 20
        volume.root.unlink("/file")
        assert volume.trim() > 0


def test_volume_of_two_devices_is_made_found_and_opened_degraded(tmp_path):
    one, two = tmp_path / "one.img", tmp_path / "two.img"
    wanted = uuid.UUID(int=7)
    options = dict(label="pair", uuid=wanted, data="raid1", metadata="RAID1", checksum="xxhash")
    sizes = dict(node_size=32768, sector_size=4096, features="^no-holes")
    tuning = dict(compress="zstd:3", cache_bytes=16 << 20, memory_bytes=64 << 20, commit_interval=None, discard=False)
    with ubtrfs.Volume.create(one, 512 << 20, devices=[two], **options, **sizes, **tuning) as volume:
        assert (volume.label, volume.uuid, len(volume.devices())) == ("pair", wanted, 2)
        assert {group.profile for group in volume.space().block_groups} == {"RAID1"}
        assert volume.device_errors() == [ubtrfs.DeviceErrors(id, 0, 0, 0, 0, 0) for id in (1, 2)]
        with volume.root.open("/file", "wb") as file:
            file.write(b"x" * (1 << 20))
        volume.sync()
        assert volume.statistics().data_bytes < 1 << 20
    with pytest.raises(FileNotFoundError):
        ubtrfs.Volume.open(one)
    with ubtrfs.Volume.open(one, devices=[os.fsencode(two)]) as volume:
        assert len(volume.devices()) == 2
    with ubtrfs.Volume.open(two, scan=[tmp_path], as_committed=True) as volume:
        assert volume.read_only
    assert ubtrfs.check(one, devices=[two], memory_bytes=1 << 24, max_issues=5).clean
    assert ubtrfs.check(one, scan=[tmp_path], read_data=True).clean
    two.unlink()
    with ubtrfs.Volume.open(one, read_only=True, degraded=True) as volume:
        assert [device.path is None for device in volume.devices()] == [False, True]
        with volume.root.open("/file", "rb") as file:
            assert file.read() == b"x" * (1 << 20)


def test_image_is_made_of_a_folder_again(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("content")
    ids = set()
    for name in ("one.img", "two.img"):
        options = dict(rootdir=folder, source_date_epoch=10**9)
        with ubtrfs.Volume.create(tmp_path / name, SIZE, **options) as volume:
            assert volume.root.open("/file").read() == "content"
            assert volume.root.stat("/file").st_mtime == 10**9
            ids.add(volume.uuid)
    assert len(ids) == 1
    with ubtrfs.Volume.in_memory(SIZE, rootdir=folder, label="memory", compress="lzo") as volume:
        assert volume.root.listdir() == ["file"]


@pytest.mark.parametrize(
    "option",
    [
        dict(data="raid7"),
        dict(checksum="md5"),
        dict(features="no-such"),
        dict(growth="often"),
        dict(root_owner=(1, 2, 3)),
        dict(compress="zstd:99"),
        dict(commit_interval=0),
        dict(commit_interval=-1.0),
        dict(commit_interval=float("nan")),
    ],
)
def test_wrong_options_are_refused(image, option):
    with pytest.raises(ValueError):
        ubtrfs.Volume.create(image, SIZE, **option)
    assert not image.exists()


def test_check_tells_damage(image):
    with ubtrfs.Volume.create(image, SIZE) as volume:
        with volume.root.open("/file", "wb") as file:
            file.write(b"unmistakable" * 10_000)
    report = ubtrfs.check(image, read_data=True)
    assert report.clean and report.issues == ()
    assert ubtrfs.check(image, superblock_copy=1, degraded=True).clean
    with pytest.raises(ValueError):
        ubtrfs.check(image, superblock_copy="second")
    with pytest.raises(TypeError):
        ubtrfs.check(image, repair=True)
    content = bytearray(image.read_bytes())
    at = content.index(b"unmistakable")
    content[at] ^= 1
    image.write_bytes(content)
    assert ubtrfs.check(image).clean
    report = ubtrfs.check(image, read_data=True)
    assert report.errors >= 1
    assert report.issues[0].severity == "error"
    with pytest.raises(FileNotFoundError):
        ubtrfs.check(image.with_name("none"))


def test_existing_images_are_formatted_and_not_overwritten_unless_forced(tmp_path):
    one, two = tmp_path / "one.img", tmp_path / "two.img"
    with ubtrfs.Volume.create(one, SIZE, label="old") as volume:
        volume.root.mkdir("/kept")
    with open(two, "wb") as file:
        file.truncate(2 * SIZE)
    with pytest.raises(FileExistsError) as error:
        ubtrfs.Volume.format(two, devices=[one])
    assert "one.img' appears to contain an existing filesystem (btrfs)" in error.value.strerror
    with ubtrfs.Volume.open(one) as volume:
        assert volume.root.listdir() == ["kept"]
    assert not any(two.read_bytes())
    with ubtrfs.Volume.format(one, devices=[two], force=True, label="new", discard_before=True) as volume:
        assert [device.total for device in volume.devices()] == [SIZE, 2 * SIZE]
        assert (volume.label, volume.root.listdir()) == ("new", [])
    with pytest.raises(FileNotFoundError):
        ubtrfs.Volume.format(tmp_path / "none")


def test_image_is_formatted_with_subvolumes_of_a_folder_and_cut(tmp_path):
    for name in ("both", "frozen"):
        (tmp_path / "folder" / name).mkdir(parents=True)
    image = tmp_path / "volume.img"
    with open(image, "wb") as file:
        file.truncate(SIZE)
    contents = dict(rootdir=tmp_path / "folder", subvolumes=["both"], read_only_subvolumes=[b"frozen"])
    with ubtrfs.Volume.format(image, shrink=True, **contents) as volume:
        assert not volume.subvolume("/both").read_only
        assert volume.subvolume("/frozen").read_only
        assert volume.space().total < SIZE
    with ubtrfs.Volume.in_memory(SIZE, root_owner=(1000, 1001)) as volume:
        stat = volume.root.stat("/")
        assert (stat.st_uid, stat.st_gid) == (1000, 1001)


def test_loop_device_is_formatted(tmp_path):
    image = tmp_path / "volume.img"
    with open(image, "wb") as file:
        file.truncate(SIZE)
    attached = None
    if os.geteuid() == 0 and shutil.which("losetup"):
        attached = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True)
    if attached is None or attached.returncode:
        pytest.skip("no loop device can be attached")
    device = attached.stdout.strip()
    try:
        with ubtrfs.Volume.format(device, label="loop") as volume:
            assert [of.path for of in volume.devices()] == [device]
        with pytest.raises(FileExistsError):
            ubtrfs.Volume.format(device)
        assert ubtrfs.check(device).clean
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
    with ubtrfs.Volume.open(image, read_only=True) as volume:
        assert volume.label == "loop"


def test_options_of_the_table_are_keyword_arguments(image):
    options = dict(max_inline_bytes=0, discard="async", acls=False, cache_bytes=None)
    with ubtrfs.Volume.create(image, SIZE, **options) as volume:
        volume.root.mkdir("/dir")
    with pytest.raises(TypeError, match=r"Volume.open\(\) got an unexpected keyword argument 'compres'"):
        ubtrfs.Volume.open(image, compres="zstd")
    with pytest.raises(TypeError):
        ubtrfs.Volume.open(image, degraded="yes")
    with pytest.raises(ValueError, match="option 'compress': bad value 'zip'"):
        ubtrfs.Volume.open(image, compress="zip")
    with pytest.raises(ValueError, match="a new volume is for writing"):
        ubtrfs.Volume.in_memory(SIZE, read_only=True)


def test_keyword_argument_that_is_not_known_is_refused(image):
    with pytest.raises(TypeError, match=r"Volume.create\(\) got an unexpected keyword argument 'lable'"):
        ubtrfs.Volume.create(image, SIZE, lable="typo")
    assert not image.exists()


def test_ranges_are_reserved_found_and_shared(root):
    with root.open("/file", "w+b", 0) as file, root.open("/copy", "w+b", 0) as copy:
        file.write(b"x" * 65536)
        file.sync()
        copy.clone_range(file, 16384, 32768, 0)
        assert root.stat("/copy").st_size == 32768
        assert copy.readall() == b"x" * 32768
        file.punch_hole(0, 8192)
        assert file.seek(0, os.SEEK_DATA) == 8192 == file.tell()
        assert file.seek(8192, os.SEEK_HOLE) == 65536
        for offset, whence in ((65536, os.SEEK_DATA), (-1, os.SEEK_HOLE)):
            with pytest.raises(OSError) as error:
                file.seek(offset, whence)
            assert error.value.errno == errno.ENXIO
        file.allocate(0, 131072)
        assert root.stat("/file").st_size == 131072
    with root.open("/file", "rb", 0) as file, pytest.raises(io.UnsupportedOperation):
        file.punch_hole(0, 4096)


def test_default_subvolume_is_chosen_and_deleted_ones_freed(image):
    with ubtrfs.Volume.create(image, SIZE) as volume:
        assert volume.default_subvolume.id == volume.root.id == 5
        made = volume.create_subvolume("/made")
        assert volume.subvolume_by_id(made.id).id == made.id
        volume.default_subvolume = made
        assert volume.default_subvolume.id == made.id
        volume.default_subvolume = volume.root
        with pytest.raises(FileNotFoundError):
            volume.subvolume_by_id(made.id + 1)
        volume.delete_subvolume("/made")
        volume.free_deleted_subvolumes()
        assert [of.id for of in volume.subvolumes()] == [5]


def test_tree_is_removed_past_files_that_stay(root):
    root.makedirs("/doomed/dir")
    root.create_subvolume("/doomed/sub")
    heard = []
    with pytest.raises(ubtrfs.TransferError) as error:
        root.remove_tree("/doomed", progress=heard.append)
    assert [of.path for of in error.value.problems] == ["/doomed/sub", "/doomed"]
    assert [(of.event, of.path) for of in heard] == [
        ("removed", "/doomed/dir"),
        ("problem", "/doomed/sub"),
        ("problem", "/doomed"),
    ]
    assert [of.message for of in heard[1:]] == [of.message for of in error.value.problems]
    assert error.value.count == 2 and root.listdir("/doomed") == ["sub"]
    heard.clear()
    root.remove_tree("/doomed", enter_subvolumes=True, progress=heard.append)
    assert [of.path for of in heard] == ["/doomed/sub", "/doomed"]
    assert not root.exists("/doomed")
    with pytest.raises(FileNotFoundError):
        root.remove_tree("/doomed")


class Enough(Exception):
    """The exception of a progress callable."""


def test_progress_is_reported_and_an_exception_ends_the_call(image, tmp_path):
    source = tmp_path / "source"
    (source / "dir").mkdir(parents=True)
    (source / "file").write_bytes(os.urandom(4096) * 768)
    size = 3 << 20
    heard = []

    def enough(_):
        heard.append(None)
        raise Enough

    def twice(call):
        """Calls twice: an exception of the first progress ends the first call. Returns the second's last progress."""
        heard.clear()
        with pytest.raises(Enough):
            call(enough)
        assert len(heard) == 1
        heard.clear()
        result = call(heard.append)
        assert len(heard) > 1 and all(isinstance(of, ubtrfs.Progress) for of in heard)
        return result, heard[-1]

    with ubtrfs.Volume.create(image, SIZE) as volume:
        root = volume.root
        _, last = twice(lambda hear: root.copy_from_host(source, "/tree", progress=hear))
        assert (last.files, last.bytes) == (3, size)
        assert {of.path for of in heard} >= {str(source), str(source / "file")}
        _, last = twice(lambda hear: root.copy_tree("/tree", "/again", progress=hear))
        assert last.files == 3
        _, last = twice(lambda hear: root.copy_to_host("/tree", tmp_path / "back", progress=hear))
        assert (last.files, last.bytes) == (3, size)
        archive = tmp_path / "tree.tar"

        def export(hear):
            with open(archive, "wb") as out:
                root.export_tar("/tree", out, progress=hear)

        assert twice(export)[1].bytes == size
        root.mkdir("/unpacked")
        _, last = twice(lambda hear: root.import_tar(archive, "/unpacked", progress=hear))
        assert last.bytes == size

        sent = volume.snapshot("/", "/sent", read_only=True)
        stream = io.BytesIO()

        def send(hear):
            stream.seek(0)
            sent.send(stream, progress=hear)

        assert twice(send)[1].bytes == len(stream.getvalue())

        def receive(hear):
            stream.seek(0)
            # A call that is cancelled keeps the incomplete subvolume.
            if root.exists("/received"):
                root.rename("/received", "/ended")
            root.mkdir("/received")
            options = dict(force_decompress=True, all_streams=True, strict_attributes=True)
            return root.receive(stream, "/received", progress=hear, **options)

        names, last = twice(receive)
        assert names == ["sent"] and last.bytes >= size
        assert any(of.path == "sent/tree/file" for of in heard)
        _, last = twice(lambda hear: root.remove_tree("/unpacked", progress=hear))
        assert last.files > 1
        trimmed, last = twice(lambda hear: volume.trim(progress=hear))
        assert 0 < last.bytes <= trimmed
    report, last = twice(lambda hear: ubtrfs.check(image, progress=hear))
    assert report.clean and last.phase == last.phases and last.blocks > 0 and last.subject
    filled = tmp_path / "filled.img"

    def fill(hear):
        with ubtrfs.Volume.create(filled, SIZE, rootdir=source, progress=hear) as volume:
            assert volume.root.exists("/file")

    _, last = twice(fill)
    assert (last.files, last.bytes) == (3, size)
    assert {of.path for of in heard} == {"", "dir", "file"}


class Alarm(Exception):
    """The exception of a signal handler."""


@pytest.fixture
def alarm():
    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.02)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_handler_of_a_signal_ends_long_work(image, tmp_path, alarm):
    size = 512 << 20
    with open(tmp_path / "large", "wb") as file:
        for _ in range(size >> 20):
            file.write(os.urandom(4096) * 256)
    with ubtrfs.Volume.create(image, 1 << 30) as volume:
        root = volume.root
        alarm()
        with pytest.raises(Alarm):
            root.copy_from_host(tmp_path / "large", "/cut")
        assert root.stat("/cut").st_size < size
        root.unlink("/cut")
        root.copy_from_host(tmp_path / "large", "/large")
        alarm()
        with pytest.raises(Alarm):
            root.copy_to_host("/large", tmp_path / "cut")
        assert (tmp_path / "cut").stat().st_size < size
        with open(tmp_path / "tar", "wb") as file:
            alarm()
            with pytest.raises(Alarm):
                root.export_tar("/large", file)
        assert (tmp_path / "tar").stat().st_size < size
    alarm()
    with pytest.raises(Alarm):
        ubtrfs.check(image, read_data=True)
    assert ubtrfs.check(image).clean
    source = tmp_path / "source"
    source.mkdir()
    (tmp_path / "large").rename(source / "large")
    alarm()
    with pytest.raises(Alarm):
        ubtrfs.Volume.create(tmp_path / "filled.img", 1 << 30, rootdir=source)
    assert not (tmp_path / "filled.img").exists()


def test_handler_of_a_signal_ends_a_long_read(root, alarm):
    with root.open("/sparse", "wb") as file:
        file.truncate(1 << 28)
    with root.open("/sparse", "rb", 0) as file:
        alarm()
        with pytest.raises(Alarm):
            while True:
                file.read()
                file.seek(0)
        file.seek(1 << 20)
        assert file.read(20 << 20) == bytes(20 << 20)


#: A program that opens a volume and forks. Its arguments are an image and how the child ends.
FORKING = """
import gc, os, sys, ubtrfs

image, way = sys.argv[1:]
volume = ubtrfs.Volume.create(image, 256 << 20)
buffered = volume.root.open("/buffered", "w")
buffered.write("before")
raw = volume.root.open("/raw", "wb", buffering=0)
raw.write(b"before")
entries, kept = volume.root.scandir("/"), volume.snapshot("/", "/kept", read_only=True)
changes = kept.changes_since(kept)

def refused(*calls):
    for call in calls:
        try:
            call()
        except OSError as error:
            assert error.errno == 16, error
        else:
            raise AssertionError("a call in a fork was not refused")

if os.fork() == 0:
    if way == "exit":
        sys.exit(3)
    if way == "drop":
        del volume, buffered, raw, entries, kept, changes
        gc.collect()
        sys.exit(3)
    if way == "raise":
        raise RuntimeError("of the child")
    if way == "with":
        with volume, raw:
            sys.exit(3)
    refused(
        lambda: raw.write(b"child"), buffered.flush, lambda: volume.root.mkdir("/child"), volume.sync,
        lambda: volume.root.open("/raw"), lambda: volume.root.listdir("/"), lambda: volume.group(lambda: None),
        lambda: volume.snapshot("/", "/child"), volume.subvolumes, volume.trim, lambda: setattr(volume, "label", "child"),
        volume.close,
    )
    sys.exit(3)
status = os.waitstatus_to_exitcode(os.wait()[1])
assert status == (1 if way == "raise" else 3), status
raw.write(b" and after")
buffered.write(" and after")
assert [entry.name for entry in entries] == ["buffered", "raw"]
volume.root.mkdir("/after")
volume.close()
"""


@pytest.mark.parametrize("way", ["exit", "drop", "raise", "with", "calls"])
def test_volume_stays_that_of_the_parent_of_a_fork(image, way):
    subprocess.run([sys.executable, "-c", FORKING, image, way], check=True)
    with ubtrfs.Volume.open(image, read_only=True) as volume:
        assert volume.root.listdir() == ["buffered", "raw", "kept", "after"]
        for name in ("/buffered", "/raw"):
            assert volume.root.open(name).read() == "before and after"
        assert volume.label == ""
    assert ubtrfs.check(image).issues == ()


#: A program that forks while a thread holds the locks of a file, as its write waits for a group of another thread.
FORKING_BESIDE_A_WRITE = """
import os, signal, sys, threading, ubtrfs

volume = ubtrfs.Volume.create(sys.argv[1], 256 << 20)
raw = volume.root.open("/raw", "wb", buffering=0)
text = volume.root.open("/text", "w")
text.write("before")
begun, ended = threading.Event(), threading.Event()

def work():
    begun.set()
    ended.wait()

threads = [threading.Thread(target=volume.group, args=(work,))]
threads[0].start()
begun.wait()
threads += [threading.Thread(target=raw.write, args=(b"content",)), threading.Thread(target=text.flush)]
for thread in threads[1:]:
    thread.start()
for file in (raw, text.buffer.raw):
    while file._lock.acquire(blocking=False):
        file._lock.release()
child = os.fork()
if child == 0:
    # A lock that stays locked shall not stop the tests.
    signal.alarm(60)
    for call in [lambda: raw.write(b"child"), lambda: volume.root.open("/new", "w"), volume.close]:
        try:
            call()
        except OSError as error:
            assert error.errno == 16, error
        else:
            os._exit(1)
    os._exit(0)
_, status = os.waitpid(child, 0)
ended.set()
for thread in threads:
    thread.join()
volume.close()
sys.exit(status != 0)
"""


def test_fork_beside_a_thread_that_writes_waits_for_nothing(image):
    subprocess.run([sys.executable, "-c", FORKING_BESIDE_A_WRITE, image], check=True)
    with ubtrfs.Volume.open(image, read_only=True) as volume:
        assert volume.root.open("/raw").read() == "content"
        assert volume.root.open("/text").read() == "before"
    assert ubtrfs.check(image).issues == ()
