//! Paths within a volume.

use ubtrfs_format::item::FileKind;

use super::FileId;
use crate::error::{Error, Result};
use crate::volume::Volume;

/// Links followed on one path before it counts as a loop; the kernel's limit.
const MAX_SYMLINKS: usize = 40;

impl Volume {
    /// What `path` leads to from `base`. Links in the middle are followed, one at the end is not. A
    /// path or link that begins with '/' starts at `base`'s subvolume root.
    pub fn resolve(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.walk(base, path, false)
    }

    /// The same, but a link at the end is followed as well.
    pub fn resolve_following(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.walk(base, path, true)
    }

    fn walk(&self, base: FileId, path: &[u8], follow_last: bool) -> Result<FileId> {
        let top = self.root_dir(base.root)?;
        let mut at = if path.starts_with(b"/") { top } else { base };
        let mut pending = components(path);
        let mut links = 0;
        while let Some(name) = pending.pop() {
            match name.as_slice() {
                b"." => continue,
                b".." => {
                    at = if at == top { top } else { self.parent(at)? };
                    continue;
                }
                _ => {}
            }
            let next = self.lookup(at, &name)?.ok_or(Error::NotFound)?;
            let follow = follow_last || !pending.is_empty();
            if follow && self.attr(next)?.kind == FileKind::Symlink {
                links += 1;
                if links > MAX_SYMLINKS {
                    return Err(Error::TooManySymlinks);
                }
                let target = self.readlink(next)?;
                if target.starts_with(b"/") {
                    at = top;
                }
                pending.extend(components(&target));
            } else {
                at = next;
            }
        }
        Ok(at)
    }
}

/// The names of a path, last first; a trailing slash asks for what a "." would.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = path
        .split(|&b| b == b'/')
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    if path.ends_with(b"/") && !names.is_empty() {
        names.push(b".".to_vec());
    }
    names.reverse();
    names
}
