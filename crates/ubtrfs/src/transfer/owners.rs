//! Numbers of users and groups by their names, from this machine's /etc/passwd and /etc/group.

use std::fs;

use ubtrfs_mkfs::archive::OwnerNames;

/// Reads the numbers of all users and groups of this machine, for ACLs that name them.
pub(crate) fn owner_names() -> OwnerNames {
    OwnerNames {
        users: lines("/etc/passwd").into_iter().collect(),
        groups: lines("/etc/group").into_iter().collect(),
    }
}

/// Names and their numbers.
fn lines(path: &str) -> Vec<(String, u32)> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        Some((name.to_owned(), id.parse().ok()?))
    });
    lines.collect()
}
