//! Bytes as text, in the escapes of `btrfs receive --dump`.

use std::fmt::{self, Display};

/// Bytes in escaped form: printable ASCII is unchanged, spaces and backslashes get a backslash. Other bytes are C
/// escapes or octal.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl Display for Escaped<'_> {
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
