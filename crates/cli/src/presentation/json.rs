//! JSON documents in the layout of btrfs-progs: a header, followed by one named list or map.
//!
//! A list is written entry by entry, in bounded memory.

use std::io::{self, Write};

use serde::Serialize;

const HEADER: &str = "{\n  \"__header\": {\n    \"version\": \"1\"\n  },\n";

/// A named list in progress.
#[derive(Debug)]
pub(crate) struct JsonList {
    first: bool,
}

impl JsonList {
    pub(crate) fn start(out: &mut dyn Write, name: &str) -> io::Result<JsonList> {
        write!(out, "{HEADER}  \"{name}\": [")?;
        Ok(JsonList { first: true })
    }

    pub(crate) fn push(&mut self, out: &mut dyn Write, entry: &impl Serialize) -> io::Result<()> {
        let separator = if self.first { "\n    " } else { ",\n    " };
        self.first = false;
        out.write_all(separator.as_bytes())?;
        out.write_all(indented(entry, "    ")?.as_bytes())
    }

    pub(crate) fn end(self, out: &mut dyn Write) -> io::Result<()> {
        let close = if self.first { "]\n}\n" } else { "\n  ]\n}\n" };
        out.write_all(close.as_bytes())
    }
}

/// Writes a whole list at once.
pub(crate) fn write_list<T: Serialize>(
    out: &mut dyn Write,
    name: &str,
    entries: impl IntoIterator<Item = T>,
) -> io::Result<()> {
    let mut list = JsonList::start(out, name)?;
    for entry in entries {
        list.push(out, &entry)?;
    }
    list.end(out)
}

/// Writes one named map.
pub(crate) fn write_map(out: &mut dyn Write, name: &str, map: &impl Serialize) -> io::Result<()> {
    writeln!(out, "{HEADER}  \"{name}\": {}\n}}", indented(map, "  ")?)
}

/// Indents the lines of a value. Newlines occur between tokens only: within strings they are escaped.
fn indented(value: &impl Serialize, indent: &str) -> io::Result<String> {
    let text = serde_json::to_string_pretty(value)?;
    Ok(text.replace('\n', &format!("\n{indent}")))
}

/// Converts bytes to a JSON string. Bytes that are not UTF-8 are replaced.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the exact bytes in hexadecimal if [`text`] is lossy, and None otherwise.
pub(crate) fn hex_if_lossy(bytes: &[u8]) -> Option<String> {
    match std::str::from_utf8(bytes) {
        Ok(_) => None,
        Err(_) => Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
    }
}
