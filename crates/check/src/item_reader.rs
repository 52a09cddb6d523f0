//! Visitors that only read the items of a tree.

use ubtrfs_format::key::Key;

use crate::error::CheckError;
use crate::state::State;
use crate::tree_root::TreeRoot;
use crate::walk::{Lost, Visited, Visitor};

/// A visitor of a tree that is in the extent tree. Its blocks are added to the state.
pub(crate) trait ItemReader<'a> {
    fn state(&mut self) -> &mut State<'a>;

    fn item(&mut self, key: Key, bytes: &[u8]) -> Result<(), CheckError>;

    fn lost(&mut self, lost: Lost) -> Result<(), CheckError> {
        self.state().lose(lost);
        Ok(())
    }

    fn end(&mut self) -> Result<(), CheckError> {
        Ok(())
    }
}

impl<'a, R: ItemReader<'a>> Visitor for R {
    fn begin(&mut self, root: &TreeRoot) -> Result<(), CheckError> {
        self.state().enter_tree(root)
    }

    fn block(&mut self, root: &TreeRoot, block: Visited<'_>) -> Result<(), CheckError> {
        self.state().enter_block(root, block)?;
        let mut items = block.node.items();
        items.try_for_each(|(key, bytes)| self.item(key, bytes))
    }

    fn lost(&mut self, _: &TreeRoot, lost: Lost) -> Result<(), CheckError> {
        ItemReader::lost(self, lost)
    }

    fn end(&mut self, _: &TreeRoot) -> Result<(), CheckError> {
        ItemReader::end(self)
    }
}
