//! Ordered iteration over the entries of the sets above the committed one.
//!
//! A walk buffers the next few entries of its set, so that a long scan rarely takes the set's lock. An edit of the
//! set invalidates the buffer.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ubtrfs_format::key::Key;

use super::{Entry, FrozenSet, MutableSet};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Up,
    Down,
}

impl Direction {
    /// Returns whether `a` precedes `b` in this direction.
    pub(crate) fn is_before(self, a: Key, b: Key) -> bool {
        match self {
            Direction::Up => a < b,
            Direction::Down => a > b,
        }
    }

    /// Returns the next key in this direction, or None after the last one.
    pub(crate) fn after(self, key: Key) -> Option<Key> {
        match self {
            Direction::Up => key.next(),
            Direction::Down => key.prev(),
        }
    }
}

/// The sets above the committed one, newest first.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    walks: Vec<Walk>,
    /// The publication number of the sets.
    publications: u64,
}

impl Overlay {
    /// Creates an overlay of the given sets, or returns None if there are none.
    pub(crate) fn new(
        mutable: Option<&Arc<MutableSet>>,
        frozen: Option<&Arc<FrozenSet>>,
        publications: u64,
    ) -> Option<Overlay> {
        let mutable = mutable.map(|set| Set::Mutable(Arc::clone(set)));
        let frozen = frozen.map(|set| Set::Frozen(Arc::clone(set)));
        let walks: Vec<Walk> = mutable.into_iter().chain(frozen).map(Walk::new).collect();
        (!walks.is_empty()).then_some(Overlay {
            walks,
            publications,
        })
    }

    /// Finds the first entry at or beyond `key`, in the newest set that has its key.
    pub(crate) fn find(&mut self, direction: Direction, key: Key) -> Option<(Key, &Entry)> {
        let mut nearest: Option<(Key, &Entry)> = None;
        for walk in &mut self.walks {
            if let Some((key, entry)) = walk.find(direction, key)
                && nearest.is_none_or(|(nearest, _)| direction.is_before(*key, nearest))
            {
                nearest = Some((*key, entry));
            }
        }
        nearest
    }

    /// Returns a number that changes with every edit of a set.
    pub(crate) fn version(&self) -> u64 {
        self.walks.first().map_or(0, |walk| walk.set.version())
    }

    /// Returns the mutable set if the overlay has one, and its version as of the last [`Overlay::find`].
    pub(crate) fn mutable(&self) -> Option<(&MutableSet, u64)> {
        let walk = self.walks.first()?;
        match &walk.set {
            Set::Mutable(set) => Some((set, walk.version)),
            Set::Frozen(_) => None,
        }
    }

    /// Adds a gap if the mutable set is still at `version`.
    pub(crate) fn note_gap(&self, gap: RangeInclusive<Key>, version: u64) {
        if let Some((set, _)) = self.mutable() {
            set.note_gap(gap, version, self.publications);
        }
    }

    /// Returns the version and the key of the last upward [`Overlay::find`].
    pub(crate) fn found_up(&self) -> (u64, Option<Key>) {
        let keys = self.walks.iter().filter_map(|walk| walk.ahead.front());
        let version = self.walks.first().map_or(0, |walk| walk.version);
        (version, keys.map(|(key, _)| *key).min())
    }
}

#[derive(Clone, Debug)]
enum Set {
    Mutable(Arc<MutableSet>),
    Frozen(Arc<FrozenSet>),
}

impl Set {
    fn version(&self) -> u64 {
        match self {
            Set::Mutable(set) => set.version(),
            Set::Frozen(_) => 0,
        }
    }
}

/// Maximum number of entries that a walk fetches at once. It starts with fewer.
const MOST_AHEAD: usize = 32;

#[derive(Clone, Debug)]
struct Walk {
    set: Set,
    direction: Direction,
    /// `ahead` begins with the first entry at or beyond this key. None before the first fetch.
    from: Option<Key>,
    ahead: VecDeque<(Key, Entry)>,
    /// Whether the set has no entries after those in `ahead`.
    complete: bool,
    /// The set's version when `ahead` was fetched.
    version: u64,
    most: usize,
}

impl Walk {
    fn new(set: Set) -> Walk {
        Walk {
            set,
            direction: Direction::Up,
            from: None,
            ahead: VecDeque::new(),
            complete: false,
            version: 0,
            most: 1,
        }
    }

    fn find(&mut self, direction: Direction, key: Key) -> Option<&(Key, Entry)> {
        if !self.covers(direction, key) {
            self.direction = direction;
            self.most = 1;
            self.fetch(key);
        }
        while let Some((ahead, _)) = self.ahead.front()
            && direction.is_before(*ahead, key)
        {
            self.ahead.pop_front();
        }
        self.from = Some(key);
        if self.ahead.is_empty() && !self.complete {
            self.most = (self.most * 4).min(MOST_AHEAD);
            self.fetch(key);
        }
        self.ahead.front()
    }

    /// Returns whether `ahead` is still valid for a look-up at or beyond `key`.
    fn covers(&self, direction: Direction, key: Key) -> bool {
        self.set.version() == self.version
            && self.direction == direction
            && self
                .from
                .is_some_and(|from| !direction.is_before(key, from))
    }

    fn fetch(&mut self, key: Key) {
        self.ahead.clear();
        let (most, out) = (self.most, &mut self.ahead);
        match (&self.set, self.direction) {
            (Set::Mutable(set), Direction::Up) => self.version = set.above(key, most, out),
            (Set::Mutable(set), Direction::Down) => self.version = set.below(key, most, out),
            (Set::Frozen(set), Direction::Up) => set.above(key, most, out),
            (Set::Frozen(set), Direction::Down) => set.below(key, most, out),
        }
        self.complete = self.ahead.len() < most;
    }
}
