//! State that the mount keeps no longer than needed: its root, and the progress of appends.

use ubtrfs_format::item::InodeFlags;

use super::*;

#[test]
fn the_kernel_takes_back_an_append_that_has_failed() {
    let mount = mount();
    let volume = &mount.source;
    let id = volume
        .create(mount.root, b"log", &NewInode::file(0o644))
        .unwrap();
    volume.write(id, 0, b"before").unwrap();
    volume.set_inode_flags(id, InodeFlags::APPEND).unwrap();
    let node = mount.find(NodeId::ROOT, "log").unwrap().node;
    let cut = |size| {
        let change = AttrChange {
            size_bytes: Some(size),
            ..AttrChange::default()
        };
        mount.setattr(&ROOT, node, None, &change)
    };
    assert_eq!(cut(3).unwrap_err(), Errno::PERM);
    let enter = |range| mount.appends.enter(id, range, || Ok(6)).unwrap();
    let (first, second) = (enter(6..10), enter(10..14));
    volume.write(id, 10, b"next").unwrap();
    second.written();
    first.failed();
    assert_eq!(cut(3).unwrap_err(), Errno::PERM);
    assert_eq!(cut(6).unwrap().attr.size_bytes, 6);
    assert_eq!(cut(6).unwrap_err(), Errno::PERM);
}

/// HANDLE-1 and HANDLE-2
#[test]
fn handles_are_their_openers_until_they_are_released() {
    let mount = mount();
    let (node, first) = mount.file(NodeId::ROOT, "f");
    let mut handles = vec![first];
    for flags in [READ, WRITE, READ] {
        handles.push(handle(mount.open(&ROOT, node, flags).unwrap()));
    }
    handles.sort_unstable_by_key(|handle| handle.0);
    handles.dedup();
    assert_eq!((handles.len(), mount.handles.len()), (4, 4));
    let is_written = || !mount.handles.written().is_empty();
    let writes = |handle: &Handle| mount.handles.get(*handle).unwrap().access.writes();
    handles.sort_by_key(|handle| writes(handle));
    for (released, handle) in handles.iter().enumerate() {
        // The two writable handles are released last.
        assert!(is_written());
        mount.release(*handle).unwrap();
        assert!(mount.handles.get(*handle).is_none());
        assert_eq!(mount.handles.len(), 3 - released);
    }
    assert!(!is_written());
}

#[test]
fn a_deleted_subvolume_is_there_as_long_as_it_is_mounted() {
    let mount = mount();
    let volume = &mount.source;
    let top = mount.root;
    let root = NewInode::directory(0o755);
    volume.create_subvolume(top, b"s", &root).unwrap();
    let root = volume.lookup(top, b"s").unwrap().unwrap();
    volume
        .create(root, b"file", &NewInode::file(0o644))
        .unwrap();
    let inner = Adapter::new(Arc::clone(volume), root, mount.connection_flags());
    volume.delete_subvolume(top, b"s").unwrap();
    volume.free_deleted_subvolumes().unwrap();
    assert_eq!(volume.deleted_subvolumes().unwrap().len(), 1);
    let found = inner.lookup(&ROOT, NodeId::ROOT, b"file").unwrap();
    assert!(matches!(found, Answer::Entry(_)));
    drop(inner);
    volume.free_deleted_subvolumes().unwrap();
    assert_eq!(volume.deleted_subvolumes().unwrap().len(), 0);
}
