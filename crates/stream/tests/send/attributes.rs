//! Attributes that the receiver's file system adds or removes by itself.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use ubtrfs_stream::{Command, SendOptions};

use ubtrfs_sim::kernel::available_or_skip;

use crate::fixture::{Source, Target, V1, V2, btrfs, count};

const DEFAULT_ACL: &str = "system.posix_acl_default";
const ACCESS_ACL: &str = "system.posix_acl_access";

/// Builds an ACL with an entry for another user.
pub(crate) fn acl(uid: u32, permissions: u16) -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 7, u32::MAX),
        (0x02, permissions, uid),
        (0x04, 5, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 5, u32::MAX),
    ];
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

fn set(path: &Path, name: &str, value: &[u8]) {
    xattr::set(path, name, value).unwrap();
}

/// Creates files and directories without the inheritable attributes of their directory.
fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::write(dir.join("sub/file"), [1; 9000]).unwrap();
    fs::write(dir.join("file"), [2; 9000]).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from(0o640),
        0,
    )
    .unwrap();
}

fn hand_down(dir: &Path) {
    set(dir, DEFAULT_ACL, &acl(7, 6));
    set(dir, "btrfs.compression", b"zlib");
}

/// INHERIT-1
#[test]
fn nothing_is_inherited_at_the_receiver() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let live = source.live();
    fill(&live);
    fill(&live.join("dir"));
    hand_down(&live);
    hand_down(&live.join("dir"));
    // These inherit everything, and one has a different ACL.
    fill(&live.join("dir/heirs"));
    set(&live.join("dir/heirs/file"), ACCESS_ACL, &acl(9, 4));
    source.snapshot("first");
    for dir in [live.clone(), live.join("dir")] {
        // Created elsewhere, and moved in.
        let outside = live.with_file_name("outside");
        btrfs(&["subvolume", "create"], &[&outside]);
        fs::create_dir(live.join("plain")).unwrap();
        xattr::remove(live.join("plain"), DEFAULT_ACL).unwrap();
        xattr::remove(live.join("plain"), ACCESS_ACL).unwrap();
        xattr::remove(live.join("plain"), "btrfs.compression").unwrap();
        fill(&live.join("plain"));
        fs::rename(live.join("plain"), dir.join("moved")).unwrap();
        fs::write(dir.join("moved/later"), b"later").unwrap();
        fs::rename(dir.join("moved/later"), dir.join("later")).unwrap();
        btrfs(&["subvolume", "delete"], &[&outside]);
    }
    source.snapshot("second");
    xattr::remove(live.join("dir"), DEFAULT_ACL).unwrap();
    fs::write(live.join("dir/after"), b"after").unwrap();
    set(&live.join("dir/moved"), DEFAULT_ACL, &acl(5, 1));
    source.snapshot("third");
    let sending = source.open();
    for options in [V1, V2] {
        let target = Target::new("");
        let mut parent = None;
        for name in ["first", "second", "third"] {
            let stream = sending.send(name, parent, &[], options);
            target.receive(&sending, name, &stream);
            parent = Some(name);
        }
        target.delete("first");
        let stream = sending.send("first", Some("third"), &[], options);
        target.receive(&sending, "first", &stream);
    }
    for name in ["second", "third"] {
        let target = Target::new("");
        target.receive(&sending, name, &sending.send(name, None, &[], V1));
    }
}

/// Programs that inspect such a stream interpret each command as a difference.
#[test]
fn without_data_no_attribute_is_taken_for_a_while() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let live = source.live();
    hand_down(&live);
    source.snapshot("first");
    fs::write(live.join("file"), b"").unwrap();
    source.snapshot("second");
    let sending = source.open();
    let removed = |no_data| {
        let stream = sending.send("second", Some("first"), &[], SendOptions { no_data, ..V1 });
        count(&stream, |c| matches!(c, Command::RemoveXattr { .. }))
    };
    assert_eq!((removed(false), removed(true)), (2, 0));
}

/// Both are filled in one transaction, so that unrelated inodes have equal numbers and generations.
#[test]
fn subvolumes_of_other_origin_are_parents() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let a = source.live();
    let b = a.with_file_name("b");
    btrfs(&["filesystem", "sync"], &[&a]);
    btrfs(&["subvolume", "create"], &[&b]);
    set(&a, "user.a", b"a");
    set(&b, "user.b", b"b");
    chown(&b, Some(3), Some(4)).unwrap();
    fs::set_permissions(&b, Permissions::from_mode(0o700)).unwrap();
    for (number, dir) in [&a, &b].into_iter().enumerate() {
        symlink(format!("to {number}"), dir.join("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.join("device"),
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::Mode::from(0o640),
            rustix::fs::makedev(1, 3 + number as u32),
        )
        .unwrap();
        fs::create_dir(dir.join(format!("dir {number}"))).unwrap();
        fs::write(dir.join(format!("dir {number}/file")), [number as u8; 9000]).unwrap();
        let file = File::create(dir.join(["one", "two"][number])).unwrap();
        file.set_len(number as u64 * 5000).unwrap();
    }
    source.snapshot_of("live", "of a");
    source.snapshot_of("b", "of b");
    let sending = source.open();
    for (parent, name) in [("of a", "of b"), ("of b", "of a")] {
        let target = Target::new("");
        target.receive(&sending, parent, &sending.send(parent, None, &[], V1));
        let stream = sending.send(name, Some(parent), &[], V1);
        target.receive(&sending, name, &stream);
    }
}
