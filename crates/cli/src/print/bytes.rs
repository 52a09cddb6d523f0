//! Bytes as text: names, which may be any bytes, and checksums.

use std::fmt::{self, Write as _};
use std::io;

/// Names are escaped in the same way in dumps of trees and of streams.
pub(super) use ubtrfs_stream::Escaped as Name;

use crate::presentation::quoting;

/// Writes bytes up to their first NUL, as C does. They are escaped for a terminal.
pub(super) fn write_raw(
    out: &mut dyn io::Write,
    bytes: &[u8],
    for_terminal: bool,
) -> io::Result<()> {
    let end = bytes.iter().position(|&byte| byte == 0);
    let bytes = &bytes[..end.unwrap_or(bytes.len())];
    if for_terminal {
        return write!(out, "{}", quoting::Escaped(bytes));
    }
    out.write_all(bytes)
}

/// Displays bytes up to the first NUL, with dots for unprintable ones.
pub(super) struct Printable<'a>(pub(super) &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.iter().take_while(|byte| **byte != 0);
        bytes.copied().try_for_each(|byte| {
            let plain = byte.is_ascii_graphic() || byte == b' ';
            f.write_char(if plain { char::from(byte) } else { '.' })
        })
    }
}

/// Bytes as one hexadecimal number in on-disk order.
pub(super) struct Hex<'a>(pub(super) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
