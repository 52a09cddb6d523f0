//! Commits and logs written by syncs.

use ubtrfs_format::item::InodeFlags;

use super::*;

#[test]
fn syncing_data_writes_no_times() {
    let mount = mount();
    let file = mount.file(NodeId::ROOT, "file");
    let volume = mount.volume();
    let id = mount.node(file.0).unwrap().id;
    volume.set_inode_flags(id, InodeFlags::NODATACOW).unwrap();
    let sync = |what| mount.fsync(file.0, Some(file.1), what).unwrap();
    let written = || {
        let stats = volume.writer_stats().unwrap();
        stats.commits + stats.logs
    };
    mount.put(file, 0, &[1; 4096]);
    volume.sync().unwrap();
    let before = written();
    mount.put(file, 0, &[2; 4096]);
    sync(Durable::Data);
    assert_eq!(written(), before);
    sync(Durable::All);
    assert_eq!(written(), before + 1);
}
