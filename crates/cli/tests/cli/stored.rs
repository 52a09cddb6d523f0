//! Mount options determine the on-disk contents as on the kernel's mount. This includes options set by a
//! remount.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use ubtrfs_sim::kernel::{KernelVolume, or_skip};
use ubtrfs_sim::{Rng, Scratch, is_root_or_skip};

use crate::mounted::Mounted;
use crate::process::{empty_volume, fail, location, succeed, ubtrfs};

/// Returns words that compress well, and better at a higher level.
fn words(bytes: usize) -> Vec<u8> {
    let text = [
        include_str!("callers.rs"),
        include_str!("copies.rs"),
        include_str!("edits.rs"),
        include_str!("imports.rs"),
        include_str!("listings.rs"),
        include_str!("mounted.rs"),
        include_str!("subvolumes.rs"),
    ];
    text.concat().bytes().cycle().take(bytes).collect()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(2);
    (0..bytes).map(|_| rng.below(256) as u8).collect()
}

/// Creates one file of each kind that options treat differently.
fn play(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let write = |name: &str, parts: &[&[u8]]| {
        let mut file = File::create(dir.join(name)).unwrap();
        for part in parts {
            file.write_all(part).unwrap();
            file.sync_all().unwrap();
        }
    };
    let text = words(256 << 10);
    write("text", &[&text]);
    write("mixed", &[&noise(128 << 10), &text[..128 << 10]]);
    write("short", &[&text[..1000]]);
    write("page", &[&text[..3000]]);
}

/// Returns the lines of a tree's dump.
fn dump(image: &Path, tree: &str) -> Vec<String> {
    let args = ["inspect-internal", "dump-tree", "-t", tree];
    let args = args.iter().map(OsString::from).chain([image.into()]);
    let text = String::from_utf8(succeed(args)).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

/// Returns a volume that is mounted with options and, if there are any, remounted with others.
fn mounted_and_remounted(options: &str, remounted: &str) -> Option<Mounted> {
    let mounted = Mounted::new(options, |_| {})?;
    if !remounted.is_empty() {
        remount(&mounted, remounted);
    }
    Some(mounted)
}

/// Returns the files of a volume as they are on disk: names, flags, and extents.
fn stored(image: &Path) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for line in dump(image, "5") {
        if let Some(start) = line.find(" flags 0x")
            && line.starts_with("sequence")
        {
            files.push(line[start..].to_owned());
        }
        let Some(file) = files.last_mut() else {
            continue;
        };
        if let Some(name) = line
            .split_once("name: ")
            .filter(|_| line.starts_with("index"))
        {
            file.insert_str(0, name.1);
        }
        if line.starts_with("inline extent data") {
            let compression = line.split(" compression ").nth(1).unwrap();
            file.push_str(&format!(" inline {compression}"));
        }
        if let Some(compression) = line.strip_prefix("extent compression ") {
            file.push_str(&format!(" regular {compression}"));
        }
    }
    let csums = dump(image, "csum");
    let mut csums = csums.iter();
    let has_csums = csums.any(|line| line.contains("EXTENT_CSUM EXTENT_CSUM"));
    files.push(format!("checksums: {has_csums}"));
    files
}

/// Returns the bytes on disk of a volume's data.
fn data_bytes(image: &Path) -> u64 {
    let dump = dump(image, "5");
    let extents = dump.iter().filter_map(|line| {
        let (_, nr) = line
            .strip_prefix("extent data disk byte ")?
            .split_once(" nr ")?;
        nr.parse::<u64>().ok()
    });
    extents.sum()
}

const OPTIONS: [&str; 16] = [
    "",
    "compress",
    "compress=zlib:9",
    "compress=lzo",
    "compress=zstd:3",
    "compress-force",
    "compress-force=zstd:1",
    "compress=zstd,compress=no",
    "nodatacow",
    "nodatasum",
    "nodatacow,datacow",
    "nodatacow,datasum",
    "compress=zstd,nodatacow",
    "nodatacow,compress=lzo",
    "compress=no,max_inline=0",
    "compress=no,max_inline=4000",
];

#[test]
fn options_store_files_as_on_the_kernels_mount() {
    if !or_skip("options_store_files_as_on_the_kernels_mount") {
        return;
    }
    for options in OPTIONS {
        let Some(mounted) = Mounted::new(&format!("rw,{options}"), |_| {}) else {
            return;
        };
        play(&mounted.dir.join("dir"));
        mounted.unmount();
        let (scratch, image) = empty_volume();
        let theirs = KernelVolume::of_files(vec![image.clone()], scratch);
        let mount = theirs.mount(options).unwrap();
        play(&mount.path().join("dir"));
        mount.unmount().unwrap();
        assert_eq!(stored(&mounted.image), stored(&image), "-o {options}");
    }
}

#[test]
fn options_of_a_remount_store_files_as_on_the_kernels_mount() {
    if !or_skip("options_of_a_remount_store_files_as_on_the_kernels_mount") {
        return;
    }
    let Some(mounted) = Mounted::new("rw", |_| {}) else {
        return;
    };
    let (scratch, image) = empty_volume();
    let theirs = KernelVolume::of_files(vec![image.clone()], scratch);
    let mount = theirs.mount("").unwrap();
    for (number, options) in OPTIONS
        .iter()
        .filter(|options| !options.is_empty())
        .enumerate()
    {
        let name = format!("{number}");
        remount(&mounted, options);
        play(&mounted.dir.join(&name));
        mount.remount(options).unwrap();
        play(&mount.path().join(&name));
    }
    mounted.unmount();
    mount.unmount().unwrap();
    assert_eq!(stored(&mounted.image), stored(&image));
}

/// Changes options of a mount, and asserts that nothing is printed.
pub(crate) fn remount(mounted: &Mounted, options: &str) {
    let words = format!("remount,{options}");
    let args = ["mount".into(), "-o".into(), words.into()];
    let args: Vec<OsString> = args
        .into_iter()
        .chain([mounted.dir.clone().into()])
        .collect();
    succeed(args);
}

#[test]
fn levels_are_those_asked_for() {
    for algorithm in ["zlib", "zstd"] {
        let [fast, small] = [1, 9].map(|level| {
            let options = format!("rw,compress-force={algorithm}:{level}");
            let mounted = Mounted::new(&options, |_| {})?;
            fs::write(mounted.dir.join("text"), words(128 << 10)).unwrap();
            mounted.unmount();
            Some(data_bytes(&mounted.image))
        });
        let (Some(fast), Some(small)) = (fast, small) else {
            return;
        };
        assert!(small < fast, "{algorithm}: {small} bytes, {fast} before");
    }
}

/// Copies the image as a power cut would leave it.
fn cut(mounted: &Mounted) -> (Scratch, std::path::PathBuf) {
    let scratch = Scratch::new().unwrap();
    let copy = scratch.path().join("cut.img");
    let mut cp = Command::new("cp");
    cp.arg("--sparse=always").arg(&mounted.image).arg(&copy);
    assert!(cp.status().unwrap().success());
    (scratch, copy)
}

/// Returns the content that a file would have after a power cut. Returns None if even its name is lost.
fn left(mounted: &Mounted, name: &str) -> Option<Vec<u8>> {
    let (_scratch, image) = cut(mounted);
    let read = ubtrfs().arg("cat").arg(location(&image, name)).output();
    let read = read.unwrap();
    read.status.success().then_some(read.stdout)
}

#[test]
fn all_files_are_written_with_one_that_is_synced_if_that_is_asked_for() {
    for (options, remounted, is_flushed) in [
        ("rw,commit=300,notreelog", "", false),
        ("rw,commit=300,notreelog,flushoncommit", "", true),
        ("rw,commit=300,notreelog", "flushoncommit", true),
        (
            "rw,commit=300,notreelog,flushoncommit",
            "noflushoncommit",
            false,
        ),
    ] {
        let Some(mounted) = mounted_and_remounted(options, remounted) else {
            return;
        };
        let text = words(64 << 10);
        fs::write(mounted.dir.join("buffered"), &text).unwrap();
        let synced = File::create(mounted.dir.join("synced")).unwrap();
        synced.write_all_at(b"synced", 0).unwrap();
        synced.sync_all().unwrap();
        assert_eq!(left(&mounted, "synced").unwrap(), b"synced");
        let buffered = left(&mounted, "buffered").unwrap();
        assert_eq!(buffered == text, is_flushed, "{options} {remounted}");
    }
}

#[test]
fn each_write_is_durable_with_sync() {
    for (options, remounted, is_durable) in [
        ("rw,commit=300", "", false),
        ("rw,commit=300,sync", "", true),
        ("rw,commit=300", "sync", true),
    ] {
        // The kernel keeps the flag.
        if remounted == "sync" && !is_root_or_skip() {
            continue;
        }
        let Some(mounted) = mounted_and_remounted(options, remounted) else {
            return;
        };
        let mut file = File::create(mounted.dir.join("file")).unwrap();
        file.write_all(b"durable").unwrap();
        let is_there = left(&mounted, "file").is_some_and(|found| found == b"durable");
        assert_eq!(is_there, is_durable, "{options} {remounted}");
    }
}

fn generation(image: &Path) -> u64 {
    let mut block = vec![0; SUPERBLOCK_SIZE];
    let file = File::open(image).unwrap();
    file.read_exact_at(&mut block, SUPERBLOCK_OFFSETS[0])
        .unwrap();
    Superblock::from_block(&block).unwrap().transid().0
}

#[test]
fn commits_come_at_the_interval_that_is_asked_for() {
    for (options, remounted) in [("rw,commit=1", ""), ("rw,commit=300", "commit=1")] {
        let Some(mounted) = Mounted::new(options, |_| {}) else {
            return;
        };
        File::create(mounted.dir.join("file")).unwrap();
        let before = generation(&mounted.image);
        if !remounted.is_empty() {
            remount(&mounted, remounted);
        }
        let begun = Instant::now();
        while generation(&mounted.image) == before {
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(25), "-o {options} {remounted}");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(left(&mounted, "file").is_some());
    }
}

#[test]
fn acls_count_for_nothing_with_noacl() {
    let name = "system.posix_acl_access";
    // The owner may read and write; all others have no permissions.
    let acl = [2, 0, 0, 0].into_iter().chain(
        [(1u8, 6u8), (4, 0), (0x20, 0)]
            .into_iter()
            .flat_map(|(tag, rights)| [tag, 0, rights, 0, 0xff, 0xff, 0xff, 0xff]),
    );
    let acl: Vec<u8> = acl.collect();
    for (options, counts) in [("rw", true), ("rw,noacl", false), ("rw,noacl,acl", true)] {
        let Some(mounted) = Mounted::new(options, |_| {}) else {
            return;
        };
        let file = mounted.dir.join("file");
        File::create(&file).unwrap();
        let outcome = xattr::set(&file, name, &acl).map_err(|error| error.raw_os_error());
        let refused = Err(Some(rustix::io::Errno::OPNOTSUPP.raw_os_error()));
        assert_eq!(
            outcome,
            if counts { Ok(()) } else { refused },
            "-o {options}"
        );
    }
}

#[test]
fn a_volume_without_one_of_its_devices_is_mounted_with_degraded() {
    let scratch = Scratch::new().unwrap();
    let devices = ["a.img", "b.img"].map(|name| scratch.path().join(name));
    for device in &devices {
        File::create(device).unwrap().set_len(512 << 20).unwrap();
    }
    let made = ["mkfs", "-q", "-d", "raid1", "-m", "raid1"].map(OsString::from);
    succeed(made.into_iter().chain(devices.iter().map(OsString::from)));
    let mount = |options: &str| -> Vec<OsString> {
        let dir = scratch.path().join("mnt");
        vec![
            "mount".into(),
            "-o".into(),
            options.into(),
            devices[0].clone().into(),
            dir.into(),
        ]
    };
    let dir = scratch.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    if !ubtrfs_sim::has_fuse_or_skip() {
        return;
    }
    let both = format!("rw,transport=classic,device={}", devices[1].display());
    succeed(mount(&both));
    fs::write(dir.join("file"), b"on both").unwrap();
    succeed(["umount".as_ref(), dir.as_os_str()]);
    fs::remove_file(&devices[1]).unwrap();
    fail(mount("ro"), "");
    let mounted = ubtrfs()
        .args(mount("ro,transport=classic,degraded"))
        .status()
        .unwrap();
    assert!(mounted.success());
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"on both");
    succeed(["umount".as_ref(), dir.as_os_str()]);
}

#[test]
fn a_free_space_tree_is_made_anew_with_clear_cache() {
    let Some(mounted) = Mounted::new("rw", |_| {}) else {
        return;
    };
    fs::write(mounted.dir.join("file"), noise(3 << 20)).unwrap();
    mounted.unmount();
    let blocks = |image: &Path| {
        let lines = dump(image, "free-space").into_iter();
        let leaves = lines.filter(|line| line.starts_with("leaf "));
        leaves.collect::<Vec<_>>()
    };
    let before = (generation(&mounted.image), blocks(&mounted.image));
    mounted.mount("rw,noatime");
    mounted.unmount();
    assert_eq!((generation(&mounted.image), blocks(&mounted.image)), before);
    mounted.mount("ro,clear_cache");
    mounted.unmount();
    assert_eq!((generation(&mounted.image), blocks(&mounted.image)), before);
    // The new tree is as good as the previous one, so nothing else changes.
    mounted.mount("rw,noatime,clear_cache");
    mounted.unmount();
    // Opening the volume waits for the last commit.
    assert_ne!(blocks(&mounted.image), before.1);
    assert!(generation(&mounted.image) > before.0);
    mounted.mount("rw,clear_cache");
    fs::write(mounted.dir.join("more"), noise(3 << 20)).unwrap();
    fs::remove_file(mounted.dir.join("file")).unwrap();
    mounted.unmount();
    let checked = ubtrfs().arg("check").arg(&mounted.image).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    if or_skip("btrfs check of a free-space tree made anew") {
        crate::process::judge(&mounted.image);
    }
}
