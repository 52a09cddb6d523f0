//! The commands of a stream as text, one per line, in the format of `btrfs receive --dump` of btrfs-progs 6.14.
//!
//! Scripts parse this text, so its quirks are preserved. The flags of `fileattr` are decimal after "0x". A clone's
//! source is always printed as this subvolume.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Read, Write};

use crate::format::{Command, NewNode, StreamError, StreamReader};

/// The width to which paths are padded.
const PATH_COLUMNS: usize = 32;

/// The reason why a dump stopped early.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The text could not be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Writes a line for each command up to the end of the stream. `local_time` formats seconds since 1970, as in
/// "2026-11-25T17:32:26+0000".
pub fn dump<T: Display>(
    source: impl Read,
    out: &mut impl Write,
    local_time: impl Fn(i64) -> T,
) -> Result<(), DumpError> {
    let mut reader = StreamReader::open(source)?;
    let mut lines = CommandLines::new(local_time);
    while let Some(command) = reader.next_command()? {
        out.write_all(lines.line_of(&command).as_bytes())?;
    }
    Ok(())
}

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

/// Joins two paths with a single slash, and removes a trailing slash.
fn joined(above: &[u8], path: &[u8]) -> Vec<u8> {
    let above = above.strip_suffix(b"/").unwrap_or(above);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    [above, b"/", path].concat()
}

/// Formats commands as lines.
#[derive(Debug)]
pub struct CommandLines<F> {
    /// The path of the current subvolume.
    subvolume: Vec<u8>,
    text: String,
    local_time: F,
}

impl<T: Display, F: Fn(i64) -> T> CommandLines<F> {
    pub fn new(local_time: F) -> CommandLines<F> {
        CommandLines {
            subvolume: b".".to_vec(),
            text: String::new(),
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

    /// Formats a command as a line, including the newline.
    pub fn line_of(&mut self, command: &Command<'_>) -> &str {
        self.text.clear();
        self.command(command)
            .expect("writing to a String cannot fail");
        &self.text
    }

    fn command(&mut self, command: &Command<'_>) -> fmt::Result {
        let name = command.kind().map_or("", |kind| kind.name());
        match *command {
            Command::Subvol {
                path,
                uuid,
                ctransid,
            } => {
                self.subvolume = joined(b".", path);
                let args = format_args!("uuid={uuid} transid={ctransid}");
                self.line_at(name, &joined(b".", path), args)
            }
            Command::Snapshot {
                path,
                uuid,
                ctransid,
                clone_uuid,
                clone_ctransid,
            } => {
                self.subvolume = joined(b".", path);
                let args = format_args!(
                    "uuid={uuid} transid={ctransid} parent_uuid={clone_uuid} \
                     parent_transid={clone_ctransid}"
                );
                self.line_at(name, &joined(b".", path), args)
            }
            Command::Mkfile { path, .. }
            | Command::Mkdir { path, .. }
            | Command::Mkfifo(NewNode { path, .. })
            | Command::Mksock(NewNode { path, .. })
            | Command::Unlink { path }
            | Command::Rmdir { path } => {
                let path = self.below(path);
                writeln!(self.text, "{name:<16}{}", Escaped(&path))
            }
            Command::Mknod(NewNode {
                path, mode, rdev, ..
            }) => {
                let args = format_args!("mode={mode:o} dev=0x{rdev:x}");
                self.line(name, path, args)
            }
            Command::Symlink { path, target, .. } => {
                let args = format_args!("dest={}", Escaped(target));
                self.line(name, path, args)
            }
            Command::Rename { path, to } => {
                let to = self.below(to);
                let args = format_args!("dest={}", Escaped(&to));
                self.line(name, path, args)
            }
            Command::Link { path, existing } => {
                let args = format_args!("dest={}", Escaped(existing));
                self.line(name, path, args)
            }
            Command::SetXattr {
                path,
                name: xattr,
                value,
            } => {
                let len = value.len();
                let args = format_args!("name={} {} len={len}", Escaped(xattr), Escaped(value));
                self.line(name, path, args)
            }
            Command::RemoveXattr { path, name: xattr } => {
                let args = format_args!("name={}", Escaped(xattr));
                self.line(name, path, args)
            }
            Command::Write { path, offset, data } => {
                let args = format_args!("offset={offset} len={}", data.len());
                self.line(name, path, args)
            }
            Command::Clone {
                offset,
                len,
                path,
                clone_path,
                clone_offset,
                ..
            } => {
                let from = self.below(clone_path);
                let from = Escaped(&from);
                let args = format_args!(
                    "offset={offset} len={len} from={from} clone_offset={clone_offset}"
                );
                self.line(name, path, args)
            }
            Command::Truncate { path, size } => self.line(name, path, format_args!("size={size}")),
            Command::Chmod { path, mode } => self.line(name, path, format_args!("mode={mode:o}")),
            Command::Chown { path, uid, gid } => {
                let args = format_args!("gid={gid} uid={uid}");
                self.line(name, path, args)
            }
            Command::Utimes {
                path,
                atime,
                mtime,
                ctime,
                ..
            } => {
                let [atime, mtime, ctime] =
                    [atime, mtime, ctime].map(|time| (self.local_time)(time.sec));
                let args = format_args!("atime={atime} mtime={mtime} ctime={ctime}");
                self.line(name, path, args)
            }
            Command::UpdateExtent { path, offset, len } => {
                let args = format_args!("offset={offset} len={len}");
                self.line(name, path, args)
            }
            Command::Fallocate {
                path,
                mode,
                offset,
                len,
            } => {
                let mode = mode.cast_signed();
                let args = format_args!("mode={mode} offset={offset} len={len}");
                self.line(name, path, args)
            }
            Command::Fileattr { path, flags } => {
                self.line(name, path, format_args!("fileattr=0x{flags}"))
            }
            Command::EncodedWrite {
                path,
                offset,
                unencoded_file_len,
                unencoded_len,
                unencoded_offset,
                compression,
                encryption,
                data,
            } => {
                let len = data.len();
                let encryption = encryption.unwrap_or(0);
                let args = format_args!(
                    "offset={offset} len={len} unencoded_file_len={unencoded_file_len} \
                     unencoded_len={unencoded_len} unencoded_offset={unencoded_offset} \
                     compression={compression} encryption={encryption}"
                );
                self.line(name, path, args)
            }
            Command::End | Command::Unknown { .. } => Ok(()),
        }
    }

    fn below(&self, path: &[u8]) -> Vec<u8> {
        joined(&self.subvolume, path)
    }

    /// Adds a line about a path in the subvolume.
    fn line(&mut self, name: &str, path: &[u8], args: fmt::Arguments<'_>) -> fmt::Result {
        self.line_at(name, &self.below(path), args)
    }

    fn line_at(&mut self, name: &str, path: &[u8], args: fmt::Arguments<'_>) -> fmt::Result {
        write!(self.text, "{name:<16}")?;
        let path_at = self.text.len();
        write!(self.text, "{}", Escaped(path))?;
        let columns = self.text.len() - path_at;
        // At least one space, even after a long path.
        let spaces = PATH_COLUMNS.saturating_sub(columns).max(1);
        writeln!(self.text, "{:spaces$}{args}", "")
    }
}

#[cfg(test)]
mod tests;
