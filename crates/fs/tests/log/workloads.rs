//! Bounded workloads: a few operations on two directories and three files, each followed by a sync and a
//! power cut.
//!
//! They are checked for the guarantees that users rely on. Synced data survives under the names that it had.
//! Nothing else is lost, and its state is from some moment.

mod beside;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_fs::{
    Error, Fallocate, FileId, FileKind, NewInode, OpenFile, RenameMode, SetAttr, Volume, XattrMode,
};
use ubtrfs_sim::kernel::{KernelMount, or_skip, progs_verdict};
use ubtrfs_sim::manifest::{Manifest, assert_same};
use ubtrfs_sim::record::save_image;
use ubtrfs_sim::{Rng, Scratch, seed};

use crate::cut::{made, named, open_all};
use crate::shown;
use crate::written::{OF_DIRECTORIES, pattern};

/// One operation. Names are paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Create(&'static str),
    Mkdir(&'static str),
    Mknod(&'static str),
    Symlink(&'static str),
    Link(&'static str, &'static str),
    Unlink(&'static str),
    Rmdir(&'static str),
    Rename(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    Whiteout(&'static str, &'static str),
    /// Also into preallocated space.
    Write(&'static str, u64),
    Append(&'static str),
    Truncate(&'static str, u64),
    Fallocate(&'static str, Fallocate, u64, u64),
    Clone(&'static str, &'static str),
    SetXattr(&'static str),
    RemoveXattr(&'static str),
    Chmod(&'static str),
}

use Op::*;

const KEEP: Fallocate = Fallocate::Reserve { keep_size: true };
const GROW: Fallocate = Fallocate::Reserve { keep_size: false };
const ZERO: Fallocate = Fallocate::ZeroRange { keep_size: true };

const OPS: &[Op] = &[
    Create("A/n"),
    Create("B/n"),
    Create("A/foo"),
    Mkdir("A/n"),
    Mkdir("B/n"),
    Mknod("A/n"),
    Symlink("A/n"),
    Symlink("B/n"),
    Link("A/foo", "A/n"),
    Link("A/foo", "B/n"),
    Link("A/bar", "B/n"),
    Link("B/foo", "A/foo"),
    Unlink("A/foo"),
    Unlink("A/bar"),
    Unlink("B/foo"),
    Unlink("A/n"),
    Unlink("B/n"),
    Rmdir("B"),
    Rmdir("A/n"),
    Rename("A/foo", "A/bar"),
    Rename("A/foo", "A/n"),
    Rename("A/foo", "B/foo"),
    Rename("A/foo", "B/n"),
    Rename("A/bar", "A/foo"),
    Rename("A/bar", "B/n"),
    Rename("B/foo", "A/foo"),
    Rename("B/foo", "A/n"),
    Rename("B/foo", "B/n"),
    Rename("A/n", "A/foo"),
    Rename("A/n", "B/foo"),
    Rename("A/n", "B/n"),
    Rename("B/n", "A/foo"),
    Rename("A", "B/n"),
    Rename("A", "C"),
    Rename("B", "A/n"),
    Rename("B/n", "A"),
    Rename("C", "A"),
    Exchange("A/foo", "A/bar"),
    Exchange("A/foo", "B/foo"),
    Exchange("A", "B"),
    Exchange("A", "B/foo"),
    Whiteout("A/foo", "B/n"),
    Whiteout("A/bar", "A/n"),
    Write("A/foo", 2000),
    Write("A/bar", 2000),
    Write("B/foo", 2000),
    Write("A/foo", 30_000),
    Write("B/foo", 20_000),
    Append("A/foo"),
    Append("A/bar"),
    Truncate("A/foo", 0),
    Truncate("A/foo", 5000),
    Truncate("A/foo", 70_000),
    Fallocate("A/foo", Fallocate::PunchHole, 4096, 8192),
    Fallocate("B/foo", ZERO, 1000, 9000),
    Fallocate("A/foo", KEEP, 16_384, 65_536),
    Fallocate("A/foo", GROW, 16_384, 65_536),
    Clone("B/foo", "A/foo"),
    Clone("A/foo", "B/foo"),
    SetXattr("A/foo"),
    SetXattr("A"),
    RemoveXattr("A/foo"),
    Chmod("A/foo"),
    Chmod("B"),
];

/// The observed state of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    kind: FileKind,
    mode: u32,
    data: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A name: the directory and the name in it.
type Name = (u64, Vec<u8>);

/// The observed state of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    names: BTreeMap<Name, u64>,
    inodes: BTreeMap<u64, Seen>,
}

impl State {
    fn names_of(&self, ino: u64) -> BTreeSet<&Name> {
        let of = self.names.iter().filter(|(_, to)| **to == ino);
        of.map(|(name, _)| name).collect()
    }

    fn entries_of(&self, dir: u64) -> BTreeMap<&[u8], u64> {
        let of = self.names.iter().filter(|((of, _), _)| *of == dir);
        of.map(|((_, name), ino)| (&name[..], *ino)).collect()
    }
}

fn see(volume: &Volume) -> State {
    let mut state = State::default();
    let mut dirs = vec![volume.root_dir(RootId::FS_TREE).unwrap()];
    state.inodes.insert(dirs[0].ino.0, seen(volume, dirs[0]));
    while let Some(dir) = dirs.pop() {
        let mut entries = Vec::new();
        volume
            .readdir(dir, 0, &mut |entry| {
                entries.push(entry);
                ControlFlow::Continue(())
            })
            .unwrap();
        for entry in entries {
            let found = volume.lookup(dir, &entry.name).unwrap();
            assert_eq!(found, Some(entry.id), "a listed name is found");
            let name = (dir.ino.0, entry.name);
            let twice = state.names.insert(name, entry.id.ino.0);
            assert_eq!(twice, None, "a name is listed twice");
            let looked = seen(volume, entry.id);
            if looked.kind == FileKind::Directory {
                dirs.push(entry.id);
            }
            state.inodes.insert(entry.id.ino.0, looked);
        }
    }
    for ino in state.inodes.keys().skip(1) {
        let id = FileId::new(RootId::FS_TREE, InodeNr(*ino));
        let nlink = volume.attr(id).unwrap().nlink as usize;
        assert_eq!(nlink, state.names_of(*ino).len(), "links of {ino}");
    }
    state
}

fn seen(volume: &Volume, id: FileId) -> Seen {
    let attr = volume.attr(id).unwrap();
    let mut data = Vec::new();
    match attr.kind {
        FileKind::Regular => {
            data = vec![0; attr.size as usize];
            let len = volume.read(id, 0, &mut data).unwrap();
            assert_eq!(len, data.len());
        }
        FileKind::Symlink => data = volume.readlink(id).unwrap(),
        _ => {}
    }
    Seen {
        kind: attr.kind,
        mode: attr.mode,
        data,
        xattrs: volume.xattrs(id).unwrap(),
    }
}

pub(crate) fn is_soak() -> bool {
    std::env::var_os("UBTRFS_SOAK").is_some()
}

/// Returns the directory and the last name of a path.
fn place(volume: &Volume, path: &'static str) -> Result<(FileId, &'static [u8]), Error> {
    let top = volume.root_dir(RootId::FS_TREE)?;
    match path.rsplit_once('/') {
        Some((dir, name)) => Ok((volume.resolve(top, dir.as_bytes())?, name.as_bytes())),
        None => Ok((top, path.as_bytes())),
    }
}

fn file(volume: &Volume, path: &'static str) -> Result<FileId, Error> {
    let (dir, name) = place(volume, path)?;
    volume.lookup(dir, name)?.ok_or(Error::NotFound)
}

impl Op {
    /// Runs the operation, if it is possible. `number` makes its data unique.
    fn run(self, volume: &Volume, number: u8) -> Result<(), Error> {
        let make = |path, new: &NewInode<'_>| {
            let (dir, name) = place(volume, path)?;
            volume.create(dir, name, new).map(drop)
        };
        let rename = |from, to, mode| {
            let (dir, name) = place(volume, from)?;
            volume.rename(dir, name, place(volume, to)?, mode)
        };
        match self {
            Create(path) => make(path, &NewInode::file(0o644)),
            Mkdir(path) => make(path, &NewInode::directory(0o755)),
            Mknod(path) => make(path, &NewInode::with_mode(0o10_644)),
            Symlink(path) => make(path, &NewInode::symlink(b"where it leads")),
            Link(from, to) => {
                let (dir, name) = place(volume, to)?;
                volume.link(file(volume, from)?, dir, name)
            }
            Unlink(path) => {
                let (dir, name) = place(volume, path)?;
                volume.unlink(dir, name)
            }
            Rmdir(path) => {
                let (dir, name) = place(volume, path)?;
                volume.rmdir(dir, name)
            }
            Rename(from, to) => rename(from, to, RenameMode::Replace),
            Exchange(from, to) => rename(from, to, RenameMode::Exchange),
            Whiteout(from, to) => {
                let (dir, name) = place(volume, from)?;
                let whiteout = NewInode::with_mode(0o20_000);
                let to = place(volume, to)?;
                volume.rename_leaving(dir, name, to, RenameMode::Replace, &whiteout)
            }
            Write(path, at) => volume.write(file(volume, path)?, at, &pattern(number, 7000)),
            Append(path) => volume
                .append(file(volume, path)?, &pattern(number, 6000))
                .map(drop),
            Truncate(path, size) => volume.truncate(file(volume, path)?, size),
            Fallocate(path, mode, offset, len) => {
                volume.fallocate(file(volume, path)?, mode, offset, len)
            }
            Clone(from, to) => {
                let (from, to) = (file(volume, from)?, file(volume, to)?);
                volume.clone_range(from, 0, 8192, to, 4096).map(drop)
            }
            SetXattr(path) => {
                let file = file(volume, path)?;
                // Linux has no such attributes on other file types.
                if !matches!(
                    volume.attr(file)?.kind,
                    FileKind::Regular | FileKind::Directory
                ) {
                    return Err(Error::NotFound);
                }
                volume.set_xattr(file, b"user.b", &pattern(number, 30), XattrMode::Any)
            }
            RemoveXattr(path) => volume.remove_xattr(file(volume, path)?, b"user.a"),
            Chmod(path) => {
                let set = SetAttr {
                    mode: Some(0o700 + u32::from(number % 7)),
                    ..SetAttr::default()
                };
                volume.set_attr(file(volume, path)?, &set)
            }
        }
    }
}

/// One step of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Do(Op),
    /// A sync of the n-th inode seen so far.
    Sync(u64),
    /// A sync of the volume.
    SyncAll,
}

/// Creates the initial volume of all workloads.
pub(crate) fn base() -> Vec<MemDevice> {
    base_of(vec![made()])
}

/// Creates the initial volume on the devices of an empty one.
pub(crate) fn base_of(devices: Vec<MemDevice>) -> Vec<MemDevice> {
    let devices: Vec<Arc<MemDevice>> = devices.into_iter().map(Arc::new).collect();
    let volume = open_all(shared(&devices), true).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let [a, b] = [b"A", b"B"].map(|name| {
        let new = NewInode::directory(0o755);
        volume.create(top, name, &new).unwrap()
    });
    for (dir, name, len) in [(a, "foo", 20_000), (a, "bar", 100), (b, "foo", 9000)] {
        let new = NewInode::file(0o644);
        let file = volume.create(dir, name.as_bytes(), &new).unwrap();
        volume.write(file, 0, &pattern(len as u8, len)).unwrap();
        volume
            .set_xattr(file, b"user.a", b"1", XattrMode::Any)
            .unwrap();
    }
    let reserved = file(&volume, "B/foo").unwrap();
    volume.fallocate(reserved, KEEP, 12_288, 65_536).unwrap();
    volume.close().unwrap();
    drop(volume);
    devices.iter().map(|device| (**device).clone()).collect()
}

pub(crate) fn shared(devices: &[Arc<MemDevice>]) -> Vec<Arc<dyn BlockDevice>> {
    let share = |device: &Arc<MemDevice>| Arc::clone(device) as Arc<dyn BlockDevice>;
    devices.iter().map(share).collect()
}

/// A volume on which a workload runs.
pub(crate) struct Run {
    devices: Vec<Arc<MemDevice>>,
    pub(crate) volume: Arc<Volume>,
    /// Fault numbers that the checker may report after a cut.
    pub(crate) excused: &'static [u16],
    /// The states since the last commit: first the committed one, then one per operation.
    states: Vec<State>,
    /// The states before that commit, which persists names but not buffered data.
    before: Vec<State>,
    /// The number of states when an inode was last synced.
    synced: BTreeMap<u64, usize>,
    /// Inodes that are kept open.
    _held: Vec<OpenFile>,
    commits: u64,
}

/// Returns whether the length and each byte existed in the file, perhaps at different moments. When a sync of
/// another file commits, a truncation is stored at once, and older data only when it is written back. Linux
/// leaves such files too.
fn is_of_several_moments(data: &[u8], known: &[&Seen]) -> bool {
    let was = |at: usize, byte: &u8| known.iter().any(|known| known.data.get(at) == Some(byte));
    known.iter().any(|known| known.data.len() == data.len())
        && data.iter().enumerate().all(|(at, byte)| was(at, byte))
}

impl Run {
    pub(crate) fn begin(base: &[MemDevice], holds: bool) -> Run {
        let devices: Vec<Arc<MemDevice>> = base.iter().cloned().map(Arc::new).collect();
        let through = shared(&devices);
        Run::begin_on(devices, through, holds)
    }

    /// Starts on `devices`, which the volume accesses through `through`.
    pub(crate) fn begin_on(
        devices: Vec<Arc<MemDevice>>,
        through: Vec<Arc<dyn BlockDevice>>,
        holds: bool,
    ) -> Run {
        let volume = open_all(through, true).unwrap();
        let first = see(&volume);
        let held = if holds {
            first
                .inodes
                .keys()
                .map(|ino| {
                    let id = FileId::new(RootId::FS_TREE, InodeNr(*ino));
                    volume.open_file(id).unwrap()
                })
                .collect()
        } else {
            Vec::new()
        };
        Run {
            devices,
            excused: &[],
            commits: volume.writer_stats().unwrap().commits,
            states: vec![first],
            before: Vec::new(),
            synced: BTreeMap::new(),
            _held: held,
            volume,
        }
    }

    /// Runs a step. Returns false if there was nothing to do.
    pub(crate) fn step(&mut self, step: Step) -> bool {
        match step {
            Step::Do(op) => {
                let number = self.states.len() as u8;
                if op.run(&self.volume, number).is_err() {
                    return false;
                }
                self.states.push(see(&self.volume));
            }
            Step::Sync(at) => {
                let known: BTreeSet<u64> = self
                    .states
                    .iter()
                    .flat_map(|state| state.inodes.keys().copied())
                    .collect();
                let ino = known.iter().nth((at % known.len() as u64) as usize);
                let id = FileId::new(RootId::FS_TREE, InodeNr(*ino.unwrap()));
                match self.volume.fsync(id) {
                    Ok(()) => {}
                    // The file is gone and not open, or its data is lost because the device failed.
                    Err(_) => {
                        self.states.push(see(&self.volume));
                        return false;
                    }
                }
                self.synced.insert(id.ino.0, self.states.len());
                if self.volume.writer_stats().unwrap().commits > self.commits {
                    self.begin_after_commit();
                    self.synced.insert(id.ino.0, 1);
                }
            }
            Step::SyncAll => {
                if self.volume.sync().is_err() {
                    self.states.push(see(&self.volume));
                    return false;
                }
                self.begin_after_commit();
                let inodes = self.states[0].inodes.keys();
                self.synced = inodes.map(|ino| (*ino, 1)).collect();
            }
        }
        true
    }

    /// Restarts the list of states with the last one, which is committed.
    fn begin_after_commit(&mut self) {
        self.commits = self.volume.writer_stats().unwrap().commits;
        let before = self.states.drain(..self.states.len() - 1);
        self.before.extend(before);
        self.synced.clear();
    }

    fn inodes(&self) -> u64 {
        let inodes = self.states.iter().flat_map(|state| state.inodes.keys());
        inodes.collect::<BTreeSet<_>>().len() as u64
    }

    /// Checks the devices as after a power cut now, and returns them.
    pub(crate) fn cut(&self) -> Result<Vec<MemDevice>, String> {
        let devices = self.devices.iter();
        self.cut_of(devices.map(|device| (**device).clone()).collect())
    }

    /// Checks the devices after a power cut.
    pub(crate) fn cut_of(&self, cut: Vec<MemDevice>) -> Result<Vec<MemDevice>, String> {
        let copied = || cut.iter().cloned().map(Arc::new).collect::<Vec<_>>();
        let read = open_all(shared(&copied()), false).map_err(|error| error.to_string())?;
        let state = see(&read);
        let replayed = copied();
        let written = open_all(shared(&replayed), true).map_err(|error| error.to_string())?;
        if see(&written) != state {
            return Err("a replay in memory shows something else".to_owned());
        }
        written.close().map_err(|error| error.to_string())?;
        drop(written);
        let options = CheckOptions {
            data_csums: true,
            ..CheckOptions::default()
        };
        let report = check_devices(named(shared(&replayed)), &options, &mut ()).unwrap();
        let is_excused = |number: &u16| self.excused.contains(number);
        if report.unlisted() > 0 || !report.numbers().iter().all(is_excused) {
            return Err(format!("check: {report}"));
        }
        self.judge(&state)?;
        Ok(cut)
    }

    fn judge(&self, after: &State) -> Result<(), String> {
        for (ino, from) in &self.synced {
            self.judge_synced(after, *ino, *from)?;
        }
        let all = |ino: &u64| {
            self.states
                .iter()
                .all(|state| state.inodes.contains_key(ino))
        };
        for ino in self.states[0].inodes.keys().filter(|ino| all(ino)) {
            if !after.inodes.contains_key(ino) {
                return Err(format!("inode {ino} is lost"));
            }
        }
        for (ino, seen) in &after.inodes {
            let all = self.before.iter().chain(&self.states);
            let known: Vec<&Seen> = all.filter_map(|state| state.inodes.get(ino)).collect();
            let is_unsynced_new = seen.data.is_empty() && !self.states[0].inodes.contains_key(ino);
            if known.is_empty() {
                return Err(format!("inode {ino} comes from nowhere"));
            }
            let is_known = known.iter().any(|known| known.data == seen.data)
                || !self.before.is_empty() && is_of_several_moments(&seen.data, &known);
            if !is_unsynced_new && !is_known {
                return Err(format!("inode {ino} has data that it never had"));
            }
            self.judge_names(after, *ino)?;
        }
        let first = &self.states[0].names;
        for name in first.keys() {
            let always = self
                .states
                .iter()
                .all(|state| state.names.contains_key(name));
            if always && after.inodes.contains_key(&name.0) && !after.names.contains_key(name) {
                return Err(format!("name {name:?} is lost"));
            }
        }
        Ok(())
    }

    fn judge_names(&self, after: &State, ino: u64) -> Result<(), String> {
        let names = after.names_of(ino);
        let had = |name: &Name| {
            self.states
                .iter()
                .any(|state| state.names.get(name) == Some(&ino))
        };
        if let Some(name) = names.iter().find(|name| !had(name)) {
            return Err(format!(
                "inode {ino} has a name that it never had: {name:?}"
            ));
        }
        let most = self
            .states
            .iter()
            .map(|state| state.names_of(ino).len())
            .max();
        if most < Some(names.len()) {
            Err(format!("inode {ino} has too many names: {names:?}"))
        } else {
            Ok(())
        }
    }

    /// Checks an inode that was synced when there were `from` states.
    fn judge_synced(&self, after: &State, ino: u64, from: usize) -> Result<(), String> {
        let now = self.states.last().unwrap();
        let since = &self.states[from - 1..];
        if since.iter().any(|state| !state.inodes.contains_key(&ino)) {
            let is_gone = from == self.states.len();
            return if is_gone && after.inodes.contains_key(&ino) {
                Err(format!("inode {ino} is gone and synced, and there again"))
            } else {
                Ok(())
            };
        }
        let Some(found) = after.inodes.get(&ino) else {
            return Err(format!("inode {ino} was synced and is lost"));
        };
        // A change after the sync may survive in part: another sync logs the attributes of a renamed file,
        // but not its data.
        let is_of_since = |part: fn(&Seen, &Seen) -> bool| {
            let mut seen = since.iter().map(|state| &state.inodes[&ino]);
            seen.any(|seen| part(seen, found))
        };
        let parts: [fn(&Seen, &Seen) -> bool; 3] = [
            |a, b| (a.kind, a.mode) == (b.kind, b.mode),
            |a, b| a.data == b.data,
            |a, b| a.xattrs == b.xattrs,
        ];
        if !parts.into_iter().all(is_of_since) {
            return Err(format!("inode {ino} is older than its sync: {found:?}"));
        }
        if from < self.states.len() {
            return Ok(());
        }
        if after.names_of(ino) != now.names_of(ino) {
            return Err(format!(
                "inode {ino} has names {:?}, and was synced with {:?}",
                after.names_of(ino),
                now.names_of(ino)
            ));
        }
        if found.kind == FileKind::Directory && after.entries_of(ino) != now.entries_of(ino) {
            return Err(format!(
                "directory {ino} has {:?}, and was synced with {:?}",
                after.entries_of(ino),
                now.entries_of(ino)
            ));
        }
        Ok(())
    }
}

/// Runs a workload, and cuts the power after its last sync. Returns None if a shorter workload does the same.
fn run(base: &[MemDevice], steps: &[Step], holds: bool) -> Option<Run> {
    let mut run = Run::begin(base, holds);
    for step in steps {
        if !run.step(*step) {
            return None;
        }
    }
    Some(run)
}

fn must_hold(base: &[MemDevice], steps: &[Step], holds: bool) -> bool {
    let Some(run) = run(base, steps, holds) else {
        return false;
    };
    if let Err(wrong) = run.cut() {
        panic!("{steps:?}, open {holds}: {wrong}");
    }
    true
}

/// Calls `each` with all sequences of one and of two operations. Each inode is synced after them.
fn each_sequence(mut each: impl FnMut(&[Op])) {
    for first in OPS {
        each(&[*first]);
        for second in OPS {
            each(&[*first, *second]);
        }
    }
}

/// LOG-WRITE-2, LOG-WRITE-3
#[test]
fn files_synced_after_one_or_two_operations_are_kept() {
    let base = base();
    let mut rng = Rng::new(seed("files_synced_after_one_or_two_operations_are_kept"));
    let (mut count, mut logs) = (0_u64, 0_u64);
    each_sequence(|ops| {
        if !is_soak() && ops.len() > 1 && !rng.one_in(40) {
            return;
        }
        let steps: Vec<Step> = ops.iter().map(|op| Step::Do(*op)).collect();
        let holds = rng.one_in(2);
        let Some(done) = run(&base, &steps, holds) else {
            return;
        };
        for at in 0..done.inodes() {
            let mut steps = steps.clone();
            steps.push(Step::Sync(at));
            if must_hold(&base, &steps, holds) {
                count += 1;
            }
        }
        logs += 1;
    });
    println!("{count} workloads of {logs} sequences");
    assert!(count > 300);
}

#[test]
fn files_synced_among_many_operations_are_kept() {
    let base = base();
    let mut rng = Rng::new(seed("files_synced_among_many_operations_are_kept"));
    let count = if is_soak() { 20_000 } else { 250 };
    let mut logs = 0;
    for number in 0..count {
        let holds = rng.one_in(2);
        let mut run = Run::begin(&base, holds);
        let mut steps = Vec::new();
        for _ in 0..4 + rng.below(8) {
            let step = if rng.one_in(3) {
                Step::Sync(rng.next_u64())
            } else {
                Step::Do(OPS[rng.below(OPS.len() as u64) as usize])
            };
            if !run.step(step) {
                continue;
            }
            steps.push(step);
            if let (Step::Sync(_), Err(wrong)) = (step, run.cut()) {
                panic!("{number}: {steps:?}, open {holds}: {wrong}");
            }
        }
        logs += run.volume.writer_stats().unwrap().logs;
    }
    println!("{logs} logs in {count} workloads");
    assert!(logs > count / 2);
}

/// Creates a log with the most features that the workload can produce.
pub(crate) fn random_log(base: &[MemDevice], rng: &mut Rng) -> (Vec<Step>, Run) {
    loop {
        let mut run = Run::begin(base, rng.one_in(2));
        let mut steps = Vec::new();
        for _ in 0..4 + rng.below(10) {
            let step = if rng.one_in(3) {
                Step::Sync(rng.next_u64())
            } else {
                Step::Do(OPS[rng.below(OPS.len() as u64) as usize])
            };
            if run.step(step) {
                steps.push(step);
            }
        }
        if run.volume.writer_stats().unwrap().logs > 1 {
            return (steps, run);
        }
    }
}

/// Asserts that the kernel and the engine show the same state after a cut. `dir` has room for device files.
pub(crate) fn kernel_replays(what: &str, cut: &[MemDevice], dir: &Path) {
    let save = |(number, device): (usize, &MemDevice)| {
        let path = dir.join(format!("{number}.img"));
        save_image(device, &path).unwrap();
        path
    };
    let files: Vec<PathBuf> = cut.iter().enumerate().map(save).collect();
    progs_verdict(&files, true).unwrap_or_else(|said| panic!("{what}: before: {said}"));
    let devices: Vec<Arc<MemDevice>> = cut.iter().cloned().map(Arc::new).collect();
    let ours = shown::manifest(&open_all(shared(&devices), false).unwrap());
    let mount = KernelMount::new(&files, "").unwrap_or_else(|error| panic!("{what}: {error}"));
    let theirs = Manifest::of_dir(mount.path()).unwrap();
    mount.unmount().unwrap();
    assert_same(what, &ours, &theirs, &OF_DIRECTORIES);
    progs_verdict(&files, true).unwrap_or_else(|said| panic!("{what}: after: {said}"));
    for file in files {
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn kernel_replays_logs_of_workloads() {
    let name = "kernel_replays_logs_of_workloads";
    if !or_skip(name) {
        return;
    }
    let base = base();
    let mut rng = Rng::new(seed(name));
    let scratch = Scratch::new().unwrap();
    let count = if is_soak() { 1000 } else { 20 };
    for number in 0..count {
        let (steps, run) = random_log(&base, &mut rng);
        let what = format!("{name}: {number}: {steps:?}");
        let cut = run.cut().unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
        kernel_replays(&what, &cut, scratch.path());
    }
}

/// Syncing a deleted inode removes it from the log, although the mutable set has no trace of it.
#[test]
fn logged_inode_that_is_gone_stays_gone_once_it_is_synced() {
    let base = base();
    for made in [
        Create("A/n"),
        Mkdir("A/n"),
        Mknod("A/n"),
        Symlink("A/n"),
        Whiteout("A/bar", "B/n"),
    ] {
        let gone = match made {
            Mkdir(name) => Rmdir(name),
            Whiteout(name, _) => Unlink(name),
            _ => Unlink("A/n"),
        };
        let mut run = Run::begin(&base, false);
        // The last inode seen.
        let sync = Step::Sync(6);
        for step in [Step::Do(made), sync, Step::Do(gone), sync] {
            assert!(run.step(step), "{made:?}");
        }
        assert_eq!(run.inodes(), 7);
        if let Err(wrong) = run.cut() {
            panic!("{made:?}: {wrong}");
        }
    }
}
