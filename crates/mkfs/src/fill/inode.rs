//! The items of one inode: inode item, names, extended attributes and extents.
//!
//! Not here: the place of data (`data_space`), directory entries (`filler`).

use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::Logical;
use ubtrfs_format::item::{
    DirHead, FileExtentHead, FileExtentKind, FileExtentRegular, FileKind, InodeExtrefHead,
    InodeRefHead,
};
use ubtrfs_format::key::{DiskKey, Key, KeyType};
use ubtrfs_format::name_hash::{extref_hash, name_hash};
use zerocopy::IntoBytes;

use super::data_space::PlacedExtent;
use super::encode::Inline;
use super::item_sorter::Record;
use super::source::Xattr;
use crate::trees::GENERATION;

/// A name of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) dir: u64,
    pub(super) index: u64,
    pub(super) name: Vec<u8>,
}

/// Adds the only name of an inode.
pub(super) fn put_name(record: &mut Record, dir: u64, index: u64, name: &[u8]) {
    let head = ref_head(index, name);
    record.item(KeyType::INODE_REF, dir, &[head.as_bytes(), name]);
}

fn ref_head(index: u64, name: &[u8]) -> InodeRefHead {
    InodeRefHead {
        index: index.into(),
        name_len: (name.len() as u16).into(),
    }
}

/// Adds several names. Names in one directory share an item of at most `max_bytes`. The rest get INODE_EXTREF items.
/// Returns false if these are needed but not allowed.
pub(super) fn put_names(
    record: &mut Record,
    names: &[Name],
    max_bytes: usize,
    has_extref: bool,
) -> bool {
    // Stable: names in one directory keep their order.
    let mut by_dir: Vec<&Name> = names.iter().collect();
    by_dir.sort_by_key(|name| name.dir);
    let mut others = Vec::new();
    for names in by_dir.chunk_by(|a, b| a.dir == b.dir) {
        let mut item = Vec::new();
        let mut is_full = false;
        for name in names {
            let len = size_of::<InodeRefHead>() + name.name.len();
            is_full |= item.len() + len > max_bytes;
            if is_full {
                others.push((extref_hash(name.dir, &name.name), *name));
            } else {
                item.extend_from_slice(ref_head(name.index, &name.name).as_bytes());
                item.extend_from_slice(&name.name);
            }
        }
        record.item(KeyType::INODE_REF, names[0].dir, &[&item]);
    }
    others.sort_by_key(|(hash, _)| *hash);
    for names in others.chunk_by(|(a, _), (b, _)| a == b) {
        let mut item = Vec::new();
        for (_, name) in names {
            let head = InodeExtrefHead {
                parent_objectid: name.dir.into(),
                index: name.index.into(),
                name_len: (name.name.len() as u16).into(),
            };
            item.extend_from_slice(head.as_bytes());
            item.extend_from_slice(&name.name);
        }
        record.item(KeyType::INODE_EXTREF, names[0].0, &[&item]);
    }
    others.is_empty() || has_extref
}

/// Adds attributes. Returns false if attributes with colliding names do not fit into an item of `max_bytes`.
pub(super) fn put_xattrs(record: &mut Record, xattrs: &[Xattr], max_bytes: usize) -> bool {
    let mut by_hash: Vec<(u32, &Xattr)> = xattrs
        .iter()
        .map(|xattr| (name_hash(&xattr.0), xattr))
        .collect();
    by_hash.sort_by_key(|(hash, _)| *hash);
    for xattrs in by_hash.chunk_by(|(a, _), (b, _)| a == b) {
        let mut item = Vec::new();
        for (_, (name, value)) in xattrs {
            let head = DirHead {
                location: DiskKey::from(Key::MIN),
                transid: GENERATION.into(),
                data_len: (value.len() as u16).into(),
                name_len: (name.len() as u16).into(),
                type_: FileKind::RAW_XATTR,
            };
            item.extend_from_slice(head.as_bytes());
            item.extend_from_slice(name);
            item.extend_from_slice(value);
        }
        if item.len() > max_bytes {
            return false;
        }
        record.item(KeyType::XATTR_ITEM, xattrs[0].0.into(), &[&item]);
    }
    true
}

/// Returns the head of a directory entry, for DIR_ITEM and DIR_INDEX.
pub(super) fn dir_entry(location: Key, kind: FileKind, name: &[u8]) -> DirHead {
    DirHead {
        location: location.into(),
        transid: GENERATION.into(),
        data_len: 0.into(),
        name_len: (name.len() as u16).into(),
        type_: kind.raw(),
    }
}

fn extent_head(kind: FileExtentKind, compression: Compression, ram_bytes: u64) -> FileExtentHead {
    FileExtentHead {
        generation: GENERATION.into(),
        ram_bytes: ram_bytes.into(),
        compression: compression.raw(),
        encryption: 0,
        other_encoding: 0.into(),
        type_: kind as u8,
    }
}

pub(super) fn put_inline(record: &mut Record, inline: &Inline) {
    let head = extent_head(
        FileExtentKind::Inline,
        inline.compression,
        inline.file_bytes,
    );
    record.item(KeyType::EXTENT_DATA, 0, &[head.as_bytes(), &inline.data]);
}

pub(super) fn put_extent(record: &mut Record, extent: &PlacedExtent) {
    let head = extent_head(
        FileExtentKind::Regular,
        extent.compression,
        extent.file_bytes,
    );
    let body = FileExtentRegular {
        disk_bytenr: extent.logical.0.into(),
        disk_num_bytes: extent.disk_bytes.into(),
        offset: 0.into(),
        num_bytes: extent.file_bytes.into(),
    };
    let data = [head.as_bytes(), body.as_bytes()];
    record.item(KeyType::EXTENT_DATA, extent.file_offset, &data);
}

/// Adds a hole, which needs an item on volumes without NO_HOLES.
pub(super) fn put_hole(record: &mut Record, offset: u64, len: u64) {
    let hole = PlacedExtent {
        chunk: 0,
        file_offset: offset,
        file_bytes: len,
        logical: Logical(0),
        disk_bytes: 0,
        compression: Compression::None,
    };
    put_extent(record, &hole);
}
