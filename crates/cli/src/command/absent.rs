//! Commands of btrfs-progs that ubtrfs does not have. The error says so, instead of calling it unknown.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Groups (the first: no group) with the commands that are missing in them.
const ABSENT: [(&str, &[&str]); 5] = [
    (
        "",
        &["balance", "qgroup", "quota", "replace", "restore", "scrub"],
    ),
    ("device", &["add", "delete", "remove", "replace"]),
    (
        "filesystem",
        &["balance", "defragment", "mkswapfile", "resize"],
    ),
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

/// Adds to the help texts which commands are absent.
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

/// Returns the absent command that a command line of `command` names, if that is why it could not be parsed. Names may
/// be shortened.
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
    // The word that was parsed before it was no group, or the one that it was looked for in.
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

/// Returns the message about an absent command.
pub(crate) fn refusal(name: &str) -> String {
    format!("'{name}' is not supported by ubtrfs")
}
