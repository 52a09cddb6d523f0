//! Volumes with the marks of NAS makers: each is read like the same volume without marks, and nothing is written.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, Report, check};
use ubtrfs_device::{Access, BlockDevice, FileDevice};
use ubtrfs_format::item::{InodeFlags, Timespec};
use ubtrfs_fs::{
    Error, FileId, FileKind, NewInode, OpenOptions, Rescue, Result, SetAttr, Volume, XattrMode,
};
use ubtrfs_mkfs::{Identity, MkfsOptions, Plan};
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, or_skip};
use ubtrfs_sim::{Scratch, fingerprint, nas};

const DEVICE_BYTES: u64 = 256 << 20;

struct Image {
    _scratch: Scratch,
    path: PathBuf,
}

impl Image {
    /// Creates a volume with files, a subvolume, and a snapshot of it.
    fn new() -> Image {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().join("image");
        File::create(&path).unwrap().set_len(DEVICE_BYTES).unwrap();
        let mut options = MkfsOptions::default();
        options.features.apply_list("^block-group-tree").unwrap();
        let created = Timespec {
            sec: 1_700_000_000.into(),
            nsec: 0.into(),
        };
        let identity = Identity::random(1, created);
        let plan = Plan::new(&options, &identity, &[DEVICE_BYTES]).unwrap();
        let device = FileDevice::open(&path, Access::Write).unwrap();
        plan.write(&[&device as &dyn BlockDevice], false).unwrap();
        drop(device);
        let image = Image {
            _scratch: scratch,
            path,
        };
        let volume = image.open(true).unwrap();
        let top = top(&volume);
        fill(&volume, top).unwrap();
        let share = volume
            .create_subvolume(top, b"share", &NewInode::directory(0o755))
            .unwrap();
        fill(&volume, volume.root_dir(share).unwrap()).unwrap();
        volume.snapshot(share, top, b"before", true).unwrap();
        volume.close().unwrap();
        image
    }

    fn open(&self, writable: bool) -> Result<Arc<Volume>> {
        let options = OpenOptions::new()
            .writable(writable)
            .commit_interval(None)
            .cache_bytes(1 << 20);
        Volume::open(std::slice::from_ref(&self.path), &options)
    }

    fn fingerprint(&self) -> u64 {
        fingerprint(&self.path).unwrap()
    }
}

fn top(volume: &Volume) -> FileId {
    volume
        .root_dir(volume.default_subvolume().unwrap())
        .unwrap()
}

fn fill(volume: &Volume, dir: FileId) -> Result<()> {
    let data = volume.create(dir, b"Data.bin", &NewInode::file(0o644))?;
    volume.write(data, 0, &[7; 300_000])?;
    volume.write(data, 1 << 20, b"after a hole")?;
    let small = volume.create(dir, b"small", &NewInode::file(0o600))?;
    volume.write(small, 0, b"inline")?;
    volume.set_xattr(small, b"user.color", b"blue", XattrMode::Create)?;
    let nocow = volume.create(dir, b"nocow", &NewInode::file(0o600))?;
    volume.set_inode_flags(nocow, InodeFlags::NODATACOW)?;
    volume.write(nocow, 0, &[9; 8192])?;
    let sub = volume.create(dir, b"@eaDir", &NewInode::directory(0o755))?;
    volume.create(sub, b"empty", &NewInode::file(0o644))?;
    Ok(())
}

/// Returns the path, mode, size, times and contents of each file.
fn contents(volume: &Volume) -> Vec<String> {
    let mut found = Vec::new();
    collect(volume, top(volume), "", &mut found).unwrap();
    found
}

fn collect(volume: &Volume, dir: FileId, path: &str, found: &mut Vec<String>) -> Result<()> {
    let mut entries = Vec::new();
    volume.readdir(dir, 0, &mut |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    })?;
    for entry in entries {
        let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        let attr = volume.attr(entry.id)?;
        let mut line = format!("{path} {:o} {} {:?}", attr.mode, attr.size, attr.mtime);
        if entry.kind == FileKind::Regular {
            let mut bytes = vec![0; attr.size as usize];
            assert_eq!(volume.read(entry.id, 0, &mut bytes)?, bytes.len());
            let sum = bytes.iter().fold(0u64, |sum, byte| {
                sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
            });
            line += &format!(" {sum:x}");
        }
        found.push(line);
        if entry.kind == FileKind::Directory {
            collect(volume, entry.id, &path, found)?;
        }
    }
    Ok(())
}

/// Changes a volume in each way. Returns the errors.
fn changes(volume: &Volume) -> Vec<Error> {
    let dir = top(volume);
    let found = |name: &[u8]| volume.lookup(dir, name).unwrap().unwrap();
    let (data, nocow) = (found(b"Data.bin"), found(b"nocow"));
    let set = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    let subvolume = NewInode::directory(0o755);
    let outcomes = [
        volume.create(dir, b"new", &NewInode::file(0o644)).map(drop),
        volume
            .write(data, 0, b"changed")
            .and_then(|()| volume.sync()),
        volume
            .write(nocow, 0, b"changed")
            .and_then(|()| volume.sync()),
        volume.fsync(data).and_then(|()| volume.truncate(data, 5)),
        volume.set_attr(data, &set),
        volume.set_xattr(data, b"user.new", b"value", XattrMode::Any),
        volume.unlink(dir, b"small"),
        volume.link(data, dir, b"linked"),
        volume.create_subvolume(dir, b"sub", &subvolume).map(drop),
        volume.delete_subvolume(dir, b"before"),
    ];
    outcomes.into_iter().filter_map(Result::err).collect()
}

/// Checks that a volume with marks has these contents, and that nothing can be written.
fn check_reading_only(image: &Image, before: &[String], mark: &str) {
    let hash = image.fingerprint();
    let volume = image.open(false).unwrap();
    assert_eq!(contents(&volume), before, "{mark}");
    volume.close().unwrap();
    drop(volume);
    assert_eq!(image.fingerprint(), hash, "{mark}: reading writes nothing");
    match image.open(true) {
        Err(refused) => {
            assert!(matches!(refused, Error::Marked(_)), "{mark}: {refused}");
            assert!(refused.is_unwritable() && refused.is_write_protected());
            assert!(refused.to_string().contains("Synology DSM"), "{refused}");
        }
        // The mark is first read with the inode or extent that has it.
        Ok(volume) => {
            let refused = changes(&volume);
            assert_eq!(refused.len(), 10, "{mark}");
            for refused in refused {
                assert!(matches!(refused, Error::Marked(_)), "{mark}: {refused}");
            }
            let closed = volume.close();
            assert!(
                matches!(closed, Err(Error::Marked(_))),
                "{mark}: {closed:?}"
            );
        }
    }
    assert_eq!(image.fingerprint(), hash, "{mark}: nothing is written");
    let cleared = Volume::clear_log(
        std::slice::from_ref(&image.path),
        &OpenOptions::new().writable(true),
    );
    assert!(cleared.is_err() || image.fingerprint() == hash, "{mark}");
}

#[test]
fn volume_with_any_mark_is_only_read() {
    for mark in nas::names() {
        let image = Image::new();
        let before = contents(&image.open(false).unwrap());
        nas::put(&image.path, mark);
        check_reading_only(&image, &before, mark);
    }
}

#[test]
fn volume_with_all_marks_is_only_read() {
    let image = Image::new();
    let before = contents(&image.open(false).unwrap());
    nas::put_all(&image.path);
    check_reading_only(&image, &before, "all");
}

/// Damages all copies of a leaf in the middle of the root tree. Returns its place among the leaves, and their number.
fn damage_root_leaf(image: &Image) -> (usize, usize) {
    const NODE_BYTES: usize = 16 << 10;
    /// Places of fields in a block and in a pointer of an interior node.
    const BYTENR: usize = 48;
    const GENERATION: usize = 80;
    const POINTERS: usize = 101;
    const POINTER_BYTES: usize = 33;
    let mut bytes = std::fs::read(&image.path).unwrap();
    let number = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
    };
    let superblock = &bytes[64 << 10..][..4096];
    let (generation, root) = (number(superblock, 72), number(superblock, 80));
    let copies = |bytes: &[u8], bytenr: u64, generation: u64| -> Vec<usize> {
        let blocks = (0..bytes.len() - NODE_BYTES).step_by(4096);
        let is_it = |at: &usize| {
            number(bytes, at + BYTENR) == bytenr && number(bytes, at + GENERATION) == generation
        };
        blocks.filter(is_it).collect()
    };
    let root = copies(&bytes, root, generation)[0];
    assert_eq!(bytes[root + 100], 1, "leaves are below the root");
    let leaves = number(&bytes, root + 96) as u32 as usize;
    let pointer = root + POINTERS + leaves / 2 * POINTER_BYTES;
    let leaf = (number(&bytes, pointer + 17), number(&bytes, pointer + 25));
    let damaged = copies(&bytes, leaf.0, leaf.1);
    assert_eq!(damaged.len(), 2, "metadata is DUP");
    for at in damaged {
        bytes[at + 1000] ^= 1;
    }
    std::fs::write(&image.path, bytes).unwrap();
    (leaves / 2, leaves)
}

#[test]
fn marks_behind_a_damaged_leaf_of_the_root_tree_are_found() {
    let image = Image::new();
    let volume = image.open(true).unwrap();
    let mut last = None;
    for number in 0..200 {
        let name = format!("subvolume{number}");
        let made =
            volume.create_subvolume(top(&volume), name.as_bytes(), &NewInode::directory(0o755));
        last = Some(made.unwrap());
    }
    volume.close().unwrap();
    drop(volume);
    let unmarked = std::fs::read(&image.path).unwrap();
    nas::hide_subvolume(&image.path, last.unwrap().0);
    let (damaged, leaves) = damage_root_leaf(&image);
    assert!(damaged + 1 < leaves, "the mark is in a later leaf");
    let hash = image.fingerprint();
    let refused = image.open(true).unwrap_err();
    assert!(matches!(refused, Error::Marked(_)), "{refused}");
    assert_eq!(image.fingerprint(), hash);

    // The damage alone does not prevent writing.
    std::fs::write(&image.path, unmarked).unwrap();
    damage_root_leaf(&image);
    let volume = image.open(true).unwrap();
    volume
        .create(top(&volume), b"new", &NewInode::file(0o644))
        .unwrap();
    volume.close().unwrap();
}

/// The log is replayed in memory by a reader, and not at all by a writer.
#[test]
fn log_of_a_marked_volume_is_not_replayed_on_disk() {
    for mark in ["inode-user-quota", "root-quota-off", "compat"] {
        let image = Image::new();
        let volume = image.open(true).unwrap();
        let synced = volume
            .create(top(&volume), b"synced", &NewInode::file(0o644))
            .unwrap();
        volume.write(synced, 0, b"synced data").unwrap();
        volume.fsync(synced).unwrap();
        volume.shutdown(&Error::Closed);
        drop(volume);
        nas::put(&image.path, mark);
        let hash = image.fingerprint();
        let volume = image.open(false).unwrap();
        assert!(volume.superblock().has_log());
        assert!(volume.lookup(top(&volume), b"synced").unwrap().is_some());
        drop(volume);
        let refused = image.open(true).unwrap_err();
        assert!(matches!(refused, Error::Marked(_)), "{mark}: {refused}");
        assert_eq!(image.fingerprint(), hash, "{mark}");
    }
}

/// STORE-7: a transaction that is open when the first mark is read is not committed.
#[test]
fn changes_before_the_first_mark_are_not_committed() {
    let image = Image::new();
    nas::put(&image.path, "inode-no-dedupe");
    let hash = image.fingerprint();
    let volume = image.open(true).unwrap();
    let lifetime = volume.lifetime().unwrap();
    let refused = volume
        .lookup(top(&volume), b"small")
        .and_then(|_| volume.create(top(&volume), b"new", &NewInode::file(0o644)))
        .unwrap_err();
    assert!(matches!(refused, Error::Marked(_)), "{refused}");
    let reason = lifetime.wait_for_abort().unwrap();
    assert!(reason.contains("inode flag 0x20000000"), "{reason}");
    assert!(volume.sync().is_err());
    drop(volume);
    assert_eq!(image.fingerprint(), hash);
}

#[test]
fn unknown_flags_are_damage_unless_they_are_ignored() {
    for (mark, flag) in [
        ("root-unknown", "unknown flags 0x100000"),
        ("inode-unknown", "unknown flags 0x100000"),
    ] {
        let image = Image::new();
        let before = contents(&image.open(false).unwrap());
        nas::put(&image.path, mark);
        let refused = image
            .open(false)
            .and_then(|volume| {
                volume
                    .root_dir(volume.default_subvolume()?)
                    .and_then(|top| volume.attr(top))
            })
            .unwrap_err();
        assert!(refused.to_string().contains(flag), "{mark}: {refused}");
        let rescue = Rescue {
            ignore_item_flags: true,
            ..Rescue::default()
        };
        let volume = Volume::open(
            std::slice::from_ref(&image.path),
            &OpenOptions::new().rescue(rescue),
        )
        .unwrap();
        assert_eq!(contents(&volume), before, "{mark}");
    }
}

fn checked(image: &Image) -> Report {
    let paths = std::slice::from_ref(&image.path);
    check(paths, &CheckOptions::default(), &mut ()).unwrap()
}

#[test]
fn check_finds_no_fault_in_marks_and_counts_them() {
    let image = Image::new();
    let before = checked(&image);
    assert!(before.is_spotless() && before.marks.is_empty(), "{before}");
    nas::put_all(&image.path);
    let report = checked(&image);
    assert!(report.is_spotless(), "{report}");
    let names: Vec<&str> = report.marks.iter().map(|mark| mark.name).collect();
    for wanted in [
        "locker",
        "inode-user-quota",
        "caseless-index",
        "usage-root",
        "xattr-syno",
    ] {
        assert!(names.contains(&wanted), "{wanted}: {names:?}");
    }
    let trees = report.marks.iter().filter(|mark| mark.is_tree);
    assert!(trees.map(|tree| tree.count).eq([1; 9]), "{names:?}");
}

#[test]
fn check_finds_each_mark_alone() {
    for mark in nas::names() {
        let image = Image::new();
        nas::put(&image.path, mark);
        let report = checked(&image);
        assert!(
            report.is_spotless() && !report.marks.is_empty(),
            "{mark}: {report}"
        );
    }
}

/// The kernel leaves old bytes of memory in reserved fields of inodes that its fsync log records, and its replay copies
/// them to the subvolume.
#[test]
fn volume_with_a_log_that_the_kernel_replayed_is_writable() {
    if !or_skip("volume_with_a_log_that_the_kernel_replayed_is_writable") {
        return;
    }
    let theirs = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let mount = theirs.mount("").unwrap();
    for round in 0..3 {
        for number in 0..300 {
            let path = mount.path().join(format!("file{number}"));
            let mut file = File::options()
                .append(true)
                .create(true)
                .open(path)
                .unwrap();
            file.write_all(&vec![number as u8; 100 + number * 7])
                .unwrap();
            file.sync_all().unwrap();
            if number % 5 == round {
                let to = mount.path().join(format!("longer-name-{round}-{number}"));
                std::fs::rename(mount.path().join(format!("file{number}")), &to).unwrap();
                File::open(to).unwrap().sync_all().unwrap();
            }
        }
    }
    // As a power cut would leave it.
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("cut");
    std::fs::copy(&theirs.devices()[0], &path).unwrap();
    mount.unmount().unwrap();
    let cut = KernelVolume::of_files(vec![path.clone()], scratch);
    cut.mount("").unwrap().unmount().unwrap();

    let options = OpenOptions::new().writable(true);
    let volume = Volume::open(std::slice::from_ref(&path), &options).unwrap();
    let top = top(&volume);
    let mut files = Vec::new();
    volume
        .readdir(top, 0, &mut |entry| {
            files.push(entry.id);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(files.len(), 300 + 60 * 2);
    for file in files {
        volume.write(file, 0, b"changed").unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    let report = check(&[path], &CheckOptions::default(), &mut ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.issues);
}
