//! Names of users and groups, from this machine's /etc/passwd and /etc/group.

use std::collections::HashMap;
use std::fs;

/// Names of the users and groups of this machine, by number.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Owners {
    /// Reads the names; files that cannot be read have none.
    pub(crate) fn load() -> Owners {
        Owners {
            users: read("/etc/passwd"),
            groups: read("/etc/group"),
        }
    }

    /// The user's name, or the number.
    pub(crate) fn user(&self, uid: u32) -> String {
        name_or_number(&self.users, uid)
    }

    /// The group's name, or the number.
    pub(crate) fn group(&self, gid: u32) -> String {
        name_or_number(&self.groups, gid)
    }

    /// The user's name, if the machine has one for the number.
    pub(crate) fn user_name(&self, uid: u32) -> Option<&str> {
        self.users.get(&uid).map(String::as_str)
    }

    /// The group's name, if the machine has one for the number.
    pub(crate) fn group_name(&self, gid: u32) -> Option<&str> {
        self.groups.get(&gid).map(String::as_str)
    }
}

/// Finds the number of the user of this name on this machine, and the group that they log in with.
pub(crate) fn user_id(name: &str) -> Option<(u32, u32)> {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let mut ids = line.split(':').skip(2).map(str::parse);
    Some((ids.next()?.ok()?, ids.next()?.ok()?))
}

/// Finds the number of the group of this name on this machine.
pub(crate) fn group_id(name: &str) -> Option<u32> {
    let text = fs::read_to_string("/etc/group").unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

fn name_or_number(names: &HashMap<u32, String>, id: u32) -> String {
    names.get(&id).cloned().unwrap_or_else(|| id.to_string())
}

/// Lines of `name:password:id:...`; the first name of an id counts.
fn read(path: &str) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for (name, id) in lines(path) {
        names.entry(id).or_insert(name);
    }
    names
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
