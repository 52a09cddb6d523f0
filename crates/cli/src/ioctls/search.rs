//! Items of trees, for who may search them.

use rustix::io::Errno;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fuse::ioctl_args::{self as args, SearchArgs, SearchHeader};
use zerocopy::{FromBytes, FromZeros};

use super::Asked;

impl Asked {
    /// Gives the items between two keys, these included, in their order.
    pub(super) fn search(
        &self,
        tree: RootId,
        from: Key,
        to: Key,
        each: &mut dyn FnMut(Key, &[u8]),
    ) -> Result<(), Errno> {
        let mut start = Some(from);
        while let Some(from) = start.filter(|from| *from <= to) {
            let mut args = SearchArgs::new_zeroed();
            let key = &mut args.key;
            key.tree_id.set(tree.0);
            key.min_objectid.set(from.objectid);
            key.min_type.set(from.item_type.0.into());
            key.min_offset.set(from.offset);
            key.max_objectid.set(to.objectid);
            key.max_type.set(to.item_type.0.into());
            key.max_offset.set(to.offset);
            key.max_transid.set(u64::MAX);
            key.nr_items.set(u32::MAX);
            self.ask::<{ args::TREE_SEARCH }, _>(&mut args)?;
            start = None;
            let mut rest = &args.buf[..];
            for _ in 0..args.key.nr_items.get() {
                let Ok((header, behind)) = SearchHeader::read_from_prefix(rest) else {
                    break;
                };
                let Some((item, behind)) = behind.split_at_checked(header.len.get() as usize)
                else {
                    break;
                };
                rest = behind;
                let item_type = KeyType(header.item_type.get() as u8);
                let key = Key::new(header.objectid.get(), item_type, header.offset.get());
                each(key, item);
                start = key.next();
            }
        }
        Ok(())
    }

    pub(super) fn item(&self, tree: RootId, key: Key) -> Result<Option<Vec<u8>>, Errno> {
        let mut found = None;
        self.search(tree, key, key, &mut |_, item| found = Some(item.to_vec()))?;
        Ok(found)
    }
}
