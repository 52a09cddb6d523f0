//! The commands of a stream as text, one per line, in the format of `btrfs receive --dump` of btrfs-progs 6.14.
//!
//! Scripts parse this text, so its quirks are preserved. The flags of `fileattr` are decimal after "0x". A clone's
//! source is always printed as this subvolume.

use std::fmt::{self, Display, Write as _};

use ubtrfs_format::item::FileTime;

use crate::escaped::Escaped;
use crate::format::{Command, CommandKind, DumpContext};

/// The width to which paths are padded.
const PATH_COLUMNS: usize = 32;

/// Joins two paths with a single slash, and removes a trailing slash.
fn joined(above: &[u8], path: &[u8]) -> Vec<u8> {
    let above = above.strip_suffix(b"/").unwrap_or(above);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    [above, b"/", path].concat()
}

/// Formats commands as lines. `local_time` formats seconds since 1970, as in "2026-11-25T17:32:26+0000".
#[derive(Debug)]
pub struct CommandLines<F> {
    /// The path of the current subvolume.
    subvolume: Vec<u8>,
    local_time: F,
}

impl<T: Display, F: Fn(i64) -> T> CommandLines<F> {
    pub fn new(local_time: F) -> CommandLines<F> {
        CommandLines {
            subvolume: b".".to_vec(),
            local_time,
        }
    }

    /// Starts in the middle of a subvolume's commands.
    pub fn within(subvolume: &[u8], local_time: F) -> CommandLines<F> {
        CommandLines {
            subvolume: joined(b".", subvolume),
            ..CommandLines::new(local_time)
        }
    }

    /// Formats a command as a line, without the newline. The end and unknown commands have no line.
    pub fn line_of(&mut self, command: &Command<'_>) -> Option<String> {
        if let Command::SubvolumeFlags { flags } = command {
            let subvolume = Escaped(&self.subvolume).to_string();
            return Some(format!(
                "{:<16}{subvolume:<PATH_COLUMNS$}flags={flags:#x}",
                "subvol_flags"
            ));
        }
        let (kind, path) = command.kind().zip(command.path())?;
        let mut line = String::new();
        self.write_line(&mut line, command, kind, path)
            .expect("writing to a String cannot fail");
        Some(line)
    }

    fn write_line(
        &mut self,
        line: &mut String,
        command: &Command<'_>,
        kind: CommandKind,
        path: &[u8],
    ) -> fmt::Result {
        let path = match kind {
            CommandKind::Subvol | CommandKind::Snapshot => {
                self.subvolume = joined(b".", path);
                self.subvolume.clone()
            }
            _ => joined(&self.subvolume, path),
        };
        write!(line, "{:<16}", kind.name())?;
        let path_at = line.len();
        write!(line, "{}", Escaped(&path))?;
        let path_end = line.len();
        // At least one space, even after a long path.
        let spaces = PATH_COLUMNS.saturating_sub(path_end - path_at).max(1);
        write!(line, "{:spaces$}", "")?;
        let details_at = line.len();
        command.write_details(line, self)?;
        if line.len() == details_at {
            line.truncate(path_end);
        }
        Ok(())
    }
}

impl<T: Display, F: Fn(i64) -> T> DumpContext for CommandLines<F> {
    fn below(&self, path: &[u8]) -> String {
        Escaped(&joined(&self.subvolume, path)).to_string()
    }

    fn local(&self, time: FileTime) -> String {
        (self.local_time)(time.sec).to_string()
    }
}

#[cfg(test)]
mod tests;
