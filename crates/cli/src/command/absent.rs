//! Commands of btrfs-progs that ubtrfs lacks. The error names this as the reason, instead of an unknown
//! command.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Groups with their missing commands. The first entry is for commands outside a group.
const ABSENT: [(&str, &[&str]); 4] = [
    ("", &["balance", "qgroup", "quota", "restore"]),
    ("filesystem", &["balance", "defragment", "mkswapfile"]),
    ("inspect-internal", &["map-swapfile"]),
    (
        "rescue",
        &[
            "chunk-recover",
            "clear-ino-cache",
            "clear-space-cache",
            "clear-uuid-tree",
            "create-control-device",
            "fix-device-size",
            "super-recover",
        ],
    ),
];

pub(crate) fn absent_in(group: &str) -> &'static [&'static str] {
    let mut groups = ABSENT.iter();
    groups
        .find(|(name, _)| *name == group)
        .map_or(&[], |(_, absent)| absent)
}

pub(crate) fn is_absent(group: &str, name: &str) -> bool {
    absent_in(group).contains(&name)
}

/// Adds the missing commands to the help texts.
pub(crate) fn with_note(command: clap::Command) -> clap::Command {
    let note = |command: clap::Command, group: &str| match absent_in(group) {
        [] => command,
        absent => command.after_help(format!(
            "Commands of btrfs-progs that are not supported: {}",
            absent.join(", ")
        )),
    };
    let command = note(command, "");
    command.mut_subcommands(|group| {
        let name = group.get_name().to_owned();
        note(group, &name)
    })
}

/// Returns the missing command that a command line of `command` names, if that is why parsing failed. Names
/// may be abbreviated.
pub(crate) fn named(
    command: &clap::Command,
    args: &[OsString],
    error: &clap::Error,
) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    // The word parsed before it is not a group, or it is the group that lacks the command.
    let before = args.iter().take_while(|arg| *arg != unknown.as_str());
    let group = before
        .filter_map(|arg| arg.to_str().filter(|arg| !arg.is_empty()))
        .find_map(|arg| {
            let mut groups = command.get_subcommands().filter(|c| c.has_subcommands());
            groups.find(|group| group.get_name().starts_with(arg))
        });
    let group = group.map_or("", clap::Command::get_name);
    let mut like = absent_in(group)
        .iter()
        .filter(|name| name.starts_with(unknown.as_str()));
    match (like.next(), like.next()) {
        (Some(name), None) => Some(format!("{group} {name}").trim_start().to_owned()),
        _ => None,
    }
}

/// Returns the message for a missing command.
pub(crate) fn refusal(name: &str) -> String {
    format!("'{name}' is not supported by ubtrfs")
}
