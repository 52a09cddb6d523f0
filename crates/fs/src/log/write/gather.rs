//! Gathers the items that a log needs for some inodes, and for all others without which replay would lose
//! data.
//!
//! The changes since the last commit are in the mutable set of the subvolume. A logged inode may need others:
//! new directories above it, the inode that had its name before, the directories that contained its names.
//! They are queued, and each may need more inodes.
//!
//! Invariants
//! - LOG-WRITE-3: a log removes a name of an inode only if it has the inode's other names, or the inode has
//!   no names left.
//! - LOG-WRITE-4: a log has no item that could crash Linux (`replay_outgrows_leaf`).
//! - LOG-WRITE-5: the mode, owner and attributes of an inode are from the same moment, as far as replay
//!   applies them.
//!
//! Not here: the decision to write a log.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::item::{FileKind, InodeItem};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::replay_outgrows_leaf;
use ubtrfs_storage::roots::Tree;
use ubtrfs_storage::{FileId, FullCommitReason, LogSession};
use ubtrfs_tree::View;
use zerocopy::IntoBytes;

use super::edits::{Edits, LogEdits, keys_of};
use super::{ByInode, LoggedInode, LoggedInodes, Part, Request, Stop};
use crate::error::Result;
use crate::file::Durable;
use crate::inode::{Inodes, decode_inode, inode_key, kind_of};

/// With more inodes than this, a full commit replaces the log.
const MOST_INODES: usize = 20_000;

pub(super) type Step = std::result::Result<(), Stop>;

/// The state while one subvolume's log is gathered.
pub(super) struct Gather<'g> {
    pub(super) inodes: &'g Inodes,
    pub(super) tree: &'g Arc<Tree>,
    /// The subvolume as of the last commit, which is the base of a replay.
    pub(super) committed: View,
    pub(super) log: LogEdits<'g>,
    known: &'g LoggedInodes,
    /// Changes of `known`. None: removed from the log.
    changes: ByInode<Option<LoggedInode>>,
    /// A cache of `is_new`: whether the last commit lacks an inode.
    new_inodes: ByInode<bool>,
    last_committed: Option<u64>,
    /// The back references of logged inodes that have changed since.
    renamed: BTreeMap<u64, Vec<Key>>,
    queue: Vec<(u64, Part)>,
    /// Inodes that were queued in full even if they were logged: those to sync, and directories that
    /// contained their names.
    updated: HashSet<u64>,
    /// Inodes whose last committed name replay removes.
    pub(super) hidden: HashSet<u64>,
    /// Directories that were checked for having been moved.
    pub(super) climbed: HashSet<u64>,
    /// Inodes whose changes are now completely logged.
    complete: Vec<u64>,
    visited: usize,
}

/// The gathered changes of a log.
pub(super) struct Gathered {
    edits: Edits,
    changes: ByInode<Option<LoggedInode>>,
    complete: Vec<u64>,
}

/// An inode to be logged.
pub(super) struct Subject {
    pub(super) ino: u64,
    pub(super) item: InodeItem,
    pub(super) kind: FileKind,
    /// Whether the last commit lacks it.
    pub(super) is_new: bool,
    /// Whether the log has no item of it yet.
    pub(super) is_unlogged: bool,
}

/// An item that the running transaction has edited. None: deleted.
pub(super) type EditedItem = (Key, Option<Arc<[u8]>>);

impl<'g> Gather<'g> {
    pub(super) fn new(
        inodes: &'g Inodes,
        tree: &'g Arc<Tree>,
        known: &'g LoggedInodes,
        session: &'g LogSession<'g>,
    ) -> Gather<'g> {
        Gather {
            inodes,
            tree,
            committed: tree.committed_view(),
            log: LogEdits::new(session, tree.id()),
            known,
            changes: ByInode::default(),
            new_inodes: ByInode::default(),
            last_committed: None,
            renamed: BTreeMap::new(),
            queue: Vec::new(),
            updated: HashSet::new(),
            hidden: HashSet::new(),
            climbed: HashSet::new(),
            complete: Vec::new(),
            visited: 0,
        }
    }

    pub(super) fn run(mut self, requests: &[&Request]) -> std::result::Result<Gathered, Stop> {
        self.follow_names()?;
        for request in requests {
            let ino = request.inode.id.ino.0;
            if request.what == Durable::All || !self.is_logged_but_times(ino)? {
                self.need_once(ino);
                self.need_committed_parents(ino)?;
            }
        }
        while let Some((ino, part)) = self.queue.pop() {
            self.visit()?;
            self.add(ino, part)?;
        }
        self.check_growth()?;
        Ok(Gathered {
            edits: self.log.into_edits(),
            changes: self.changes,
            complete: self.complete,
        })
    }

    /// Checks that no item has grown too far since the last commit (LOG-WRITE-4).
    fn check_growth(&self) -> Step {
        let nodesize = self.inodes.roots.superblock().nodesize.get() as usize;
        for (key, item) in self.log.put_items() {
            let new_len = item.len();
            let outgrows =
                |old_len| replay_outgrows_leaf(key.item_type, old_len, new_len, nodesize);
            // The committed item is at least as long as this one, or there is no danger.
            if !outgrows(new_len.saturating_sub(1)) {
                continue;
            }
            let committed = self.committed.get(key)?;
            if committed.is_some_and(|committed| outgrows(committed.len())) {
                return Err(Stop::FullCommit(FullCommitReason::LargeItem));
            }
        }
        Ok(())
    }

    /// Returns whether everything but the times of a regular file is logged.
    fn is_logged_but_times(&self, ino: u64) -> Result<bool> {
        let key = inode_key(InodeNr(ino));
        if self.part(ino) != Some(Part::All) || self.renamed.contains_key(&ino) {
            return Ok(false);
        }
        let changed = self.tree.log_journal.items_of(ino);
        let (Some(logged), Some(item)) = (self.log.get(&key), self.find(ino)?) else {
            return Ok(false);
        };
        if kind_of(self.file(ino), &item)? != FileKind::Regular {
            return Ok(false);
        }
        let mut logged = decode_inode(self.file(ino), logged)?;
        (logged.transid, logged.sequence) = (item.transid, item.sequence);
        (logged.atime, logged.ctime, logged.mtime) = (item.atime, item.ctime, item.mtime);
        Ok(logged == item && changed.iter().all(|changed| *changed == key))
    }

    pub(super) fn visit(&mut self) -> Step {
        self.visited += 1;
        if self.visited > MOST_INODES {
            Err(Stop::FullCommit(FullCommitReason::TooMany))
        } else {
            Ok(())
        }
    }

    /// Handles changed names of inodes that are in the log.
    fn follow_names(&mut self) -> Step {
        let names = self.tree.log_journal.names();
        for of_dir in names
            .chunk_by(|key, next| (key.objectid, key.item_type) == (next.objectid, next.item_type))
        {
            let first = of_dir[0];
            if first.item_type != KeyType::DIR_INDEX {
                let renamed = self.renamed.entry(first.objectid).or_default();
                renamed.extend(of_dir);
                continue;
            }
            for (key, item) in self.edited_items(of_dir) {
                if item.is_none() {
                    self.log.delete(key);
                }
            }
            if self.part(first.objectid) == Some(Part::All) {
                let logged = self.logged(first.objectid);
                logged.entries.extend(of_dir.iter().map(|key| key.offset));
            }
        }
        let renamed = self.renamed.keys().map(|ino| (*ino, Part::Existence));
        self.queue.extend(renamed);
        Ok(())
    }

    /// Returns the current value of an item that the running transaction has edited. Reads only the mutable
    /// set.
    fn edited(&self, key: Key) -> Option<Arc<[u8]>> {
        self.tree.edited(&key).flatten()
    }

    /// Returns [`Gather::edited`] of ascending keys of one inode and type. Adjacent keys share one look-up.
    fn edited_items(&self, keys: &[Key]) -> Vec<EditedItem> {
        let mut items = Vec::with_capacity(keys.len());
        for run in keys.chunk_by(|key, next| key.offset + 1 == next.offset) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else {
                continue;
            };
            let mut edited = self.tree.edited_in(*first..=*last).into_iter().peekable();
            items.extend(run.iter().map(|key| {
                let item = edited.next_if(|(edited, _)| edited == key);
                (*key, item.and_then(|(_, item)| item))
            }));
        }
        items
    }

    /// Returns the logged part of an inode.
    fn part(&self, ino: u64) -> Option<Part> {
        match self.changes.get(&ino) {
            Some(change) => change.as_ref().map(|logged| logged.what),
            None => self.known.get(&ino).map(|logged| logged.what),
        }
    }

    /// Returns the logged state of an inode, created if necessary.
    fn logged(&mut self, ino: u64) -> &mut LoggedInode {
        let known = self.known;
        let change = self
            .changes
            .entry(ino)
            .or_insert_with(|| known.get(&ino).cloned());
        change.get_or_insert_with(|| LoggedInode {
            what: Part::Existence,
            entries: BTreeSet::new(),
        })
    }

    /// Queues an inode unless `part` of it is logged.
    pub(super) fn need(&mut self, ino: u64, part: Part) {
        if self.part(ino).is_none_or(|known| known < part) {
            self.queue.push((ino, part));
        }
    }

    /// Queues all of an inode's current state, once per gathering.
    pub(super) fn need_once(&mut self, ino: u64) {
        if self.updated.insert(ino) {
            self.queue.push((ino, Part::All));
        }
    }

    pub(super) fn file(&self, ino: u64) -> FileId {
        FileId::new(self.tree.id(), InodeNr(ino))
    }

    /// Returns the current item of an inode, unless it has no name.
    pub(super) fn find(&self, ino: u64) -> Result<Option<InodeItem>> {
        match self.tree.view.get(&inode_key(InodeNr(ino)))? {
            Some(bytes) => self.unless_nameless(ino, &bytes),
            None => Ok(None),
        }
    }

    fn unless_nameless(&self, ino: u64, bytes: &[u8]) -> Result<Option<InodeItem>> {
        let item = decode_inode(self.file(ino), bytes)?;
        Ok((item.nlink.get() > 0).then_some(item))
    }

    fn add(&mut self, ino: u64, part: Part) -> Step {
        let known = self.part(ino);
        let edited = match known {
            None => self
                .tree
                .edited_in(keys_of(ino, KeyType::INODE_ITEM..=KeyType::XATTR_ITEM)),
            Some(_) => {
                let names = self.renamed.remove(&ino).unwrap_or_default();
                let names = names.into_iter().map(|key| (key, self.edited(key)));
                names.collect()
            }
        };
        if known >= Some(part) && part == Part::Existence && edited.is_empty() {
            return Ok(());
        }
        let item = match edited.first() {
            Some((key, bytes)) if key.item_type == KeyType::INODE_ITEM => match bytes {
                Some(bytes) => self.unless_nameless(ino, bytes)?,
                None => None,
            },
            _ => self.find(ino)?,
        };
        let Some(item) = item else {
            return self.add_nameless(ino);
        };
        let subject = Subject {
            ino,
            item,
            kind: kind_of(self.file(ino), &item)?,
            is_new: self.is_new(ino)?,
            is_unlogged: known.is_none(),
        };
        let part = match subject.kind {
            FileKind::Symlink if subject.is_new => Part::All,
            _ => part,
        };
        if known.is_none() && !subject.is_new && part == Part::All && !self.is_changed(ino) {
            return Ok(());
        }
        self.add_items(&subject, part, known, &edited)?;
        for (key, now) in edited {
            if matches!(key.item_type, KeyType::INODE_REF | KeyType::INODE_EXTREF) {
                self.add_names(&subject, key, now)?;
            }
        }
        Ok(())
    }

    /// Returns whether the last commit lacks the inode.
    pub(super) fn is_new(&mut self, ino: u64) -> Result<bool> {
        if ino > self.last_committed()? {
            return Ok(true);
        }
        if let Some(is_new) = self.new_inodes.get(&ino) {
            return Ok(*is_new);
        }
        let is_new = self.committed.get(&inode_key(InodeNr(ino)))?.is_none();
        self.new_inodes.insert(ino, is_new);
        Ok(is_new)
    }

    /// Returns the highest inode number of the last commit.
    fn last_committed(&mut self) -> Result<u64> {
        if let Some(last) = self.last_committed {
            return Ok(last);
        }
        let end = Key::new(RootId::LAST_FREE, KeyType(u8::MAX), u64::MAX);
        let mut cursor = self.committed.cursor();
        let found = cursor.seek_floor(&end)?;
        let last = cursor.current().filter(|_| found);
        let last = last.map_or(0, |(key, _)| key.objectid);
        Ok(*self.last_committed.insert(last))
    }

    /// Returns whether the running transaction has edited any item of an inode.
    fn is_changed(&self, ino: u64) -> bool {
        self.tree
            .is_edited_in(keys_of(ino, KeyType(0)..=KeyType(u8::MAX)))
    }

    /// Adds the inode item and all other items except names. For an unlogged inode, `edited` contains its
    /// changed attributes.
    fn add_items(
        &mut self,
        subject: &Subject,
        part: Part,
        known: Option<Part>,
        edited: &[EditedItem],
    ) -> Step {
        let ino = subject.ino;
        if part == Part::Existence && known.is_some() {
            return Ok(());
        }
        let changed = match known {
            Some(_) => self.tree.log_journal.items_of(ino),
            None => Vec::new(),
        };
        let logged_size = match known {
            Some(Part::All) => self.logged_size(ino)?,
            _ => u64::MAX,
        };
        let is_attributes = |key: &Key| key.item_type == KeyType::XATTR_ITEM;
        match part {
            Part::Existence => self.add_existence(subject)?,
            Part::All => self
                .log
                .put(inode_key(InodeNr(ino)), subject.item.as_bytes()),
        }
        if subject.is_unlogged && subject.is_new {
            // All attributes of a new inode are in the mutable set.
            for (key, item) in edited.iter().filter(|(key, _)| is_attributes(key)) {
                if let Some(item) = item {
                    self.log.put(*key, Arc::clone(item));
                }
            }
        } else if part == Part::Existence {
            // LOG-WRITE-5: replay keeps the committed mode and owner, so log the committed attributes.
            self.add_xattrs(subject, &self.committed.clone())?;
        } else if known != Some(Part::All) || changed.iter().any(is_attributes) {
            let tree = self.tree;
            self.add_xattrs(subject, &tree.view)?;
        }
        let entries = match part {
            Part::All => std::mem::take(&mut self.logged(ino).entries),
            Part::Existence => BTreeSet::new(),
        };
        let logged = self.logged(ino);
        logged.what = logged.what.max(part);
        self.complete.push(ino);
        if part == Part::Existence {
            return Ok(());
        }
        let edited = |types: KeyType| self.tree.edited_in(keys_of(ino, types..=types));
        match (subject.kind, known) {
            (FileKind::Directory, Some(Part::All)) => {
                let key = |index| Key::new(ino, KeyType::DIR_INDEX, index);
                let keys: Vec<Key> = entries.into_iter().map(key).collect();
                self.add_entries(subject, self.edited_items(&keys))
            }
            (FileKind::Directory, _) => self.add_entries(subject, edited(KeyType::DIR_INDEX)),
            (FileKind::Regular, Some(Part::All)) => self.add_extents(subject, changed, logged_size),
            (FileKind::Regular | FileKind::Symlink, _) => {
                let edited = edited(KeyType::EXTENT_DATA);
                let changed = edited.into_iter().map(|(key, _)| key).collect();
                self.add_extents(subject, changed, logged_size)
            }
            _ => Ok(()),
        }
    }

    /// Returns the logged size of an inode.
    fn logged_size(&self, ino: u64) -> Result<u64> {
        match self.log.get(&inode_key(InodeNr(ino))) {
            Some(bytes) => Ok(decode_inode(self.file(ino), bytes)?.size.get()),
            None => Ok(u64::MAX),
        }
    }

    /// Adds an inode item that makes replay create the inode if the last commit lacks it, and keep it
    /// otherwise.
    fn add_existence(&mut self, subject: &Subject) -> Step {
        let mut item = subject.item;
        item.generation = 0.into();
        item.size = 0.into();
        self.log
            .put(inode_key(InodeNr(subject.ino)), item.as_bytes());
        if subject.kind == FileKind::Regular && !subject.is_new {
            self.keep_reserved_extents(subject.ino)?;
        }
        Ok(())
    }

    /// Adds all attributes from `view`. Replay deletes the others.
    fn add_xattrs(&mut self, subject: &Subject, view: &View) -> Step {
        let range = keys_of(subject.ino, KeyType::XATTR_ITEM..=KeyType::XATTR_ITEM);
        let mut gone: BTreeSet<Key> = self
            .log
            .items_in(range.clone())
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        for (key, item) in self.xattrs_in(view, range, subject.is_new)? {
            self.log.put(key, item);
            gone.remove(&key);
        }
        for key in gone {
            self.log.delete(key);
        }
        Ok(())
    }

    fn xattrs_in(
        &self,
        view: &View,
        range: RangeInclusive<Key>,
        is_of_new_inode: bool,
    ) -> Result<Vec<(Key, Arc<[u8]>)>> {
        if is_of_new_inode {
            // All attributes of a new inode are in the mutable set.
            let edited = self.tree.edited_in(range).into_iter();
            return Ok(edited
                .filter_map(|(key, item)| Some((key, item?)))
                .collect());
        }
        let mut items = Vec::new();
        let mut cursor = view.cursor();
        let mut more = cursor.seek(range.start())?;
        while more
            && let Some((key, bytes)) = cursor.current()
            && range.contains(&key)
        {
            items.push((key, bytes.into()));
            more = cursor.advance()?;
        }
        Ok(items)
    }

    /// Adds an inode without names. Replay removes its committed names.
    fn add_nameless(&mut self, ino: u64) -> Step {
        let all = keys_of(ino, KeyType(0)..=KeyType(u8::MAX));
        for (key, _) in self.log.items_in(all) {
            if matches!(key.item_type, KeyType::INODE_REF | KeyType::INODE_EXTREF) {
                self.need_successors(key)?;
            }
            self.log.delete(key);
        }
        if self.part(ino).is_some() {
            self.changes.insert(ino, None);
        }
        self.hide_committed_names(ino)
    }
}

impl Gathered {
    /// Applies the edits to the log. No operation edits the subvolume at the same time (LOG-WRITE-2).
    pub(super) fn enter(
        self,
        tree: &Arc<Tree>,
        known: &mut LoggedInodes,
        session: &mut LogSession<'_>,
    ) {
        self.edits.enter(tree, session);
        let journal = &tree.log_journal;
        journal.logged_names();
        journal.logged_items(self.complete);
        for (ino, change) in self.changes {
            match change {
                Some(logged) => known.insert(ino, logged),
                None => known.remove(&ino),
            };
        }
    }
}
