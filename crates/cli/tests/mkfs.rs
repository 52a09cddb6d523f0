//! `ubtrfs mkfs` as a process: its volumes, output and refusals. The expected texts come from mkfs.btrfs
//! 6.14.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use ubtrfs_sim::kernel::{self, KernelMount, LoopDevice};
use ubtrfs_sim::{Scratch, fingerprint};

struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

/// A folder for images.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        Place { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn image(&self, name: &str, mib: u64) {
        let file = fs::File::create(self.path(name)).unwrap();
        file.set_len(mib << 20).unwrap();
    }

    /// Runs in the folder, so that messages have short paths.
    fn mkfs(&self, words: &str) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ubtrfs"));
        command.arg("mkfs").args(words.split_whitespace());
        self.run(command)
    }

    fn run(&self, mut command: Command) -> Run {
        let output = command.current_dir(self.dir.path()).output().unwrap();
        Run {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The parts of a summary that vary from run to run.
const UUID: &str = "11111111-2222-3333-4444-555555555555";
const DEVICE_UUID: &str = "66666666-7777-8888-9999-aaaaaaaaaaaa";

#[test]
fn summary_has_the_layout_of_mkfs_btrfs() {
    let place = Place::new();
    place.image("v.img", 1024);
    let run = place.mkfs(&format!(
        "-L test -U {UUID} --device-uuid {DEVICE_UUID} --csum xxhash v.img"
    ));
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    let page = rustix::param::page_size();
    let expected = format!(
        "Label:              test
UUID:               {UUID}
Device UUID:        {DEVICE_UUID}
Node size:          16384
Sector size:        4096\t(CPU page size: {page})
Filesystem size:    1.00GiB
Block group profiles:
  Data:             single            8.00MiB
  Metadata:         DUP              51.19MiB
  System:           DUP               8.00MiB
SSD detected:       no
Zoned device:       no
Features:           extref, skinny-metadata, no-holes, free-space-tree, block-group-tree
Checksum:           xxhash64
Number of devices:  1
Devices:
   ID        SIZE  PATH
    1     1.00GiB  v.img

"
    );
    assert_eq!(run.out, expected);
}

#[test]
fn quiet_says_nothing_at_all() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.image(name, 300);
    }
    let run = place.mkfs("-q -d raid5 -m raid1 a b c");
    assert_eq!(
        (run.code, run.out.as_str(), run.err.as_str()),
        (Some(0), "", "")
    );
}

#[test]
fn warnings_go_to_standard_error() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.image(name, 300);
    }
    let run = place.mkfs("-d raid6 -m raid1c3 a b c");
    assert_eq!(run.code, Some(0));
    assert!(
        run.err
            .contains("WARNING: RAID5/6 support has known problems")
    );
    assert!(
        run.err
            .contains("WARNING: RAID6 is not recommended on filesystem with 3 devices only")
    );
    assert!(run.out.contains("\n    3   300.00MiB  c\n"));
}

#[test]
fn root_directory_belongs_to_the_user_that_makes_the_volume() {
    let place = Place::new();
    let program =
        ubtrfs_sim::share_program(env!("CARGO_BIN_EXE_ubtrfs"), place.dir.path()).unwrap();
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(place.dir.path(), open).unwrap();
    let make = |words: &str, user: Option<u32>| {
        let _ = fs::remove_file(place.path("v.img"));
        let mut command = Command::new(&program);
        command.args(["mkfs", "-q", "-b", "128M"]);
        command.args(words.split_whitespace()).arg("v.img");
        if let Some(id) = user {
            command.uid(id).gid(id);
        }
        let made = place.run(command);
        assert_eq!((made.code, &*made.err), (Some(0), ""), "{words}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ubtrfs"));
        command.args(["ls", "-lnd", "v.img:/"]);
        let listed = place.run(command).out;
        let fields: Vec<&str> = listed.split_whitespace().collect();
        (fields[2].to_owned(), fields[3].to_owned())
    };
    let ids = |uid: u32, gid: u32| (uid.to_string(), gid.to_string());
    let own = fs::metadata(place.dir.path()).unwrap();
    let runs = if own.uid() == 0 {
        (0, 0)
    } else {
        (own.uid(), own.gid())
    };
    assert_eq!(make("", None), ids(runs.0, runs.1));
    assert_eq!(make("--root-owner 1000:1001", None), ids(1000, 1001));
    assert_eq!(make("--root-owner root:root", None), ids(0, 0));
    assert_eq!(make("--root-owner :7", None), ids(runs.0, 7));
    if own.uid() == 0 {
        assert_eq!(make("", Some(65534)), ids(65534, 65534));
        assert_eq!(make("--root-owner 0:0", Some(65534)), ids(0, 0));
    } else {
        ubtrfs_sim::skip("not root: no volume is made by another user");
    }
}

#[test]
fn image_that_becomes_larger_than_requested_is_reported() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    let least = 114_294_784;
    let small = place.mkfs("-b 10M --rootdir tree v.img");
    assert_eq!(small.code, Some(0), "{}", small.err);
    let warning =
        format!("size 10485760 is too small for this volume: the image has {least} bytes");
    assert!(small.err.contains(&warning), "{}", small.err);
    assert_eq!(fs::metadata(place.path("v.img")).unwrap().len(), least);
    let enough = place.mkfs("-f -b 200M --rootdir tree v.img");
    assert_eq!((enough.code, &*enough.err), (Some(0), ""));
    let empty = place.mkfs("-b 10M w.img");
    assert_eq!(empty.code, Some(1));
    assert!(
        empty
            .err
            .contains("size 10485760 is too small to make a usable filesystem")
    );
}

#[test]
fn existing_file_system_is_overwritten_only_with_force() {
    let place = Place::new();
    place.image("v.img", 256);
    assert_eq!(place.mkfs("-q v.img").code, Some(0));
    let before = fingerprint(&place.path("v.img")).unwrap();
    let run = place.mkfs("-q v.img");
    assert_eq!(run.code, Some(1));
    assert_eq!(
        run.err,
        "ERROR: v.img appears to contain an existing filesystem (btrfs)\n\
         ERROR: use the -f option to force overwrite of v.img\n"
    );
    assert_eq!(fingerprint(&place.path("v.img")).unwrap(), before);
    assert_eq!(place.mkfs("-q -f v.img").code, Some(0));
}

/// The volume is the first part of the image: every other reader finds the signature at the end.
#[test]
fn signature_at_the_end_is_refused_and_wiped_with_force() {
    let place = Place::new();
    place.image("v.img", 256);
    let file = fs::File::options().write(true).open(place.path("v.img"));
    let raid = b"\xfc\x4e\x2b\xa9\x01\0\0\0";
    let at = (256 << 20) - 8192;
    file.unwrap().write_all_at(raid, at).unwrap();
    let run = place.mkfs("-q -b 128M v.img");
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("(linux_raid_member)"), "{}", run.err);
    assert_eq!(place.mkfs("-q -f -b 128M v.img").code, Some(0));
    let file = fs::File::open(place.path("v.img")).unwrap();
    let mut left = [1; 4];
    file.read_exact_at(&mut left, at).unwrap();
    assert_eq!(left, [0; 4]);
}

/// Returns the name that blkid(8) prints for an image. Returns None without blkid, or if blkid does not
/// recognize the format.
fn by_blkid(image: &std::path::Path) -> Option<String> {
    let mut blkid = Command::new("/usr/sbin/blkid");
    let args = ["-p", "-o", "export"];
    let output = blkid.args(args).arg(image).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = |key: &str| said.lines().find_map(|line| line.strip_prefix(key));
    let name = value("TYPE=").or(value("PTTYPE="))?;
    Some(name.to_owned())
}

/// Uses the formats that mkfs.btrfs refuses through blkid's library, and virtual disks.
#[test]
fn other_formats_are_overwritten_only_with_force() {
    const LEN: u64 = 32 << 20;
    let sgi = [
        &b"\x0b\xe5\xa9\x41"[..],
        &0x0be5_a941_u32.wrapping_neg().to_be_bytes(),
    ]
    .concat();
    type Placed<'a> = (u64, &'a [u8]);
    let raw: [(&str, &[Placed<'_>]); 19] = [
        ("bfs", &[(0, b"\xce\xfa\xad\x1b")]),
        ("hfs", &[(1024, b"BD"), (1024 + 20, b"\0\0\x10\0")]),
        ("ufs", &[(8192 + 0x55c, b"\x54\x19\x01\0")]),
        ("ufs", &[(65536 + 0x55c, b"\x19\x01\x54\x19")]),
        ("oracleasm", &[(32, b"ORCLDISK")]),
        ("ReFS", &[(0, b"\0\0\0ReFS\0")]),
        ("DM_snapshot_cow", &[(0, b"SnAp")]),
        ("nss", &[(0x1000, b"SPB5")]),
        ("ubi", &[(0, b"UBI#")]),
        ("ubifs", &[(0, b"\x31\x18\x10\x06")]),
        ("LVM1_member", &[(0, b"HM\x01\0")]),
        ("vxfs", &[(1024, b"\xf5\xfc\x01\xa5")]),
        ("sgi", &[(0, &sgi)]),
        ("sun", &[(508, b"\xda\xbe\xda\xbe")]),
        (
            "promise_fasttrack_raid_member",
            &[(LEN - 63 * 512, b"Promise Technology, Inc.")],
        ),
        ("qcow2", &[(0, b"QFI\xfb")]),
        ("vmdk", &[(0, b"KDMV")]),
        ("vhdx", &[(0, b"vhdxfile")]),
        ("vdi", &[(0x40, b"\x7f\x10\xda\xbe")]),
    ];
    let place = Place::new();
    let image = place.path("v.img");
    let refuse = |name: &str| {
        if let Some(known) = by_blkid(&image) {
            assert_eq!(known, name);
        }
        let before = fingerprint(&image).unwrap();
        let run = place.mkfs("-q -M v.img");
        assert_eq!(run.code, Some(1), "{name}");
        assert!(
            run.err.contains(&format!("({name})")),
            "{name}: {}",
            run.err
        );
        assert_eq!(fingerprint(&image).unwrap(), before, "{name}");
    };
    for (name, marks) in raw {
        place.image("v.img", LEN >> 20);
        let file = fs::File::options().write(true).open(&image).unwrap();
        for (at, bytes) in marks {
            file.write_all_at(bytes, *at).unwrap();
        }
        refuse(name);
    }
    // Formats as created by the tools of this machine.
    for (formatter, name) in [
        (&["mkfs.minix", "-1"][..], "minix"),
        (&["mkfs.minix", "-2"], "minix"),
        (&["mkfs.minix", "-3"], "minix"),
        (&["mkfs.bfs"], "bfs"),
        (&["mkfs.ext4", "-q", "-O", "journal_dev"], "jbd"),
    ] {
        place.image("v.img", LEN >> 20);
        let mut made = Command::new(format!("/usr/sbin/{}", formatter[0]));
        let made = made.args(&formatter[1..]).arg(&image).output();
        if made.is_ok_and(|made| made.status.success()) {
            refuse(name);
        } else {
            ubtrfs_sim::skip(formatter[0]);
        }
    }
    assert_eq!(place.mkfs("-q -f -M v.img").code, Some(0));
}

#[test]
fn last_of_an_option_given_twice_counts() {
    let place = Place::new();
    let run =
        place.mkfs("-q -f -f -K -K -L a -L b -n 4096 -n 8192 -m dup -m single -b 1T -b 128M v.img");
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    let shown = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ubtrfs"));
        command.args(words.split_whitespace());
        let run = place.run(command);
        assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{words}");
        run.out
    };
    assert_eq!(shown("filesystem label v.img"), "b\n");
    assert!(shown("inspect-internal dump-super v.img").contains("nodesize\t\t8192"));
    for words in [
        "check --readonly --readonly -q -q v.img",
        "--format json --format text ls v.img",
        "subvolume list -p -p -o -o v.img",
        "cp -r -r --reflink=never --reflink=auto v.img:/ copy",
    ] {
        shown(words);
    }
    let usage = |units: &str| shown(&format!("filesystem usage {units} v.img"));
    for (units, alone) in [
        ("-b -h", "-h"),
        ("-h -b", "-b"),
        ("--iec --si", "--si"),
        ("--si --iec", "--iec"),
        ("-H -k -m", "--si -m"),
        ("-k -k", "-k"),
        ("-g --raw", "--raw"),
    ] {
        assert_eq!(usage(units), usage(alone), "{units}");
    }
    shown("subvolume create v.img:/s");
    shown("subvolume delete -c -C -C -c v.img:/s");
}

#[test]
fn image_and_device_that_are_in_use_are_not_overwritten_even_with_force() {
    if !kernel::or_skip("image_and_device_that_are_in_use_are_not_overwritten_even_with_force") {
        return;
    }
    let place = Place::new();
    place.image("v.img", 256);
    assert_eq!(place.mkfs("-q v.img").code, Some(0));
    let image = fs::File::open(place.path("v.img")).unwrap();
    let fsid = || {
        let mut fsid = [0; 16];
        image.read_exact_at(&mut fsid, (64 << 10) + 32).unwrap();
        fsid
    };
    let before = fsid();
    let attached = LoopDevice::attach(&place.path("v.img")).unwrap();
    let refuse = |words: &str, reason: &str| {
        let run = place.mkfs(words);
        assert_eq!(run.code, Some(1), "{words}");
        assert!(run.err.contains(reason), "{words}: {}", run.err);
    };
    refuse("-q -f v.img", "attached to /dev/loop");
    let device = attached.path().to_path_buf();
    let mount = kernel::KernelMount::new(std::slice::from_ref(&device), "").unwrap();
    refuse(&format!("-q -f {}", device.display()), "mounted");
    // Another device of the same image is treated as mounted.
    let second = LoopDevice::attach(&place.path("v.img")).unwrap();
    let shown = second.path().display();
    let other = format!("attached to {}", device.display());
    refuse(&format!("-q -f {shown}"), &other);
    mount.unmount().unwrap();
    drop((attached, second));
    assert_eq!(fsid(), before);
}

#[test]
fn missing_image_is_made_with_the_size_asked_for() {
    let place = Place::new();
    assert_eq!(place.mkfs("-q -b 4T v.img").code, Some(0));
    let metadata = fs::metadata(place.path("v.img")).unwrap();
    assert_eq!(metadata.len(), 4 << 40);
    assert!(metadata.blocks() * 512 < 16 << 20);

    let run = place.mkfs("-q other.img");
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("other.img does not exist"));
    assert!(!place.path("other.img").exists());
}

#[test]
fn refusals_have_the_words_of_mkfs_btrfs_and_leave_no_trace() {
    let place = Place::new();
    place.image("v.img", 200);
    place.image("small", 100);
    for (words, error) in [
        (
            "-b 10M new",
            "size 10485760 is too small to make a usable filesystem",
        ),
        (
            "-b 10M new",
            "minimum size for a btrfs filesystem is 114294784",
        ),
        ("small", "'small' is too small to make a usable filesystem"),
        ("small", "minimum size for each btrfs device is 114294784"),
        (
            "-b 400M v.img",
            "v.img is smaller than requested size, expected 419430400, found 209715200",
        ),
        (
            "-d raid1 v.img",
            "unable to create FS with data profile RAID1 (have 1 devices but 2 devices are required)",
        ),
        ("-n 3000 v.img", "illegal nodesize 3000 (smaller than 4096)"),
        (
            "-n 128k v.img",
            "illegal nodesize 131072 (larger than 65536)",
        ),
        (
            "-n 6000 v.img",
            "illegal nodesize 6000 (not aligned to 4096)",
        ),
        (
            "-s 2048 v.img",
            "invalid sectorsize 2048, expected range is [4K, 64K]",
        ),
        (
            "-M -n 16k v.img",
            "illegal nodesize 16384 (not equal to 4096 for mixed block group)",
        ),
        (
            "-M -m dup v.img",
            "with mixed block groups data and metadata profiles must be the same",
        ),
        ("-O foo v.img", "unrecognized filesystem feature 'foo'"),
        (
            "-O zoned v.img",
            "filesystem feature 'zoned' is not supported",
        ),
        (
            "-O bgt,^no-holes v.img",
            "block group tree requires no-holes and free-space-tree features",
        ),
        ("-U xx v.img", "could not parse UUID: xx"),
        ("-d foo v.img", "unknown data profile foo"),
        ("--csum foo v.img", "unknown csum type foo"),
        (
            "-b foo new",
            "foo is not a valid numeric value with supported size suffixes",
        ),
        ("v.img v.img", "duplicate device v.img in the filesystem"),
        (".", "is a directory"),
        ("", "no device given"),
    ] {
        let run = place.mkfs(&format!("-q {words}"));
        assert_eq!(run.code, Some(1), "{words}");
        let mut errors = run.err.lines().filter(|line| line.starts_with("ERROR: "));
        let found = errors.any(|line| line.contains(error));
        assert!(found, "{words}: {}", run.err);
        assert_eq!(run.out, "", "{words}");
    }
    assert!(!place.path("new").exists());
    let blocks = fs::metadata(place.path("v.img")).unwrap().blocks();
    assert_eq!(blocks, 0, "it was written to");
}

#[test]
fn old_content_is_discarded_unless_disabled() {
    let place = Place::new();
    let fill = || fs::write(place.path("v.img"), vec![0xaa; 200 << 20]).unwrap();
    let allocated = || fs::metadata(place.path("v.img")).unwrap().blocks() * 512;
    fill();
    assert_eq!(place.mkfs("-q -K v.img").code, Some(0));
    assert!(allocated() >= 200 << 20);
    fill();
    assert_eq!(place.mkfs("-q v.img").code, Some(0));
    assert!(allocated() < 16 << 20);
}

#[test]
fn features_are_listed_without_a_device() {
    let place = Place::new();
    let run = place.mkfs("-O list-all");
    assert_eq!(run.code, Some(0));
    assert!(run.out.starts_with("Filesystem features available:\n"));
    for line in [
        "bgt                 - block-group-tree alias\n",
        "\nfree-space-tree     - ",
        "\nzoned               - ",
    ] {
        assert!(run.out.contains(line), "{line}");
    }
}

#[test]
fn link_named_mkfs_btrfs_is_this_command() {
    let place = Place::new();
    symlink(env!("CARGO_BIN_EXE_ubtrfs"), place.path("mkfs.btrfs")).unwrap();
    let mut command = Command::new(place.path("mkfs.btrfs"));
    command.args(["-q", "-b", "200M", "v.img"]);
    assert_eq!(place.run(command).code, Some(0));
    assert_eq!(place.mkfs("-q v.img").code, Some(1));
}

/// Returns the features of an image, as they are in the superblock.
fn features(place: &Place, image: &str) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ubtrfs"));
    command.args(["inspect-internal", "dump-super", image]);
    let shown = place.run(command).out;
    let flags = shown
        .lines()
        .filter(|line| line.starts_with("compat_ro_flags") || line.starts_with("incompat_flags"));
    flags.map(str::to_owned).collect()
}

#[test]
fn link_named_mkfs_btrfs_has_the_default_features_of_mkfs_btrfs() {
    let name = "link_named_mkfs_btrfs_has_the_default_features_of_mkfs_btrfs";
    let place = Place::new();
    let link = place.path("mkfs.btrfs");
    symlink(env!("CARGO_BIN_EXE_ubtrfs"), &link).unwrap();
    let make = |program: PathBuf, options: &str, image: &str| {
        place.image(image, 200);
        let mut command = Command::new(program);
        command
            .arg("-q")
            .args(options.split_whitespace())
            .arg(image);
        place.run(command).code
    };
    assert_eq!(make(link.clone(), "", "plain.img"), Some(0));
    let found = features(&place, "plain.img");
    // Only FREE_SPACE_TREE and FREE_SPACE_TREE_VALID.
    assert_eq!(found[0].split_whitespace().last(), Some("0x3"), "{found:?}");
    let ours = place.mkfs("-q -b 200M ours.img");
    assert_eq!(ours.code, Some(0));
    let found = features(&place, "ours.img");
    assert_eq!(found[0].split_whitespace().last(), Some("0xb"), "{found:?}");
    if Command::new("mkfs.btrfs")
        .arg("--version")
        .output()
        .is_err()
    {
        ubtrfs_sim::skip(format!("{name}: no mkfs.btrfs"));
        return;
    }
    for options in [
        "",
        "-M",
        "-O bgt",
        "-O ^bgt",
        "-O ^free-space-tree",
        "-O bgt,^no-holes",
        "-O ^no-holes -R free-space-tree",
        "-O quota",
    ] {
        let theirs = make("mkfs.btrfs".into(), options, "theirs.img");
        let ours = make(link.clone(), options, "ours.img");
        assert_eq!(ours, theirs, "{options}");
        if theirs == Some(0) {
            let theirs = features(&place, "theirs.img");
            assert_eq!(features(&place, "ours.img"), theirs, "{options}");
        }
    }
}

#[test]
fn kernel_mounts_a_volume_of_several_devices_by_one_of_them() {
    if !kernel::or_skip("kernel_mounts_a_volume_of_several_devices_by_one_of_them") {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let loops: Vec<LoopDevice> = ["a", "b", "c"]
        .iter()
        .map(|name| LoopDevice::attach(&scratch.file(name, 1 << 30).unwrap()).unwrap())
        .collect();
    let mkfs = Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
        .args(["mkfs", "-q", "-d", "raid5"])
        .args(loops.iter().map(LoopDevice::path))
        .status();
    assert!(mkfs.unwrap().success());
    let mount = KernelMount::new(&[loops[1].path().to_owned()], "").unwrap();
    mount.unmount().unwrap();
}
