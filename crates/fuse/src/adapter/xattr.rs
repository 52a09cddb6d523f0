//! Extended attributes: namespaces, and the transfer of lists and values into a caller's buffer.
//!
//! ACLs are ordinary xattrs here (`system.posix_acl_access`, `system.posix_acl_default`): btrfs stores the user-space
//! format, and the kernel evaluates it.

use ubtrfs_fs::XattrMode;
use ubtrfs_fuse_server::request::{Context, Errno, NodeId, Result, XattrHow};

use super::Adapter;
use super::errno::errno;
use super::source::Source;

/// The namespaces of the kernel's btrfs, which refuses all others.
const NAMESPACES: [&[u8]; 4] = [b"user.", b"security.", b"trusted.", b"btrfs."];
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// An unlisted attribute of every path in a mount. Its value shows whether the volume can be changed, regardless of the
/// mount's flags and of the path's subvolume.
pub(crate) const WRITABLE_ATTRIBUTE: &str = "system.ubtrfs.writable";
pub(crate) const TAKES_CHANGES: &[u8] = b"1";
const TAKES_NONE: &[u8] = b"0";

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

impl<S: Source> Adapter<S> {
    fn must_exist(&self, name: &[u8]) -> Result<()> {
        let hidden = !self.connection_flags.posix_acl && ACLS.contains(&name);
        if NAMESPACES.contains(&name) {
            return Err(Errno::INVAL);
        }
        if namespace_exists(name) && !hidden {
            Ok(())
        } else {
            Err(Errno::OPNOTSUPP)
        }
    }

    pub(super) fn getxattr(&self, node: NodeId, name: &[u8], out: &mut [u8]) -> Result<usize> {
        if let Some(value) = self.control.value(name) {
            return fill(out, value?);
        }
        if name == WRITABLE_ATTRIBUTE.as_bytes() {
            let takes_changes = self
                .writing()
                .is_ok_and(|volume| volume.abort_reason().is_none());
            return fill(
                out,
                if takes_changes {
                    TAKES_CHANGES
                } else {
                    TAKES_NONE
                },
            );
        }
        self.must_exist(name)?;
        let node = self.node(node)?;
        if node.is_empty_subvolume_dir() {
            return Err(Errno::NODATA);
        }
        let value = self.source.xattr(node.id, name)?.ok_or(Errno::NODATA)?;
        fill(out, &value)
    }

    pub(super) fn listxattr(&self, node: NodeId, out: &mut [u8]) -> Result<usize> {
        let node = self.node(node)?;
        if node.is_empty_subvolume_dir() {
            return Ok(0);
        }
        let names = self.source.xattr_names(node.id)?;
        fill_list(out, names.iter().map(Vec::as_slice))
    }

    pub(super) fn setxattr(
        &self,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        let volume = self.writing()?;
        self.must_exist(name)?;
        let id = self.node(node)?.id;
        let mode = match (how.create, how.replace) {
            (false, false) => XattrMode::Any,
            (true, false) => XattrMode::Create,
            (false, true) => XattrMode::Replace,
            // As in the kernel's btrfs: a missing attribute is not replaced, and an existing one is not created.
            (true, true) => match self.source.xattr(id, name)? {
                Some(_) => XattrMode::Create,
                None => XattrMode::Replace,
            },
        };
        let set = if how.kill_setgid && name == ACCESS_ACL {
            volume.set_access_acl(id, value, true)
        } else {
            volume.set_xattr(id, name, value, mode)
        };
        set.map_err(errno)?;
        self.note_xattr(name);
        Ok(())
    }

    pub(super) fn removexattr(&self, context: &Context, node: NodeId, name: &[u8]) -> Result<()> {
        let volume = self.writing()?;
        self.must_exist(name)?;
        let id = self.node(node)?.id;
        self.must_bear_removal(context, volume, (id, name))?;
        volume.remove_xattr(id, name).map_err(errno)
    }
}

fn namespace_exists(name: &[u8]) -> bool {
    ACLS.contains(&name)
        || NAMESPACES
            .iter()
            .any(|space| name.len() > space.len() && name.starts_with(space))
}

/// Copies a value to `out`; an empty buffer requests the length.
fn fill(out: &mut [u8], value: &[u8]) -> Result<usize> {
    if !out.is_empty() {
        out.get_mut(..value.len())
            .ok_or(Errno::RANGE)?
            .copy_from_slice(value);
    }
    Ok(value.len())
}

/// Copies names, each with a zero byte at its end; an empty buffer requests the length.
fn fill_list<'a>(out: &mut [u8], names: impl Iterator<Item = &'a [u8]>) -> Result<usize> {
    let measure = out.is_empty();
    let mut len = 0;
    for name in names {
        if !measure {
            let room = out.get_mut(len..=len + name.len()).ok_or(Errno::RANGE)?;
            let (text, end) = room.split_at_mut(name.len());
            text.copy_from_slice(name);
            end.fill(0);
        }
        len += name.len() + 1;
    }
    Ok(len)
}
