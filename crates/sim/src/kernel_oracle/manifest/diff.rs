//! Differences between two readers of one volume.

use std::cmp::Ordering;
use std::fmt;

use super::text::{Escaped, show_content, show_time, show_value};
use super::{Entry, Manifest};

/// A compared field of an entry. A test ignores fields that its reader cannot show. Examples are inode numbers on a
/// mount with one device number for all subvolumes, and access times of copies.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Kind,
    Mode,
    Uid,
    Gid,
    Nlink,
    Rdev,
    Size,
    /// Sizes of directories, which are specific to btrfs.
    DirSize,
    Ino,
    Mtime,
    Ctime,
    Atime,
    Btime,
    Content,
    Xattrs,
}

impl Field {
    pub const ALL: [Field; 15] = [
        Field::Kind,
        Field::Mode,
        Field::Uid,
        Field::Gid,
        Field::Nlink,
        Field::Rdev,
        Field::Size,
        Field::DirSize,
        Field::Ino,
        Field::Mtime,
        Field::Ctime,
        Field::Atime,
        Field::Btime,
        Field::Content,
        Field::Xattrs,
    ];
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    OnlyLeft {
        path: Vec<u8>,
    },
    OnlyRight {
        path: Vec<u8>,
    },
    Field {
        path: Vec<u8>,
        field: Field,
        left: String,
        right: String,
    },
    Fault {
        side: &'static str,
        path: Vec<u8>,
        doing: &'static str,
        reason: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::OnlyLeft { path } => write!(f, "/{}: only left", Escaped(path)),
            Difference::OnlyRight { path } => write!(f, "/{}: only right", Escaped(path)),
            Difference::Field {
                path,
                field,
                left,
                right,
            } => write!(
                f,
                "/{}: {field:?}: left {left}, right {right}",
                Escaped(path)
            ),
            Difference::Fault {
                side,
                path,
                doing,
                reason,
            } => write!(f, "/{}: {side}: {doing}: {reason}", Escaped(path)),
        }
    }
}

pub fn diff(left: &Manifest, right: &Manifest) -> Vec<Difference> {
    diff_without(left, right, &[])
}

pub fn diff_without(left: &Manifest, right: &Manifest, ignored: &[Field]) -> Vec<Difference> {
    let mut differences = Vec::new();
    for (side, manifest) in [("left", left), ("right", right)] {
        for fault in &manifest.faults {
            differences.push(Difference::Fault {
                side,
                path: fault.path.clone(),
                doing: fault.doing,
                reason: fault.reason.clone(),
            });
        }
    }
    let (mut a, mut b) = (
        left.entries.iter().peekable(),
        right.entries.iter().peekable(),
    );
    loop {
        let order = match (a.peek(), b.peek()) {
            (None, None) => return differences,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.path.cmp(&b.path),
        };
        let (one, other) = match order {
            Ordering::Less => (a.next(), None),
            Ordering::Greater => (None, b.next()),
            Ordering::Equal => (a.next(), b.next()),
        };
        match (one, other) {
            (Some(one), Some(other)) => fields(one, other, ignored, &mut differences),
            (Some(one), None) => differences.push(Difference::OnlyLeft {
                path: one.path.clone(),
            }),
            (None, Some(other)) => differences.push(Difference::OnlyRight {
                path: other.path.clone(),
            }),
            (None, None) => {}
        }
    }
}

fn fields(left: &Entry, right: &Entry, ignored: &[Field], differences: &mut Vec<Difference>) {
    // Formatting a field is expensive.
    if left == right {
        return;
    }
    for field in Field::ALL {
        if ignored.contains(&field) {
            continue;
        }
        let (Some(one), Some(other)) = (show(left, field), show(right, field)) else {
            continue;
        };
        if one != other {
            differences.push(Difference::Field {
                path: left.path.clone(),
                field,
                left: one,
                right: other,
            });
        }
    }
}

/// Formats a field of an entry. Returns None if the field is not compared for this entry.
fn show(entry: &Entry, field: Field) -> Option<String> {
    let stat = &entry.stat;
    let is_dir = stat.kind == super::Kind::Dir;
    let time = |time| (!entry.is_empty_subvolume_dir()).then(|| show_time(time));
    match field {
        Field::Kind => Some(format!("{:?}", stat.kind)),
        Field::Mode => Some(format!("{:04o}", stat.mode)),
        Field::Uid => Some(stat.uid.to_string()),
        Field::Gid => Some(stat.gid.to_string()),
        Field::Nlink => Some(stat.nlink.to_string()),
        Field::Rdev => Some(format!("{}:{}", stat.rdev.0, stat.rdev.1)),
        Field::Size => (!is_dir).then(|| stat.size.to_string()),
        Field::DirSize => is_dir.then(|| stat.size.to_string()),
        Field::Ino => Some(stat.ino.to_string()),
        Field::Mtime => time(stat.mtime),
        Field::Ctime => time(stat.ctime),
        Field::Atime => time(stat.atime),
        Field::Btime => stat.btime.and_then(time),
        Field::Content => Some(show_content(&entry.content)),
        Field::Xattrs => {
            let pairs = entry.xattrs.iter();
            let shown =
                pairs.map(|(name, value)| format!("{}={}", Escaped(name), show_value(value)));
            Some(shown.collect::<Vec<_>>().join(" "))
        }
    }
}

const SHOWN: usize = 40;

/// Panics with the first differences, if any. `what` is the name of the case.
#[track_caller]
pub fn assert_same(what: &str, left: &Manifest, right: &Manifest, ignored: &[Field]) {
    let differences = diff_without(left, right, ignored);
    if differences.is_empty() {
        return;
    }
    let mut text: Vec<String> = differences
        .iter()
        .take(SHOWN)
        .map(Difference::to_string)
        .collect();
    if differences.len() > SHOWN {
        text.push(format!("... and {} more", differences.len() - SHOWN));
    }
    panic!(
        "{what}: {} differences\n{}",
        differences.len(),
        text.join("\n")
    );
}
