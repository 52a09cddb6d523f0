//! Printing the blocks of a tree in an order.
//!
//! Level by level, the interior nodes are walked again for each level, from the cache: remembering the
//! addresses of a level would need memory in proportion to the tree.
//!
//! A damaged block is reported, and printed if its checksum still shows that it was written like that. What
//! lies below it is not followed: its pointers could lead to the same blocks again and again.

use std::sync::Arc;

use ubtrfs_format::check::{BlockContext, Expect};
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::node::Node;
use ubtrfs_tree::{Block, CommittedRoot, NodeStore, TreeError};

use crate::console::Console;
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

    /// Prints a tree from its root.
    pub(super) fn tree(&self, console: &mut Console, root: &CommittedRoot) -> anyhow::Result<()> {
        let expect = Expect {
            level: Some(root.level),
            generation: root.generation,
            ..Expect::at(root.bytenr)
        };
        self.below(console, root.tree, &expect)
    }

    /// Prints one block only.
    pub(super) fn block(&self, console: &mut Console, bytenr: Logical) -> anyhow::Result<()> {
        let shown = self.read(console, RootId(0), &Expect::at(bytenr), true);
        if let Some(node) = shown.as_ref().and_then(Shown::node) {
            print_block(&mut console.out, node, &self.options)?;
        }
        Ok(())
    }

    /// Prints a block and those below it.
    pub(super) fn below(
        &self,
        console: &mut Console,
        tree: RootId,
        expect: &Expect,
    ) -> anyhow::Result<()> {
        let Some(root) = self.read(console, tree, expect, true) else {
            return Ok(());
        };
        let top = root.node().map_or(0, Node::level);
        match self.order {
            Order::DepthFirst => self.descend(console, tree, &root, None)?,
            Order::LeavesOnly => self.descend(console, tree, &root, Some(0))?,
            Order::LevelByLevel => {
                for level in (0..=top).rev() {
                    self.descend(console, tree, &root, Some(level))?;
                }
            }
        }
        Ok(())
    }

    /// Prints the blocks at and below `shown` that are of `level`, or all.
    fn descend(
        &self,
        console: &mut Console,
        tree: RootId,
        shown: &Shown,
        level: Option<u8>,
    ) -> anyhow::Result<()> {
        let Some(node) = shown.node() else {
            return Ok(());
        };
        if level.is_none_or(|level| level == node.level()) {
            print_block(&mut console.out, node, &self.options)?;
        }
        let is_bottom = level.is_some_and(|level| level >= node.level());
        if is_bottom || matches!(shown, Shown::Damaged(_)) {
            return Ok(());
        }
        for ptr in node.ptrs() {
            let below = node.level().checked_sub(1);
            let expect = Expect {
                bytenr: Logical(ptr.blockptr.get()),
                level: below,
                generation: Some(Transid(ptr.generation.get())),
                owner: None,
                first_key: Some(ptr.key.get()),
            };
            // Level by level, a block is met once for each level below it as well.
            let first_time = self.order != Order::LevelByLevel || level == below;
            if let Some(child) = self.read(console, tree, &expect, first_time) {
                self.descend(console, tree, &child, level)?;
            }
        }
        Ok(())
    }

    fn read(
        &self,
        console: &mut Console,
        tree: RootId,
        expect: &Expect,
        reports: bool,
    ) -> Option<Shown> {
        let error = match self.store.read(tree, expect) {
            Ok(block) => return Some(Shown::Sound(block)),
            Err(error) => error,
        };
        let damaged = match error {
            TreeError::Corrupt { .. } => self.read_damaged(expect),
            _ => None,
        };
        if reports {
            let bytenr = expect.bytenr;
            console.error(match damaged {
                Some(_) => format!("damaged tree block {bytenr}: {error}"),
                None => format!("failed to read tree block {bytenr}: {error}"),
            });
        }
        damaged.map(Shown::Damaged)
    }

    /// The block from the first mirror whose checksum is right, if it is a block of this place and level.
    fn read_damaged(&self, expect: &Expect) -> Option<Vec<u8>> {
        let pool = self.store.pool();
        let context = BlockContext::new(pool.superblock());
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
