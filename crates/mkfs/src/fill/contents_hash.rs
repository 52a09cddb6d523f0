//! A hash of the contents of a new volume, for UUIDs derived from it.
//!
//! It covers the options, the subvolumes, all items of files, their extents and checksums. Data is covered by its
//! checksums only: files without checksums are hashed without their data.

use ubtrfs_format::csum::CsumType;
use ubtrfs_format::key::Key;

use super::filled::Filled;
use crate::chunks::VolumeChunks;
use crate::error::MkfsError;
use crate::files::Files;
use crate::options::Identity;

/// The unit of hashing.
const PIECE_BYTES: usize = 1 << 20;

#[derive(Default)]
struct ContentsHash {
    /// The hash of all previous pieces.
    state: Vec<u8>,
    piece: Vec<u8>,
}

impl ContentsHash {
    fn push(&mut self, bytes: &[u8]) {
        self.piece.extend((bytes.len() as u64).to_le_bytes());
        self.piece.extend(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.fold();
        }
    }

    fn push_item(&mut self, key: Key, data: &[u8]) {
        self.push(&key.objectid.to_le_bytes());
        self.push(&[key.item_type.0]);
        self.push(&key.offset.to_le_bytes());
        self.push(data);
    }

    fn fold(&mut self) {
        let whole = [&*self.state, &self.piece].concat();
        self.state = CsumType::Sha256.compute(&whole).as_bytes().to_vec();
        self.piece.clear();
    }

    fn finish(mut self) -> [u8; 16] {
        self.fold();
        self.state.first_chunk().copied().unwrap_or_default()
    }
}

/// Hashes placed files, with the sizes of the devices.
fn hash_of(files: &Filled<'_, '_>, created: i64, sizes: &[u64]) -> Result<[u8; 16], MkfsError> {
    let mut hash = ContentsHash::default();
    hash.push(format!("{:?}", files.geometry).as_bytes());
    hash.push(&created.to_le_bytes());
    for bytes in sizes {
        hash.push(&bytes.to_le_bytes());
    }
    hash.push(&files.walked.default_subvolume.0.to_le_bytes());
    for subvolume in &files.walked.subvolumes {
        hash.push(&subvolume.id.0.to_le_bytes());
        hash.push(&[u8::from(subvolume.is_read_only)]);
        hash.push(format!("{:?}", subvolume.entry).as_bytes());
        files.each_item(subvolume.id, &mut |key, data| {
            hash.push_item(key, data);
            Ok(())
        })?;
    }
    files.each_extent(&mut |key, data| {
        hash.push_item(key, data);
        Ok(())
    })?;
    files.each_csum(&mut |key, data| {
        hash.push_item(key, data);
        Ok(())
    })?;
    Ok(hash.finish())
}

/// Replaces all UUIDs made so far by those derived from the contents.
pub(super) fn identify(
    identity: &Identity,
    files: &mut Filled<'_, '_>,
    layout: &mut VolumeChunks,
    sizes: &[u64],
) -> Result<Identity, MkfsError> {
    let hash = hash_of(files, identity.created.sec.get(), sizes)?;
    let identity = identity.with_contents(&hash);
    for subvolume in &mut files.walked.subvolumes {
        subvolume.uuid = match &subvolume.entry {
            Some(_) => identity.subvolume_uuid(subvolume.id),
            None => identity.fs_tree_uuid,
        };
    }
    layout.set_device_uuids(&identity);
    Ok(identity)
}
