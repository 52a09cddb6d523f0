//! The property `btrfs.compression`: an attribute that corresponds to two flags, and its inheritance by new inodes.

use std::sync::Arc;

use super::inode::{Body, Inode, InodeId};
use super::{ModelFs, OpResult};
use crate::vocabulary::{Flags, OpError, Outcome, XattrHow};

pub(crate) const COMPRESSION: &[u8] = b"btrfs.compression";

const ALGORITHMS: [&[u8]; 3] = [b"zlib", b"lzo", b"zstd"];

/// The kinds of values of the property.
enum CompressionProperty {
    Nothing,
    Never,
    With,
}

/// Returns the algorithm at the start of a value. A level may follow.
fn algorithm(value: &[u8]) -> Option<&'static [u8]> {
    ALGORITHMS.into_iter().find(|name| value.starts_with(name))
}

fn property_of(value: &[u8]) -> Option<CompressionProperty> {
    match value {
        b"" => Some(CompressionProperty::Nothing),
        b"no" | b"none" => Some(CompressionProperty::Never),
        value => algorithm(value).map(|_| CompressionProperty::With),
    }
}

/// Returns whether `chattr` may set the new flags in place of the old ones.
pub(super) fn are_compatible(old: Flags, new: Flags) -> bool {
    let is_asked = |flags: Flags| flags.compress || flags.nocompress;
    let excluded = new.compress && (new.nocompress || new.nocow)
        || new.nocow && is_asked(old)
        || old.nocow && is_asked(new);
    !excluded
}

impl Inode {
    fn set_flags(&mut self, property: &CompressionProperty) {
        self.flags.compress = matches!(property, CompressionProperty::With);
        self.flags.nocompress = matches!(property, CompressionProperty::Never);
    }

    /// Sets the algorithm of a file or a directory.
    pub(super) fn set_algorithm(&mut self, name: &[u8]) {
        Arc::make_mut(&mut self.xattrs).insert(COMPRESSION.to_vec(), name.to_vec());
        self.set_flags(&CompressionProperty::With);
    }

    pub(super) fn forget_compression(&mut self) {
        if self.xattrs.contains_key(COMPRESSION) {
            Arc::make_mut(&mut self.xattrs).remove(COMPRESSION);
        }
        self.set_flags(&CompressionProperty::Nothing);
    }

    fn takes_properties(&self) -> bool {
        matches!(self.body, Body::File(_) | Body::Dir(_))
    }

    /// Copies flags, and the algorithm without a level, to a new inode in this directory.
    pub(super) fn hand_on(&self, new: &mut Inode) {
        new.flags.nocompress = self.flags.nocompress;
        new.flags.compress = self.flags.compress && !self.flags.nocompress;
        new.flags.nocow = self.flags.nocow;
        new.nodatasum = self.flags.nocow && matches!(new.body, Body::File(_));
        self.hand_algorithm_on(new);
    }

    pub(super) fn hand_algorithm_on(&self, new: &mut Inode) {
        let value = self.xattrs.get(COMPRESSION);
        if let Some(name) = value.and_then(|value| algorithm(value))
            && new.takes_properties()
        {
            new.set_algorithm(name);
        }
    }
}

impl ModelFs {
    /// Sets the property. An inode without a use for it accepts and ignores it.
    pub(super) fn set_compression(&mut self, id: InodeId, value: &[u8], how: XattrHow) -> OpResult {
        let inode = self.inode_mut(id);
        let property = property_of(value).ok_or(OpError::InvalidArgument)?;
        let is_copied = !inode.flags.nocow && !inode.nodatasum;
        if !is_copied && !matches!(property, CompressionProperty::Nothing) {
            return Err(OpError::InvalidArgument);
        }
        if !inode.takes_properties() {
            return Ok(Outcome::Done);
        }
        let is_there = inode.xattrs.contains_key(COMPRESSION);
        match (how, &property) {
            (XattrHow::Replace, _) if !is_there => return Err(OpError::NoData),
            (XattrHow::Create, CompressionProperty::Never | CompressionProperty::With)
                if is_there =>
            {
                return Err(OpError::Exists);
            }
            _ => {}
        }
        match property {
            CompressionProperty::Nothing => inode.forget_compression(),
            property => {
                inode.set_flags(&property);
                Arc::make_mut(&mut inode.xattrs).insert(COMPRESSION.to_vec(), value.to_vec());
            }
        }
        Ok(Outcome::Done)
    }

    pub(super) fn remove_compression(&mut self, id: InodeId) -> OpResult {
        let inode = self.inode_mut(id);
        if !inode.takes_properties() {
            return Ok(Outcome::Done);
        }
        if !inode.xattrs.contains_key(COMPRESSION) {
            return Err(OpError::NoData);
        }
        inode.forget_compression();
        Ok(Outcome::Done)
    }
}
