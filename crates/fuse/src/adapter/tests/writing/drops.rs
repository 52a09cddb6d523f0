//! Page drops of files that are written to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use ubtrfs_sim::fault::{Fault, FaultDevice};

use super::*;
use crate::adapter::WHOLE_FILE;
use crate::adapter::flushing::For;

type Dropped = (NodeId, u64, u64);

/// A kernel that drops pages when notified, and records that.
#[derive(Debug, Default)]
struct Obedient {
    /// Drops on the threads of requests.
    here: Mutex<Vec<Dropped>>,
    /// Drops on the threads of the notifier.
    elsewhere: Mutex<Vec<Dropped>>,
    /// Whether drops on threads of requests are refused.
    has_no_place: AtomicBool,
    /// Whether drops on threads of the notifier wait until the test ends them.
    holds: AtomicBool,
    held: Mutex<Vec<Held>>,
}

/// A drop that a test ends.
struct Held {
    over: Box<dyn FnOnce() + Send>,
    drop: Arc<PageDrop>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

impl Held {
    fn end(self) {
        (self.over)();
        self.drop.finish();
    }
}

impl Notifier for Obedient {
    fn entry_changed(&self, _: NodeId, _: &[u8]) {}

    fn entry_deleted(&self, _: NodeId, _: &[u8], _: NodeId) {}

    fn node_changed(&self, _: NodeId, _: Option<(u64, Option<u64>)>) {}

    fn drop_pages(
        &self,
        node: NodeId,
        (offset, len): (u64, Option<u64>),
        over: Box<dyn FnOnce() + Send>,
    ) -> Arc<PageDrop> {
        let dropped = (node, offset, len.unwrap_or(u64::MAX));
        self.elsewhere.lock().push(dropped);
        let drop = PageDrop::new();
        let held = Held {
            over,
            drop: Arc::clone(&drop),
        };
        if self.holds.load(Ordering::SeqCst) {
            self.held.lock().push(held);
        } else {
            held.end();
        }
        drop
    }

    fn drop_pages_here(&self, node: NodeId, (offset, len): (u64, Option<u64>)) -> bool {
        if self.has_no_place.load(Ordering::SeqCst) {
            return false;
        }
        self.here
            .lock()
            .push((node, offset, len.unwrap_or(u64::MAX)));
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

    fn renamed(&self, _: (NodeId, &[u8]), _: (NodeId, &[u8])) {}

    fn drain_nodes(&self, _: Option<Duration>) -> bool {
        true
    }

    fn drain(&self, _: Option<Duration>) -> bool {
        true
    }
}

/// Creates a mount, and the kernel that is notified.
fn obedient_mount() -> (Mount, Arc<Obedient>) {
    let mount = mount();
    let kernel = obedient(&mount);
    (mount, kernel)
}

fn obedient(mount: &Mount) -> Arc<Obedient> {
    let kernel = Arc::new(Obedient::default());
    mount.start(Arc::clone(&kernel) as _);
    kernel
}

fn drain(list: &Mutex<Vec<Dropped>>) -> Vec<Dropped> {
    std::mem::take(&mut list.lock())
}

/// Creates an end of a copy.
fn end((node, handle): (NodeId, Handle), offset: u64) -> CopyEnd {
    CopyEnd {
        node,
        handle,
        offset,
    }
}

const PAGE: [u8; 4096] = [b'p'; 4096];
const DIRECT: WriteHow = WriteHow {
    from_cache: false,
    kill_setid: false,
    direct: true,
    append: false,
    sync: false,
};

const FROM_CACHE: WriteHow = WriteHow {
    from_cache: true,
    direct: false,
    ..DIRECT
};

#[test]
fn pages_are_dropped_before_a_direct_write_is_answered() {
    let (mount, kernel) = obedient_mount();
    let (node, handle) = mount.file(NodeId::ROOT, "f");
    mount.put((node, handle), 0, &PAGE);
    assert_eq!(drain(&kernel.here), []);
    // A whole page that bypasses the engine's buffer, and a partial one that does not.
    for (offset, bytes) in [(4096, &PAGE[..]), (512, &PAGE[..512])] {
        let written = mount.write(&USER, node, handle, offset, bytes, &DIRECT);
        assert_eq!(written, Ok(bytes.len()));
        let expected = [(node, offset, bytes.len() as u64)];
        assert_eq!(drain(&kernel.here), expected);
    }
    // A failed write may have changed a part.
    let written = mount.write(&USER, node, handle, u64::MAX - 8191, &PAGE, &DIRECT);
    written.unwrap_err();
    assert_eq!(drain(&kernel.here), [(node, u64::MAX - 8191, 4096)]);
    assert_eq!(drain(&kernel.elsewhere), []);
}

/// The kernel may copy a buffered write into a page, and then drop the page, which a read has brought back.
#[test]
fn a_page_that_was_dropped_and_reread_is_dropped_again_by_the_next_buffered_write() {
    let (mount, kernel) = obedient_mount();
    let file = mount.file(NodeId::ROOT, "f");
    let (node, handle) = file;
    let put = |offset| {
        mount.put(file, offset, b"buffered");
        drain(&kernel.elsewhere)
    };
    let page = |number: u64| (node, number * 4096, 4096);
    mount.put(file, 0, &[b'b'; 8 * 4096]);
    let read = |number: u64, count: usize| {
        let mut out = vec![0; count * 4096];
        let how = ReadHow::default();
        mount.read(node, number * 4096, &mut out, &how).unwrap();
    };
    let drop_by_direct = |number: u64| {
        let written = mount.write(&USER, node, handle, number * 4096, &PAGE, &DIRECT);
        assert_eq!(written, Ok(PAGE.len()));
        assert_eq!(drain(&kernel.here), [page(number)]);
    };
    read(0, 8);
    assert_eq!(put(0), []);
    drop_by_direct(0);
    assert_eq!(put(0), [], "nothing was read since");
    drop_by_direct(0);
    read(0, 8);
    assert_eq!(put(4096), [], "another page was dropped");
    drop_by_direct(1);
    read(2, 6);
    assert_eq!(put(4096), [], "another page was read");
    drop_by_direct(1);
    drop_by_direct(6);
    read(0, 8);
    assert_eq!(put(4100), [page(1)]);
    assert_eq!(put(6 * 4096), [], "the one that was under way is over");

    mount
        .flush(mount.node(node).unwrap().id, WHOLE_FILE, For::Search)
        .unwrap();
    assert_eq!(drain(&kernel.elsewhere), [(node, 0, u64::MAX)]);
    read(2, 1);
    read(4, 1);
    mount.put(file, 100, &[b'c'; 7 * 4096]);
    assert_eq!(drain(&kernel.elsewhere), [page(2), page(4)]);
    mount.forget(node, 1);
}

/// The wait has no timeout.
#[test]
fn no_request_is_answered_before_the_drop_that_it_waits_for_is_over() {
    let (mount, kernel) = obedient_mount();
    let file = mount.file(NodeId::ROOT, "f");
    let (node, handle) = file;
    mount.put(file, 0, &PAGE);
    kernel.has_no_place.store(true, Ordering::SeqCst);
    kernel.holds.store(true, Ordering::SeqCst);
    let is_answered = AtomicBool::new(false);
    let wait_for_held = || {
        while kernel.held.lock().is_empty() {
            std::thread::yield_now();
        }
        assert!(!is_answered.load(Ordering::SeqCst));
        kernel.held.lock().pop().unwrap()
    };
    let direct = || {
        let written = mount.write(&USER, node, handle, 0, &PAGE, &DIRECT);
        assert_eq!(written, Ok(PAGE.len()));
        is_answered.store(true, Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        let request = scope.spawn(direct);
        let held = wait_for_held();
        held.end();
        request.join().unwrap();
    });
    mount.bytes(file);
    is_answered.store(false, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let request = scope.spawn(|| {
            mount.put(file, 0, b"new");
            is_answered.store(true, Ordering::SeqCst);
        });
        let held = wait_for_held();
        // The kernel writes the dirty page before it drops it. Its bytes are older than the write.
        let old = [b'o'; 8];
        let written = mount.write(&USER, node, handle, 0, &old, &FROM_CACHE);
        assert_eq!(written, Ok(old.len()));
        held.end();
        request.join().unwrap();
    });
    assert_eq!(&mount.bytes(file)[..8], b"newooooo");
    let written = mount.write(&USER, node, handle, 0, b"oo", &FROM_CACHE);
    assert_eq!(written, Ok(2));
    assert_eq!(&mount.bytes(file)[..4], b"oowo", "the write is over");
    mount.forget(node, 1);
}

/// The kernel assumes that a failed request has changed nothing.
#[test]
fn pages_are_dropped_before_a_change_fails_that_may_have_got_half_way() {
    let (mount, kernel) = obedient_mount();
    let (node, handle) = mount.file(NodeId::ROOT, "f");
    mount.put((node, handle), 0, &PAGE);
    let too_much = 1 << 40;
    for mode in [0, 0x11] {
        let refused = mount.fallocate(node, (4096, too_much), mode);
        assert_eq!(refused, Err(Errno::NOSPC));
        assert_eq!(drain(&kernel.here), [(node, 4096, too_much)]);
    }
    let file = (node, handle);
    let refused = mount.copy_file_range(end(file, 0), end(file, 1024), 4096);
    assert_eq!(refused, Err(Errno::INVAL));
    assert_eq!(drain(&kernel.here), [(node, 1024, 4096)]);
    assert_eq!(drain(&kernel.elsewhere), [], "nothing is left for later");
    mount.forget(node, 1);
}

/// Creates a mount of a device that fails on request, and the kernel that is notified.
fn faulty_mount() -> (Mount, Arc<FaultDevice>, Arc<Obedient>) {
    let mut faulty = None;
    let mount = mount_of(|device| {
        let device = Arc::new(FaultDevice::new(device));
        faulty = Some(Arc::clone(&device));
        device
    });
    let kernel = obedient(&mount);
    (mount, faulty.unwrap(), kernel)
}

#[test]
fn pages_are_dropped_before_a_copy_fails_that_cannot_be_synced() {
    let (mount, device, kernel) = faulty_mount();
    let source = mount.file(NodeId::ROOT, "source");
    let sync = OpenFlags {
        sync: true,
        ..WRITE
    };
    let made = mount.create(&ROOT, NodeId::ROOT, b"synced", &new(0o100_666), sync);
    let (entry, opened) = made.unwrap();
    let synced = (entry.node, handle(opened));
    mount.put(source, 0, &PAGE);
    device.add(Fault::WriteRange { range: 0..u64::MAX });
    let failed = mount.copy_file_range(end(source, 0), end(synced, 8192), 4096);
    assert_eq!(failed, Err(Errno::IO));
    assert_eq!(drain(&kernel.here), [(synced.0, 8192, 4096)]);
    device.heal();
    mount.forget(source.0, 1);
    mount.forget(synced.0, 1);
}

/// The kernel drops only the pages of the copied range.
#[test]
fn pages_behind_a_copy_are_dropped_if_a_later_part_of_it_has_failed() {
    const PART: usize = 1 << 20;
    let (mount, device, kernel) = faulty_mount();
    let source = mount.file(NodeId::ROOT, "source");
    let copy = mount.file(NodeId::ROOT, "copy");
    // The first part is a hole, which is not read from the device.
    mount.put(source, PART as u64, &PAGE);
    mount.volume().sync().unwrap();
    let len = (PART + PAGE.len()) as u64;
    let copied = mount.copy_file_range(end(source, 0), end(copy, 1), len);
    assert_eq!(copied, Ok(len));
    assert_eq!(drain(&kernel.here), []);
    device.add(Fault::ReadRange { range: 0..u64::MAX });
    let copied = mount.copy_file_range(end(source, 0), end(copy, 1), len);
    assert_eq!(copied, Ok(PART as u64));
    let rest = (copy.0, 1 + PART as u64, PAGE.len() as u64);
    assert_eq!(drain(&kernel.here), [rest]);
    device.heal();
    mount.forget(source.0, 1);
    mount.forget(copy.0, 1);
}
