//! Output of a commit: writing its blocks, and building its superblock.

use ubtrfs_device::DeviceError;
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_format::item::Chunk;
use ubtrfs_format::key::DiskKey;
use ubtrfs_format::superblock::{RootBackup, Superblock};
use ubtrfs_tree::CommittedRoot;
use zerocopy::{FromBytes, FromZeros};

use super::Commit;
use crate::error::{Error, Result};

/// Adjacent blocks are merged into one request up to this size.
const WRITE_BYTES: usize = 1 << 20;
/// Maximum number of bytes submitted to the devices at once.
const BATCH_BYTES: usize = 16 << 20;

/// Writes blocks or parts of blocks, in ascending order, through `put`. Returns the number of bytes.
pub(in crate::transaction) fn write<'b>(
    parts: impl IntoIterator<Item = (Logical, &'b [u8])>,
    put: impl Fn(&[(Logical, &[u8])]) -> std::result::Result<(), DeviceError>,
) -> Result<u64> {
    let mut total = 0;
    let mut parts = parts.into_iter().peekable();
    while parts.peek().is_some() {
        let mut runs: Vec<(Logical, Vec<u8>)> = Vec::new();
        let mut batch = 0;
        while batch < BATCH_BYTES
            && let Some((at, bytes)) = parts.next()
        {
            match runs.last_mut() {
                Some((start, run))
                    if start.0 + run.len() as u64 == at.0 && run.len() < WRITE_BYTES =>
                {
                    run.extend_from_slice(bytes);
                }
                _ => runs.push((at, bytes.to_vec())),
            }
            batch += bytes.len();
        }
        let writes: Vec<(Logical, &[u8])> = runs
            .iter()
            .map(|(start, run)| (*start, run.as_slice()))
            .collect();
        put(&writes)?;
        total += batch as u64;
    }
    Ok(total)
}

impl Commit<'_> {
    /// Writes all new blocks. They are durable after the next flush.
    pub(super) fn write_blocks(&mut self) -> Result<()> {
        self.blocks.write_staged()
    }

    /// Builds the superblock for the new roots.
    pub(super) fn superblock(&mut self) -> Result<Superblock> {
        let mut sb = Superblock::clone(&self.roots.superblock());
        let root = self.tree(RootId::ROOT_TREE)?.root;
        sb.generation = self.transid.0.into();
        sb.root = root.bytenr.0.into();
        sb.root_level = root.level;
        let chunk = self.tree(RootId::CHUNK_TREE)?.root;
        sb.chunk_root = chunk.bytenr.0.into();
        sb.chunk_root_level = chunk.level;
        sb.chunk_root_generation = chunk.generation.unwrap_or_default().0.into();
        self.manager.space.write_totals(&mut sb);
        self.edits.apply(&mut sb);
        self.remove_system_chunks(&mut sb);
        self.append_system_chunks(&mut sb)?;
        let slot = (self.transid.0.wrapping_sub(1) % 4) as usize;
        sb.super_roots[slot] = self.root_backup(&sb)?;
        Ok(sb)
    }

    fn find_root(&mut self, id: RootId) -> Result<Option<CommittedRoot>> {
        match self.trees.get(&id) {
            Some(tree) => Ok(Some(tree.root)),
            None => Ok(self.roots.find_tree(id)?.map(|tree| tree.view.committed())),
        }
    }

    fn remove_system_chunks(&self, sb: &mut Superblock) {
        if self.removed_system_chunks.is_empty() {
            return;
        }
        let used = (sb.sys_chunk_array_size.get() as usize).min(sb.sys_chunk_array.len());
        let entries = sb.sys_chunk_array[..used].to_vec();
        let mut rest = &entries[..];
        let mut kept = Vec::with_capacity(used);
        while let Ok((key, chunk)) = DiskKey::read_from_prefix(rest)
            && let Some((_, stripes, _)) = Chunk::split(chunk)
        {
            let len = size_of::<DiskKey>() + size_of::<Chunk>() + size_of_val(stripes);
            let (entry, after) = rest.split_at(len);
            if !self
                .removed_system_chunks
                .contains(&Logical(key.get().offset))
            {
                kept.extend_from_slice(entry);
            }
            rest = after;
        }
        sb.sys_chunk_array.fill(0);
        sb.sys_chunk_array[..kept.len()].copy_from_slice(&kept);
        sb.sys_chunk_array_size = (kept.len() as u32).into();
    }

    fn append_system_chunks(&self, sb: &mut Superblock) -> Result<()> {
        let mut used = sb.sys_chunk_array_size.get() as usize;
        for chunk in &self.new_system_chunks {
            let end = used + chunk.len();
            let room = sb.sys_chunk_array.get_mut(used..end);
            // The allocator creates no system chunk that does not fit.
            room.ok_or(Error::NoSpace)?.copy_from_slice(chunk);
            used = end;
        }
        sb.sys_chunk_array_size = (used as u32).into();
        Ok(())
    }

    fn root_backup(&mut self, sb: &Superblock) -> Result<RootBackup> {
        let mut backup = RootBackup::new_zeroed();
        backup.tree_root = sb.root;
        backup.tree_root_gen = sb.generation;
        backup.tree_root_level = sb.root_level;
        backup.chunk_root = sb.chunk_root;
        backup.chunk_root_gen = sb.chunk_root_generation;
        backup.chunk_root_level = sb.chunk_root_level;
        macro_rules! root {
            ($tree:expr, $bytenr:ident, $generation:ident, $level:ident) => {
                if let Some(root) = self.find_root($tree)? {
                    backup.$bytenr = root.bytenr.0.into();
                    backup.$generation = root.generation.unwrap_or_default().0.into();
                    backup.$level = root.level;
                }
            };
        }
        root!(
            RootId::EXTENT_TREE,
            extent_root,
            extent_root_gen,
            extent_root_level
        );
        root!(RootId::FS_TREE, fs_root, fs_root_gen, fs_root_level);
        root!(RootId::DEV_TREE, dev_root, dev_root_gen, dev_root_level);
        root!(RootId::CSUM_TREE, csum_root, csum_root_gen, csum_root_level);
        backup.total_bytes = sb.total_bytes;
        backup.bytes_used = sb.bytes_used;
        backup.num_devices = sb.num_devices;
        Ok(backup)
    }
}
