//! A device without a volume, or with an incomplete one, is never written, whatever it contained before.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use tempfile::TempDir;
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use ubtrfs_sim::fingerprint;
use zerocopy::{FromBytes, IntoBytes};

use crate::process::{fail, failure_of, location, succeed, ubtrfs};

const FIRST: u64 = SUPERBLOCK_OFFSETS[0];
const MIB: u64 = 1 << 20;

struct Place {
    dir: TempDir,
}

impl Place {
    /// Creates a folder with an intact volume of this size, with one file, and the files that commands need.
    fn new(mib: u64) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let place = Place { dir };
        fs::write(place.path("file"), b"contents").unwrap();
        let tar = Command::new("tar")
            .current_dir(place.dir.path())
            .args(["-cf", "tar", "file"])
            .status();
        assert!(tar.unwrap().success());
        let size = format!("{mib}M");
        let mut mkfs = ubtrfs();
        mkfs.args(["mkfs", "-q", "-b", &size])
            .arg(place.path("image"));
        assert!(mkfs.status().unwrap().success());
        succeed([
            "cp".as_ref(),
            place.path("file").as_os_str(),
            &location(&place.path("image"), "f"),
        ]);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn image(&self) -> PathBuf {
        self.path("image")
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(self.image()).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    /// Edits copies of the superblock, and keeps their checksums valid.
    fn edit(&self, copies: &[u64], edit: impl Fn(&mut Superblock)) {
        let mut options = File::options();
        let file = options.read(true).write(true).open(self.image()).unwrap();
        for &offset in copies {
            let mut bytes = vec![0; SUPERBLOCK_SIZE];
            file.read_exact_at(&mut bytes, offset).unwrap();
            let superblock = Superblock::mut_from_bytes(&mut bytes).unwrap();
            edit(superblock);
            superblock.seal();
            file.write_all_at(superblock.as_bytes(), offset).unwrap();
        }
    }

    /// Asserts that commands that write are refused with `reason`, and that nothing was written.
    fn assert_is_left_alone(&self, what: &str, reason: &str) {
        self.assert_refused(&["mkdir image:/d", "mount image ."], what, reason);
    }

    fn assert_refused(&self, commands: &[&str], what: &str, reason: &str) {
        let image = self.image();
        let file = File::options().write(true).open(&image).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
        drop(file);
        for words in commands {
            let args: Vec<&str> = words.split_whitespace().collect();
            let output = ubtrfs()
                .current_dir(self.dir.path())
                .args(&args)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let code = output.status.code();
            assert_eq!(code, Some(failure_of(&args)), "{what}: {words}: {said}");
            assert!(said.contains(reason), "{what}: {words}: {said}");
        }
        let modified = fs::metadata(&image).unwrap().modified().unwrap();
        assert_eq!(modified, UNIX_EPOCH, "{what}");
    }
}

const WRITERS: [&str; 17] = [
    "mkdir image:/d",
    "cp file image:/g",
    "cp image:/f image:/g",
    "import tar image:/",
    "rm image:/f",
    "mv image:/f image:/g",
    "ln image:/f image:/g",
    "touch image:/g",
    "truncate -s 5 image:/f",
    "chmod 600 image:/f",
    "chown 5 image:/f",
    "setfattr -n user.x -v y image:/f",
    "filesystem label image new",
    "property set image label new",
    "subvolume create image:/s",
    "subvolume snapshot image:/ image:/s",
    "mount image .",
];

const LINUX_PARTITION: &[u8] = b"\x83\0\0\0\0\x08\0\0\0\0\x10\0";

/// Signatures as other formats leave them, with the reported name.
type Marked = (&'static str, &'static [(u64, &'static [u8])]);

const MARKED: [Marked; 11] = [
    ("xfs", &[(0, b"XFSB")]),
    (
        "ext4",
        &[
            (1024, b"\x10\0\0\0\x10\0\0\0"),
            (1024 + 0x38, b"\x53\xef"),
            (1024 + 0x60, b"\x42"),
        ],
    ),
    ("swap", &[(4086, b"SWAPSPACE2")]),
    ("LVM2_member", &[(512, b"LABELONE"), (536, b"LVM2 001")]),
    ("crypto_LUKS", &[(0, b"LUKS\xba\xbe")]),
    ("linux_raid_member", &[(4096, b"\xfc\x4e\x2b\xa9\x01")]),
    (
        "zfs_member",
        &[
            (128 << 10, b"\x0c\xb1\xba\0\0\0\0\0"),
            (129 << 10, b"\x0c\xb1\xba\0\0\0\0\0"),
            (130 << 10, b"\x0c\xb1\xba\0\0\0\0\0"),
            (131 << 10, b"\x0c\xb1\xba\0\0\0\0\0"),
        ],
    ),
    ("ntfs", &[(3, b"NTFS    "), (510, b"\x55\xaa")]),
    (
        "bcachefs",
        &[(
            4120,
            b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        )],
    ),
    ("gpt", &[(512, b"EFI PART")]),
    ("dos", &[(446 + 4, LINUX_PARTITION), (510, b"\x55\xaa")]),
];

#[test]
fn device_that_holds_something_else_by_now_is_not_written() {
    for (name, marks) in MARKED {
        let place = Place::new(128);
        place.write(FIRST, &[0; SUPERBLOCK_SIZE]);
        for (offset, mark) in marks {
            place.write(*offset, mark);
        }
        let reason = format!("({name})");
        match name {
            "xfs" => place.assert_refused(&WRITERS, name, &reason),
            _ => place.assert_is_left_alone(name, &reason),
        }
        fail(["ls".as_ref(), place.image().as_os_str()], name);
        fail(["check".as_ref(), place.image().as_os_str()], name);
    }
}

/// After `mkswap` the superblock of btrfs is still there, unless it was wiped.
#[test]
fn volume_with_the_mark_of_something_else_is_not_written() {
    for (name, marks) in MARKED {
        if ["gpt", "dos"].contains(&name) {
            // In front of a boot loader.
            continue;
        }
        let place = Place::new(128);
        for (offset, mark) in marks {
            place.write(*offset, mark);
        }
        place.assert_is_left_alone(name, &format!("({name})"));
        // Reading is still possible, as in the kernel. mount(8) refuses to choose between the two.
        succeed(["ls".as_ref(), place.image().as_os_str()]);
    }
}

#[test]
fn device_without_a_good_first_superblock_is_not_written() {
    let rollback = |place: &Place| {
        place.edit(&[SUPERBLOCK_OFFSETS[1]], |sb| {
            sb.generation = (sb.generation.get() - 1).into();
        });
        place.write(FIRST + 500, b"x");
    };
    type Edit<'a> = (&'a str, &'a str, &'a dyn Fn(&Place));
    let edits: [Edit<'_>; 8] = [
        ("wipefs", "is not a btrfs device", &|place| {
            place.write(FIRST + 64, &[0; 8])
        }),
        ("zeros", "is not a btrfs device", &|place| {
            place.write(FIRST, &[0; SUPERBLOCK_SIZE])
        }),
        ("damage", "csum", &|place| place.write(FIRST + 500, b"x")),
        ("copy 1 is older", "may be of an earlier state", &rollback),
        ("stripesize", "stripesize 3000", &|place| {
            place.edit(&[FIRST], |sb| sb.stripesize = 3000.into())
        }),
        ("leafsize", "leafsize 4096", &|place| {
            place.edit(&[FIRST], |sb| sb.unused_leafsize = 4096.into())
        }),
        ("num_devices", "num_devices is 0", &|place| {
            place.edit(&[FIRST], |sb| sb.num_devices = 0.into())
        }),
        ("system chunks", "system chunk array", &|place| {
            place.edit(&[FIRST], |sb| sb.sys_chunk_array_size = 96.into())
        }),
    ];
    for (what, reason, edit) in edits {
        let place = Place::new(128);
        edit(&place);
        match what {
            "wipefs" => place.assert_refused(&WRITERS, what, reason),
            _ => place.assert_is_left_alone(what, reason),
        }
        place.assert_is_left_alone(what, "rescue=usebackuproot");
        fail(["ls".as_ref(), place.image().as_os_str()], reason);
        fail(
            ["ls".as_ref(), place.image().as_os_str()],
            "copy 1 at 67108864",
        );
        // The suggested command works after wipefs, unlike `super-recover`.
        fail(
            ["ls".as_ref(), place.image().as_os_str()],
            "'btrfs-select-super -s 1'",
        );
    }
}

#[test]
fn volume_that_its_devices_do_not_hold_is_not_written() {
    let place = Place::new(128);
    let file = File::options().write(true).open(place.image()).unwrap();
    file.set_len(100 * MIB).unwrap();
    drop(file);
    place.assert_is_left_alone("shrunk", "truncated");

    let place = Place::new(128);
    place.edit(&[FIRST], |sb| {
        sb.total_bytes = (sb.total_bytes.get() - 4096).into();
    });
    place.assert_is_left_alone("total_bytes", "fix-device-size");
    let listed = ubtrfs().arg("ls").arg(place.image()).output().unwrap();
    assert_eq!(listed.stdout, b"f\n");
}

/// The device item in the superblock differs from the one in the chunk tree.
#[test]
fn device_that_claims_another_number_is_not_written() {
    let edits: [fn(&mut Superblock); 2] = [
        |sb| sb.dev_item.devid = 2.into(),
        |sb| sb.dev_item.uuid.0[0] ^= 1,
    ];
    for edit in edits {
        let place = Place::new(128);
        place.edit(&[FIRST], edit);
        place.assert_is_left_alone("device item", "is missing");
    }
}

/// Runs the programs that create the formats above, if they are installed.
#[test]
fn devices_that_other_programs_have_marked_are_not_written() {
    for (program, options, reason) in [
        ("mkfs.xfs", "-q -f", "(xfs)"),
        ("mkfs.ext4", "-q -F", "(ext4)"),
        ("mkswap", "-q -f", "(swap)"),
        ("wipefs", "-q -a", "rescue=usebackuproot"),
        ("sfdisk", "-q --wipe always", "(gpt)"),
    ] {
        let place = Place::new(512);
        let mut command = Command::new(program);
        command
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .args(options.split_whitespace())
            .arg(place.image());
        if program == "sfdisk" {
            fs::write(place.path("script"), "label: gpt\n,\n").unwrap();
            command.stdin(File::open(place.path("script")).unwrap());
        }
        let Ok(output) = command.output() else {
            ubtrfs_sim::skip_optional(format_args!("no {program}"));
            continue;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {said}");
        place.assert_is_left_alone(program, reason);
        if program.starts_with("mkfs") || program == "mkswap" {
            let mut mkfs = ubtrfs();
            mkfs.args(["mkfs", "-q"]).arg(place.image());
            let refused = mkfs.output().unwrap();
            assert_eq!(refused.status.code(), Some(1));
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(
                said.contains(reason) && said.contains("use the -f"),
                "{said}"
            );
        }
        assert_volume_is_made(&place.image());
    }
}

fn assert_volume_is_made(image: &Path) {
    let mut mkfs = ubtrfs();
    mkfs.args(["mkfs", "-q", "-f"]).arg(image);
    assert!(mkfs.status().unwrap().success());
    succeed(["mkdir".as_ref(), location(image, "d").as_os_str()]);
}

#[test]
fn copy_of_a_superblock_is_read_by_a_mount_that_asks_for_it() {
    if !ubtrfs_sim::is_root_or_skip() || !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    let place = Place::new(128);
    place.write(FIRST, &[0; SUPERBLOCK_SIZE]);
    let before = fingerprint(&place.image()).unwrap();
    let point = place.path("point");
    fs::create_dir(&point).unwrap();
    let mount = |options: &str| {
        let mut mount = ubtrfs();
        mount.args(["mount", "-o", options]);
        mount.arg(place.image()).arg(&point).output().unwrap()
    };
    for options in ["rescue=usebackuproot", "ro", "ro,rescue=ibadroots"] {
        assert_eq!(mount(options).status.code(), Some(1), "{options}");
    }
    let mounted = mount("ro,rescue=usebackuproot");
    let said = String::from_utf8_lossy(&mounted.stderr);
    assert!(mounted.status.success(), "{said}");
    assert_eq!(fs::read(point.join("f")).unwrap(), b"contents");
    succeed(["umount".as_ref(), point.as_os_str()]);
    assert_eq!(fingerprint(&place.image()).unwrap(), before);
}
