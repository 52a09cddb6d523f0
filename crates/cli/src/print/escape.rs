//! Names, which are any bytes.

/// A name is escaped alike in dumps of trees and of streams.
pub(super) use ubtrfs_stream::Escaped as Name;

use crate::presentation::quoting;

/// Writes bytes as they are, up to their first NUL as C does; escaped if a terminal would see them.
pub(super) fn write_raw(
    out: &mut dyn std::io::Write,
    bytes: &[u8],
    for_terminal: bool,
) -> std::io::Result<()> {
    let end = bytes.iter().position(|&byte| byte == 0);
    let bytes = &bytes[..end.unwrap_or(bytes.len())];
    if for_terminal {
        return write!(out, "{}", quoting::Escaped(bytes));
    }
    out.write_all(bytes)
}
