//! Operands of command lines, with disks that need others.

use std::ffi::{OsStr, OsString};

use super::join_with;
use crate::invocation::command_line::definition;

/// Joins the disks of a line. Names that begin with `disk` are parts. A joined operand is displayed with `+`.
fn joined(line: &str) -> String {
    let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let is_part = |name: &OsStr| name.to_string_lossy().starts_with("disk");
    let args = join_with(&definition(), args, 1, &is_part);
    let args: Vec<String> = args
        .into_iter()
        .map(|arg| arg.to_string_lossy().replace('\0', "+"))
        .collect();
    args.join(" ")
}

#[test]
fn disks_join_the_path_after_them() {
    for (line, wanted) in [
        ("u ls disk1 disk2 disk3:/a", "u ls disk1+disk2+disk3:/a"),
        ("u tree -L 2 disk1 disk2:/", "u tree -L 2 disk1+disk2:/"),
        (
            "u subvolume list disk1 disk2:/",
            "u subvolume list disk1+disk2:/",
        ),
        (
            "u inspect-internal inode-resolve 257 disk1 disk2:/",
            "u inspect-internal inode-resolve 257 disk1+disk2:/",
        ),
        (
            "u subvolume diff disk1 disk2:/a disk1 disk2:/b",
            "u subvolume diff disk1+disk2:/a disk1+disk2:/b",
        ),
        ("u cp -a disk1 disk2:/a to", "u cp -a disk1+disk2:/a to"),
        (
            "u cat disk1 disk2:/a disk3 disk4:/b",
            "u cat disk1+disk2:/a disk3+disk4:/b",
        ),
        ("u ls disk1 -l disk2:/", "u ls -l disk1+disk2:/"),
        ("u ls -- disk1 disk2:/", "u ls -- disk1+disk2:/"),
    ] {
        assert_eq!(joined(line), wanted, "{line}");
    }
}

#[test]
fn other_operands_stay_apart() {
    for line in [
        "u ls a.img b.img:/",
        "u ls disk1 a.img disk2:/",
        "u ls disk1 disk2",
        "u ls --device disk1 disk2:/",
        "u ls --device=disk1 disk2:/",
        "u cp disk1 a.img:/to",
        "u send -p disk1:/a disk2:/b",
        "u import disk1 a.img:/to",
        "u no-command disk1 disk2:/",
        "u mkfs disk1 disk2",
    ] {
        assert_eq!(joined(line), line);
    }
}

/// A look at a path in a mount whose server is stopped would wait for it.
#[test]
fn operands_without_a_path_after_them_are_not_looked_at() {
    for line in ["u umount /mnt", "u ls disk1 disk2", "u cat disk1:/a"] {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let is_part = |name: &OsStr| panic!("{line}: {} is looked at", name.display());
        assert_eq!(join_with(&definition(), args.clone(), 1, &is_part), args);
    }
}
