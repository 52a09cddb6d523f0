//! The ioctl that returns raw items of a tree.

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::Error;
use ubtrfs_fuse_server::request::{Errno, Result};
use ubtrfs_tree::View;
use zerocopy::IntoBytes;

use super::super::errno::errno;
use super::super::source::Source;
use super::Call;
use super::args::{SearchArgs, SearchHeader, SearchKey};

const HEADER_BYTES: usize = size_of::<SearchHeader>();

impl<S: Source> Call<'_, S> {
    fn view(&self, id: u64) -> Result<View> {
        let id = match id {
            0 => self.file.root,
            id => RootId(id),
        };
        Ok(match id {
            RootId::ROOT_TREE => self.volume.root_tree(),
            RootId::CHUNK_TREE => self.volume.chunk_tree(),
            id => match self.volume.find_tree(id).map_err(errno)? {
                Some(tree) => tree.view.clone(),
                None => return Err(Errno::NOENT),
            },
        })
    }

    /// Returns as many items between two keys as fit. As in the kernel, an item larger than the whole buffer is
    /// returned as a header with length 0.
    pub(super) fn tree_search(&self, mut args: SearchArgs) -> Result<SearchArgs> {
        self.administer()?;
        let failed = |error| errno(Error::Tree(error));
        let view = self.view(args.key.tree_id.get())?;
        let wanted = args.key;
        let last = end_of(&wanted);
        // Items that are not committed yet belong to the running transaction.
        let running = self.volume.superblock().generation.get().saturating_add(1);
        let transids = wanted.min_transid.get()..=wanted.max_transid.get();
        let all_room = args.buf.len();
        let mut room = &mut args.buf[..];
        let mut found = 0u32;
        let mut cursor = view.cursor();
        let mut is_there = cursor.seek(&start_of(&wanted)).map_err(failed)?;
        while is_there && found < wanted.nr_items.get() {
            let Some(item) = cursor.item().filter(|item| item.key() <= last) else {
                break;
            };
            let key = item.key();
            let transid = item.generation().map_or(running, |transid| transid.0);
            if transids.contains(&transid) {
                let is_huge = HEADER_BYTES + item.len() > all_room;
                if is_huge && found > 0 {
                    break;
                }
                let bytes: &[u8] = if is_huge { &[] } else { &item };
                let header = SearchHeader {
                    transid: transid.into(),
                    objectid: key.objectid.into(),
                    offset: key.offset.into(),
                    item_type: u32::from(key.item_type.0).into(),
                    len: (bytes.len() as u32).into(),
                };
                let Some((place, rest)) =
                    std::mem::take(&mut room).split_at_mut_checked(HEADER_BYTES + bytes.len())
                else {
                    break;
                };
                place[..HEADER_BYTES].copy_from_slice(header.as_bytes());
                place[HEADER_BYTES..].copy_from_slice(bytes);
                room = rest;
                found += 1;
                if is_huge {
                    break;
                }
            }
            is_there = cursor.advance().map_err(failed)?;
        }
        args.key.nr_items.set(found);
        Ok(args)
    }
}

/// Returns the first key of the search. Item types are the low bytes of their fields.
fn start_of(wanted: &SearchKey) -> Key {
    let item_type = KeyType(wanted.min_type.get() as u8);
    Key::new(
        wanted.min_objectid.get(),
        item_type,
        wanted.min_offset.get(),
    )
}

fn end_of(wanted: &SearchKey) -> Key {
    let item_type = KeyType(wanted.max_type.get() as u8);
    Key::new(
        wanted.max_objectid.get(),
        item_type,
        wanted.max_offset.get(),
    )
}
