//! A cache of names that were recently found or created, so that repeated lookups need no tree search.
//!
//! A set serves all names with one hash and keeps the last few that lead to an inode of their own subvolume. Names that
//! differ only in their last digits use adjacent sets, because they are often used in numeric order. An access to
//! distant memory would cost as much as a search. Long names and missing names are not cached.
//!
//! Invariants
//! - NAMES-1: a cached name equals the entry in the tree's view. An edit of DIR_ITEMs first removes the affected names
//!   while it holds the tree's mutable set. Commits by themselves never change a name that leads to an inode.
//! - NAMES-2: a name read from a tree or written to it enters only if no edit has touched its set since.
//! - NAMES-3: names enter after all edits of a call are made, so that no lookup finds half of a call.
//!
//! Locks: each set's, a leaf, held for one copy.
//! Not here: names of subvolumes, which depend on the root tree (`namespace::dir`).

use std::num::NonZeroU64;
use std::sync::OnceLock;

use parking_lot::Mutex;
use ubtrfs_format::ids::{InodeNr, RootId};

use super::inode_items::pages_of;

#[cfg(test)]
mod tests;

/// Maximum number of pages, a power of two. Pages are allocated when their sets are first used.
const MOST_PAGES: usize = 512;
/// Names that differ in their last two digits fit into one page.
const PAGE_SETS: usize = 128;
const WAYS: usize = 4;
/// Bytes of a name's length and the name.
const BYTES: usize = 32;

/// The cached names of all trees of a volume.
#[derive(Debug)]
pub struct NameCache {
    pages: Vec<OnceLock<Vec<Mutex<Set>>>>,
}

#[derive(Debug, Default)]
struct Set {
    /// The number of edits that affected this set.
    version: u64,
    /// The newest first.
    ways: [Option<Kept>; WAYS],
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    id: NameId,
    ino: NonZeroU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NameId {
    root: u64,
    dir: u64,
    bytes: [u8; BYTES],
}

/// A name in a directory that is short enough for the cache.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    id: NameId,
    set: u32,
}

impl Name {
    pub fn new(root: RootId, dir: InodeNr, name: &[u8]) -> Option<Name> {
        let mut bytes = [0; BYTES];
        bytes.get_mut(1..=name.len())?.copy_from_slice(name);
        bytes[0] = name.len() as u8;
        let id = NameId {
            root: root.0,
            dir: dir.0,
            bytes,
        };
        Some(Name {
            id,
            set: set_of(&id, name)?,
        })
    }
}

fn set_of(id: &NameId, name: &[u8]) -> Option<u32> {
    let last_digit = name.iter().rposition(u8::is_ascii_digit);
    let ones = last_digit.unwrap_or(name.len().checked_sub(1)?);
    let mut rest = id.bytes;
    // The name's length is stored before its first byte.
    let digits = &mut rest[ones.max(1)..ones + 2];
    let number = digits
        .iter()
        .fold(0, |number, digit| number * 10 + usize::from(digit & 15));
    digits.fill(0);
    let mut hash = id.root.rotate_left(32) ^ id.dir;
    for word in rest.chunks_exact(8) {
        let word = word.try_into().map(u64::from_le_bytes).unwrap_or_default();
        hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
    }
    let page = hash as usize % MOST_PAGES;
    let first = (hash >> 32) as usize;
    Some((page * PAGE_SETS + (first + number) % PAGE_SETS) as u32)
}

/// Permission to enter a name that was read from a tree after the ticket was issued, or written before.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Ticket {
    version: u64,
}

impl Default for NameCache {
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl NameCache {
    /// Creates a cache within the budget.
    pub(super) fn new(budget_bytes: u64) -> Self {
        let pages = pages_of(
            budget_bytes,
            PAGE_SETS * size_of::<Mutex<Set>>(),
            MOST_PAGES,
        );
        NameCache {
            pages: (0..pages).map(|_| OnceLock::new()).collect(),
        }
    }

    #[inline]
    fn set(&self, name: &Name) -> &Mutex<Set> {
        let at = name.set as usize;
        let page = self.pages[(at / PAGE_SETS) & (self.pages.len() - 1)].get_or_init(|| {
            let sets = std::iter::repeat_with(Mutex::default);
            sets.take(PAGE_SETS).collect()
        });
        &page[at % PAGE_SETS]
    }

    /// Prefetches the memory of a name's set.
    #[inline]
    pub fn touch(&self, name: &Name) {
        std::hint::black_box(self.set(name).is_locked());
    }

    /// Returns the inode that a name leads to, or a ticket to enter it.
    #[inline]
    pub fn get(&self, name: &Name) -> Result<InodeNr, Ticket> {
        let set = self.set(name).lock();
        let mut kept = set.ways.iter().flatten();
        match kept.find(|kept| kept.id == name.id) {
            Some(kept) => Ok(InodeNr(kept.ino.get())),
            None => Err(Ticket {
                version: set.version,
            }),
        }
    }

    /// Enters a name, unless its set has changed since the ticket was issued (NAMES-2).
    pub fn enter(&self, ticket: Ticket, name: &Name, ino: InodeNr) {
        let Some(ino) = NonZeroU64::new(ino.0) else {
            return;
        };
        let mut set = self.set(name).lock();
        if set.version != ticket.version {
            return;
        }
        let gives_way = |way: &Option<Kept>| way.is_none_or(|kept| kept.id == name.id);
        let at = set.ways.iter().position(gives_way).unwrap_or(WAYS - 1);
        set.ways[..=at].rotate_right(1);
        set.ways[0] = Some(Kept { id: name.id, ino });
    }

    fn take_out(&self, name: &Name) -> Ticket {
        let mut set = self.set(name).lock();
        set.version += 1;
        for way in &mut set.ways {
            if way.is_some_and(|kept| kept.id == name.id) {
                *way = None;
            }
        }
        Ticket {
            version: set.version,
        }
    }
}

/// The names that the edits of one call change, with the inodes that they lead to afterwards, if cacheable.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameChanges {
    changes: [Option<(Name, Option<InodeNr>)>; MOST_CHANGES],
}

/// The maximum number of names in a call: a rename changes two.
const MOST_CHANGES: usize = 2;

impl NameChanges {
    /// Notes a change of a name. The last of several changes counts.
    ///
    /// # Panics
    /// If a call changes more names than a rename.
    pub fn note(&mut self, name: Name, leads_to: Option<InodeNr>) {
        let mut places = self.changes.iter_mut();
        let place = places.find(|place| place.is_none_or(|(other, _)| other.id == name.id));
        *place.expect("a call changes few names") = Some((name, leads_to));
    }

    /// Removes the changed names from the cache. The caller holds the tree's mutable set, and has made no edit yet
    /// (NAMES-1).
    pub(crate) fn take_out(&self, names: &NameCache) -> [Option<Ticket>; MOST_CHANGES] {
        let mut tickets = [None; MOST_CHANGES];
        for (ticket, (name, _)) in tickets.iter_mut().zip(self.changes.iter().flatten()) {
            *ticket = Some(names.take_out(name));
        }
        tickets
    }

    /// Enters the new targets of the names after all edits are made (NAMES-3).
    pub(crate) fn enter(&self, names: &NameCache, tickets: [Option<Ticket>; MOST_CHANGES]) {
        for (change, ticket) in self.changes.iter().zip(tickets) {
            if let (Some((name, Some(ino))), Some(ticket)) = (change, ticket) {
                names.enter(ticket, name, *ino);
            }
        }
    }
}
