//! Runs a workload on the kernel's mount as well. The engine must keep everything of a synced inode that
//! Linux keeps.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{
    CWD, FallocateFlags, Mode, RenameFlags, XattrFlags, fallocate, mkfifoat, removexattr,
    renameat_with, setxattr,
};
use ubtrfs_sim::kernel::KernelVolume;
use ubtrfs_sim::kernel::MkfsSpec;
use ubtrfs_sim::manifest::{Entry, Field, Kind, diff_without};

use super::*;
use ubtrfs_fs::{OpenOptions, Rescue};

/// Replays and reads change times. The sizes of directories depend on their names.
const IGNORED: [Field; 7] = [
    Field::DirSize,
    Field::Mtime,
    Field::Ctime,
    Field::Atime,
    Field::Btime,
    Field::Uid,
    Field::Gid,
];

impl Op {
    /// Runs the operation on a mount, like [`Op::run`].
    fn run_in(self, dir: &Path, number: u8) -> io::Result<()> {
        let at = |path: &str| dir.join(path);
        let existing = |path: &str| File::options().read(true).write(true).open(at(path));
        let rename = |from, to, how| Ok(renameat_with(CWD, at(from), CWD, at(to), how)?);
        let user_b = |path: &str| -> io::Result<()> {
            let value = pattern(number, 30);
            Ok(setxattr(at(path), "user.b", &value, XattrFlags::empty())?)
        };
        match self {
            Create(path) => {
                File::create_new(at(path))?;
                Ok(())
            }
            Mkdir(path) => fs::create_dir(at(path)),
            Mknod(path) => Ok(mkfifoat(CWD, at(path), Mode::from_raw_mode(0o644))?),
            Symlink(path) => symlink("where it leads", at(path)),
            Link(from, to) => fs::hard_link(at(from), at(to)),
            Unlink(path) => fs::remove_file(at(path)),
            Rmdir(path) => fs::remove_dir(at(path)),
            Rename(from, to) => rename(from, to, RenameFlags::empty()),
            Exchange(from, to) => rename(from, to, RenameFlags::EXCHANGE),
            Whiteout(from, to) => rename(from, to, RenameFlags::WHITEOUT),
            Write(path, offset) => existing(path)?.write_all_at(&pattern(number, 7000), offset),
            Append(path) => {
                let file = existing(path)?;
                file.write_all_at(&pattern(number, 6000), file.metadata()?.len())
            }
            Truncate(path, size) => existing(path)?.set_len(size),
            Fallocate(path, mode, offset, len) => {
                let flags = match mode {
                    KEEP => FallocateFlags::KEEP_SIZE,
                    GROW => FallocateFlags::empty(),
                    ZERO => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                    _ => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                };
                Ok(fallocate(existing(path)?, flags, offset, len)?)
            }
            Clone(from, to) => {
                let (from, to) = (at(from), at(to));
                let reflink = format!("reflink {} 0 4096 8192", from.display());
                let done = Command::new("xfs_io")
                    .arg("-c")
                    .arg(reflink)
                    .arg(&to)
                    .output()?;
                if done.status.success() && done.stderr.is_empty() && to.exists() {
                    Ok(())
                } else {
                    Err(io::Error::other("not cloned"))
                }
            }
            SetXattr(path) => user_b(path),
            RemoveXattr(path) => Ok(removexattr(at(path), "user.a")?),
            Chmod(path) => {
                let mode = 0o700 + u32::from(number % 7);
                fs::set_permissions(at(path), fs::Permissions::from_mode(mode))
            }
        }
    }
}

/// Returns the entries by directory inode and name, as the directory may have been renamed.
fn by_name(manifest: &Manifest) -> BTreeMap<Name, Entry> {
    let mut names = BTreeMap::new();
    for entry in manifest
        .entries
        .iter()
        .filter(|entry| !entry.path.is_empty())
    {
        let slash = entry.path.iter().rposition(|byte| *byte == b'/');
        let dir = manifest.get(&entry.path[..slash.unwrap_or(0)]).unwrap();
        let name = entry.path[slash.map_or(0, |at| at + 1)..].to_vec();
        let entry = Entry {
            path: Vec::new(),
            ..entry.clone()
        };
        names.insert((dir.stat.ino, name), entry);
    }
    names
}

fn differs(left: Option<&Entry>, right: Option<&Entry>) -> Vec<String> {
    let [left, right] = [left, right].map(|entry| Manifest {
        entries: entry.cloned().into_iter().collect(),
        faults: Vec::new(),
    });
    let all = diff_without(&left, &right, &IGNORED);
    all.iter().map(ToString::to_string).collect()
}

/// Returns the manifests of Linux before the power cut and after its replay, or None if it committed.
fn on_linux(host: &Path, base: &Path, ops: &[Op], path: &Path) -> Option<(Manifest, Manifest)> {
    let at = |name: &str| -> PathBuf { host.join(name) };
    clone(base, &at("live"));
    let mount = KernelMount::new(&[at("live")], "commit=600").unwrap();
    for (number, op) in ops.iter().enumerate() {
        op.run_in(mount.path(), number as u8 + 1)
            .unwrap_or_else(|error| panic!("{ops:?}: {op:?} on Linux: {error}"));
    }
    let target = mount.path().join(path);
    File::open(&target).unwrap().sync_all().unwrap();
    clone(&at("live"), &at("cut"));
    let live = Manifest::of_dir(mount.path()).unwrap();
    mount.unmount().unwrap();
    let committed = OpenOptions::new().rescue(Rescue {
        no_log_replay: true,
        ..Rescue::default()
    });
    let cut = Volume::open(&[at("cut")], &committed).unwrap();
    if !cut.superblock().has_log() {
        return None;
    }
    drop(cut);
    let mount = KernelMount::new(&[at("cut")], "").unwrap();
    let replayed = Manifest::of_dir(mount.path()).unwrap();
    mount.unmount().unwrap();
    Some((live, replayed))
}

fn clone(from: &Path, to: &Path) {
    let (source, target) = (File::open(from).unwrap(), File::create(to).unwrap());
    rustix::fs::ioctl_ficlone(&target, &source).unwrap();
}

/// Returns the names and entries of a synced inode that Linux keeps and the engine does not. Returns None if
/// they cannot be compared. Items that Linux logs needlessly, such as other entries of a directory, do not
/// count.
fn losses(host: &Path, base: &[MemDevice], ops: &[Op], sync: u64) -> Option<Vec<String>> {
    let steps: Vec<Step> = ops.iter().map(|op| Step::Do(*op)).collect();
    let mut run = run(base, &steps, false)?;
    let ours_live = shown::manifest(&run.volume);
    let inodes = run.states.iter().flat_map(|state| state.inodes.keys());
    let known: BTreeSet<u64> = inodes.copied().collect();
    let ino = *known.iter().nth(sync as usize)?;
    let found = ours_live.entries.iter().find(|entry| entry.stat.ino == ino);
    let found = found.filter(|entry| matches!(entry.stat.kind, Kind::File | Kind::Dir))?;
    let path = PathBuf::from(OsStr::from_bytes(&found.path));
    if !run.step(Step::Sync(sync)) {
        return None;
    }
    let cut = run.cut().unwrap_or_else(|wrong| panic!("{ops:?}: {wrong}"));
    let devices: Vec<Arc<MemDevice>> = cut.into_iter().map(Arc::new).collect();
    let ours = by_name(&shown::manifest(
        &open_all(shared(&devices), false).unwrap(),
    ));
    let (theirs_live, theirs) = on_linux(host, &host.join("base"), ops, &path)?;
    let apart = diff_without(&ours_live, &theirs_live, &IGNORED);
    assert!(apart.is_empty(), "{ops:?}: before the cut: {apart:?}");
    let (live, theirs) = (by_name(&ours_live), by_name(&theirs));
    let first = &run.states[0].names;
    let names: BTreeSet<&Name> = first
        .keys()
        .chain(live.keys())
        .filter(|name| {
            let is_of = live.get(*name).is_some_and(|entry| entry.stat.ino == ino);
            is_of || name.0 == ino || first.get(*name) == Some(&ino)
        })
        .collect();
    let mut wrong = Vec::new();
    for name in names {
        let [live, theirs, ours] = [&live, &theirs, &ours].map(|side| side.get(name));
        let inodes = [live, theirs, ours].map(|entry| entry.map(|entry| entry.stat.ino));
        if inodes[0] == inodes[1] && inodes[0] != inodes[2] {
            wrong.push(format!(
                "{name:?}: inode {:?}, not {:?}",
                inodes[2], inodes[0]
            ));
        } else if inodes == [Some(ino); 3] && differs(live, theirs).is_empty() {
            wrong.extend(differs(live, ours));
        }
    }
    Some(wrong)
}

#[test]
fn engine_keeps_what_linux_keeps() {
    let name = "engine_keeps_what_linux_keeps";
    if !or_skip(name) {
        return;
    }
    let base = base();
    let mut rng = Rng::new(seed(name));
    let volume = KernelVolume::make(&MkfsSpec::new().device_bytes(4 << 30)).unwrap();
    let host = volume.mount("").unwrap();
    save_image(&base[0], &host.path().join("base")).unwrap();
    let wanted = if is_soak() { 3000 } else { 25 };
    let (mut compared, mut tried, mut failed) = (0, 0, 0);
    while compared < wanted {
        tried += 1;
        assert!(tried < 100 * wanted, "Linux commits in place of all logs");
        let ops: Vec<Op> = (0..1 + rng.below(3))
            .map(|_| OPS[rng.below(OPS.len() as u64) as usize])
            .collect();
        let sync = rng.below(9);
        let Some(wrong) = losses(host.path(), &base, &ops, sync) else {
            continue;
        };
        compared += 1;
        if !wrong.is_empty() {
            failed += 1;
            println!("{ops:?}, sync of {sync}: {wrong:#?}");
        }
    }
    println!("{name}: {compared} compared of {tried}");
    host.unmount().unwrap();
    assert_eq!(failed, 0, "{name}");
}
