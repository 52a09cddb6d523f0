//! When the kernel is told to drop pages of a file that is written to.

use parking_lot::Mutex;
use std::time::Instant;

use super::*;
use crate::adapter::WHOLE_FILE;
use crate::adapter::flushing::For;

type Told = (NodeId, u64, u64);

/// A kernel that drops at once what it is told to, and remembers it.
#[derive(Debug, Default)]
struct Obedient {
    /// Before the answer of a direct write.
    written: Mutex<Vec<Told>>,
    changed: Mutex<Vec<Told>>,
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

    fn contents_written(&self, node: NodeId, offset: u64, len: u64) {
        self.written.lock().push((node, offset, len));
    }

    fn has_room_for_names(&self) -> bool {
        true
    }

    fn drain_nodes(&self, _: Option<Instant>) -> bool {
        true
    }

    fn drain(&self, _: Option<Instant>) -> bool {
        true
    }
}

fn told(list: &Mutex<Vec<Told>>) -> Vec<Told> {
    std::mem::take(&mut list.lock())
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
    let mount = mount();
    let kernel = Arc::new(Obedient::default());
    mount.start(Arc::clone(&kernel) as _);
    let (node, handle) = mount.file(NodeId::ROOT, "f");
    mount.put((node, handle), 0, &PAGE);
    assert_eq!(told(&kernel.written), []);
    // A whole page past the engine's buffer, and a part of one through it.
    for (offset, bytes) in [(4096, &PAGE[..]), (512, &PAGE[..512])] {
        let written = mount.write(&USER, node, handle, offset, bytes, &DIRECT);
        assert_eq!(written, Ok(bytes.len()));
        let expected = [(node, offset, bytes.len() as u64)];
        assert_eq!(told(&kernel.written), expected);
    }
    // What has failed may have changed a part.
    let written = mount.write(&USER, node, handle, u64::MAX - 4095, &PAGE, &DIRECT);
    written.unwrap_err();
    assert_eq!(told(&kernel.written), [(node, u64::MAX - 4095, 4096)]);
    assert_eq!(told(&kernel.changed), []);
}

/// The kernel may have sent a buffered write before it dropped the page, which a read has brought back since.
#[test]
fn a_page_that_was_reread_after_a_drop_is_dropped_again_by_the_next_buffered_write() {
    let mount = mount();
    let kernel = Arc::new(Obedient::default());
    mount.start(Arc::clone(&kernel) as _);
    let file = mount.file(NodeId::ROOT, "f");
    let (node, handle) = file;
    let put = |offset| {
        mount.put(file, offset, b"buffered");
        told(&kernel.changed)
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
    assert_eq!(told(&kernel.changed), [(node, 0, u64::MAX)]);
    read();
    drop_by_direct();
    assert_eq!(put(8), again(8), "the second drop had another range");
    mount.forget(node, 1);
}
