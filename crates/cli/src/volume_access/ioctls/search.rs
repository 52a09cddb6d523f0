//! Items of trees, for users who may search them.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use ubtrfs_format::ids::{RootId, Transid};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fuse::ioctl_args::{self as args, SearchArgs, SearchArgsV2, SearchHeader, SearchKey};
use zerocopy::{FromBytes, FromZeros};

use super::Asked;

/// Whether a mount lacked the search with longer answers, which FUSE does not support.
static IS_SHORT: AtomicBool = AtomicBool::new(false);

impl Asked {
    /// Calls `each` with the items between two keys (inclusive), in key order.
    pub(crate) fn search(
        &self,
        tree: RootId,
        from: Key,
        to: Key,
        each: &mut dyn FnMut(Key, &[u8]),
    ) -> Result<(), Errno> {
        self.search_since(Transid(0), tree, from, to, &mut |key, item| {
            each(key, item);
            ControlFlow::Continue(())
        })
    }

    /// Calls `each` with the items between two keys in blocks written since a transaction, until it breaks.
    pub(crate) fn search_since(
        &self,
        since: Transid,
        tree: RootId,
        from: Key,
        to: Key,
        each: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let mut start = Some(from);
        while let Some(from) = start.filter(|from| *from <= to) {
            let mut key = SearchKey::new_zeroed();
            key.tree_id.set(tree.0);
            key.min_objectid.set(from.objectid);
            key.min_type.set(from.item_type.0.into());
            key.min_offset.set(from.offset);
            key.max_objectid.set(to.objectid);
            key.max_type.set(to.item_type.0.into());
            key.max_offset.set(to.offset);
            key.min_transid.set(since.0);
            key.max_transid.set(u64::MAX);
            key.nr_items.set(u32::MAX);
            start = self.ask_for_items(key, each)?.and_then(Key::next);
        }
        Ok(())
    }

    /// Calls `each` with the items of one answer. Returns the last key if there may be more.
    fn ask_for_items(
        &self,
        key: SearchKey,
        each: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<Option<Key>, Errno> {
        if !IS_SHORT.load(Ordering::Relaxed) {
            let mut args = Box::new(SearchArgsV2::new_zeroed());
            args.key = key;
            args.buf_size.set(args.buf.len() as u64);
            match self.ask::<{ args::TREE_SEARCH_V2 }, _>(&mut *args) {
                Err(Errno::NOTTY) => IS_SHORT.store(true, Ordering::Relaxed),
                asked => return asked.map(|()| give(args.key, &args.buf, each)),
            }
        }
        let mut args = SearchArgs::new_zeroed();
        args.key = key;
        self.ask::<{ args::TREE_SEARCH }, _>(&mut args)?;
        Ok(give(args.key, &args.buf, each))
    }

    pub(crate) fn item(&self, tree: RootId, key: Key) -> Result<Option<Vec<u8>>, Errno> {
        let mut found = None;
        self.search(tree, key, key, &mut |_, item| found = Some(item.to_vec()))?;
        Ok(found)
    }
}

fn give(
    asked: SearchKey,
    buf: &[u8],
    each: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
) -> Option<Key> {
    let mut rest = buf;
    let mut last = None;
    for _ in 0..asked.nr_items.get() {
        let Ok((header, behind)) = SearchHeader::read_from_prefix(rest) else {
            break;
        };
        let Some((item, behind)) = behind.split_at_checked(header.len.get() as usize) else {
            break;
        };
        rest = behind;
        let item_type = KeyType(header.item_type.get() as u8);
        let key = Key::new(header.objectid.get(), item_type, header.offset.get());
        if each(key, item).is_break() {
            return None;
        }
        last = Some(key);
    }
    last
}
