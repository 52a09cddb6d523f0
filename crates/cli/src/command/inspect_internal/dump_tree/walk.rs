//! Printing the blocks of a tree in an order.
//!
//! Level by level, the interior nodes are walked again for each level, from the cache. Storing the addresses
//! of a level would need memory in proportion to the tree.
//!
//! A damaged block is reported, with each damaged item of a leaf. It is printed if its checksum is valid, as then
//! it was written like that. The blocks below it are not followed, because its pointers could lead to the same
//! blocks repeatedly.
//!
//! Invariants
//! - DUMP-1: nothing is written while the epoch is held that prevents the reuse of blocks. A reader of the
//!   output may therefore pause arbitrarily long while writers continue. A tree is printed in pieces. Each
//!   piece shows the tree at its time, from the key where the previous piece ended.
//! - DUMP-2: a piece ends at a higher position than it begins, so a dump ends on any bytes.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_format::check::{Expect, lenient_items};
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::node::{KeyPtr, Node};
use ubtrfs_tree::{Block, CommittedRoot, NodeStore, TreeError};

use crate::presentation::console::{Console, PIECE_BYTES};
use crate::print::{PrintOptions, print_block};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    LevelByLevel,
    DepthFirst,
    LeavesOnly,
}

/// A block to print.
enum Shown {
    Sound(Block),
    Damaged(Vec<u8>),
}

impl Shown {
    fn node(&self) -> Option<Node<'_>> {
        match self {
            Shown::Sound(block) => Some(block.node()),
            Shown::Damaged(bytes) => Node::new(bytes),
        }
    }
}

/// The position of a block in its tree.
#[derive(Clone, Copy)]
struct Span {
    start: Key,
    /// The start of the next block on its level. None for the last.
    end: Option<Key>,
    /// The lowest higher level whose block extends beyond the end.
    open: u8,
}

/// The progress of a dump.
#[derive(Clone, Copy)]
struct Position {
    /// Blocks that end at or before this key have been printed.
    key: Key,
    /// Also blocks that contain the key have been printed, from this level up.
    shown: u8,
}

impl Position {
    const START: Position = Position {
        key: Key::MIN,
        shown: u8::MAX,
    };

    fn is_behind(self, level: u8, span: Span) -> bool {
        span.start <= self.key && level >= self.shown
    }
}

/// The text of a part of a tree that is printed at once.
struct Piece {
    tree: RootId,
    /// The only printed level.
    level: Option<u8>,
    text: Vec<u8>,
    /// Each with its position in the text.
    reports: Vec<(usize, String)>,
    /// None after the last block.
    at: Option<Position>,
}

impl Piece {
    fn report(&mut self, reports: Vec<String>) {
        let at = self.text.len();
        self.reports
            .extend(reports.into_iter().map(|report| (at, report)));
    }

    fn come_to(&mut self, at: Option<Position>) -> ControlFlow<()> {
        self.at = at;
        if at.is_none() || self.text.len() >= PIECE_BYTES {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Moves behind a block that has been printed, including all blocks below it.
    fn pass(&mut self, span: Span) -> ControlFlow<()> {
        let at = |key| Position {
            key,
            shown: span.open,
        };
        self.come_to(span.end.map(at))
    }

    fn write(&self, console: &mut Console) -> anyhow::Result<()> {
        let mut written = 0;
        for (end, report) in &self.reports {
            console.out.write_all(&self.text[written..*end])?;
            console.report(report);
            written = *end;
        }
        Ok(console.out.write_all(&self.text[written..])?)
    }
}

/// A root item, and the reports on blocks that were skipped before it.
#[derive(Debug, Default)]
pub(super) struct FoundRoot {
    pub(super) item: Option<(Key, Vec<u8>)>,
    pub(super) reports: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Walk<'v> {
    store: &'v Arc<NodeStore>,
    order: Order,
    options: PrintOptions,
}

impl<'v> Walk<'v> {
    pub(super) fn new(store: &'v Arc<NodeStore>, order: Order, options: PrintOptions) -> Walk<'v> {
        Walk {
            store,
            order,
            options,
        }
    }

    /// Prints a tree from the root that `root` looks up. Ends when the tree does not exist any longer.
    pub(super) fn tree(
        &self,
        console: &mut Console,
        root: &dyn Fn() -> anyhow::Result<Option<CommittedRoot>>,
    ) -> anyhow::Result<()> {
        self.blocks(console, &|| {
            Ok(root()?.map(|root| (root.tree, expect_root(&root))))
        })
    }

    /// Prints a single block.
    pub(super) fn block(&self, console: &mut Console, bytenr: Logical) -> anyhow::Result<()> {
        let (shown, reports) = self.read(RootId(0), &Expect::at(bytenr));
        for report in reports {
            console.report(report);
        }
        if let Some(node) = shown.as_ref().and_then(Shown::node) {
            print_block(&mut console.out, node, &self.options)?;
        }
        Ok(())
    }

    /// Prints a block and all blocks below it.
    pub(super) fn below(&self, console: &mut Console, bytenr: Logical) -> anyhow::Result<()> {
        self.blocks(console, &|| Ok(Some((RootId(0), Expect::at(bytenr)))))
    }

    /// Returns the first root item at or above `from` in the tree of `root`. Unreadable blocks are skipped
    /// and reported.
    pub(super) fn next_root(
        &self,
        root: &dyn Fn() -> anyhow::Result<Option<CommittedRoot>>,
        from: Key,
    ) -> anyhow::Result<FoundRoot> {
        // DUMP-1: this function writes nothing.
        let _epoch = self.store.epoch();
        let mut found = FoundRoot::default();
        if let Some(root) = root()? {
            let expect = expect_root(&root);
            let (shown, reports) = self.read(root.tree, &expect);
            found.reports.extend(reports);
            if let Some(shown) = shown {
                found.item = self.next_root_below(root.tree, &shown, from, &mut found.reports);
            }
        }
        Ok(found)
    }

    fn next_root_below(
        &self,
        tree: RootId,
        shown: &Shown,
        from: Key,
        reports: &mut Vec<String>,
    ) -> Option<(Key, Vec<u8>)> {
        let node = shown.node()?;
        if node.is_leaf() {
            // The keys of a damaged leaf may be in any order.
            let items = node.items();
            let roots =
                items.filter(|(key, _)| *key >= from && key.item_type == KeyType::ROOT_ITEM);
            let first = roots.min_by_key(|(key, _)| *key);
            return first.map(|(key, bytes)| (key, bytes.to_vec()));
        }
        if matches!(shown, Shown::Damaged(_)) {
            return None;
        }
        let ptrs = node.ptrs();
        for (slot, ptr) in ptrs.iter().enumerate() {
            let next = ptrs.get(slot + 1).map(|next| next.key.get());
            if next.is_some_and(|next| next <= from) {
                continue;
            }
            let (child, of_child) = self.read(tree, &expect_child(node, ptr));
            reports.extend(of_child);
            let found = child.and_then(|child| self.next_root_below(tree, &child, from, reports));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn blocks(
        &self,
        console: &mut Console,
        root: &dyn Fn() -> anyhow::Result<Option<(RootId, Expect)>>,
    ) -> anyhow::Result<()> {
        let mut level = match self.order {
            Order::LeavesOnly => Some(0),
            Order::LevelByLevel | Order::DepthFirst => None,
        };
        let mut at = None;
        loop {
            let Some(piece) = self.piece(root, level, at)? else {
                return Ok(());
            };
            piece.write(console)?;
            level = piece.level;
            at = piece.at;
            if at.is_some() {
                continue;
            }
            level = match (self.order, level) {
                (Order::LevelByLevel, Some(level @ 1..)) => Some(level - 1),
                _ => return Ok(()),
            };
            at = Some(Position::START);
        }
    }

    /// Returns the next piece, or None if there is no root. The first piece begins at None.
    fn piece(
        &self,
        root: &dyn Fn() -> anyhow::Result<Option<(RootId, Expect)>>,
        level: Option<u8>,
        at: Option<Position>,
    ) -> anyhow::Result<Option<Piece>> {
        // DUMP-1: held until the piece is in memory.
        let _epoch = self.store.epoch();
        let Some((tree, expect)) = root()? else {
            return Ok(None);
        };
        let (shown, reports) = self.read(tree, &expect);
        let mut piece = Piece {
            tree,
            level,
            text: Vec::new(),
            reports: Vec::new(),
            at: None,
        };
        // A damaged root is read again for each level.
        if at.is_none() || shown.is_none() {
            piece.report(reports);
        }
        let Some(shown) = shown else {
            piece.level = None;
            return Ok(Some(piece));
        };
        let top = shown.node().map_or(0, Node::level);
        if self.order == Order::LevelByLevel && level.is_none() {
            piece.level = Some(top);
        }
        let whole = Span {
            start: Key::MIN,
            end: None,
            open: u8::MAX,
        };
        let _ = self.descend(&mut piece, &shown, whole, at.unwrap_or(Position::START));
        Ok(Some(piece))
    }

    /// Adds the blocks from `shown` down that are after `from`.
    fn descend(
        &self,
        piece: &mut Piece,
        shown: &Shown,
        span: Span,
        from: Position,
    ) -> ControlFlow<()> {
        let Some(node) = shown.node() else {
            return piece.pass(span);
        };
        let level = node.level();
        if piece.level.is_none_or(|wanted| wanted == level) && !from.is_behind(level, span) {
            // Writing to memory cannot fail.
            let _ = print_block(&mut piece.text, node, &self.options);
        }
        let is_bottom = node.is_leaf() || piece.level.is_some_and(|wanted| wanted >= level);
        if is_bottom || matches!(shown, Shown::Damaged(_)) {
            return piece.pass(span);
        }
        if piece.level.is_none() && !from.is_behind(level, span) {
            piece.come_to(Some(Position {
                key: span.start.max(from.key),
                shown: level,
            }))?;
        }
        let ptrs = node.ptrs();
        let below = level.checked_sub(1);
        for (slot, ptr) in ptrs.iter().enumerate() {
            let next = ptrs.get(slot + 1).map(|next| next.key.get());
            let start = ptr.key.get();
            let within = match next.filter(|next| span.end.is_none_or(|end| *next < end)) {
                None => Span { start, ..span },
                end => Span {
                    start,
                    end,
                    open: level,
                },
            };
            // DUMP-2
            if within.end.is_some_and(|end| end <= from.key) {
                continue;
            }
            let (child, reports) = self.read(piece.tree, &expect_child(node, ptr));
            // Level by level, a block is read again for each level below it.
            if self.order != Order::LevelByLevel || piece.level == below {
                piece.report(reports);
            }
            match child {
                Some(child) => self.descend(piece, &child, within, from)?,
                None => piece.pass(within)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Reads a block. Returns it with reports if it is damaged: the defect that the check finds first, and others of
    /// the items of a leaf.
    fn read(&self, tree: RootId, expect: &Expect) -> (Option<Shown>, Vec<String>) {
        let error = match self.store.read(tree, expect) {
            Ok(block) => return (Some(Shown::Sound(block)), Vec::new()),
            Err(error) => error,
        };
        let bytenr = expect.bytenr;
        let damaged = match &error {
            TreeError::Corrupt { reason, .. } => {
                self.read_damaged(expect).map(|bytes| (bytes, reason))
            }
            _ => None,
        };
        let Some((bytes, first)) = damaged else {
            let report = format!("failed to read tree block {bytenr}: {error}");
            return (None, vec![report]);
        };
        let mut reports = vec![format!("damaged tree block {bytenr}: {error}")];
        let items = Node::new(&bytes)
            .map(|node| lenient_items(node, &self.store.context()))
            .unwrap_or_default();
        let defects = items.iter().flat_map(|item| &item.defects);
        let others = defects.filter(|defect| *defect != first);
        reports.extend(others.map(|defect| format!("damaged tree block {bytenr}: {defect}")));
        (Some(Shown::Damaged(bytes)), reports)
    }

    /// Returns the block from the first mirror with a valid checksum, if it has the expected address and
    /// level.
    fn read_damaged(&self, expect: &Expect) -> Option<Vec<u8>> {
        let pool = self.store.pool();
        let context = self.store.context();
        let mirrors = pool.mirrors(expect.bytenr).ok()?;
        let mut bytes = vec![0; self.store.nodesize()];
        (1..=mirrors)
            .any(|mirror| {
                pool.read_mirror(expect.bytenr, &mut bytes, mirror).is_ok()
                    && context.csum_type.verify_block(&bytes).is_ok()
                    && Node::new(&bytes).is_some_and(|node| {
                        node.bytenr() == expect.bytenr
                            && node.header().fsid == *context.fsid
                            && expect.level.is_none_or(|level| level == node.level())
                    })
            })
            .then_some(bytes)
    }
}

fn expect_root(root: &CommittedRoot) -> Expect {
    Expect {
        level: Some(root.level),
        generation: root.generation,
        ..Expect::at(root.bytenr)
    }
}

fn expect_child(node: Node<'_>, ptr: &KeyPtr) -> Expect {
    Expect {
        bytenr: Logical(ptr.blockptr.get()),
        level: node.level().checked_sub(1),
        generation: Some(Transid(ptr.generation.get())),
        owner: None,
        first_key: Some(ptr.key.get()),
    }
}
