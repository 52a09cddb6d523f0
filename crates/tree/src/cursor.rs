//! A position in a view, and its moves.
//!
//! The sets of the view are merged: the nearest key is next, from the newest set that has it, and a whiteout hides
//! its key. A cursor uses the sets that were current when it was created or last positioned by a seek. It sees later
//! edits of its mutable set at keys that it has not passed; the current item does not change.
//!
//! Invariants
//! - CURSOR-1: the path is at the first committed item at or beyond the cursor's key in the direction of the last
//!   move. Without such an item it is unpositioned.
//! - CURSOR-2: a run of committed items with no upper entry between them costs about as much as without upper sets.
//!   The end of the run is computed once per leaf.
//! - CURSOR-3: only the first cursor walks through a long run of whiteouts; later ones skip it.
//! - CURSOR-4: forward moves yield strictly ascending keys, backward moves descending keys.
//!
//! Locks: none between moves; none is held while a block is read.
//! Not here: walking one set (`path`, `delta`).

use std::ops::RangeInclusive;
use std::sync::Arc;

use ubtrfs_format::key::Key;

use crate::block::Item;
use crate::delta::{Direction, Overlay};
use crate::epoch::Epoch;
use crate::error::TreeError;
use crate::live::{Depth, Layers};
use crate::path::Path;
use crate::view::{Source, View};

#[cfg(test)]
mod tests;

/// Reads a tree in key order, in both directions.
#[derive(Clone, Debug)]
pub struct Cursor<'v> {
    view: &'v View,
    /// Keeps the blocks of the committed set from being reused.
    _epoch: Arc<Epoch>,
    /// The layers of a live tree.
    layers: Option<Arc<Layers>>,
    path: Path<'v>,
    /// The sets above the committed one. If there are none, the path alone is the position.
    overlay: Option<Overlay>,
    at: At,
    direction: Direction,
    clear: Clear,
}

impl View {
    /// Creates a cursor without a position; seek it first.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self)
    }

    /// Returns the items in a range of keys, ascending, or None if there are more than `most`.
    ///
    /// Needs no cursor if all items are edits of the running transaction, such as the items of a new inode.
    pub fn few_items(
        &self,
        keys: RangeInclusive<Key>,
        most: usize,
    ) -> Result<Option<Vec<Item>>, TreeError> {
        if let Source::Live(tree, Depth::Mutable) = self.source() {
            // EPOCH-1: the token before the layers.
            let _epoch = self.store().hold_epoch_briefly();
            let items = tree.only_edited_in(keys.clone(), most)?;
            if items.is_some() {
                return Ok(items);
            }
        }
        let mut items = Vec::new();
        let mut cursor = self.cursor();
        let mut more = cursor.seek(keys.start())?;
        while more && let Some(item) = cursor.item().filter(|item| keys.contains(&item.key())) {
            if items.len() == most {
                return Ok(None);
            }
            items.push(item);
            more = cursor.advance()?;
        }
        Ok(Some(items))
    }
}

/// Consecutive slots of the path's leaf with no upper entry between them. A forward walk skips the merge for these.
#[derive(Clone, Copy, Debug, Default)]
struct Clear {
    /// Exclusive end of the clear slots, which begin at the path's slot; 0 unless the cursor is at the path's item.
    end: usize,
    /// The version of the overlay for which `end` was computed.
    version: u64,
}

/// A run of consecutive whiteouts that a move has passed.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// The lowest and the highest key, and the version of the mutable set at the start of the run.
    keys: Option<(Key, Key, u64)>,
    passed: usize,
    /// Whether a gap was skipped.
    skipped: bool,
}

/// Minimum number of whiteouts for a run to be recorded as a gap. Tests use short runs.
const LONG_RUN: usize = if cfg!(test) { 3 } else { 64 };
/// Minimum number of whiteouts that extend an existing gap.
const LONGER_BY: usize = if cfg!(test) { 2 } else { 8 };
/// A run is recorded in portions, so that a concurrent edit does not invalidate all of it.
const PORTION: usize = if cfg!(test) { 16 } else { 4096 };

impl Run {
    /// Passes a whiteout. Returns the end of the known gap around it, if any.
    fn pass(&mut self, overlay: &Overlay, direction: Direction, key: Key) -> Option<Key> {
        let (set, version) = overlay.mutable()?;
        if self.keys.is_none_or(|(.., begun)| begun != version) {
            *self = Run::default();
        }
        self.reach(key..=key, version);
        self.passed += 1;
        if self.passed >= PORTION {
            self.end(overlay);
            self.reach(key..=key, version);
        }
        // Looks for a gap at the first whiteout and then once per `LONGER_BY`: an unrecorded run between two gaps is
        // short.
        if self.passed != 1 && !self.passed.is_multiple_of(LONGER_BY) {
            return None;
        }
        let gap = set.gap(&key)?;
        self.reach(gap.clone(), version);
        self.skipped = true;
        Some(match direction {
            Direction::Up => *gap.end(),
            Direction::Down => *gap.start(),
        })
    }

    fn reach(&mut self, keys: RangeInclusive<Key>, version: u64) {
        let (low, high) = keys.into_inner();
        self.keys = Some(match self.keys {
            Some((first, last, _)) => (first.min(low), last.max(high), version),
            None => (low, high, version),
        });
    }

    /// Ends the run: the next item is visible, or there is none.
    fn end(&mut self, overlay: &Overlay) {
        // CURSOR-3
        let is_long = self.passed >= LONG_RUN || self.skipped && self.passed >= LONGER_BY;
        if is_long && let Some((low, high, version)) = self.keys {
            overlay.note_gap(low..=high, version);
        }
        *self = Run::default();
    }
}

/// The position of a cursor with an overlay.
#[derive(Clone, Debug)]
enum At {
    Nowhere,
    /// The path's item.
    Path,
    Delta(Item),
}

impl<'v> Cursor<'v> {
    pub(crate) fn new(view: &'v View) -> Cursor<'v> {
        // EPOCH-1: the token before the layers.
        let epoch = view.store().epoch();
        let (layers, root, overlay) = match view.source() {
            Source::Root(_, root) => (None, *root, None),
            Source::Live(tree, depth) => {
                let layers = tree.layers();
                let (root, overlay) = (layers.committed(), layers.overlay(*depth));
                (Some(layers), root, overlay)
            }
        };
        Cursor {
            view,
            _epoch: epoch,
            layers,
            path: Path::new(view.store(), root),
            overlay,
            at: At::Nowhere,
            direction: Direction::Up,
            clear: Clear::default(),
        }
    }

    /// Enables read-ahead of siblings, in large batches, for a long forward walk.
    #[must_use]
    pub fn sequential(mut self) -> Self {
        self.path.set_sequential();
        self
    }

    /// Switches to the current layers. For a fixed root the cursor keeps its token, because nothing else protects the
    /// root.
    fn renew(&mut self) {
        self.at = At::Nowhere;
        let Source::Live(tree, depth) = self.view.source() else {
            return;
        };
        let epoch = tree.store().epoch();
        let layers = tree.layers();
        if self
            .layers
            .as_ref()
            .is_none_or(|old| !Arc::ptr_eq(old, &layers))
        {
            self.path.set_root(layers.committed());
            self.overlay = layers.overlay(*depth);
            self.layers = Some(layers);
        }
        self._epoch = epoch;
    }

    /// Moves to the first item at or above `key`. Returns false if there is none.
    pub fn seek(&mut self, key: &Key) -> Result<bool, TreeError> {
        self.renew();
        let found = self.path.seek(key)?;
        match self.overlay {
            None => Ok(found),
            Some(_) => self.merge(Direction::Up, *key),
        }
    }

    /// Moves to the last item at or below `key`. Returns false if there is none.
    pub fn seek_floor(&mut self, key: &Key) -> Result<bool, TreeError> {
        self.renew();
        let found = self.path.seek_floor(key)?;
        match self.overlay {
            None => Ok(found),
            Some(_) => self.merge(Direction::Down, *key),
        }
    }

    /// Returns the current item.
    pub fn current(&self) -> Option<(Key, &[u8])> {
        match (&self.overlay, &self.at) {
            (None, _) | (_, At::Path) => self.path.current(),
            (_, At::Delta(item)) => Some((item.key(), item)),
            (_, At::Nowhere) => None,
        }
    }

    /// Returns the current item together with a reference to its bytes.
    pub fn item(&self) -> Option<Item> {
        match (&self.overlay, &self.at) {
            (None, _) | (_, At::Path) => self.path.item(),
            (_, At::Delta(item)) => Some(item.clone()),
            (_, At::Nowhere) => None,
        }
    }

    /// Moves to the next item. Returns false after the last one; the cursor is unpositioned then.
    pub fn advance(&mut self) -> Result<bool, TreeError> {
        let Some(overlay) = &self.overlay else {
            return self.path.advance();
        };
        // CURSOR-2
        if self.clear.version == overlay.version() && self.path.advance_below(self.clear.end) {
            return Ok(true);
        }
        self.step(Direction::Up)
    }

    /// Moves to the previous item. Returns false before the first one; the cursor is unpositioned then.
    pub fn retreat(&mut self) -> Result<bool, TreeError> {
        match self.overlay {
            None => self.path.retreat(),
            Some(_) => self.step(Direction::Down),
        }
    }

    /// Moves to the next item in `direction`.
    fn step(&mut self, direction: Direction) -> Result<bool, TreeError> {
        let at = std::mem::replace(&mut self.at, At::Nowhere);
        let here = match at {
            At::Nowhere => None,
            At::Path => self.path.key(),
            At::Delta(item) => Some(item.key()),
        };
        // CURSOR-4: the rest of the search considers only keys from `next` on.
        let Some(next) = here.and_then(|here| direction.after(here)) else {
            self.path.clear();
            return Ok(false);
        };
        match self.path.key() {
            Some(path) if direction.is_before(path, next) => self.move_path(direction)?,
            Some(_) => true,
            // CURSOR-1: the path left the tree in the direction of the last move.
            None if self.direction == direction => false,
            None => self.seek_path(direction, &next)?,
        };
        self.merge(direction, next)
    }

    fn move_path(&mut self, direction: Direction) -> Result<bool, TreeError> {
        match direction {
            Direction::Up => self.path.advance(),
            Direction::Down => self.path.retreat(),
        }
    }

    fn seek_path(&mut self, direction: Direction, key: &Key) -> Result<bool, TreeError> {
        match direction {
            Direction::Up => self.path.seek(key),
            Direction::Down => self.path.seek_floor(key),
        }
    }

    /// Moves to the first visible item at or beyond `key`. The path must be at the first committed one there.
    fn merge(&mut self, direction: Direction, mut key: Key) -> Result<bool, TreeError> {
        self.direction = direction;
        self.clear = Clear::default();
        let mut run = Run::default();
        while let Some(overlay) = &mut self.overlay {
            let committed = self.path.key();
            // Ignore the entry if the committed item comes first. On equal keys the entry wins, because its set is
            // newer.
            let nearest = overlay.find(direction, key).filter(|(delta, _)| {
                committed.is_none_or(|committed| !direction.is_before(committed, *delta))
            });
            let hidden = match nearest {
                None if committed.is_none() => {
                    run.end(overlay);
                    return Ok(false);
                }
                None => {
                    self.at = At::Path;
                    run.end(overlay);
                    self.find_clear();
                    return Ok(true);
                }
                Some((delta, Some(value))) => {
                    self.at = At::Delta(Item::from_delta(delta, Arc::clone(value)));
                    run.end(overlay);
                    return Ok(true);
                }
                Some((delta, None)) => delta,
            };
            let skipped = run.pass(overlay, direction, hidden);
            let Some(next) = direction.after(skipped.unwrap_or(hidden)) else {
                run.end(overlay);
                break;
            };
            // A gap may hide many committed items, so the path seeks instead of stepping over each of them.
            if skipped.is_some() {
                self.seek_path(direction, &next)?;
            } else if committed == Some(hidden) {
                self.move_path(direction)?;
            }
            key = next;
        }
        self.path.clear();
        Ok(false)
    }

    /// Computes the clear slots. [`Overlay::find`] must have shown that the path's item is before all upper entries.
    fn find_clear(&mut self) {
        if let (Some(overlay), Direction::Up) = (&self.overlay, self.direction) {
            let (version, next) = overlay.found_up();
            self.clear = Clear {
                end: self.path.slots_below(next),
                version,
            };
        }
    }
}
