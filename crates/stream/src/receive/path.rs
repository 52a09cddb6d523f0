//! Paths of a stream, which are checked before use.
//!
//! Invariants
//! - RECEIVE-PATH-1: a path has no empty name, no `.` or `..`, and no overlong name. So it only leads downwards from
//!   the root of a subvolume.

use std::fmt;

use ubtrfs_format::limits::MAX_NAME_BYTES;

/// Includes a NUL, as in the kernel.
const MAX_PATH_BYTES: usize = 4096;

/// A path below the root of a subvolume; empty for the root itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TreePath<'a>(&'a [u8]);

/// The reason why a path is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PathFault {
    #[error("path of {0} bytes is too long")]
    PathTooLong(usize),
    #[error("name of {0} bytes is too long")]
    NameTooLong(usize),
    #[error("path has an empty name")]
    EmptyName,
    #[error("path has a name that is '.' or '..'")]
    DotName,
    #[error("name has a slash")]
    Slash,
    #[error("path is the subvolume itself")]
    Root,
}

impl<'a> TreePath<'a> {
    /// Checks a path. A single leading slash is ignored.
    pub fn new(path: &'a [u8]) -> Result<TreePath<'a>, PathFault> {
        if path.len() >= MAX_PATH_BYTES {
            return Err(PathFault::PathTooLong(path.len()));
        }
        let path = path.strip_prefix(b"/").unwrap_or(path);
        // RECEIVE-PATH-1
        if !path.is_empty() {
            path.split(|&byte| byte == b'/').try_for_each(check_name)?;
        }
        Ok(TreePath(path))
    }

    /// Checks a path that must not be the subvolume's root.
    pub fn below_root(path: &'a [u8]) -> Result<TreePath<'a>, PathFault> {
        let path = TreePath::new(path)?;
        if path.0.is_empty() {
            Err(PathFault::Root)
        } else {
            Ok(path)
        }
    }

    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the parent directory and the name, or None for the root.
    pub fn split(self) -> Option<(TreePath<'a>, &'a [u8])> {
        if self.0.is_empty() {
            return None;
        }
        Some(match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (TreePath(&self.0[..at]), &self.0[at + 1..]),
            None => (TreePath(b""), self.0),
        })
    }
}

impl fmt::Display for TreePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// Checks the name of a subvolume, which must not be a path.
pub(super) fn subvolume_name(name: &[u8]) -> Result<&[u8], PathFault> {
    if name.contains(&b'/') {
        Err(PathFault::Slash)
    } else {
        check_name(name).map(|()| name)
    }
}

fn check_name(name: &[u8]) -> Result<(), PathFault> {
    match name {
        b"" => Err(PathFault::EmptyName),
        b"." | b".." => Err(PathFault::DotName),
        _ if name.len() > MAX_NAME_BYTES => Err(PathFault::NameTooLong(name.len())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_down_only() {
        // RECEIVE-PATH-1
        for bad in [
            "..", "a/..", "../a", "a/../b", ".", "a//b", "a/", "//", "./a",
        ] {
            assert!(TreePath::new(bad.as_bytes()).is_err(), "{bad}");
        }
        for good in ["", "/", "a", "/a", "a/b", "...", "a/..b"] {
            assert!(TreePath::new(good.as_bytes()).is_ok(), "{good}");
        }
        assert_eq!(TreePath::below_root(b"/"), Err(PathFault::Root));
        let long = [b'n'; 256];
        assert_eq!(TreePath::new(&long), Err(PathFault::NameTooLong(256)));
        let path = [b"n/".as_slice(); 2100].concat();
        assert_eq!(TreePath::new(&path), Err(PathFault::PathTooLong(4200)));
    }

    #[test]
    fn names_of_subvolumes_are_no_paths() {
        assert_eq!(subvolume_name(b"a/b"), Err(PathFault::Slash));
        assert_eq!(subvolume_name(b".."), Err(PathFault::DotName));
        assert_eq!(subvolume_name(b""), Err(PathFault::EmptyName));
        assert_eq!(subvolume_name(b"a"), Ok(&b"a"[..]));
    }
}
