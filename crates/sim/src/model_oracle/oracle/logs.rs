//! Judges a volume with a log after its last commit. Synced inodes must be in the state of their fsync or later.
//! Others must be in some state since the last promise. No inode may be lost that existed all the time.
//!
//! Inodes are tracked through the history instead of paths: a directory may have been moved, but only its contents
//! logged. Each field of an inode is judged separately, because a log may contain only a part of it. Only mode, owner
//! and attributes belong together. A new inode that is logged only for its name may be empty.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::history::{History, Promise};
use super::rules::{DataRule, Rules};
use crate::manifest::{Difference, Entry, Field, Manifest};
use crate::model::{InodeKey, compare};
use crate::script::{FsPath, Op};

/// Fields that a replay recomputes, or that the checker covers.
const UNJUDGED: [Field; 3] = [Field::Nlink, Field::DirSize, Field::Ino];

/// Fields that a log contains from a single moment.
const OF_ONE_MOMENT: [Field; 4] = [Field::Mode, Field::Uid, Field::Gid, Field::Xattrs];

/// A state of an inode that was unchanged between two moments.
struct Version {
    moments: RangeInclusive<usize>,
    entry: Entry,
}

/// A period in which a name had one target, or None for an empty subvolume directory.
struct Spell {
    moments: RangeInclusive<usize>,
    target: Option<InodeKey>,
}

type Name = (InodeKey, Vec<u8>);

/// All states since the last promise.
pub(super) struct Logs<'a> {
    history: &'a History,
    shown: &'a Manifest,
    rules: &'a Rules,
    moments: RangeInclusive<usize>,
    tops: BTreeSet<InodeKey>,
    inodes: BTreeMap<InodeKey, Vec<Version>>,
    names: BTreeMap<Name, Vec<Spell>>,
    /// The possible inodes of each path in the volume.
    leads_to: BTreeMap<Vec<u8>, BTreeSet<Option<InodeKey>>>,
    /// The possible paths of each inode.
    paths: BTreeMap<InodeKey, Vec<Vec<u8>>>,
    /// Reports of entries that never existed.
    strange: Vec<String>,
}

impl<'a> Logs<'a> {
    /// Collects the possible contents of logs since the promise. Returns None if no inode was synced since then,
    /// because there is no log.
    pub(super) fn since(
        history: &'a History,
        shown: &'a Manifest,
        moments: RangeInclusive<usize>,
        rules: &'a Rules,
    ) -> Option<Logs<'a>> {
        let mut asked = moments.clone().filter(|at| at < moments.end());
        asked.find(|at| matches!(history.next(*at), Some(Op::Fsync { .. })))?;
        let mut logs = Logs {
            history,
            shown,
            rules,
            moments: moments.clone(),
            tops: BTreeSet::new(),
            inodes: BTreeMap::new(),
            names: BTreeMap::new(),
            leads_to: BTreeMap::new(),
            paths: BTreeMap::new(),
            strange: Vec::new(),
        };
        moments.for_each(|at| logs.remember(at));
        logs.identify();
        Some(logs)
    }

    fn remember(&mut self, at: usize) {
        let history = self.history;
        let mut keys: BTreeMap<Vec<u8>, InodeKey> = BTreeMap::new();
        history.model(at).each_entry(&mut |key, mut entry| {
            let Some(path) = below(&entry.path, &history.below) else {
                return;
            };
            entry.path.clear();
            if let Some((dir, name)) = split(&path) {
                if let Some(dir) = keys.get(dir) {
                    let spells = self.names.entry((*dir, name.to_vec())).or_default();
                    note_spell(spells, at, key);
                }
            } else {
                self.tops.extend(key);
            }
            if let Some(key) = key {
                note_version(self.inodes.entry(key).or_default(), at, entry);
                keys.insert(path, key);
            }
        });
    }

    /// Finds the possible inodes of each path in the volume.
    fn identify(&mut self) {
        for entry in &self.shown.entries {
            let tops = self.tops.iter().copied().map(Some);
            let may_be: BTreeSet<Option<InodeKey>> = match split(&entry.path) {
                None => tops.collect(),
                Some((dir, name)) => {
                    let dirs = self.leads_to.get(dir).into_iter().flatten().flatten();
                    let spells = dirs.filter_map(|dir| self.names.get(&(*dir, name.to_vec())));
                    spells.flatten().map(|spell| spell.target).collect()
                }
            };
            let wrong = |key: &Option<InodeKey>| match key {
                None => (!entry.is_empty_subvolume_dir()).then(Vec::new),
                Some(key) => {
                    let wrong = self.differences(*key, entry, *self.moments.start());
                    (!wrong.is_empty()).then_some(wrong)
                }
            };
            let (is, is_not): (BTreeSet<_>, Vec<_>) = (
                may_be
                    .iter()
                    .filter(|key| wrong(key).is_none())
                    .copied()
                    .collect(),
                may_be.iter().filter_map(wrong).collect(),
            );
            if is.is_empty() {
                let path = entry.path.escape_ascii();
                let nearest = is_not.iter().min_by_key(|wrong| wrong.len());
                self.strange.push(match nearest {
                    None => format!("/{path}: was never there"),
                    Some(wrong) => format!("/{path}: never was so: {}", listed(wrong)),
                });
            }
            for key in is.iter().flatten() {
                self.paths.entry(*key).or_default().push(entry.path.clone());
            }
            self.leads_to.insert(entry.path.clone(), is);
        }
    }

    /// Returns the differences of an entry from all states of an inode since a moment. Each field may match another
    /// state.
    fn differences(&self, key: InodeKey, shown: &Entry, since: usize) -> Vec<Difference> {
        let versions = self.inodes.get(&key).into_iter().flatten();
        let versions = versions.filter(|version| *version.moments.end() >= since);
        let mut ignored = self.rules.ignored.clone();
        ignored.extend(UNJUDGED);
        let mut left: Option<Vec<Difference>> = None;
        let mut mixed: Option<Vec<Difference>> = None;
        let (mut least, mut most) = (u64::MAX, 0);
        for Version { entry, .. } in versions {
            (least, most) = (least.min(entry.stat.size), most.max(entry.stat.size));
            let now = compare(
                &alone(entry, &shown.path),
                &alone(shown, &shown.path),
                &ignored,
            );
            let belongs = |of: &Difference| field(of).is_some_and(|of| OF_ONE_MOMENT.contains(&of));
            let wrong: Vec<Difference> = now.iter().filter(|of| belongs(of)).cloned().collect();
            if mixed.as_ref().is_none_or(|mixed| wrong.len() < mixed.len()) {
                mixed = Some(wrong);
            }
            let of =
                |difference: &Difference| now.iter().any(|other| field(other) == field(difference));
            left = Some(match left {
                None => now,
                Some(left) => left.into_iter().filter(of).collect(),
            });
        }
        let mut left = left.unwrap_or_default();
        let is_listed = |of: &Difference| left.iter().any(|other| field(other) == field(of));
        let mixed: Vec<Difference> = mixed.into_iter().flatten().collect();
        if !mixed.iter().any(is_listed) {
            left.extend(mixed);
        }
        let size = shown.stat.size;
        let is_new = !self.moments_of(key).contains(self.moments.start());
        let is_empty = is_new && since == *self.moments.start() && size == 0;
        let is_torn = self.rules.data != DataRule::Prefix
            && (least..=most).contains(&size)
            && self.is_changed(key, since);
        if is_empty || is_torn {
            let data = [Field::Content, Field::Size, Field::Mtime];
            left.retain(|difference| !field(difference).is_some_and(|of| data.contains(&of)));
        }
        left
    }

    /// Returns whether a change of the file was started since a moment.
    fn is_changed(&self, key: InodeKey, since: usize) -> bool {
        (since..*self.moments.end()).any(|at| {
            let changed = self.history.next(at).and_then(Op::changed_file);
            changed.and_then(|file| self.history.model(at).inode_of(file)) == Some(key)
        })
    }

    /// Returns the range of moments in which an inode existed.
    fn moments_of(&self, key: InodeKey) -> RangeInclusive<usize> {
        let versions = self.inodes.get(&key).map_or(&[][..], Vec::as_slice);
        match versions {
            [first, .., last] => *first.moments.start()..=*last.moments.end(),
            [only] => only.moments.clone(),
            [] => RangeInclusive::new(1, 0),
        }
    }

    /// Lists the faults: paths that exist and never should, or paths that are missing although they always existed.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = self.strange.clone();
        for (key, versions) in &self.inodes {
            let moments = versions.iter().map(|version| &version.moments);
            if covers(moments, &self.moments) && !self.paths.contains_key(key) {
                faults.push(format!("{key:?} was always there"));
            }
        }
        for (name, spells) in &self.names {
            if let Some(target) = lasting(spells, &self.moments)
                && !self.has(name, target, |_| true)
            {
                faults.push(format!("{} always led to {target:?}", shown(name)));
            }
        }
        faults
    }

    /// Lists broken promises of fsync operations.
    pub(super) fn lost_syncs(&self, promise: &Promise) -> Vec<String> {
        let mut last: BTreeMap<InodeKey, usize> = BTreeMap::new();
        for ops in &promise.synced {
            let (before, end) = (ops - 1, *self.moments.end());
            let Some(Op::Fsync { at }) = self.history.next(before) else {
                continue;
            };
            if self.moments.contains(&before) && *ops <= end {
                last.extend(
                    self.history
                        .model(before)
                        .inode_of(at)
                        .map(|key| (key, *ops)),
                );
            }
        }
        let mut faults = Vec::new();
        for (key, ops) in last {
            let mut lost = Vec::new();
            self.judge_synced(key, ops, &mut lost);
            let found = lost
                .iter()
                .map(|lost| format!("{key:?}, synced by operation {ops}: {lost}"));
            faults.extend(found);
        }
        faults
    }

    fn judge_synced(&self, key: InodeKey, ops: usize, lost: &mut Vec<String>) {
        let since = ops..=*self.moments.end();
        let is_kept = |path: &[u8]| {
            let entry = self.shown.get(path);
            entry.is_some_and(|entry| self.differences(key, entry, ops).is_empty())
        };
        let versions = self.inodes.get(&key).into_iter().flatten();
        if covers(versions.map(|version| &version.moments), &since) {
            let paths = self.paths.get(&key).into_iter().flatten();
            if !paths.clone().any(|path| is_kept(path)) {
                let entry = paths.filter_map(|path| self.shown.get(path)).next();
                let wrong = entry.map(|entry| self.differences(key, entry, ops));
                lost.push(wrong.map_or("is gone".to_owned(), |wrong| listed(&wrong)));
            }
        }
        for (name, spells) in &self.names {
            let of_it = spells.iter().any(|spell| spell.target == Some(key));
            if of_it || name.0 == key {
                let fault = self.synced_name(name, spells, key, &since, is_kept);
                lost.extend(fault.map(|fault| format!("{} {fault}", shown(name))));
            }
        }
    }

    /// Returns the fault of a name of a synced inode, or in a synced directory.
    fn synced_name(
        &self,
        name: &Name,
        spells: &[Spell],
        key: InodeKey,
        since: &RangeInclusive<usize>,
        is_kept: impl Fn(&[u8]) -> bool,
    ) -> Option<&'static str> {
        let is_past = |spell: &Spell| spell.moments.end() < since.start();
        match lasting(spells, since) {
            Some(target) if target == Some(key) => {
                (!self.has(name, target, is_kept)).then_some("is gone")
            }
            Some(target) if name.0 == key => {
                (!self.has(name, target, |_| true)).then_some("is gone from the directory")
            }
            _ => (spells.iter().all(is_past) && self.is_there_still(name, key))
                .then_some("is there still"),
        }
    }

    /// Returns whether a name still exists, although it was removed from an inode or a directory before that was
    /// synced.
    fn is_there_still(&self, name: &Name, synced: InodeKey) -> bool {
        let dirs = self.paths.get(&name.0).into_iter().flatten();
        let mut dirs = dirs.filter(|path| self.leads_to[*path].len() == 1);
        dirs.any(|dir| match self.leads_to.get(&join(dir, &name.1)) {
            None => false,
            Some(_) if name.0 == synced => true,
            Some(keys) => keys.len() == 1 && keys.contains(&Some(synced)),
        })
    }

    /// Returns whether a name may be in the volume, with a matching path.
    fn has(
        &self,
        (dir, name): &Name,
        target: Option<InodeKey>,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let dirs = self.paths.get(dir).into_iter().flatten();
        dirs.map(|dir| join(dir, name)).any(|path| {
            let leads = self.leads_to.get(&path);
            leads.is_some_and(|keys| keys.contains(&target)) && wanted(&path)
        })
    }
}

fn note_spell(spells: &mut Vec<Spell>, at: usize, target: Option<InodeKey>) {
    match spells.last_mut() {
        Some(last) if last.target == target && *last.moments.end() + 1 == at => {
            last.moments = *last.moments.start()..=at;
        }
        _ => spells.push(Spell {
            moments: at..=at,
            target,
        }),
    }
}

fn note_version(versions: &mut Vec<Version>, at: usize, entry: Entry) {
    match versions.last_mut() {
        // Another name of the same inode.
        Some(last) if *last.moments.end() == at => {}
        Some(last) if *last.moments.end() + 1 == at && last.entry == entry => {
            last.moments = *last.moments.start()..=at;
        }
        _ => versions.push(Version {
            moments: at..=at,
            entry,
        }),
    }
}

/// Returns whether ordered ranges cover all moments.
fn covers<'m>(
    ranges: impl Iterator<Item = &'m RangeInclusive<usize>>,
    moments: &RangeInclusive<usize>,
) -> bool {
    let mut next = *moments.start();
    for range in ranges {
        if range.contains(&next) {
            next = range.end() + 1;
        }
    }
    next > *moments.end()
}

/// Returns the target that a name had at all of the moments.
fn lasting(spells: &[Spell], moments: &RangeInclusive<usize>) -> Option<Option<InodeKey>> {
    let all = |spell: &&Spell| {
        spell.moments.contains(moments.start()) && spell.moments.contains(moments.end())
    };
    spells.iter().find(all).map(|spell| spell.target)
}

fn field(difference: &Difference) -> Option<Field> {
    match difference {
        Difference::Field { field, .. } => Some(*field),
        _ => None,
    }
}

fn alone(entry: &Entry, path: &[u8]) -> Manifest {
    let entry = Entry {
        path: path.to_vec(),
        ..entry.clone()
    };
    Manifest {
        entries: vec![entry],
        faults: Vec::new(),
    }
}

fn listed(differences: &[Difference]) -> String {
    let each: Vec<String> = differences.iter().map(ToString::to_string).collect();
    each.join("; ")
}

fn shown((dir, name): &Name) -> String {
    format!("{dir:?}/{}", name.escape_ascii())
}

fn below(path: &[u8], folder: &FsPath) -> Option<Vec<u8>> {
    if folder.is_root() {
        return Some(path.to_vec());
    }
    match path.strip_prefix(folder.as_bytes())? {
        [] => Some(Vec::new()),
        [b'/', rest @ ..] => Some(rest.to_vec()),
        _ => None,
    }
}

/// Returns the directory and the last name, or None for the root.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => Some((&path[..at], &path[at + 1..])),
        None if path.is_empty() => None,
        None => Some((&[], path)),
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        name.to_vec()
    } else {
        [dir, b"/", name].concat()
    }
}
