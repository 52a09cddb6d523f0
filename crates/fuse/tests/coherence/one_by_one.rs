//! Sequential changes, each of a file that the kernel has cached in every way.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, FallocateFlags, RenameFlags, copy_file_range, fallocate, ioctl_ficlone, renameat_with,
};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use ubtrfs_sim::raw_ioctl;

use super::aio::{Aio, Aligned, Asked, Queue};
use super::assert_attributes;
use super::readers::{Map, ring};

const SETFLAGS: u32 = 0x4008_6602;
const SNAP_CREATE: u32 = 0x5000_9401;
const NOATIME: u64 = 0x80;
const PART: usize = 16 << 10;
/// The minimum size of all files, so that a mapping never extends past the end of its file.
const LEAST: usize = 64 << 10;

/// A file and its expected contents.
struct Cached {
    path: PathBuf,
    bytes: Vec<u8>,
    file: File,
    map: Map,
}

impl Cached {
    fn new(path: PathBuf, byte: u8) -> Cached {
        let bytes = vec![byte; 4 * LEAST];
        fs::write(&path, &bytes).unwrap();
        let mut options = File::options();
        let file = options.read(true).write(true).open(&path).unwrap();
        let map = Map::new(&file, LEAST, ProtFlags::READ | ProtFlags::WRITE);
        let cached = Cached {
            path,
            bytes,
            file,
            map,
        };
        cached.assert("at first");
        cached
    }

    fn direct(&self) -> File {
        let mut options = File::options();
        let options = options.read(true).write(true);
        let options = options.custom_flags(libc::O_DIRECT);
        options.open(&self.path).unwrap()
    }

    /// Reads in every way, which also caches all of it.
    fn assert(&self, after: &str) {
        let len = self.bytes.len();
        let whole = fs::read(&self.path).unwrap();
        assert!(
            whole == self.bytes,
            "{after}: by path, {} of {len}",
            whole.len()
        );
        let mut open = vec![0; len];
        self.file.read_exact_at(&mut open, 0).unwrap();
        assert!(open == self.bytes, "{after}: by the open file");
        let mut mapped = vec![0; LEAST];
        self.map.read(0, &mut mapped);
        assert!(mapped == self.bytes[..LEAST], "{after}: mapped");
        let mut direct = Aligned::new(LEAST);
        self.direct().read_exact_at(&mut direct, 0).unwrap();
        assert!(*direct == self.bytes[..LEAST], "{after}: direct");
        assert_attributes(&self.path);
        assert_eq!(self.path.metadata().unwrap().len(), len as u64, "{after}");
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    fn write_by(&mut self, mut queue: impl Queue, offset: usize, byte: u8) {
        let mut bytes = Aligned::new(PART);
        bytes.fill(byte);
        let asked = Asked {
            slot: 0,
            writes: true,
            offset: offset as u64,
        };
        queue.submit(&self.direct(), asked, &mut bytes);
        assert_eq!(queue.complete().1.unwrap(), PART);
        self.put(offset, &bytes);
    }
}

fn writes(one: &mut Cached) {
    one.file.write_all_at(b"buffered", 5000).unwrap();
    one.put(5000, b"buffered");
    one.assert("a buffered write");
    let mut bytes = Aligned::new(PART);
    bytes.fill(b'd');
    one.direct().write_all_at(&bytes, PART as u64).unwrap();
    one.put(PART, &bytes);
    one.assert("a direct write");
    one.write_by(Aio::new(1), 0, b'a');
    one.assert("a write by AIO");
    one.write_by(ring(), PART, b'r');
    one.assert("a write by io_uring");
    one.write_by(Aio::new(1), one.bytes.len(), b'e');
    one.assert("an append by AIO");
    one.map.write(8000, b"a change by a mapping...");
    one.put(8000, b"a change by a mapping...");
    one.assert("a change by a mapping");
}

fn allocations(one: &mut Cached) {
    let keep = FallocateFlags::KEEP_SIZE;
    for (how, after) in [
        (FallocateFlags::PUNCH_HOLE | keep, "a hole"),
        (FallocateFlags::ZERO_RANGE | keep, "a zeroed range"),
    ] {
        one.file.write_all_at(&[b'x'; 20_000], 100).unwrap();
        one.put(100, &[b'x'; 20_000]);
        one.assert("what is to be emptied");
        fallocate(&one.file, how, 1000, 15_000).unwrap();
        one.put(1000, &[0; 15_000]);
        one.assert(after);
    }
    for how in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        let refused = fallocate(&one.file, how, 0, 4096).unwrap_err();
        assert_eq!(refused, Errno::OPNOTSUPP);
        one.assert("what is refused");
    }
    let end = one.bytes.len() as u64;
    fallocate(&one.file, FallocateFlags::empty(), end, 5000).unwrap();
    one.put(end as usize, &[0; 5000]);
    one.assert("a range allocated behind the end");
}

fn sizes(one: &mut Cached) {
    for len in [LEAST + 100, LEAST + 9000, LEAST, 3 * LEAST] {
        one.file.set_len(len as u64).unwrap();
        one.bytes.resize(len, 0);
        one.assert("another size");
    }
}

fn copies(one: &mut Cached, other: &mut Cached) {
    for (from, to, len) in [(0, 0, LEAST), (100, 5000, 7000), (4096, 3 * LEAST, 8192)] {
        let (mut at, mut into) = (from as u64, to as u64);
        let copied = copy_file_range(&other.file, Some(&mut at), &one.file, Some(&mut into), len);
        assert_eq!(copied.unwrap(), len);
        one.put(to, &other.bytes[from..from + len]);
        one.assert("a copied range");
        other.assert("a copied range");
    }
    // FUSE has no such request.
    ioctl_ficlone(&one.file, &other.file).unwrap_err();
    one.assert("a clone that is refused");
}

fn names(one: &mut Cached, other: &mut Cached) {
    renameat_with(CWD, &one.path, CWD, &other.path, RenameFlags::EXCHANGE).unwrap();
    std::mem::swap(&mut one.path, &mut other.path);
    one.assert("an exchange of names");
    other.assert("an exchange of names");
    let moved = one.path.with_extension("moved");
    fs::rename(&one.path, &moved).unwrap();
    assert!(!one.path.exists());
    one.path = moved;
    one.assert("another name");
}

fn ioctls(dir: &Path, one: &mut Cached) {
    raw_ioctl(&one.file, SETFLAGS, &mut NOATIME.to_ne_bytes()).unwrap();
    one.assert("other flags");
    one.map.write(0, b"mapped..");
    one.put(0, b"mapped..");
    let top = File::open(dir).unwrap();
    let mut args = [0; 4096];
    args[..8].copy_from_slice(&i64::from(std::os::fd::AsRawFd::as_raw_fd(&top)).to_ne_bytes());
    args[8..12].copy_from_slice(b"snap");
    let snapshot = dir.join("snap");
    assert!(!snapshot.exists());
    assert_eq!(fs::read_dir(dir).unwrap().count(), 2);
    raw_ioctl(&top, SNAP_CREATE, &mut args).unwrap();
    let kept = snapshot.join(one.path.file_name().unwrap());
    assert!(fs::read(&kept).unwrap() == one.bytes, "in the snapshot");
    assert_eq!(fs::read_dir(dir).unwrap().count(), 3);
    assert_attributes(dir);
    let before = one.bytes.clone();
    one.write_by(Aio::new(1), 0, b's');
    one.assert("a write behind a snapshot");
    assert!(fs::read(&kept).unwrap() == before, "in the snapshot, later");
}

pub(crate) fn play(dir: &Path) {
    let mut one = Cached::new(dir.join("one"), b'1');
    let mut other = Cached::new(dir.join("other"), b'2');
    writes(&mut one);
    allocations(&mut one);
    sizes(&mut one);
    copies(&mut one, &mut other);
    names(&mut one, &mut other);
    ioctls(dir, &mut one);
    one.file.sync_all().unwrap();
    one.assert("a sync");
    other.assert("all of it");
}
