//! A single walk through the differences: collects the items of each inode, and reports the changes of its names.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::PathBuf;

use ubtrfs_format::ids::InodeNr;
use ubtrfs_format::item::{DirEntries, FileExtent, FileKind};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::{Comparison, Difference, Snapshot};
use ubtrfs_spill::{Sorted, Sorter};

use super::change::{Change, ChangeKind, FileAttributes};
use super::error::DiffError;
use super::inode_differences::{Inode, InodeDifferences, Refused};
use super::paths::{Name, Paths};
use super::ranges::MAX_RANGES;
use super::record::Record;
use crate::scratch::scratch_dir;

/// Maximum number of cached results about directories.
const MAX_KNOWN_DIRS: usize = 1 << 16;

pub(super) struct Walk<'a> {
    old: &'a Snapshot,
    new: &'a Snapshot,
    /// Whether a directory number belongs to different directories in the two snapshots.
    replaced_dirs: HashMap<u64, bool>,
    comparison: Comparison,
    old_paths: Paths<'a>,
    new_paths: Paths<'a>,
    sorter: Sorter<Record>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(old: &'a Snapshot, new: &'a Snapshot, memory_bytes: usize) -> Walk<'a> {
        Walk {
            old,
            new,
            replaced_dirs: HashMap::new(),
            comparison: new.compare_with(Some(old)),
            old_paths: Paths::new(old),
            new_paths: Paths::new(new),
            sorter: Sorter::new(&scratch_dir(new.volume()), memory_bytes),
        }
    }

    pub(super) fn run(mut self) -> Result<Sorted<Record>, DiffError> {
        let mut change: Option<InodeDifferences> = None;
        while let Some(difference) = self.comparison.next_difference()? {
            let key = difference.key();
            if !(InodeNr::FIRST_FREE.0..=LAST_INODE).contains(&key.objectid) {
                continue;
            }
            let is_next = change.as_ref().is_none_or(|c| c.inode != key.objectid);
            if is_next && let Some(done) = change.replace(InodeDifferences::new(key.objectid)) {
                self.report(done)?;
            }
            if key.item_type == KeyType::DIR_INDEX {
                self.report_subvolumes(&difference)?;
            } else if let Some(change) = &mut change {
                change
                    .add(&difference)
                    .map_err(|refused| self.refused(change.inode, &refused))?;
            }
        }
        if let Some(done) = change {
            self.report(done)?;
        }
        self.sorter.finish().map_err(DiffError::Spill)
    }

    fn push(&mut self, entry: Change) -> Result<(), DiffError> {
        let (record, tail) = Record::new(&entry)?;
        let pushed = self.sorter.push_with_tail(record, &tail);
        pushed.map_err(DiffError::Spill)
    }

    fn refused(&self, inode: u64, refused: &Refused) -> DiffError {
        let tree = self.new.id();
        match refused {
            Refused::Corrupt(key) => DiffError::Corrupt { tree, key: *key },
            Refused::TooManyNames => DiffError::TooManyNames { tree, inode },
        }
    }

    /// Reports entries of subvolumes, which have no inode here.
    fn report_subvolumes(&mut self, difference: &Difference) -> Result<(), DiffError> {
        let dir = difference.key().objectid;
        let entry = |item: Option<&ubtrfs_tree::Item>| {
            let entry = DirEntries::new(item?).next()?;
            let is_one = entry.location().item_type == KeyType::ROOT_ITEM;
            is_one.then(|| (entry.location().objectid, (dir, entry.name.to_vec())))
        };
        let (old, new) = (entry(difference.old_item()), entry(difference.new_item()));
        if old == new {
            return Ok(());
        }
        if let Some((_, name)) = old {
            let path = self.old_paths.of_name(&name)?;
            let removed = Change::new(path, ChangeKind::Removed, FileKind::Directory);
            self.push(removed)?;
        }
        if let Some((_, name)) = new {
            let path = self.new_paths.of_name(&name)?;
            let added = Change::new(path, ChangeKind::Added, FileKind::Directory);
            self.push(added)?;
        }
        Ok(())
    }

    fn report(&mut self, mut change: InodeDifferences) -> Result<(), DiffError> {
        if !change.has_item {
            let key = Key::new(change.inode, KeyType::INODE_ITEM, 0);
            let item = self.new.view().get(&key)?;
            let inode = item.and_then(|item| Inode::decode(&item));
            (change.old, change.new) = (inode, inode);
        }
        let old = change.old.filter(Inode::has_name);
        let new = change.new.filter(Inode::has_name);
        match (old, new) {
            (Some(old), Some(new)) if change.inode == self.top() || old.is_same(&new) => {
                self.report_kept(change, old, new)
            }
            (old, new) => {
                if let Some(old) = old {
                    self.report_removed(change.inode, old)?;
                }
                if let Some(new) = new {
                    self.report_added(change.inode, new)?;
                }
                Ok(())
            }
        }
    }

    /// Returns the root directory, which counts as the same in both snapshots, whatever their origin.
    fn top(&self) -> u64 {
        self.new.root_dir().ino.0
    }

    /// Reports a removed inode. Reads all of its names, because names of a reused number may not all differ.
    fn report_removed(&mut self, inode: u64, old: Inode) -> Result<(), DiffError> {
        for name in self.old_paths.all_names(inode)? {
            let path = self.old_paths.of_name(&name)?;
            let mut entry = Change::new(path, ChangeKind::Removed, old.file_type);
            entry.ino = Some(inode);
            entry.old = Some(FileAttributes::of(&old.item, old.file_type));
            self.push(entry)?;
        }
        Ok(())
    }

    fn report_added(&mut self, inode: u64, new: Inode) -> Result<(), DiffError> {
        for name in self.new_paths.all_names(inode)? {
            let path = self.new_paths.of_name(&name)?;
            let mut entry = Change::new(path, ChangeKind::Added, new.file_type);
            entry.ino = Some(inode);
            entry.new = Some(FileAttributes::of(&new.item, new.file_type));
            self.push(entry)?;
        }
        Ok(())
    }

    /// Reports an inode that exists in both snapshots: moved, added and removed names, and other changes with one of
    /// its names.
    fn report_kept(
        &mut self,
        change: InodeDifferences,
        old: Inode,
        new: Inode,
    ) -> Result<(), DiffError> {
        let of_it = |path, kind| {
            let mut entry = Change::new(path, kind, new.file_type);
            entry.ino = Some(change.inode);
            entry.old = Some(FileAttributes::of(&old.item, old.file_type));
            entry.new = Some(FileAttributes::of(&new.item, new.file_type));
            entry
        };
        let gone: BTreeSet<&Name> = change.old_names.difference(&change.new_names).collect();
        let come: BTreeSet<&Name> = change.new_names.difference(&change.old_names).collect();
        let mut gone = gone.into_iter();
        let mut come = come.into_iter();
        let mut entries = Vec::new();
        for [from, to] in self.moved_by_number(&change)? {
            let mut entry = of_it(to, ChangeKind::Renamed);
            entry.renamed_from = Some(from);
            entries.push(entry);
        }
        let (mut left, mut added) = (None, None);
        loop {
            match (gone.next(), come.next()) {
                (Some(from), Some(to)) => {
                    let mut entry = of_it(self.new_paths.of_name(to)?, ChangeKind::Renamed);
                    entry.renamed_from = Some(self.old_paths.of_name(from)?);
                    entries.push(entry);
                }
                (None, None) => break,
                (from, to) => {
                    (left, added) = (from, to);
                    break;
                }
            }
        }
        let mut links = Vec::new();
        for name in left.into_iter().chain(gone) {
            links.push(of_it(self.old_paths.of_name(name)?, ChangeKind::Removed));
        }
        for name in added.into_iter().chain(come) {
            links.push(of_it(self.new_paths.of_name(name)?, ChangeKind::Added));
        }
        let behind = self.cut_off_before(change.inode, &old, &new)?;
        let (data, data_is_coarse) = change.ranges.finish(new.item.size.get(), behind);
        // Only the first entry has the details.
        let mut first = if entries.is_empty() {
            of_it(
                self.kept_path(change.inode, &change.new_names, &links)?,
                ChangeKind::Changed,
            )
        } else {
            entries.remove(0)
        };
        for link in &mut links {
            link.link_of = Some(first.path.clone());
        }
        first.xattrs = change.xattrs;
        first.more_xattrs = change.more_xattrs;
        first.data = data;
        first.data_is_coarse = data_is_coarse;
        if !first.is_nothing() {
            self.push(first)?;
        }
        for entry in entries.into_iter().chain(links) {
            self.push(entry)?;
        }
        Ok(())
    }

    /// Lists ranges between the old and the new end of a file that grew. Their extents may be equal in both
    /// snapshots, if they were cut off by the old size.
    fn cut_off_before(
        &self,
        inode: u64,
        old: &Inode,
        new: &Inode,
    ) -> Result<Vec<Range<u64>>, DiffError> {
        let mut found = Vec::new();
        let (start, end) = (old.item.size.get(), new.item.size.get());
        if new.file_type != FileKind::Regular || start >= end {
            return Ok(found);
        }
        let key = Key::new(inode, KeyType::EXTENT_DATA, start);
        let mut cursor = self.new.view().cursor();
        let is_extent = |key: Key| (key.objectid, key.item_type) == (inode, KeyType::EXTENT_DATA);
        let mut more = cursor.seek_floor(&key)?;
        if !cursor.current().is_some_and(|(key, _)| is_extent(key)) {
            more = cursor.seek(&key)?;
        }
        while more && let Some(item) = cursor.item().filter(|item| is_extent(item.key())) {
            let at = item.key().offset;
            let extent = FileExtent::decode(&item);
            if at >= end {
                break;
            }
            let has_data = matches!(&extent, Some(FileExtent::Regular { body, prealloc: false, .. })
                if body.disk().is_some());
            let extent_end = extent.map_or(at, |extent| at.saturating_add(extent.num_bytes()));
            if has_data && extent_end > start {
                let (start, end) = (at.max(start), extent_end.min(end));
                let is_full = found.len() >= MAX_RANGES;
                match found.last_mut().filter(|_| is_full) {
                    Some(last) => last.end = end,
                    None => found.push(start..end),
                }
            }
            more = cursor.advance()?;
        }
        Ok(found)
    }

    /// Lists the old and new paths of unchanged names whose directory number was reused by another directory.
    fn moved_by_number(
        &mut self,
        change: &InodeDifferences,
    ) -> Result<Vec<[PathBuf; 2]>, DiffError> {
        let mut moved = Vec::new();
        if change.inode == self.top() {
            return Ok(moved);
        }
        for name in self.new_paths.all_names(change.inode)? {
            if change.new_names.contains(&name) && !change.old_names.contains(&name) {
                continue;
            }
            if self.is_replaced_dir(name.0)? {
                let from = self.old_paths.of_name(&name)?;
                let to = self.new_paths.of_name(&name)?;
                if from != to {
                    moved.push([from, to]);
                }
            }
        }
        Ok(moved)
    }

    /// Returns whether this directory number belongs to a different directory in the old snapshot.
    fn is_replaced_dir(&mut self, dir: u64) -> Result<bool, DiffError> {
        if dir == self.top() {
            return Ok(false);
        }
        if let Some(&known) = self.replaced_dirs.get(&dir) {
            return Ok(known);
        }
        let inode = |of: &Snapshot| -> Result<Option<Inode>, DiffError> {
            let item = of.view().get(&Key::new(dir, KeyType::INODE_ITEM, 0))?;
            Ok(item.and_then(|item| Inode::decode(&item)))
        };
        let is_replaced = match (inode(self.old)?, inode(self.new)?) {
            (Some(old), Some(new)) => !old.is_same(&new),
            _ => false,
        };
        if self.replaced_dirs.len() >= MAX_KNOWN_DIRS {
            self.replaced_dirs.clear();
        }
        self.replaced_dirs.insert(dir, is_replaced);
        Ok(is_replaced)
    }

    /// Returns the first path that exists in both snapshots. It is "" for the root directory.
    fn kept_path(
        &mut self,
        inode: u64,
        differing: &BTreeSet<Name>,
        links: &[Change],
    ) -> Result<PathBuf, DiffError> {
        if inode == self.top() {
            return Ok(PathBuf::new());
        }
        let names = if links.iter().any(|link| link.kind == ChangeKind::Added) {
            // Added names may precede unchanged ones.
            self.new_paths.all_names(inode)?
        } else {
            self.new_paths.first_name(inode)?.into_iter().collect()
        };
        for name in &names {
            let path = self.new_paths.of_name(name)?;
            let is_new = |link: &Change| link.kind == ChangeKind::Added && link.path == path;
            if !differing.contains(name) || !links.iter().any(is_new) {
                return Ok(path);
            }
        }
        Err(DiffError::Corrupt {
            tree: self.new.id(),
            key: Key::new(inode, KeyType::INODE_REF, 0),
        })
    }
}

/// The last inode number; higher object ids are not files.
const LAST_INODE: u64 = ubtrfs_format::ids::RootId::LAST_FREE;
