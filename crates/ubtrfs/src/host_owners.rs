//! Names of users and groups of the host, and their ids.

use std::collections::HashMap;
use std::fs;

use ubtrfs_mkfs::archive::OwnerNames;

/// The users and groups of the host, from /etc/passwd and /etc/group: volumes contain only ids.
///
/// ```
/// use ubtrfs::{HostOwners, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// volume.root().write("/file", b"content")?;
/// let owners = HostOwners::load();
/// let owner = volume.root().metadata("/file")?.uid();
/// println!("{}", owners.user_name(owner).unwrap_or("unknown"));
/// if let Some(group) = owners.group_id("users") {
///     volume.root().chown("/file", None, Some(group))?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct HostOwners {
    users: Names,
    groups: Names,
}

impl HostOwners {
    /// Reads both files. A file that cannot be read counts as empty.
    pub fn load() -> HostOwners {
        HostOwners {
            users: Names::read("/etc/passwd"),
            groups: Names::read("/etc/group"),
        }
    }

    /// Returns the name of a user, the first one if there are several.
    pub fn user_name(&self, uid: u32) -> Option<&str> {
        self.users.name(uid)
    }

    /// Returns the name of a group, the first one if there are several.
    pub fn group_name(&self, gid: u32) -> Option<&str> {
        self.groups.name(gid)
    }

    /// Returns the id of a user.
    pub fn user_id(&self, name: &str) -> Option<u32> {
        self.users.id(name)
    }

    /// Returns the id of a group.
    pub fn group_id(&self, name: &str) -> Option<u32> {
        self.groups.id(name)
    }

    /// Returns the id of a user's login group.
    pub fn login_group(&self, name: &str) -> Option<u32> {
        self.users.ids.get(name)?.1
    }

    /// Returns the ids by name, for ACLs that name users and groups.
    pub(crate) fn numbers(&self) -> OwnerNames {
        OwnerNames {
            users: self.users.numbers(),
            groups: self.groups.numbers(),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Names {
    names: HashMap<u32, String>,
    /// Ids by name; for a user also the login group.
    ids: HashMap<String, (u32, Option<u32>)>,
}

impl Names {
    fn read(path: &str) -> Names {
        Names::parse(&fs::read_to_string(path).unwrap_or_default())
    }

    /// Parses lines of `name:password:id:...`. The first line of a name or id counts.
    fn parse(text: &str) -> Names {
        let mut all = Names::default();
        let lines = text.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, id) = (fields.next()?, fields.nth(1)?.parse().ok()?);
            let next = fields.next().and_then(|field| field.parse().ok());
            Some((name.to_owned(), id, next))
        });
        for (name, id, next) in lines {
            all.names.entry(id).or_insert_with(|| name.clone());
            all.ids.entry(name).or_insert((id, next));
        }
        all
    }

    fn name(&self, id: u32) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    fn id(&self, name: &str) -> Option<u32> {
        self.ids.get(name).map(|(id, _)| *id)
    }

    fn numbers(&self) -> HashMap<String, u32> {
        let ids = self.ids.iter();
        ids.map(|(name, (id, _))| (name.clone(), *id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_name_or_number_counts() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbad\ntoor:x:0:1::/:\nme:x:1000:100::/:\nme:x:1001:101::/:\n";
        let owners = HostOwners {
            users: Names::parse(users),
            groups: Names::parse("users:x:100:me\nnone:x:x:\n"),
        };
        assert_eq!(owners.user_name(0), Some("root"));
        assert_eq!(owners.user_id("toor"), Some(0));
        assert_eq!(owners.user_id("me"), Some(1000));
        assert_eq!(owners.login_group("me"), Some(100));
        assert_eq!(owners.user_name(1), None);
        assert_eq!(owners.group_name(100), Some("users"));
        assert_eq!(owners.group_id("none"), None);
        assert_eq!(owners.numbers().users.get("me"), Some(&1000));
    }
}
