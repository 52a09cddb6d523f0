//! Logs written by the engine, replayed by the kernel and the engine.

use std::fs;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::KeyType;
use ubtrfs_fs::{Fallocate, FileId, NewInode, OpenOptions, RenameMode, Volume, XattrMode};
use ubtrfs_sim::craft::Crafted;
use ubtrfs_sim::kernel::{Feature, KernelMount, KernelVolume, MkfsSpec, or_skip, progs_verdict};
use ubtrfs_sim::manifest::{Field, Manifest, assert_same};

use crate::replay::open;
use crate::shown;

type Step = fn(&Arc<Volume>, FileId);

pub(crate) fn pattern(seed: u8, len: usize) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}

/// Changes to a committed file of 1 MiB, which is then synced.
const STEPS: [(&str, &[Step]); 15] = [
    (
        "append",
        &[|v, f| v.write(f, 1 << 20, &pattern(1, 9000)).unwrap()],
    ),
    (
        "overwrite",
        &[|v, f| v.write(f, 300_000, &pattern(2, 50_000)).unwrap()],
    ),
    ("truncate down", &[|v, f| v.truncate(f, 100_001).unwrap()]),
    ("truncate up", &[|v, f| v.truncate(f, 3 << 20).unwrap()]),
    ("truncate to nothing", &[|v, f| v.truncate(f, 0).unwrap()]),
    (
        "down and up",
        &[
            |v, f| v.truncate(f, 5000).unwrap(),
            |v, f| v.truncate(f, 1 << 20).unwrap(),
        ],
    ),
    (
        "hole",
        &[|v, f| {
            v.fallocate(f, Fallocate::PunchHole, 65_536, 262_144)
                .unwrap()
        }],
    ),
    (
        "hole, then data in it",
        &[
            |v, f| {
                v.fallocate(f, Fallocate::PunchHole, 65_536, 262_144)
                    .unwrap()
            },
            |v, f| v.write(f, 100_000, &pattern(3, 10_000)).unwrap(),
        ],
    ),
    (
        "data, then hole in it",
        &[
            |v, f| v.write(f, 2 << 20, &pattern(4, 200_000)).unwrap(),
            |v, f| {
                v.fallocate(f, Fallocate::PunchHole, (2 << 20) + 40_960, 40_960)
                    .unwrap()
            },
        ],
    ),
    (
        // The log has the checksums of the clone, but not of the remainders around the overwritten range.
        "overwritten, a part cloned",
        &[
            |v, f| v.write(f, 300_000, &pattern(5, 50_000)).unwrap(),
            |v, f| {
                v.clone_range(f, 65_536, 65_536, f, 2 << 20).unwrap();
            },
        ],
    ),
    (
        // The log has nothing about the remainders of the overwritten extent until they are punched.
        "overwritten, the rest a hole",
        &[
            |v, f| v.write(f, 65_536, &pattern(6, 4096)).unwrap(),
            |v, f| {
                v.fallocate(f, Fallocate::PunchHole, 69_632, (1 << 20) - 69_632)
                    .unwrap()
            },
            |v, f| v.fallocate(f, Fallocate::PunchHole, 0, 65_536).unwrap(),
        ],
    ),
    (
        "overwritten, the rest cut off",
        &[
            |v, f| v.write(f, 65_536, &pattern(7, 4096)).unwrap(),
            |v, f| {
                v.truncate(f, 69_632).unwrap();
                v.truncate(f, 1 << 20).unwrap();
            },
        ],
    ),
    (
        "attributes",
        &[
            |v, f| v.set_xattr(f, b"user.b", b"2", XattrMode::Any).unwrap(),
            |v, f| v.remove_xattr(f, b"user.a").unwrap(),
        ],
    ),
    (
        "reserved beyond the end",
        &[|v, f| {
            v.fallocate(f, Fallocate::Reserve { keep_size: true }, 1 << 20, 1 << 20)
                .unwrap()
        }],
    ),
    (
        "many small writes",
        &[|v, f| {
            for number in 0..40u64 {
                v.write(f, number * 40_000 + 7, &pattern(number as u8, 5000))
                    .unwrap();
                v.fsync(f).unwrap();
            }
        }],
    ),
];

/// A new file's directory is not synced with it.
pub(crate) const OF_DIRECTORIES: [Field; 2] = [Field::Mtime, Field::Ctime];

fn judge(test: &str, name: &str, made: &KernelVolume, volume: &Arc<Volume>) {
    let live = shown::manifest(volume);
    let copy = made.dir().join("copy.img");
    fs::copy(&made.devices()[0], &copy).unwrap();
    let devices = [copy.clone()];
    let what = format!("{test}: {name}");
    let read = open(&devices, false).unwrap();
    assert!(read.superblock().has_log(), "{what}");
    assert_same(&what, &live, &shown::manifest(&read), &OF_DIRECTORIES);
    drop(read);
    let report = check(&devices, &CheckOptions::default(), &mut ()).unwrap();
    assert!(report.has_log && report.is_spotless(), "{what}: {report}");
    progs_verdict(&devices, true).unwrap_or_else(|said| panic!("{what}: before: {said}"));
    let mount = KernelMount::new(&devices, "").unwrap();
    let theirs = Manifest::of_dir(mount.path()).unwrap();
    mount.unmount().unwrap();
    assert_same(&what, &live, &theirs, &OF_DIRECTORIES);
    progs_verdict(&devices, true).unwrap_or_else(|said| panic!("{what}: after: {said}"));
    fs::remove_file(copy).unwrap();
}

/// Opens a volume that commits only on request, or if a log cannot represent the changes.
fn open_with_log(made: &KernelVolume) -> Arc<Volume> {
    let options = OpenOptions::new()
        .writable(true)
        .commit_interval(None)
        .fsync_log(true);
    Volume::open(made.devices(), &options).unwrap()
}

fn kernel_replays(test: &str, spec: &MkfsSpec) {
    if !or_skip(test) {
        return;
    }
    let made = KernelVolume::make(spec).unwrap();
    let volume = open_with_log(&made);
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    for (name, steps) in STEPS {
        let file = volume
            .create(top, name.as_bytes(), &NewInode::file(0o644))
            .unwrap();
        volume.write(file, 0, &pattern(0, 1 << 20)).unwrap();
        volume
            .set_xattr(file, b"user.a", b"1", XattrMode::Any)
            .unwrap();
        volume.sync().unwrap();
        let before = volume.writer_stats().unwrap();
        for step in steps {
            step(&volume, file);
            volume.fsync(file).unwrap();
        }
        let after = volume.writer_stats().unwrap();
        assert_eq!(after.commits, before.commits, "{name}");
        assert!(after.logs > before.logs, "{name}");
        judge(test, name, &made, &volume);
        // There is nothing left to write.
        volume.fsync(file).unwrap();
        assert_eq!(volume.writer_stats().unwrap().logs, after.logs, "{name}");
    }
    for number in 0..20u8 {
        let name = format!("new {number}");
        let file = volume
            .create(top, name.as_bytes(), &NewInode::file(0o644))
            .unwrap();
        volume
            .write(file, 0, &pattern(number, 700 * usize::from(number)))
            .unwrap();
        volume.fsync(file).unwrap();
    }
    judge(test, "new files", &made, &volume);
    volume.close().unwrap();
    drop(volume);
    made.check().unwrap();
}

/// A committed volume with a file `a/file` with the links `b/link` and `c/link`, and other files next to
/// them.
struct Linked {
    made: KernelVolume,
    volume: Arc<Volume>,
    /// `a`, `b`, `c` and `to`.
    dirs: [FileId; 4],
    file: FileId,
}

impl Linked {
    fn make() -> Linked {
        let made = KernelVolume::make(&MkfsSpec::new()).unwrap();
        let volume = open_with_log(&made);
        let top = volume.root_dir(RootId::FS_TREE).unwrap();
        let make = |dir, name: &str, new: &NewInode<'_>| volume.create(dir, name.as_bytes(), new);
        let dirs =
            ["a", "b", "c", "to"].map(|name| make(top, name, &NewInode::directory(0o755)).unwrap());
        let [a, b, c, _] = dirs;
        let file = make(a, "file", &NewInode::file(0o644)).unwrap();
        for dir in [b, c] {
            volume.link(file, dir, b"link").unwrap();
        }
        for (dir, name) in [(a, "of a"), (b, "of b"), (b, "more of b"), (c, "of c")] {
            make(dir, name, &NewInode::file(0o644)).unwrap();
        }
        volume.sync().unwrap();
        Linked {
            made,
            volume,
            dirs,
            file,
        }
    }

    fn move_away(&self, dir: FileId, name: &str) {
        let name = name.as_bytes();
        let to = (self.dirs[3], name);
        self.volume
            .rename(dir, name, to, RenameMode::Replace)
            .unwrap();
    }

    /// Syncs the file and checks the replay. Only the log has the changes.
    fn sync_and_judge(&self, test: &str, name: &str) {
        let commits = self.volume.writer_stats().unwrap().commits;
        self.volume.write(self.file, 0, name.as_bytes()).unwrap();
        self.volume.fsync(self.file).unwrap();
        assert_eq!(self.volume.writer_stats().unwrap().commits, commits);
        judge(test, name, &self.made, &self.volume);
    }

    fn close(self) {
        self.volume.close().unwrap();
        drop(self.volume);
        self.made.check().unwrap();
    }
}

/// A file lost a link. Every sync of the file also persists moves out of the directories that contained its
/// names.
#[test]
fn directories_that_a_synced_file_left_are_logged() {
    let test = "directories_that_a_synced_file_left_are_logged";
    if !or_skip(test) {
        return;
    }
    let linked = Linked::make();
    let [a, b, c, _] = linked.dirs;
    linked.volume.unlink(b, b"link").unwrap();
    linked.move_away(b, "of b");
    linked.sync_and_judge(test, "the first sync");
    linked.move_away(b, "more of b");
    linked.sync_and_judge(test, "another move out of the same directory");
    linked.move_away(a, "of a");
    linked.sync_and_judge(test, "out of the directory that has the file");
    linked.move_away(c, "of c");
    linked.sync_and_judge(test, "out of the directory of another link");
    linked.close();
}

/// The directory that a synced file has left is in the log, because it was synced before.
#[test]
fn logged_directory_that_a_synced_file_left_is_updated() {
    let test = "logged_directory_that_a_synced_file_left_is_updated";
    if !or_skip(test) {
        return;
    }
    let linked = Linked::make();
    let b = linked.dirs[1];
    let new = NewInode::file(0o644);
    linked.volume.create(b, b"new", &new).unwrap();
    linked.volume.fsync(b).unwrap();
    linked.volume.unlink(b, b"link").unwrap();
    linked.move_away(b, "of b");
    linked.sync_and_judge(test, "moved");
    linked.close();
}

/// A file gained a link. Its sync also persists changes to the directories that contained its names before.
#[test]
fn directories_of_a_synced_file_with_a_new_link_are_logged() {
    let test = "directories_of_a_synced_file_with_a_new_link_are_logged";
    if !or_skip(test) {
        return;
    }
    let linked = Linked::make();
    let [a, b, c, to] = linked.dirs;
    linked.volume.link(linked.file, to, b"new link").unwrap();
    linked.volume.unlink(a, b"of a").unwrap();
    linked.move_away(b, "of b");
    linked.sync_and_judge(test, "removed and moved");
    let new = NewInode::directory(0o755);
    let new = linked.volume.create(c, b"new", &new).unwrap();
    let file = NewInode::file(0o644);
    linked.volume.create(new, b"file", &file).unwrap();
    linked.sync_and_judge(test, "a new directory after the first sync");
    linked.close();
}

/// LOG-WRITE-1
#[test]
fn kernel_replays_logs_of_files() {
    kernel_replays("kernel_replays_logs_of_files", &MkfsSpec::new());
}

/// The log contains neither the remainders of a committed extent around the write, nor their checksums.
#[test]
fn log_has_what_was_written_alone() {
    if !or_skip("log_has_what_was_written_alone") {
        return;
    }
    let made = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let volume = open_with_log(&made);
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.create(top, b"file", &NewInode::file(0o644)).unwrap();
    volume.write(file, 0, &pattern(0, 1 << 20)).unwrap();
    volume.sync().unwrap();
    for number in 1..=20u64 {
        let data = pattern(number as u8, 4096);
        volume.write(file, number * 40_960, &data).unwrap();
        volume.fsync(file).unwrap();
    }
    let copy = made.dir().join("copy.img");
    fs::copy(&made.devices()[0], &copy).unwrap();
    let (mut extents, mut sums) = (0, 0);
    Crafted::load(&[copy]).edit_leaves(RootId::TREE_LOG, |items| {
        for (key, item) in items {
            match key.item_type {
                KeyType::EXTENT_DATA => extents += 1,
                KeyType::EXTENT_CSUM => sums += item.len(),
                _ => {}
            }
        }
        false
    });
    assert_eq!((extents, sums), (20, 20 * 4));
    volume.close().unwrap();
}

#[test]
fn kernel_replays_logs_of_files_with_holes() {
    let spec = MkfsSpec::new().without(Feature::NoHoles).nodesize(4096);
    kernel_replays("kernel_replays_logs_of_files_with_holes", &spec);
}
