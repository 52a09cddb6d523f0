"""The package as Python programs use it: each behaviour beside that of os and io where they have it."""

import errno
import io
import os
import pathlib
import stat
import threading

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
    assert stat.S_ISLNK(root.lstat("/link").st_mode)
    assert root.readlink("/link") == "file"
    assert root.readlink(b"/link") == b"file"


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


def test_snapshots_keep_what_was(image):
    with ubtrfs.Volume.create(image, SIZE) as volume:
        data = volume.create_subvolume("/data")
        with data.open("/notes", "w") as file:
            file.write("first")
        before = volume.snapshot("/data", "/before")
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
    # The objects are still there, and hold nothing.
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


def test_page_shows_a_program_that_runs(tmp_path, monkeypatch):
    page = pathlib.Path(__file__).parents[3] / "docs/embedding.md"
    code = page.read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {})
