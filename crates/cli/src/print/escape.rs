//! Names, which are any bytes.

use std::fmt;

use crate::presentation::quoting;

/// Printable ASCII as it is, a space and a backslash behind a backslash, C's escapes, octal for the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<'a>(pub(super) &'a [u8]);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.chunk_by(|&a, &b| is_plain(a) && is_plain(b)) {
            match std::str::from_utf8(chunk) {
                Ok(text) if is_plain(chunk[0]) => f.write_str(text)?,
                _ => write_escape(f, chunk[0])?,
            }
        }
        Ok(())
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'\\'
}

fn write_escape(f: &mut fmt::Formatter<'_>, byte: u8) -> fmt::Result {
    match byte {
        0x07 => f.write_str("\\a"),
        0x08 => f.write_str("\\b"),
        b'\t' => f.write_str("\\t"),
        b'\n' => f.write_str("\\n"),
        0x0b => f.write_str("\\v"),
        0x0c => f.write_str("\\f"),
        b'\r' => f.write_str("\\r"),
        0x1b => f.write_str("\\e"),
        b' ' => f.write_str("\\ "),
        b'\\' => f.write_str("\\\\"),
        byte => write!(f, "\\{byte:03o}"),
    }
}

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
