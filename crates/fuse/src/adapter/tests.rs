//! The adapter over a tree in memory, called as a transport calls it.

mod by_handle;
mod writing;

use ubtrfs_format::item::InodeFlags;
use ubtrfs_fuse_server::request::*;

use super::memory::{Memory, TOP, empty_subvolume_dir_in, file};
use super::*;

const CONTEXT: Context = Context {
    uid: 0,
    gid: 0,
    pid: 1,
};
const CONNECTION_FLAGS: ConnectionFlags = ConnectionFlags {
    posix_acl: true,
    writable: false,
    writeback_cache: false,
    idmapped: false,
};

fn adapter(memory: Memory) -> Adapter<Memory> {
    Adapter::new(memory, TOP, CONNECTION_FLAGS)
}

fn find(adapter: &Adapter<Memory>, dir: NodeId, name: &str) -> Result<Entry> {
    match adapter.lookup(&CONTEXT, dir, name.as_bytes())? {
        Answer::Entry(entry) => Ok(entry),
        _ => Err(Errno::NOENT),
    }
}

/// A sink that accepts up to `room` entries.
struct Sink {
    room: usize,
    entries: Vec<(String, u64, u64)>,
    nodes: Vec<Option<Entry>>,
}

impl Sink {
    fn new(room: usize) -> Self {
        Self {
            room,
            entries: Vec::new(),
            nodes: Vec::new(),
        }
    }

    fn take(&mut self, entry: &DirEntry<'_>) -> Room {
        if self.room == 0 {
            return Room::Full;
        }
        self.room -= 1;
        let name = String::from_utf8_lossy(entry.name).into_owned();
        self.entries.push((name, entry.ino, entry.next_offset));
        Room::Taken
    }
}

impl DirSink for Sink {
    fn push(&mut self, entry: &DirEntry<'_>) -> Room {
        self.take(entry)
    }
}

impl DirPlusSink for Sink {
    fn push(&mut self, entry: &DirEntry<'_>, found: Option<&Entry>) -> Room {
        let room = self.take(entry);
        if room == Room::Taken {
            self.nodes.push(found.copied());
        }
        room
    }
}

fn list(adapter: &Adapter<Memory>, dir: NodeId, at_once: usize) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    let mut offset = 0;
    loop {
        let mut sink = Sink::new(at_once);
        adapter.readdir(dir, offset, &mut sink).unwrap();
        match sink.entries.last() {
            Some(last) => offset = last.2,
            None => return all,
        }
        all.extend(sink.entries.into_iter().map(|(name, ino, _)| (name, ino)));
    }
}

/// Creates two subvolumes below the top, and an empty subvolume directory next to another one in the second.
fn nested() -> Memory {
    let mut memory = Memory::new();
    memory.add(TOP, "file", file(5, 257), FileKind::Regular);
    memory.add(TOP, "one", file(256, 256), FileKind::Directory);
    memory.add(TOP, "two", file(257, 256), FileKind::Directory);
    memory.add(file(256, 256), "file", file(256, 257), FileKind::Regular);
    memory.add(file(257, 256), "file", file(257, 257), FileKind::Regular);
    memory.add(
        file(257, 256),
        "gone",
        empty_subvolume_dir_in(file(257, 256)),
        FileKind::Directory,
    );
    memory.add(
        file(257, 256),
        "away",
        empty_subvolume_dir_in(file(257, 256)),
        FileKind::Directory,
    );
    memory
}

#[test]
fn files_of_different_subvolumes_show_different_numbers() {
    let adapter = adapter(nested());
    let mut seen = vec![adapter.getattr(NodeId::ROOT).unwrap().attr.ino];
    seen.push(
        find(&adapter, NodeId::ROOT, "file")
            .unwrap()
            .attributes
            .attr
            .ino,
    );
    for subvolume in ["one", "two"] {
        let dir = find(&adapter, NodeId::ROOT, subvolume).unwrap();
        seen.push(dir.attributes.attr.ino);
        seen.push(
            find(&adapter, dir.node, "file")
                .unwrap()
                .attributes
                .attr
                .ino,
        );
    }
    assert_eq!(&seen[..2], [256, 257]);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 6);
}

#[test]
fn listings_show_the_numbers_that_stat_shows() {
    let adapter = adapter(nested());
    let mut dirs = vec![NodeId::ROOT];
    while let Some(dir) = dirs.pop() {
        for (name, ino) in list(&adapter, dir, 3) {
            if name == "." || name == ".." {
                continue;
            }
            let entry = find(&adapter, dir, &name).unwrap();
            assert_eq!(entry.attributes.attr.ino, ino, "{name}");
            if entry.attributes.attr.kind == FileKind::Directory {
                dirs.push(entry.node);
            }
        }
    }
}

#[test]
fn empty_subvolume_dirs_are_empty_directories_of_their_own() {
    let adapter = adapter(nested());
    let two = find(&adapter, NodeId::ROOT, "two").unwrap().node;
    let gone = find(&adapter, two, "gone").unwrap();
    let away = find(&adapter, two, "away").unwrap();
    assert_ne!(gone.node, away.node);
    let names: Vec<_> = list(&adapter, gone.node, 9);
    assert_eq!(names[0], (".".into(), gone.node.0));
    assert_eq!(names[1], ("..".into(), two.0));
    assert_eq!(names.len(), 2);
    assert!(find(&adapter, gone.node, "file").is_err());
    assert_eq!(adapter.listxattr(gone.node, &mut []), Ok(0));
    assert_eq!(adapter.nodes.len(), 2);
    adapter.forget(gone.node, 1);
    adapter.forget(away.node, 1);
    assert_eq!(adapter.nodes.len(), 0);
    assert_eq!(adapter.getattr(gone.node), Err(Errno::STALE));
}

#[test]
fn a_listing_resumes_where_it_stopped_however_small_the_steps() {
    let mut memory = Memory::new();
    for number in 0..50 {
        let name = format!("f{number}");
        memory.add(TOP, &name, file(5, 300 + number), FileKind::Regular);
    }
    let adapter = adapter(memory);
    let whole = list(&adapter, NodeId::ROOT, usize::MAX);
    assert_eq!(whole.len(), 52);
    for at_once in [1, 2, 3, 7, 51, 52] {
        assert_eq!(list(&adapter, NodeId::ROOT, at_once), whole);
    }
}

#[test]
fn entries_that_found_no_room_are_not_lookups() {
    let adapter = adapter(nested());
    let two = find(&adapter, NodeId::ROOT, "two").unwrap().node;
    // Accepts ".", "..", "file" and "gone", but not "away".
    let mut sink = Sink::new(4);
    adapter.readdirplus(two, 0, &mut sink).unwrap();
    assert_eq!(adapter.nodes.len(), 1);
    let gone = sink.nodes[3].unwrap().node;
    adapter.forget(gone, 1);
    assert_eq!(adapter.nodes.len(), 0);
}

#[test]
fn a_broken_file_is_listed_and_fails_when_it_is_looked_at() {
    let mut memory = nested();
    memory.broken.push(file(5, 257));
    let adapter = adapter(memory);
    let mut sink = Sink::new(9);
    adapter.readdirplus(NodeId::ROOT, 0, &mut sink).unwrap();
    assert_eq!(sink.entries.len(), 5);
    assert_eq!(sink.nodes[2], None);
    assert_eq!(find(&adapter, NodeId::ROOT, "file"), Err(Errno::IO));
}

#[test]
fn a_listing_ends_before_the_entry_that_it_would_wait_for() {
    let mut memory = nested();
    memory.slow.push(file(5, 257));
    let adapter = adapter(memory);
    let list = |offset, sink: &mut Sink| adapter.readdirplus(NodeId::ROOT, offset, sink);
    let mut sink = Sink::new(9);
    assert_eq!(list(0, &mut sink), Ok(()));
    assert_eq!(sink.entries.len(), 2);
    let next = sink.entries[1].2;
    assert_eq!(list(next, &mut sink), Err(Errno::WOULD_BLOCK));
    assert_eq!(sink.entries.len(), 2);
}

#[test]
fn a_failure_after_entries_is_the_answer_to_the_next_request() {
    let mut memory = Memory::new();
    memory.add(TOP, "a", file(5, 257), FileKind::Regular);
    let root = memory.files.get_mut(&TOP).unwrap();
    root.children
        .insert(i64::MAX as u64, (b"z".to_vec(), file(5, 257)));
    let adapter = adapter(memory);
    let mut sink = Sink::new(9);
    let at = |offset, sink: &mut Sink| adapter.readdir(NodeId::ROOT, offset, sink);
    assert_eq!(at(0, &mut sink), Ok(()));
    assert_eq!(sink.entries.len(), 3);
    assert_eq!(at(sink.entries[2].2, &mut sink), Err(Errno::OVERFLOW));
}

// FUSE-3
#[test]
fn an_entry_that_leads_back_to_the_root_of_the_mount_is_refused() {
    let mut memory = Memory::new();
    memory.add(TOP, "again", TOP, FileKind::Directory);
    let adapter = adapter(memory);
    assert_eq!(find(&adapter, NodeId::ROOT, "again"), Err(Errno::LOOP));
    let mut sink = Sink::new(9);
    adapter.readdirplus(NodeId::ROOT, 0, &mut sink).unwrap();
    assert_eq!(sink.nodes[2], None);
}

#[test]
fn numbers_that_cannot_be_packed_work_until_they_are_forgotten() {
    let mut memory = Memory::new();
    let far = file(1 << 60, 1 << 61);
    memory
        .add(TOP, "far", far, FileKind::Regular)
        .inode
        .attr
        .size_bytes = 5;
    let adapter = adapter(memory);
    let entry = find(&adapter, NodeId::ROOT, "far").unwrap();
    let mut out = [0; 9];
    assert_eq!(
        adapter.read(entry.node, 0, &mut out, &ReadHow::default()),
        Ok(5)
    );
    adapter.forget(entry.node, 1);
    assert_eq!(adapter.nodes.len(), 0);
}

/// REQ-3
#[test]
fn numbers_nobody_gave_are_stale() {
    let adapter = adapter(nested());
    for number in [0, 2, 255, 7 << 60, u64::MAX, 1 << 62 | 5 << 44 | 256] {
        assert_eq!(
            adapter.getattr(NodeId(number)),
            Err(Errno::STALE),
            "{number:#x}"
        );
        adapter.forget(NodeId(number), 1);
    }
}

#[test]
fn xattrs_follow_the_sizes_of_the_system_calls() {
    let mut memory = Memory::new();
    let xattrs = &mut memory.add(TOP, "f", file(5, 257), FileKind::Regular).xattrs;
    xattrs.insert(b"user.a".to_vec(), b"value".to_vec());
    xattrs.insert(b"user.empty".to_vec(), Vec::new());
    let adapter = adapter(memory);
    let node = find(&adapter, NodeId::ROOT, "f").unwrap().node;
    let get = |name: &str, out: &mut [u8]| adapter.getxattr(node, name.as_bytes(), out);
    let mut out = [0; 32];
    assert_eq!(get("user.a", &mut []), Ok(5));
    assert_eq!(get("user.a", &mut out), Ok(5));
    assert_eq!(&out[..5], b"value");
    assert_eq!(get("user.a", &mut out[..4]), Err(Errno::RANGE));
    assert_eq!(get("user.empty", &mut out), Ok(0));
    assert_eq!(get("user.none", &mut out), Err(Errno::NODATA));
    assert_eq!(get("system.posix_acl_access", &mut out), Err(Errno::NODATA));
    assert_eq!(get("nonsense.a", &mut out), Err(Errno::OPNOTSUPP));
    assert_eq!(get("user.", &mut out), Err(Errno::INVAL));
    assert_eq!(adapter.listxattr(node, &mut []), Ok(18));
    assert_eq!(adapter.listxattr(node, &mut out), Ok(18));
    assert_eq!(&out[..18], b"user.a\0user.empty\0");
    assert_eq!(adapter.listxattr(node, &mut out[..17]), Err(Errno::RANGE));
}

#[test]
fn lsattr_sees_the_flags_of_the_inode() {
    let mut memory = Memory::new();
    memory
        .add(TOP, "f", file(5, 257), FileKind::Regular)
        .inode
        .flags = InodeFlags::NODATACOW | InodeFlags::NODATASUM | InodeFlags::IMMUTABLE;
    let adapter = adapter(memory);
    let node = find(&adapter, NodeId::ROOT, "f").unwrap().node;
    let mut out = [0; 4];
    assert_eq!(
        adapter.ioctl(&CONTEXT, node, flags::GETFLAGS, &[], &mut out),
        Ok(IoctlAnswer::of(4))
    );
    assert_eq!(u32::from_ne_bytes(out), 0x80_0010);
    assert_eq!(
        adapter.ioctl(&CONTEXT, node, 0x1234, &[], &mut out),
        Err(Errno::NOTTY)
    );
    assert_eq!(
        adapter.ioctl(&CONTEXT, node, flags::FSGETXATTR, &[], &mut out),
        Err(Errno::INVAL)
    );
}

#[test]
fn names_longer_than_btrfs_has_are_refused() {
    let adapter = adapter(nested());
    assert_eq!(
        find(&adapter, NodeId::ROOT, &"x".repeat(256)),
        Err(Errno::NAMETOOLONG)
    );
    assert_eq!(
        find(&adapter, NodeId::ROOT, &"x".repeat(255)),
        Err(Errno::NOENT)
    );
}
