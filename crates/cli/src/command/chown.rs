//! `ubtrfs chown`: owners and groups of files.

use std::str::FromStr;

use anyhow::Context;
use ubtrfs::HostOwners;

use crate::presentation::console::Console;
use crate::volume_access::changes::Changes;
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Change owner and group
///
/// Names are those of this machine; numbers mean the same in every volume.
#[derive(Debug, clap::Args)]
pub(crate) struct Chown {
    /// The owner, the group after a colon, or both; "USER:" gives the group that the user logs in with
    #[arg(value_name = "[USER][:[GROUP]]")]
    owner: Ownership,
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// Change all below directories as well
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change a symbolic link itself
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

/// An owner as an argument. None keeps the current one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ownership {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidOwner {
    #[error("invalid user: '{0}'")]
    User(String),
    #[error("invalid group: '{0}'")]
    Group(String),
}

impl FromStr for Ownership {
    type Err = InvalidOwner;

    fn from_str(text: &str) -> Result<Ownership, InvalidOwner> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let no_user = || InvalidOwner::User(user.to_owned());
        let owners = HostOwners::load();
        let uid = match owners.user_id(user) {
            _ if user.is_empty() => None,
            Some(uid) => Some(uid),
            None if is_number(user) => Some(user.parse().map_err(|_| no_user())?),
            None => return Err(no_user()),
        };
        let gid = match group {
            None => None,
            Some("") if user.is_empty() => None,
            Some("") => Some(owners.login_group(user).ok_or_else(no_user)?),
            Some(name) => {
                let number = name.parse().ok().filter(|_| is_number(name));
                let gid = owners.group_id(name).or(number);
                Some(gid.ok_or_else(|| InvalidOwner::Group(name.to_owned()))?)
            }
        };
        Ok(Ownership { uid, gid })
    }
}

impl Chown {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        Changes::each(
            &self.volume,
            &self.locations,
            console,
            |target, location, console| {
                let refused = || format!("cannot change '{location}'");
                let (files, path) = (&target.files, location.path_within());
                let Ownership { uid, gid } = self.owner;
                let metadata = if self.no_dereference || self.recursive {
                    files.symlink_metadata(path)
                } else {
                    files.metadata(path)
                };
                let metadata = metadata
                    .reason()
                    .with_context(|| format!("cannot access '{location}'"))?;
                let changed = if self.no_dereference || self.recursive {
                    files.lchown(path, uid, gid)
                } else {
                    files.chown(path, uid, gid)
                };
                changed.reason().with_context(refused)?;
                if !self.recursive || !metadata.is_dir() {
                    return Ok(());
                }
                target
                    .each_below(location, console, &mut |entry| entry.chown(uid, gid))
                    .with_context(refused)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_numbers() {
        let owner = |text: &str| {
            text.parse::<Ownership>()
                .map(|owner| (owner.uid, owner.gid))
        };
        assert_eq!(owner("root"), Ok((Some(0), None)));
        assert_eq!(owner("root:"), Ok((Some(0), Some(0))));
        assert_eq!(owner(":root"), Ok((None, Some(0))));
        assert_eq!(owner("1234:5678"), Ok((Some(1234), Some(5678))));
        assert_eq!(owner(":"), Ok((None, None)));
        for text in ["no such user", "-1", "+1", "4294967296", "1234:"] {
            assert_eq!(
                owner(text),
                Err(InvalidOwner::User(text.trim_end_matches(':').to_owned()))
            );
        }
        assert_eq!(
            owner("0:nobody there"),
            Err(InvalidOwner::Group("nobody there".to_owned()))
        );
    }
}
