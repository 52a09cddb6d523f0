//! A kernel that receives no notifications of names that change behind its back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;

const SUBVOL_CREATE: u32 = 0x5000_940e;
const SNAP_DESTROY: u32 = 0x5000_940f;

#[derive(Debug, Default)]
struct Deaf {
    has_room: AtomicBool,
}

impl Notifier for Deaf {
    fn entry_changed(&self, _: NodeId, _: &[u8]) {}

    fn entry_deleted(&self, _: NodeId, _: &[u8], _: NodeId) {}

    fn node_changed(&self, _: NodeId, _: Option<(u64, Option<u64>)>) {}

    fn drop_pages(
        &self,
        _: NodeId,
        _: (u64, Option<u64>),
        over: Box<dyn FnOnce() + Send>,
    ) -> Arc<PageDrop> {
        over();
        PageDrop::finished()
    }

    fn drop_pages_here(&self, _: NodeId, _: (u64, Option<u64>)) -> bool {
        true
    }

    fn cached(&self, _: NodeId, _: u64, _: u32) -> Option<Vec<u8>> {
        None
    }

    fn drop_attributes(&self, _: NodeId) {}

    fn has_room_for_names(&self) -> bool {
        self.has_room.load(Ordering::Relaxed)
    }

    fn has_room_for_rename(&self, _: (NodeId, &[u8]), _: (NodeId, &[u8])) -> bool {
        self.has_room_for_names()
    }

    fn renamed(&self, _: (NodeId, &[u8]), _: (NodeId, &[u8])) {}

    fn drain_nodes(&self, _: Option<Duration>) -> bool {
        false
    }

    fn drain(&self, _: Option<Duration>) -> bool {
        false
    }
}

#[test]
fn no_ioctl_changes_a_name_while_too_many_notices_wait() {
    // The deletion checks the rights of the calling process.
    if !ubtrfs_sim::is_root_or_skip() {
        return;
    }
    let mount = mount();
    let deaf = Arc::new(Deaf::default());
    mount.start(Arc::clone(&deaf) as _);
    let context = Context {
        pid: std::process::id(),
        ..ROOT
    };
    let ask = |command| {
        let mut args = [0; 4096];
        args[8..11].copy_from_slice(b"sub");
        let answer = mount.ioctl(&context, NodeId::ROOT, command, &args, &mut []);
        answer.map(|_| ())
    };
    let is_there = || {
        let found = mount.lookup(&ROOT, NodeId::ROOT, b"sub").unwrap();
        matches!(found, Answer::Entry(_))
    };
    for (command, is_made) in [(SUBVOL_CREATE, true), (SNAP_DESTROY, false)] {
        deaf.has_room.store(false, Ordering::Relaxed);
        assert_eq!(ask(command), Err(Errno::BUSY));
        assert_eq!(is_there(), !is_made);
        deaf.has_room.store(true, Ordering::Relaxed);
        assert_eq!(ask(command), Ok(()));
        assert_eq!(is_there(), is_made);
    }
}

/// Records the notifications, and the waits for them.
#[derive(Debug, Default)]
struct Listening {
    heard: parking_lot::Mutex<Vec<&'static str>>,
}

impl Listening {
    fn hear(&self, news: &'static str) {
        self.heard.lock().push(news);
    }
}

impl Notifier for Listening {
    fn entry_changed(&self, _: NodeId, _: &[u8]) {
        self.hear("entry");
    }

    fn entry_deleted(&self, _: NodeId, _: &[u8], _: NodeId) {
        self.hear("deleted");
    }

    fn node_changed(&self, _: NodeId, contents: Option<(u64, Option<u64>)>) {
        assert_eq!(contents, Some((0, None)));
        self.hear("listing");
    }

    fn drop_pages(
        &self,
        _: NodeId,
        _: (u64, Option<u64>),
        over: Box<dyn FnOnce() + Send>,
    ) -> Arc<PageDrop> {
        over();
        PageDrop::finished()
    }

    fn drop_pages_here(&self, _: NodeId, _: (u64, Option<u64>)) -> bool {
        true
    }

    fn cached(&self, _: NodeId, _: u64, _: u32) -> Option<Vec<u8>> {
        None
    }

    fn drop_attributes(&self, _: NodeId) {}

    fn has_room_for_names(&self) -> bool {
        true
    }

    fn has_room_for_rename(&self, _: (NodeId, &[u8]), _: (NodeId, &[u8])) -> bool {
        true
    }

    fn renamed(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8])) {
        assert_eq!(
            (from, to),
            (
                (NodeId::ROOT, b"old".as_slice()),
                (NodeId::ROOT, b"new".as_slice())
            )
        );
        self.hear("renamed");
    }

    fn drain_nodes(&self, _: Option<Duration>) -> bool {
        true
    }

    fn drain(&self, _: Option<Duration>) -> bool {
        self.hear("wait");
        true
    }
}

/// A program that lists the directory holds its lock, and may still put an older answer into the cache.
#[test]
fn the_kernel_forgets_a_listing_once_nobody_lists_what_was_there_before() {
    // The deletion checks the rights of the calling process.
    if !ubtrfs_sim::is_root_or_skip() {
        return;
    }
    let mount = mount();
    let kernel = Arc::new(Listening::default());
    mount.start(Arc::clone(&kernel) as _);
    let context = Context {
        pid: std::process::id(),
        ..ROOT
    };
    let mut args = [0; 4096];
    args[8..11].copy_from_slice(b"sub");
    for (command, news) in [
        (SUBVOL_CREATE, &["entry", "wait", "listing", "wait"][..]),
        (
            SNAP_DESTROY,
            &["deleted", "entry", "wait", "listing", "wait"],
        ),
    ] {
        let answer = mount.ioctl(&context, NodeId::ROOT, command, &args, &mut []);
        answer.unwrap();
        assert_eq!(std::mem::take(&mut *kernel.heard.lock()), news);
    }
}

/// The kernel moves its own entry, and a notification for it may not be delivered yet.
#[test]
fn a_rename_is_told_to_the_queue_of_names_once_it_is_made() {
    let mount = mount();
    let kernel = Arc::new(Listening::default());
    mount.start(Arc::clone(&kernel) as _);
    let rename = || {
        let flags = RenameFlags::default();
        mount.rename(&ROOT, (NodeId::ROOT, b"old"), (NodeId::ROOT, b"new"), flags)
    };
    assert_eq!(rename(), Err(Errno::NOENT));
    assert!(kernel.heard.lock().is_empty());
    mount
        .mkdir(&ROOT, NodeId::ROOT, b"old", &new(0o777))
        .unwrap();
    rename().unwrap();
    assert_eq!(*kernel.heard.lock(), ["renamed"]);
}

#[test]
fn no_rename_is_made_that_the_queue_of_names_has_no_room_for() {
    let mount = mount();
    let deaf = Arc::new(Deaf::default());
    mount.start(Arc::clone(&deaf) as _);
    mount
        .mkdir(&ROOT, NodeId::ROOT, b"old", &new(0o777))
        .unwrap();
    let rename = || {
        let flags = RenameFlags::default();
        mount.rename(&ROOT, (NodeId::ROOT, b"old"), (NodeId::ROOT, b"new"), flags)
    };
    assert_eq!(rename(), Err(Errno::BUSY));
    deaf.has_room.store(true, Ordering::Relaxed);
    rename().unwrap();
}
