//! Operands that name several devices of one volume, the last one with a path.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use ubtrfs::DeviceName;

/// Separates the names in a joined operand. No argument of a process contains it.
const SEPARATOR: u8 = 0;

/// Joins names to one operand.
pub(crate) fn join<'a>(names: impl Iterator<Item = &'a OsStr>) -> OsString {
    let names: Vec<&[u8]> = names.map(OsStr::as_bytes).collect();
    OsString::from_vec(names.join(&SEPARATOR))
}

/// Returns whether an operand was joined of several.
pub(crate) fn is_joined(operand: &OsStr) -> bool {
    operand.as_bytes().contains(&SEPARATOR)
}

/// Returns the names before the last one of a joined operand, and the last one. Others have one name.
pub(crate) fn split_joined(operand: &OsStr) -> (Vec<DeviceName>, &OsStr) {
    let names = operand.as_bytes().split(|&byte| byte == SEPARATOR);
    let mut names: Vec<&OsStr> = names.map(OsStr::from_bytes).collect();
    let last = names.pop().unwrap_or(operand);
    (names.into_iter().map(DeviceName::from).collect(), last)
}

#[cfg(test)]
mod tests;
