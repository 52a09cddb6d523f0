//! When the kernel is told to drop pages of a file that is written to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use ubtrfs_sim::fault::{Fault, FaultDevice};

use super::*;
use crate::adapter::WHOLE_FILE;
use crate::adapter::flushing::For;

type Dropped = (NodeId, u64, u64);

/// A kernel that drops at once what it is told to, and remembers it.
#[derive(Debug, Default)]
struct Obedient {
    /// Before the answer of a request that has changed it past the kernel's cache.
    written: Mutex<Vec<Dropped>>,
    changed: Mutex<Vec<Dropped>>,
    /// It is told nothing in time.
    is_late: AtomicBool,
}

impl Notifier for Obedient {
    fn entry_changed(&self, _: NodeId, _: &[u8]) {}

    fn entry_deleted(&self, _: NodeId, _: &[u8], _: NodeId) {}

    fn node_changed(&self, node: NodeId, contents: Option<(u64, Option<u64>)>) {
        let (offset, len) = contents.unwrap();
        self.changed
            .lock()
            .push((node, offset, len.unwrap_or(u64::MAX)));
    }

    fn contents_changed(&self, node: NodeId, offset: u64, len: u64) -> bool {
        self.written.lock().push((node, offset, len));
        !self.is_late.load(Ordering::Relaxed)
    }

    fn has_room_for_names(&self) -> bool {
        true
    }

    fn drain_nodes(&self, _: Option<Instant>) -> bool {
        !self.is_late.load(Ordering::Relaxed)
    }

    fn drain(&self, _: Option<Instant>) -> bool {
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

#[test]
fn pages_are_dropped_before_a_direct_write_is_answered() {
    let (mount, kernel) = obedient_mount();
    let (node, handle) = mount.file(NodeId::ROOT, "f");
    mount.put((node, handle), 0, &PAGE);
    assert_eq!(drain(&kernel.written), []);
    // A whole page past the engine's buffer, and a part of one through it.
    for (offset, bytes) in [(4096, &PAGE[..]), (512, &PAGE[..512])] {
        let written = mount.write(&USER, node, handle, offset, bytes, &DIRECT);
        assert_eq!(written, Ok(bytes.len()));
        let expected = [(node, offset, bytes.len() as u64)];
        assert_eq!(drain(&kernel.written), expected);
    }
    // A write that has failed may have changed a part.
    let written = mount.write(&USER, node, handle, u64::MAX - 8191, &PAGE, &DIRECT);
    written.unwrap_err();
    assert_eq!(drain(&kernel.written), [(node, u64::MAX - 8191, 4096)]);
    assert_eq!(drain(&kernel.changed), []);
}

/// The kernel may have sent a buffered write before it dropped the page, which a read has brought back since.
#[test]
fn a_page_that_was_reread_after_a_drop_is_dropped_again_by_the_next_buffered_write() {
    let (mount, kernel) = obedient_mount();
    let file = mount.file(NodeId::ROOT, "f");
    let (node, handle) = file;
    let put = |offset| {
        mount.put(file, offset, b"buffered");
        drain(&kernel.changed)
    };
    let again = |offset| [(node, offset, 8)];
    let read = || mount.bytes(file).len();
    read();
    assert_eq!(put(0), []);

    let drop_by_direct = || {
        let written = mount.write(&USER, node, handle, 0, &PAGE, &DIRECT);
        assert_eq!(written, Ok(PAGE.len()));
    };
    drop_by_direct();
    assert_eq!(put(0), [], "nothing was read since");
    drop_by_direct();
    read();
    assert_eq!(put(100), again(100));
    read();
    assert_eq!(put(100), [], "the one that was under way is over");

    mount
        .flush(mount.node(node).unwrap().id, WHOLE_FILE, For::Search)
        .unwrap();
    assert_eq!(drain(&kernel.changed), [(node, 0, u64::MAX)]);
    read();
    drop_by_direct();
    assert_eq!(put(8), again(8), "the second drop had another range");
    mount.forget(node, 1);
}

/// The notice of a drop may reach the kernel while it sends any later write.
#[test]
fn a_drop_that_comes_late_may_meet_each_buffered_write_until_the_notice_is_sent() {
    let (mount, kernel) = obedient_mount();
    let file = mount.file(NodeId::ROOT, "f");
    let (node, handle) = file;
    let put = || {
        mount.put(file, 0, &PAGE);
        drain(&kernel.changed)
    };
    let again = [(node, 0, 4096)];
    mount.put(file, 0, &PAGE);
    kernel.is_late.store(true, Ordering::Relaxed);
    let written = mount.write(&USER, node, handle, 0, &PAGE, &DIRECT);
    assert_eq!(written, Ok(PAGE.len()));
    assert_eq!(put(), [], "nothing was read since");
    mount.bytes(file);
    assert_eq!(put(), again);
    assert_eq!(put(), again, "the kernel may have been told since");
    kernel.is_late.store(false, Ordering::Relaxed);
    assert_eq!(put(), again, "it was told before this one was over");
    mount.bytes(file);
    assert_eq!(put(), []);
    mount.forget(node, 1);
}

#[test]
fn a_buffered_write_has_only_those_pages_dropped_that_were_read() {
    let (mount, kernel) = obedient_mount();
    let file = mount.file(NodeId::ROOT, "f");
    let (node, handle) = file;
    let put = |offset, bytes: &[u8]| {
        mount.put(file, offset, bytes);
        drain(&kernel.changed)
    };
    put(0, &[b'b'; 5 * 4096]);
    let drop_and_read = |offset, len| {
        let written = mount.write(&USER, node, handle, 0, &PAGE, &DIRECT);
        assert_eq!(written, Ok(PAGE.len()));
        let mut out = vec![0; len];
        mount
            .read(&USER, node, handle, offset, &mut out, &ReadHow::default())
            .unwrap();
    };
    drop_and_read(4096, 4096);
    assert_eq!(put(2 * 4096, &PAGE), []);
    drop_and_read(4096, 2 * 4096);
    assert_eq!(put(100, &[b'c'; 4 * 4096]), [(node, 4096, 2 * 4096)]);
    drop_and_read(0, 5 * 4096);
    let page = 4096;
    let expected = [(node, 100, 3 * page - 100), (node, 3 * page, 100)];
    assert_eq!(
        put(100, &[b'd'; 3 * 4096]),
        expected,
        "the page that the kernel may hold locked comes last"
    );
    drop_and_read(0, 5 * 4096);
    assert_eq!(put(4096, &[b'e'; 2 * 4096]), [(node, 4096, 2 * page)]);
    mount.forget(node, 1);
}

/// The kernel takes a failure for no change at all.
#[test]
fn pages_are_dropped_before_a_change_fails_that_may_have_got_half_way() {
    let (mount, kernel) = obedient_mount();
    let (node, handle) = mount.file(NodeId::ROOT, "f");
    mount.put((node, handle), 0, &PAGE);
    let too_much = 1 << 40;
    for mode in [0, 0x11] {
        let refused = mount.fallocate(&USER, node, handle, (4096, too_much), mode);
        assert_eq!(refused, Err(Errno::NOSPC));
        assert_eq!(drain(&kernel.written), [(node, 4096, too_much)]);
    }
    let file = (node, handle);
    let refused = mount.copy_file_range(&USER, end(file, 0), end(file, 1024), 4096);
    assert_eq!(refused, Err(Errno::INVAL));
    assert_eq!(drain(&kernel.written), [(node, 1024, 4096)]);
    assert_eq!(drain(&kernel.changed), [], "nothing is left for later");
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
    let failed = mount.copy_file_range(&USER, end(source, 0), end(synced, 8192), 4096);
    assert_eq!(failed, Err(Errno::IO));
    assert_eq!(drain(&kernel.written), [(synced.0, 8192, 4096)]);
    device.heal();
    mount.forget(source.0, 1);
    mount.forget(synced.0, 1);
}

/// The kernel drops pages of what was copied alone.
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
    let copied = mount.copy_file_range(&USER, end(source, 0), end(copy, 1), len);
    assert_eq!(copied, Ok(len));
    assert_eq!(drain(&kernel.written), []);
    device.add(Fault::ReadRange { range: 0..u64::MAX });
    let copied = mount.copy_file_range(&USER, end(source, 0), end(copy, 1), len);
    assert_eq!(copied, Ok(PART as u64));
    let rest = (copy.0, 1 + PART as u64, PAGE.len() as u64);
    assert_eq!(drain(&kernel.written), [rest]);
    device.heal();
    mount.forget(source.0, 1);
    mount.forget(copy.0, 1);
}
