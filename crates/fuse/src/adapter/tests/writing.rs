//! A writable volume in memory, changed as a transport would.

mod drops;
mod kept;
mod news;
mod syncing;

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Durable, NewInode, OpenOptions, Volume};
use ubtrfs_fuse_server::request::*;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume;

use super::super::flags;
use super::Sink;
use crate::adapter::Adapter;

const LEN_BYTES: u64 = 256 << 20;
const ROOT: Context = Context {
    uid: 0,
    gid: 0,
    pid: 1,
};
const USER: Context = Context {
    uid: 1000,
    gid: 100,
    pid: 2,
};
const READ: OpenFlags = OpenFlags {
    access: AccessMode::Read,
    append: false,
    truncate: false,
    exclusive: false,
    direct: false,
    sync: false,
    no_atime: false,
    kill_setid: false,
};
const WRITE: OpenFlags = OpenFlags {
    access: AccessMode::ReadWrite,
    ..READ
};

/// A mount of a fresh volume. Its device is checked on drop.
struct Mount {
    device: Arc<MemDevice>,
    adapter: Option<Adapter<Arc<Volume>>>,
}

impl Drop for Mount {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.adapter.take().unwrap().destroy().unwrap();
        let device: Arc<dyn BlockDevice> = self.device.clone();
        let devices = vec![(PathBuf::from("memory"), device)];
        let report = check_devices(devices, &CheckOptions::default(), &mut ()).unwrap();
        assert!(report.is_spotless(), "{:?}", report.issues);
    }
}

impl std::ops::Deref for Mount {
    type Target = Adapter<Arc<Volume>>;

    fn deref(&self) -> &Self::Target {
        self.adapter.as_ref().unwrap()
    }
}

fn mount() -> Mount {
    mount_of(|device| device)
}

/// Creates a mount whose device is wrapped by `seen`.
fn mount_of(seen: impl FnOnce(Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice>) -> Mount {
    let device = Arc::new(new_volume(&MkfsOptions::default(), LEN_BYTES));
    let shared = seen(device.clone());
    let devices = vec![(PathBuf::from("memory"), shared)];
    let options = OpenOptions::new().writable(true);
    let volume = Volume::from_devices(devices, &options).unwrap();
    let root = volume.root_dir(RootId::FS_TREE).unwrap();
    let connection_flags = ConnectionFlags {
        posix_acl: true,
        writable: true,
        writeback_cache: false,
        idmapped: false,
    };
    Mount {
        device,
        adapter: Some(Adapter::new(volume, root, connection_flags)),
    }
}

fn new(mode: u32) -> NewNode {
    NewNode {
        mode,
        umask: 0o022,
        rdev: DeviceNr::default(),
        directory_group: None,
    }
}

impl Mount {
    fn volume(&self) -> &Arc<Volume> {
        self.writing().unwrap()
    }

    fn file(&self, dir: NodeId, name: &str) -> (NodeId, Handle) {
        let made = self.create(&ROOT, dir, name.as_bytes(), &new(0o100_666), WRITE);
        let (entry, opened) = made.unwrap();
        (entry.node, handle(opened))
    }

    fn dir(&self, dir: NodeId, name: &str) -> NodeId {
        let made = self.mkdir(&ROOT, dir, name.as_bytes(), &new(0o777));
        made.unwrap().node
    }

    fn find(&self, dir: NodeId, name: &str) -> Result<Entry> {
        match self.lookup(&ROOT, dir, name.as_bytes())? {
            Answer::Entry(entry) => Ok(entry),
            _ => Err(Errno::NOENT),
        }
    }

    fn put(&self, (node, handle): (NodeId, Handle), offset: u64, bytes: &[u8]) {
        let written = self.write(&USER, node, handle, offset, bytes, &WriteHow::default());
        assert_eq!(written, Ok(bytes.len()));
    }

    fn bytes(&self, (node, _): (NodeId, Handle)) -> Vec<u8> {
        let mut out = vec![0; 1 << 20];
        let len = self.read(node, 0, &mut out, &ReadHow::default()).unwrap();
        out.truncate(len);
        out
    }

    fn attr(&self, node: NodeId) -> Attr {
        self.getattr(node).unwrap().attr
    }

    fn change(&self, node: NodeId, change: AttrChange) -> Result<Attr> {
        self.setattr(&ROOT, node, None, &change)
            .map(|attributes| attributes.attr)
    }

    fn set_flags(&self, node: NodeId, bits: u32) {
        let done = self.ioctl(&ROOT, node, flags::SETFLAGS, &bits.to_ne_bytes(), &mut []);
        assert_eq!(done, Ok(IoctlAnswer::of(0)));
    }

    fn list(&self, dir: NodeId, at_once: usize, mut each: impl FnMut(&str)) -> Vec<String> {
        let mut names = Vec::new();
        let mut offset = 0;
        loop {
            let mut sink = Sink::new(at_once);
            self.readdir(dir, offset, &mut sink).unwrap();
            let Some(last) = sink.entries.last() else {
                return names;
            };
            offset = last.2;
            for (name, _, _) in sink.entries {
                if !name.starts_with('.') {
                    each(&name);
                    names.push(name);
                }
            }
        }
    }
}

fn handle(opened: Opened) -> Handle {
    match opened {
        Opened::Handle { handle, .. } => handle,
        Opened::Elided => panic!("a handle is needed to keep what is unlinked"),
    }
}

#[test]
fn a_creation_answers_as_stat_shows() {
    let mount = mount();
    let made = mount.create(&USER, NodeId::ROOT, b"f", &new(0o104_755), WRITE);
    let (entry, _) = made.unwrap();
    assert_eq!(mount.attr(entry.node), entry.attributes.attr);
    assert_eq!(mount.find(NodeId::ROOT, "f"), Ok(entry));
    let attr = entry.attributes.attr;
    assert_eq!((attr.permissions, attr.uid, attr.gid), (0o4755, 1000, 100));
    let dir = mount.mkdir(&USER, NodeId::ROOT, b"d", &new(0o777)).unwrap();
    assert_eq!(mount.attr(dir.node), dir.attributes.attr);
    assert_eq!(dir.attributes.attr.permissions, 0o755);
    let link = mount.symlink(&USER, NodeId::ROOT, b"l", b"target").unwrap();
    assert_eq!(mount.attr(link.node), link.attributes.attr);
    let node = NewNode {
        rdev: DeviceNr { major: 8, minor: 1 },
        ..new(0o060_600)
    };
    let node = mount.mknod(&ROOT, NodeId::ROOT, b"sda1", &node).unwrap();
    assert_eq!(mount.attr(node.node), node.attributes.attr);
    assert_eq!(node.attributes.attr.rdev, DeviceNr { major: 8, minor: 1 });
    let second = mount.link(entry.node, dir.node, b"f").unwrap();
    assert_eq!(second.node, entry.node);
    assert_eq!(second.attributes.attr.nlink, 2);
    assert_eq!(mount.attr(entry.node), second.attributes.attr);
}

#[test]
fn an_unlinked_file_lives_until_it_is_released_and_forgotten() {
    let mount = mount();
    let file = mount.file(NodeId::ROOT, "f");
    mount.put(file, 0, b"contents");
    mount.unlink(NodeId::ROOT, b"f").unwrap();
    assert_eq!(mount.find(NodeId::ROOT, "f"), Err(Errno::NOENT));
    assert_eq!(mount.attr(file.0).nlink, 0);
    assert_eq!(mount.bytes(file), b"contents");
    mount.put(file, 8, b" and more");
    mount.fsync(file.0, Some(file.1), Durable::All).unwrap();
    assert_eq!(mount.bytes(file).len(), 17);
    mount.release(file.1).unwrap();
    assert_eq!(mount.attr(file.0).nlink, 0);
    mount.forget(file.0, 1);
    assert_eq!(mount.getattr(file.0), Err(Errno::STALE));
    assert_eq!(mount.handles.len(), 0);
}

#[test]
fn a_file_without_a_name_may_get_one_unless_it_was_opened_for_itself() {
    let mount = mount();
    let tmp = |flags| mount.tmpfile(&ROOT, NodeId::ROOT, &new(0o100_600), flags);
    let (entry, opened) = tmp(WRITE).unwrap();
    assert_eq!(entry.attributes.attr.nlink, 0);
    let linked = mount.link(entry.node, NodeId::ROOT, b"named").unwrap();
    assert_eq!(linked.attributes.attr.nlink, 1);
    mount.release(handle(opened)).unwrap();
    assert_eq!(mount.attr(entry.node).nlink, 1);
    let private = OpenFlags {
        exclusive: true,
        ..WRITE
    };
    let (entry, opened) = tmp(private).unwrap();
    let linked = mount.link(entry.node, NodeId::ROOT, b"x");
    assert_eq!(linked, Err(Errno::NOENT));
    mount.release(handle(opened)).unwrap();
    assert_eq!(mount.getattr(entry.node), Err(Errno::STALE));
}

#[test]
fn creating_what_exists_opens_it_unless_it_must_be_new() {
    let mount = mount();
    let file = mount.file(NodeId::ROOT, "f");
    mount.put(file, 0, b"old");
    let create = |name: &[u8], flags| {
        mount
            .create(&ROOT, NodeId::ROOT, name, &new(0o100_600), flags)
            .map(|(entry, _)| entry)
    };
    let exclusive = OpenFlags {
        exclusive: true,
        ..WRITE
    };
    assert_eq!(create(b"f", exclusive), Err(Errno::EXIST));
    let entry = create(b"f", WRITE).unwrap();
    assert_eq!((entry.node, entry.attributes.attr.size_bytes), (file.0, 3));
    let truncate = OpenFlags {
        truncate: true,
        ..WRITE
    };
    assert_eq!(
        create(b"f", truncate).unwrap().attributes.attr.size_bytes,
        0
    );
    mount.dir(NodeId::ROOT, "d");
    assert_eq!(create(b"d", WRITE), Err(Errno::ISDIR));
    assert_eq!(create(&[b'x'; 256], WRITE), Err(Errno::NAMETOOLONG));
}

#[test]
fn writing_and_a_new_owner_take_rights_away() {
    let mount = mount();
    let file = mount.file(NodeId::ROOT, "f");
    let set_id = AttrChange {
        mode: Some(0o6755),
        ..AttrChange::default()
    };
    let give_rights = || {
        mount.change(file.0, set_id).unwrap();
        let how = XattrHow::default();
        mount
            .setxattr(file.0, b"security.capability", b"cap", how)
            .unwrap();
    };
    let has_capability = || {
        mount
            .getxattr(file.0, b"security.capability", &mut [])
            .is_ok()
    };
    let permissions = || mount.attr(file.0).permissions;
    give_rights();
    mount.put(file, 0, b"by root");
    assert_eq!((permissions(), has_capability()), (0o6755, false));
    let kill = WriteHow {
        kill_setid: true,
        ..WriteHow::default()
    };
    mount.write(&USER, file.0, file.1, 0, b"x", &kill).unwrap();
    assert_eq!(permissions(), 0o755);
    for change in [
        AttrChange {
            uid: Some(1000),
            ..AttrChange::default()
        },
        // chown(-1, -1), and the empty change before fallocate.
        AttrChange::default(),
        AttrChange {
            size_bytes: Some(1),
            kill_setid: true,
            ..AttrChange::default()
        },
    ] {
        give_rights();
        let attr = mount.change(file.0, change).unwrap();
        assert_eq!((attr.permissions, has_capability()), (0o755, false));
        assert_eq!(attr, mount.attr(file.0));
    }
    give_rights();
    let touch = AttrChange {
        mtime: Some(TimeChange::Now),
        ..AttrChange::default()
    };
    mount.change(file.0, touch).unwrap();
    assert_eq!((permissions(), has_capability()), (0o6755, true));
    let dir = mount.dir(NodeId::ROOT, "d");
    mount.change(dir, set_id).unwrap();
    let owner = AttrChange {
        gid: Some(5),
        ..AttrChange::default()
    };
    assert_eq!(mount.change(dir, owner).unwrap().permissions, 0o6755);
}

#[test]
fn flags_are_set_and_forbid_at_open() {
    let mount = mount();
    let file = mount.file(NodeId::ROOT, "f");
    let open = |flags| mount.open(&ROOT, file.0, flags).map(handle);
    let append = OpenFlags {
        append: true,
        ..WRITE
    };
    let truncate = OpenFlags {
        truncate: true,
        ..append
    };
    mount.set_flags(file.0, 0x20);
    assert_eq!(open(WRITE), Err(Errno::PERM));
    assert_eq!(open(truncate), Err(Errno::PERM));
    assert!(open(READ).is_ok());
    let appending = open(append).unwrap();
    mount.put((file.0, appending), 0, b"x");
    let empty = AttrChange {
        size_bytes: Some(0),
        ..AttrChange::default()
    };
    let cut = mount.setattr(&ROOT, file.0, Some(appending), &empty);
    assert_eq!(cut, Err(Errno::PERM));
    // A kernel with a writeback cache sends the times of writes.
    let time = Time { secs: 5, nanos: 6 };
    let written = AttrChange {
        mtime: Some(TimeChange::At(time)),
        ctime: Some(time),
        ..AttrChange::default()
    };
    let attr = mount.change(file.0, written).unwrap();
    assert_eq!((attr.mtime, attr.ctime), (time, time));
    let touch = AttrChange {
        atime: Some(TimeChange::Now),
        ..written
    };
    assert!(mount.change(file.0, touch).is_ok());
    let later = Time { secs: 7, nanos: 6 };
    let set = AttrChange {
        ctime: Some(later),
        ..touch
    };
    assert_eq!(mount.change(file.0, set), Err(Errno::PERM));
    mount.set_flags(file.0, 0x10);
    assert_eq!(mount.change(file.0, touch), Err(Errno::PERM));
    assert_eq!(open(append), Err(Errno::PERM));
    assert_eq!(mount.unlink(NodeId::ROOT, b"f"), Err(Errno::PERM));
    let punch = mount.fallocate(file.0, (0, 4096), 3);
    assert_eq!(punch, Err(Errno::PERM));
    // A file that is already open can still be written.
    mount.put(file, 0, b"y");
    mount.set_flags(file.0, 0);
    assert!(open(WRITE).is_ok());
    let mut shown = [0; 28];
    let sync: [u8; 28] = std::array::from_fn(|at| if at == 0 { 0x20 } else { 0 });
    let set = mount.ioctl(&ROOT, file.0, flags::FSSETXATTR, &sync, &mut []);
    assert_eq!(set, Ok(IoctlAnswer::of(0)));
    mount
        .ioctl(&ROOT, file.0, flags::FSGETXATTR, &[], &mut shown)
        .unwrap();
    assert_eq!(shown, sync);
    let unknown = [0xff; 4];
    let set = mount.ioctl(&ROOT, file.0, flags::SETFLAGS, &unknown, &mut []);
    assert_eq!(set, Err(Errno::OPNOTSUPP));
}

#[test]
fn flags_are_not_set_past_the_questions_of_the_kernel() {
    const FS_IOC32_SETFLAGS: u32 = 0x4004_6602;
    let mount = mount();
    let file = mount.file(NodeId::ROOT, "f");
    let immutable = 0x10u32.to_ne_bytes();
    let set = mount.ioctl(&USER, file.0, FS_IOC32_SETFLAGS, &immutable, &mut []);
    assert_eq!(set, Err(Errno::NOTTY));
}

#[test]
fn blocks_are_counted_when_they_are_written_and_stay_so() {
    let mount = mount();
    let file = mount.file(NodeId::ROOT, "f");
    mount.put(file, 0, &[1; 10_000]);
    mount.put(file, 100_000, &[2; 5]);
    let buffered = mount.attr(file.0);
    assert_eq!((buffered.blocks, buffered.size_bytes), (32, 100_005));
    mount.syncfs().unwrap();
    assert_eq!(mount.attr(file.0), buffered);
    mount.put(file, 8_000, &[3; 8_000]);
    let more = mount.attr(file.0);
    assert_eq!(more.blocks, 40);
    mount.syncfs().unwrap();
    assert_eq!(mount.attr(file.0).blocks, 40);
    let small = mount.file(NodeId::ROOT, "small");
    mount.put(small, 0, b"inline");
    assert_eq!(mount.attr(small.0).blocks, 8);
    mount.syncfs().unwrap();
    assert_eq!(mount.attr(small.0).blocks, 8);
}

#[test]
fn a_listing_ends_though_each_listed_file_is_renamed() {
    let mount = mount();
    for number in 0..20 {
        mount.file(NodeId::ROOT, &format!("f{number}"));
    }
    for at_once in [1, 3, 50] {
        let names = mount.list(NodeId::ROOT, at_once, |name| {
            let to = (NodeId::ROOT, &format!("{name}x").into_bytes()[..]);
            let from = (NodeId::ROOT, name.as_bytes());
            mount
                .rename(&ROOT, from, to, RenameFlags::default())
                .unwrap();
        });
        assert_eq!(names.len(), 20);
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), 20);
    }
}

#[test]
fn a_listing_misses_and_repeats_nothing_that_stays() {
    let mount = mount();
    for number in 0..30 {
        mount.file(NodeId::ROOT, &format!("stays{number}"));
        mount.file(NodeId::ROOT, &format!("goes{number}"));
    }
    let mut made = 0;
    let names = mount.list(NodeId::ROOT, 2, |name| {
        if name.starts_with("goes") {
            mount.unlink(NodeId::ROOT, name.as_bytes()).unwrap();
        }
        mount.file(NodeId::ROOT, &format!("new{made}"));
        made += 1;
    });
    let stays: Vec<_> = names
        .iter()
        .filter(|name| name.starts_with("stays"))
        .collect();
    assert_eq!(stays.len(), 30);
    assert!(!names.iter().any(|name| name.starts_with("new")));
    assert_eq!(mount.list(NodeId::ROOT, 9, |_| {}).len(), 30 + made);
}

#[test]
fn names_move_as_the_flags_say() {
    let mount = mount();
    let one = mount.file(NodeId::ROOT, "one").0;
    let two = mount.file(NodeId::ROOT, "two").0;
    let rename = |from: &str, to: &str, flags| {
        let from = (NodeId::ROOT, from.as_bytes());
        mount.rename(&ROOT, from, (NodeId::ROOT, to.as_bytes()), flags)
    };
    let no_replace = RenameFlags {
        no_replace: true,
        ..RenameFlags::default()
    };
    let exchange = RenameFlags {
        exchange: true,
        ..RenameFlags::default()
    };
    let whiteout = RenameFlags {
        whiteout: true,
        ..RenameFlags::default()
    };
    let node = |name| mount.find(NodeId::ROOT, name).map(|entry| entry.node);
    assert_eq!(rename("one", "two", no_replace), Err(Errno::EXIST));
    rename("one", "two", exchange).unwrap();
    assert_eq!((node("one"), node("two")), (Ok(two), Ok(one)));
    assert_eq!(rename("one", "none", exchange), Err(Errno::NOENT));
    rename("one", "three", whiteout).unwrap();
    let left = mount.find(NodeId::ROOT, "one").unwrap().attributes.attr;
    assert_eq!(left.kind, FileKind::CharDevice);
    assert_eq!((left.rdev, left.permissions), (DeviceNr::default(), 0));
    rename("three", "two", RenameFlags::default()).unwrap();
    assert_eq!(node("two"), Ok(two));
}

#[test]
fn subvolumes_are_directories_with_borders() {
    let mount = mount();
    let volume = mount.volume();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let root = ubtrfs_fs::NewInode::directory(0o755);
    volume.create_subvolume(top, b"sub", &root).unwrap();
    let sub = mount.find(NodeId::ROOT, "sub").unwrap().node;
    let outside = mount.file(NodeId::ROOT, "f").0;
    let (inside, open) = mount.file(sub, "f");
    assert_ne!(outside, inside);
    assert_ne!(mount.attr(outside).ino, mount.attr(inside).ino);
    let cross = mount.rename(
        &ROOT,
        (NodeId::ROOT, b"f"),
        (sub, b"g"),
        RenameFlags::default(),
    );
    assert_eq!(cross, Err(Errno::XDEV));
    assert_eq!(mount.link(outside, sub, b"g"), Err(Errno::XDEV));
    assert_eq!(mount.rmdir(NodeId::ROOT, b"sub"), Err(Errno::NOTEMPTY));
    let id = volume.subvolumes().unwrap().last().unwrap().id;
    volume.snapshot(id, top, b"snap", true).unwrap();
    let snap = mount.find(NodeId::ROOT, "snap").unwrap().node;
    let frozen = mount.find(snap, "f").unwrap().node;
    assert_eq!(mount.open(&ROOT, frozen, WRITE), Err(Errno::ROFS));
    assert_eq!(mount.unlink(snap, b"f"), Err(Errno::ROFS));
    let made = mount.mkdir(&ROOT, snap, b"d", &new(0o755));
    assert_eq!(made, Err(Errno::ROFS));
    mount.unlink(sub, b"f").unwrap();
    mount.rmdir(NodeId::ROOT, b"sub").unwrap();
    assert_eq!(mount.find(NodeId::ROOT, "sub"), Err(Errno::NOENT));
    assert_eq!(mount.attr(inside).nlink, 0);
    mount.release(open).unwrap();
    for known in [inside, sub] {
        mount.forget(known, 1);
    }
    assert_eq!(mount.getattr(inside), Err(Errno::STALE));
}

#[test]
fn ranges_are_reserved_punched_copied_and_found() {
    let mount = mount();
    let from = mount.file(NodeId::ROOT, "from");
    let to = mount.file(NodeId::ROOT, "to");
    mount.put(from, 0, &[7; 65_536]);
    let allocate = |file: (NodeId, Handle), range, mode| mount.fallocate(file.0, range, mode);
    allocate(from, (16_384, 16_384), 3).unwrap();
    let seek = |offset, what| mount.lseek(from.0, offset, what);
    assert_eq!(seek(0, SeekFor::Hole), Ok(16_384));
    assert_eq!(seek(16_384, SeekFor::Data), Ok(32_768));
    assert_eq!(seek(65_536, SeekFor::Data), Err(Errno::NXIO));
    let end = |(node, handle), offset| CopyEnd {
        node,
        handle,
        offset,
    };
    let copied = mount.copy_file_range(end(from, 0), end(to, 4096), 65_536);
    assert_eq!(copied, Ok(65_536));
    assert_eq!(mount.bytes(to)[4096..], mount.bytes(from));
    let odd = mount.copy_file_range(end(from, 5), end(to, 1), 100);
    assert_eq!(odd, Ok(100));
    assert_eq!(mount.bytes(to)[..102][99..], [7, 7, 0]);
    allocate(to, (1 << 20, 4096), 0).unwrap();
    assert_eq!(mount.attr(to.0).size_bytes, (1 << 20) + 4096);
    allocate(to, (8 << 20, 4096), 1).unwrap();
    assert_eq!(mount.attr(to.0).size_bytes, (1 << 20) + 4096);
    allocate(to, (0, 8192), 0x10).unwrap();
    assert!(mount.bytes(to)[..8192].iter().all(|&byte| byte == 0));
    for mode in [0x8, 0x20, 0x2] {
        assert_eq!(allocate(to, (0, 4096), mode), Err(Errno::OPNOTSUPP));
    }
}

#[test]
fn a_file_without_a_name_is_there_until_the_kernel_has_forgotten_it() {
    let mount = mount();
    let made = mount.mknod(&ROOT, NodeId::ROOT, b"f", &new(0o100_644));
    let file = made.unwrap().node;
    // The node gets another entry before the first is forgotten.
    assert_eq!(mount.find(NodeId::ROOT, "f").unwrap().node, file);
    let dir = mount.dir(NodeId::ROOT, "d");
    mount.unlink(NodeId::ROOT, b"f").unwrap();
    mount.rmdir(NodeId::ROOT, b"d").unwrap();
    assert_eq!((mount.attr(file).nlink, mount.attr(dir).nlink), (0, 0));
    mount.forget(file, 1);
    assert_eq!(mount.attr(file).nlink, 0);
    mount.forget(file, 1);
    mount.forget(dir, 1);
    for node in [file, dir] {
        assert_eq!(mount.getattr(node), Err(Errno::STALE));
    }
    assert_eq!(mount.known.len(), 0);
}

#[test]
fn a_file_that_was_replaced_is_there_until_the_kernel_has_forgotten_it() {
    let mount = mount();
    let [old, new_one] = ["old", "new"].map(|name| mount.file(NodeId::ROOT, name));
    mount.put(old, 0, b"still here");
    for file in [old, new_one] {
        mount.release(file.1).unwrap();
    }
    let (from, to) = ((NodeId::ROOT, &b"new"[..]), (NodeId::ROOT, &b"old"[..]));
    mount
        .rename(&ROOT, from, to, RenameFlags::default())
        .unwrap();
    assert_eq!(mount.bytes(old), b"still here");
    mount.forget(old.0, 1);
    assert_eq!(mount.getattr(old.0), Err(Errno::STALE));
    assert!(mount.getattr(new_one.0).is_ok());
}

#[test]
fn inodes_of_a_deleted_subvolume_stay_until_the_kernel_has_forgotten_them() {
    let mount = mount();
    let volume = Arc::clone(mount.volume());
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let directory = NewInode::directory(0o755);
    volume.create_subvolume(top, b"s", &directory).unwrap();
    let subvolume = mount.find(NodeId::ROOT, "s").unwrap().node;
    let [known, forgotten] = ["known", "forgotten"].map(|name| {
        let made = mount.mknod(&ROOT, subvolume, name.as_bytes(), &new(0o100_644));
        made.unwrap().node
    });
    mount.forget(forgotten, 1);
    volume.delete_subvolume(top, b"s").unwrap();
    assert_eq!(mount.attr(known).nlink, 1);
    mount.forget(known, 1);
    assert!(mount.getattr(subvolume).is_ok());
    mount.forget(subvolume, 1);
    assert_eq!(mount.getattr(known), Err(Errno::STALE));
    volume.sync().unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.deleted_subvolumes().unwrap().len(), 0);
}

/// Creates a mount whose kernel does not send opens.
fn mount_without_opens() -> Mount {
    let mut mount = mount();
    mount.adapter = mount
        .adapter
        .take()
        .map(|adapter| adapter.with_opens(false));
    mount
}

impl Mount {
    fn made(&self, name: &str) -> (NodeId, Handle) {
        let made = self.mknod(&ROOT, NodeId::ROOT, name.as_bytes(), &new(0o100_644));
        (made.unwrap().node, NO_HANDLE)
    }
}

const NO_HANDLE: Handle = Handle(0);

#[test]
fn files_are_written_and_read_without_opens() {
    let mount = mount_without_opens();
    assert_eq!(mount.open(&ROOT, NodeId::ROOT, READ), Ok(Opened::Elided));
    let made = mount.create(&ROOT, NodeId::ROOT, b"c", &new(0o100_644), WRITE);
    assert_eq!(made, Err(Errno::NOSYS));
    assert_eq!(mount.find(NodeId::ROOT, "c"), Err(Errno::NOENT));
    let file = mount.made("f");
    mount.put(file, 0, b"contents");
    mount.unlink(NodeId::ROOT, b"f").unwrap();
    mount.put(file, 8, b" and more");
    mount.fsync(file.0, Some(file.1), Durable::All).unwrap();
    assert_eq!(mount.bytes(file), b"contents and more");
    let made = mount.tmpfile(&ROOT, NodeId::ROOT, &new(0o100_600), WRITE);
    let (entry, opened) = made.unwrap();
    assert_eq!(opened, Opened::Elided);
    let unnamed = (entry.node, NO_HANDLE);
    mount.put(unnamed, 0, b"unnamed");
    mount.release(unnamed.1).unwrap();
    assert_eq!(mount.bytes(unnamed), b"unnamed");
    mount.link(unnamed.0, NodeId::ROOT, b"named").unwrap();
    mount.forget(unnamed.0, 2);
    assert_eq!(mount.find(NodeId::ROOT, "named").unwrap().node, unnamed.0);
    mount.unlink(NodeId::ROOT, b"named").unwrap();
    assert_eq!(mount.bytes(unnamed), b"unnamed");
    for file in [file, unnamed] {
        mount.forget(file.0, 1);
        assert_eq!(mount.getattr(file.0), Err(Errno::STALE));
    }
}

#[test]
fn flags_forbid_each_change_without_opens() {
    let mount = mount_without_opens();
    let [file, other] = ["f", "g"].map(|name| mount.made(name));
    for file in [file, other] {
        mount.put(file, 0, &[1; 4096]);
    }
    let how = WriteHow::default();
    let write = |offset| mount.write(&ROOT, file.0, file.1, offset, b"x", &how);
    let cut = AttrChange {
        size_bytes: Some(1),
        ..AttrChange::default()
    };
    let end = |(node, handle)| CopyEnd {
        node,
        handle,
        offset: 0,
    };
    let set_flags = |flags: u32| {
        let input = flags.to_ne_bytes();
        mount
            .ioctl(&ROOT, file.0, flags::SETFLAGS, &input, &mut [])
            .unwrap();
    };
    let refused = || {
        assert_eq!(write(0), Err(Errno::PERM));
        assert_eq!(mount.change(file.0, cut), Err(Errno::PERM));
        let copied = mount.copy_file_range(end(other), end(file), 4096);
        assert_eq!(copied, Err(Errno::PERM));
        let punched = mount.fallocate(file.0, (0, 4096), 3);
        assert_eq!(punched, Err(Errno::PERM));
    };
    set_flags(0x20);
    refused();
    assert_eq!(write(4096), Ok(1));
    set_flags(0x10);
    refused();
    assert_eq!(write(4097), Err(Errno::PERM));
    set_flags(0);
    assert_eq!(write(0), Ok(1));
    assert_eq!(mount.change(file.0, cut).unwrap().size_bytes, 1);
}

#[test]
fn a_capability_is_taken_by_a_write_without_opens() {
    let mount = mount_without_opens();
    let file = mount.made("f");
    for _ in 0..2 {
        mount.put(file, 0, b"written");
        let how = XattrHow::default();
        let name = b"security.capability";
        mount.setxattr(file.0, name, b"cap", how).unwrap();
        mount.put(file, 0, b"again");
        let found = mount.getxattr(file.0, name, &mut []);
        assert_eq!(found, Err(Errno::NODATA));
    }
}
