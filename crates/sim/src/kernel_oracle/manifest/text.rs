//! The text form of a manifest: one line per entry, with words separated by single spaces. It can be stored with an
//! image, and read by people and scripts.
//!
//! `KIND MODE UID:GID NLINK MAJOR:MINOR SIZE INO MTIME CTIME ATIME BTIME CONTENT PATH [XATTR=VALUE]...`
//!
//! Bytes that are not graphic ASCII, and the four special ones (`\`, `=`, `#`, and a lone `-`), are written as
//! `\xHH`. The root's path is `.`, which is unique.

use std::collections::BTreeMap;
use std::fmt;

use super::{Content, Digest, Entry, Kind, Manifest, Stat, Time, Value};
use crate::{Error, Result};

const KINDS: [(Kind, &str); 7] = [
    (Kind::File, "file"),
    (Kind::Dir, "dir"),
    (Kind::Symlink, "symlink"),
    (Kind::CharDevice, "char"),
    (Kind::BlockDevice, "block"),
    (Kind::Fifo, "fifo"),
    (Kind::Socket, "socket"),
];

pub(super) struct Escaped<'a>(pub(super) &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            let plain = byte.is_ascii_graphic() && !b"\\=#".contains(byte) && self.0 != b"-";
            if plain {
                write!(f, "{}", char::from(*byte))?;
            } else {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

pub(super) fn show_time(time: Time) -> String {
    format!("{}.{:09}", time.seconds, time.nanoseconds)
}

pub(super) fn show_value(value: &Value) -> String {
    match value {
        Value::Bytes(bytes) => Escaped(bytes).to_string(),
        Value::Long { len_bytes, digest } => format!("#{len_bytes}#{digest}"),
    }
}

pub(super) fn show_content(content: &Content) -> String {
    match content {
        Content::None => "-".to_owned(),
        Content::Unread => "#unread".to_owned(),
        Content::File(digest) => digest.to_string(),
        Content::Symlink(target) => Escaped(target).to_string(),
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries
            .iter()
            .try_for_each(|entry| writeln!(f, "{entry}"))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stat = &self.stat;
        let kind = KINDS.iter().find(|(kind, _)| *kind == stat.kind);
        write!(
            f,
            "{} {:04o} {}:{} {} {}:{} {} {} {} {} {} {} {} ",
            kind.map_or("", |(_, name)| name),
            stat.mode,
            stat.uid,
            stat.gid,
            stat.nlink,
            stat.rdev.0,
            stat.rdev.1,
            stat.size,
            stat.ino,
            show_time(stat.mtime),
            show_time(stat.ctime),
            show_time(stat.atime),
            stat.btime.map_or("-".to_owned(), show_time),
            show_content(&self.content),
        )?;
        if self.path.is_empty() {
            f.write_str(".")?;
        } else {
            write!(f, "{}", Escaped(&self.path))?;
        }
        for (name, value) in &self.xattrs {
            write!(f, " {}={}", Escaped(name), show_value(value))?;
        }
        Ok(())
    }
}

impl Manifest {
    /// Parses the output of Display.
    pub fn parse(text: &str) -> Result<Manifest> {
        let mut entries = Vec::new();
        for (at, line) in text.lines().enumerate() {
            entries.push(entry(line).map_err(|reason| Error::BadManifest {
                line: at + 1,
                reason,
            })?);
        }
        Ok(Manifest {
            entries,
            faults: Vec::new(),
        })
    }
}

fn entry(line: &str) -> Result<Entry, &'static str> {
    let mut words = line.split(' ');
    let mut next = || words.next().ok_or("too few words");
    let kind_name = next()?;
    let kind = KINDS.iter().find(|(_, name)| *name == kind_name);
    let kind = kind.ok_or("unknown kind")?.0;
    let mode = u32::from_str_radix(next()?, 8).map_err(|_| "bad mode")?;
    let (uid, gid) = pair(next()?)?;
    let nlink = number(next()?)?;
    let rdev = pair(next()?)?;
    let size = number(next()?)?;
    let ino = number(next()?)?;
    let mtime = time(next()?)?;
    let ctime = time(next()?)?;
    let atime = time(next()?)?;
    let btime = match next()? {
        "-" => None,
        word => Some(time(word)?),
    };
    let content = match (kind, next()?) {
        (_, "#unread") => Content::Unread,
        (Kind::File, hex) => Content::File(Digest::parse(hex).ok_or("bad digest")?),
        (Kind::Symlink, target) => Content::Symlink(unescape(target)?),
        _ => Content::None,
    };
    let path = match next()? {
        "." => Vec::new(),
        word => unescape(word)?,
    };
    let mut xattrs = BTreeMap::new();
    for word in words {
        let (name, shown) = word.split_once('=').ok_or("xattr without value")?;
        xattrs.insert(unescape(name)?, value(shown)?);
    }
    Ok(Entry {
        path,
        stat: Stat {
            kind,
            mode,
            uid,
            gid,
            nlink,
            rdev,
            size,
            ino,
            atime,
            mtime,
            ctime,
            btime,
        },
        content,
        xattrs,
    })
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, &'static str> {
    word.parse().map_err(|_| "bad number")
}

fn pair(word: &str) -> Result<(u32, u32), &'static str> {
    let (one, other) = word.split_once(':').ok_or("not a pair")?;
    Ok((number(one)?, number(other)?))
}

fn time(word: &str) -> Result<Time, &'static str> {
    let (seconds, nanoseconds) = word.split_once('.').ok_or("bad time")?;
    Ok(Time {
        seconds: number(seconds)?,
        nanoseconds: number(nanoseconds)?,
    })
}

fn value(word: &str) -> Result<Value, &'static str> {
    let Some(long) = word.strip_prefix('#') else {
        return Ok(Value::Bytes(unescape(word)?));
    };
    let (len, hex) = long.split_once('#').ok_or("bad value")?;
    Ok(Value::Long {
        len_bytes: number(len)?,
        digest: Digest::parse(hex).ok_or("bad digest")?,
    })
}

fn unescape(word: &str) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut parts = word.split("\\x");
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let (hex, rest) = part.split_at_checked(2).ok_or("bad escape")?;
        bytes.push(u8::from_str_radix(hex, 16).map_err(|_| "bad escape")?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Ok(bytes)
}
