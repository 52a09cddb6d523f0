//! Printing the blocks of a tree in an order.
//!
//! Level by level, the interior nodes are walked again for each level, from the cache: remembering the
//! addresses of a level would need memory in proportion to the tree.

use std::sync::Arc;

use ubtrfs_format::check::Expect;
use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_tree::{Block, CommittedRoot, NodeStore};

use crate::console::Console;
use crate::print::{PrintOptions, print_block};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    LevelByLevel,
    DepthFirst,
    LeavesOnly,
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
        if let Some(block) = self.read(console, RootId(0), &Expect::at(bytenr)) {
            print_block(&mut console.out, block.node(), &self.options)?;
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
        let Some(root) = self.read(console, tree, expect) else {
            return Ok(());
        };
        let top = root.node().level();
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

    /// Prints the blocks at and below `block` that are of `level`, or all.
    fn descend(
        &self,
        console: &mut Console,
        tree: RootId,
        block: &Block,
        level: Option<u8>,
    ) -> anyhow::Result<()> {
        let node = block.node();
        if level.is_none_or(|level| level == node.level()) {
            print_block(&mut console.out, node, &self.options)?;
        }
        if level.is_some_and(|level| level >= node.level()) {
            return Ok(());
        }
        for ptr in node.ptrs() {
            let expect = Expect {
                bytenr: Logical(ptr.blockptr.get()),
                level: node.level().checked_sub(1),
                generation: Some(Transid(ptr.generation.get())),
                owner: None,
                first_key: Some(ptr.key.get()),
            };
            if let Some(child) = self.read(console, tree, &expect) {
                self.descend(console, tree, &child, level)?;
            }
        }
        Ok(())
    }

    fn read(&self, console: &mut Console, tree: RootId, expect: &Expect) -> Option<Block> {
        match self.store.read(tree, expect) {
            Ok(block) => Some(block),
            Err(error) => {
                console.error(format_args!(
                    "failed to read tree block {}: {error}",
                    expect.bytenr
                ));
                None
            }
        }
    }
}
