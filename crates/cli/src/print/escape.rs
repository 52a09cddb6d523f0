//! Names, which may be any bytes.

/// Names are escaped in the same way in dumps of trees and of streams.
pub(super) use ubtrfs_stream::Escaped as Name;

use crate::presentation::quoting;

/// Writes bytes up to their first NUL, as C does. They are escaped for a terminal.
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
