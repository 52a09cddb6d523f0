//! The command line of btrfs-progs, used if the program is called through a link named `btrfs`.
//!
//! Names may be abbreviated, but only among the commands of btrfs-progs. A script that runs `btrfs i
//! dump-super` must not get a command of ours. Names are therefore expanded here, before the command line is
//! parsed. Global options, `help` and `version` also follow btrfs-progs.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use crate::command::absent;
use crate::presentation::console;

/// The version of btrfs-progs whose command line this is. Scripts and installers match the whole line.
pub(crate) const VERSION_LINE: &str = "btrfs-progs v6.14";
/// The program and its version, printed below that line.
const PRODUCT_LINE: &str = concat!("ubtrfs v", env!("CARGO_PKG_VERSION"));
/// The exit code of btrfs-progs for an unknown global option.
const UNKNOWN_GLOBAL_OPTION: u8 = 129;
/// Commands and groups of btrfs-progs, in the order of its help.
const VERBS: [&str; 17] = [
    "balance",
    "check",
    "device",
    "filesystem",
    "inspect-internal",
    "property",
    "qgroup",
    "quota",
    "receive",
    "replace",
    "rescue",
    "restore",
    "scrub",
    "send",
    "subvolume",
    "help",
    "version",
];
/// Commands of btrfs-progs in the groups that ubtrfs has, in the same order.
const COMMANDS: [(&str, &[&str]); 7] = [
    (
        "device",
        &[
            "add", "delete", "remove", "replace", "scan", "ready", "stats", "usage",
        ],
    ),
    (
        "filesystem",
        &[
            "df",
            "du",
            "show",
            "sync",
            "defragment",
            "balance",
            "resize",
            "label",
            "usage",
            "mkswapfile",
        ],
    ),
    (
        "inspect-internal",
        &[
            "inode-resolve",
            "logical-resolve",
            "subvolid-resolve",
            "rootid",
            "map-swapfile",
            "min-dev-size",
            "dump-tree",
            "dump-super",
            "tree-stats",
            "list-chunks",
        ],
    ),
    ("property", &["get", "set", "list"]),
    (
        "rescue",
        &[
            "chunk-recover",
            "super-recover",
            "zero-log",
            "fix-device-size",
            "create-control-device",
            "clear-ino-cache",
            "clear-space-cache",
            "clear-uuid-tree",
        ],
    ),
    ("scrub", &["start", "cancel", "resume", "status", "limit"]),
    (
        "subvolume",
        &[
            "create",
            "delete",
            "list",
            "snapshot",
            "get-default",
            "set-default",
            "find-new",
            "show",
            "sync",
        ],
    ),
];
/// Global options, and whether they have a value.
const OPTIONS: [(&str, bool); 9] = [
    ("--dry-run", false),
    ("--format", true),
    ("--full", false),
    ("--help", false),
    ("--log", true),
    ("--param", true),
    ("--quiet", false),
    ("--verbose", false),
    ("--version", false),
];

/// The result of reading a command line.
#[derive(Debug)]
pub(crate) enum Line {
    /// It must be parsed, with expanded names.
    Parse(Vec<OsString>),
    /// It was handled.
    Done(ExitCode),
}

/// Handles `mkfs.btrfs --version`.
pub(crate) fn mkfs_version(args: &[OsString]) -> Option<ExitCode> {
    let asks = |arg: &OsString| arg == "-V" || arg == "--version";
    args.get(1).filter(|arg| asks(arg))?;
    let text = format!("mkfs.btrfs, part of {VERSION_LINE}\n{PRODUCT_LINE}\n");
    Some(say(&text))
}

/// Hides commands that btrfs-progs does not have.
pub(crate) fn without_ours(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|verb| {
        let is_known = VERBS.contains(&verb.get_name());
        let known = commands_in(verb.get_name());
        let verb = verb.mut_subcommands(|command| {
            let is_ours = !known.contains(&command.get_name());
            command.hide(is_ours)
        });
        verb.hide(!is_known)
    })
}

fn commands_in(group: &str) -> &'static [&'static str] {
    let mut groups = COMMANDS.iter();
    groups
        .find(|(name, _)| *name == group)
        .map_or(&[], |(_, commands)| commands)
}

/// Reads a command line, including the program name. `command` has only the commands of btrfs-progs.
pub(crate) fn read(command: &clap::Command, args: Vec<OsString>) -> Line {
    let mut args = args.into_iter();
    let mut line: Vec<OsString> = args.by_ref().take(1).collect();
    let mut rest: Vec<OsString> = args.collect();
    let asked = match take_global_options(command, &mut rest, &mut line) {
        Ok(asked) => asked,
        Err(Refusal::Option(unknown)) => {
            eprintln!("Unknown global option: {}", unknown.display());
            return Line::Done(ExitCode::from(UNKNOWN_GLOBAL_OPTION));
        }
        Err(Refusal::Format(value)) => {
            eprintln!("error: invalid output format \"{}\"", value.display());
            return Line::Done(ExitCode::FAILURE);
        }
        Err(Refusal::LogLevel(value)) => {
            eprintln!("ERROR: unrecognized log level: {}", value.display());
            return Line::Done(ExitCode::FAILURE);
        }
    };
    match asked {
        Asked::Help => return help(command, &rest),
        Asked::FullHelp => return help(command, &["--full".into()]),
        Asked::Version => return said(version()),
        Asked::Nothing => {}
    }
    let Some(verb) = rest.first() else {
        // It is an error, although it prints the help.
        help(command, &[]);
        return Line::Done(ExitCode::FAILURE);
    };
    let verb = match written_out(verb, VERBS.into_iter()) {
        Ok(verb) => verb,
        Err(like) => return refused("btrfs", verb, &like),
    };
    rest.remove(0);
    match verb {
        "help" => return help(command, &rest),
        // As in btrfs-progs, other arguments do not matter.
        "version" if !rest.iter().any(|arg| arg == "--help") => return said(version()),
        verb if absent::is_absent("", verb) => return refuse_absent(verb),
        verb => line.push(verb.into()),
    }
    let group = command.find_subcommand(verb);
    if !group.is_some_and(clap::Command::has_subcommands) {
        line.extend(rest);
        return Line::Parse(line);
    }
    if let Some(name) = rest.first().filter(|name| *name != "--help") {
        match written_out(name, commands_in(verb).iter().copied()) {
            Ok(name) if absent::is_absent(verb, name) => {
                return refuse_absent(&format!("{verb} {name}"));
            }
            Ok(name) => rest[0] = name.into(),
            Err(like) => return refused(&format!("btrfs {verb}"), name, &like),
        }
    }
    line.extend(rest);
    Line::Parse(line)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Nothing,
    Help,
    FullHelp,
    Version,
}

/// An unknown global option or value.
#[derive(Debug)]
enum Refusal {
    Option(OsString),
    Format(OsString),
    LogLevel(OsString),
}

/// Returns whether `value` is valid for the global option of this name.
fn has_value(command: &clap::Command, option: &str, value: &OsStr) -> bool {
    let mut options = command.get_arguments();
    let option = options.find(|arg| arg.get_long() == option.strip_prefix("--"));
    let values = option.map(clap::Arg::get_possible_values);
    let Some(text) = value.to_str() else {
        return false;
    };
    values.is_some_and(|values| values.iter().any(|known| known.matches(text, false)))
}

/// Moves the options before the command from `rest` to `line`. As in btrfs-progs, an invalid value is an
/// error regardless of later arguments.
fn take_global_options(
    command: &clap::Command,
    rest: &mut Vec<OsString>,
    line: &mut Vec<OsString>,
) -> Result<Asked, Refusal> {
    let mut asked = Asked::Nothing;
    let mut is_full = false;
    while let Some(arg) = rest.first() {
        let bytes = arg.as_bytes();
        if bytes == b"-" || !bytes.starts_with(b"-") {
            break;
        }
        let arg = rest.remove(0);
        let bytes = arg.as_bytes();
        if bytes == b"--" {
            break;
        }
        let Some(long) = bytes.strip_prefix(b"--") else {
            if !bytes[1..].iter().all(|letter| b"qv".contains(letter)) {
                return Err(Refusal::Option(arg));
            }
            line.push(arg);
            continue;
        };
        let name = long.split(|&byte| byte == b'=').next().unwrap_or_default();
        let name = OsStr::from_bytes(&bytes[..2 + name.len()]);
        let names = OPTIONS.iter().map(|(name, _)| *name);
        let Ok(option) = written_out(name, names) else {
            return Err(Refusal::Option(arg));
        };
        let given = bytes[name.len()..].strip_prefix(b"=");
        let takes_value = OPTIONS.contains(&(option, true));
        if given.is_some() && !takes_value {
            return Err(Refusal::Option(arg));
        }
        let value = match given {
            Some(value) => Some(OsStr::from_bytes(value).to_owned()),
            None if takes_value && !rest.is_empty() => Some(rest.remove(0)),
            None => None,
        };
        match option {
            "--help" => asked = Asked::Help,
            "--version" if asked == Asked::Nothing => asked = Asked::Version,
            "--full" => is_full = true,
            // Settings of experimental features, which do not exist here.
            "--version" | "--param" => {}
            "--format" | "--log" => {
                let Some(value) = value else {
                    return Err(Refusal::Option(arg));
                };
                if !has_value(command, option, &value) {
                    return Err(if option == "--log" {
                        Refusal::LogLevel(value)
                    } else {
                        Refusal::Format(value)
                    });
                }
                line.extend([option.into(), value]);
            }
            option => line.push(option.into()),
        }
    }
    Ok(match asked {
        Asked::Help if is_full => Asked::FullHelp,
        asked => asked,
    })
}

/// Returns the name that equals `written`, or the only one that begins with it. Otherwise returns all names
/// that begin with it.
fn written_out<'a>(
    written: &OsStr,
    names: impl Iterator<Item = &'a str>,
) -> Result<&'a str, Vec<&'a str>> {
    let mut like = Vec::new();
    for name in names {
        if written == name {
            return Ok(name);
        }
        if !written.is_empty() && name.as_bytes().starts_with(written.as_bytes()) {
            like.push(name);
        }
    }
    match like.as_slice() {
        [name] => Ok(name),
        _ => Err(like),
    }
}

fn refused(program: &str, written: &OsStr, like: &[&str]) -> Line {
    let shown = written.display();
    if like.is_empty() {
        eprintln!("{program}: unknown token '{shown}'");
        eprintln!("For a list of the commands use '{program} --help'.");
    } else {
        eprintln!("{program}: ambiguous token '{shown}'\n\nDid you mean one of these ?");
        for name in like {
            eprintln!("\t{name}");
        }
    }
    Line::Done(ExitCode::FAILURE)
}

fn refuse_absent(name: &str) -> Line {
    eprintln!("ERROR: {}", absent::refusal(name));
    Line::Done(ExitCode::FAILURE)
}

fn version() -> String {
    format!("{VERSION_LINE}\n{PRODUCT_LINE}\n")
}

/// Prints help for all commands, or for the named one. As in btrfs-progs, requesting help is never an error.
fn help(command: &clap::Command, words: &[OsString]) -> Line {
    if words.iter().any(|word| word == "--box") {
        return said("No standalone tools built-in in the busybox style\n".into());
    }
    let mut command = command.clone();
    command.build();
    if words.iter().any(|word| word == "--full") {
        let mut text = String::new();
        add_full_help(&mut command, &mut text);
        return said(text);
    }
    let mut named = &command;
    for word in words {
        let names: Vec<String> = shown_in(named);
        let Ok(name) = written_out(word, names.iter().map(String::as_str)) else {
            break;
        };
        let Some(below) = named.find_subcommand(name) else {
            break;
        };
        named = below;
    }
    said(named.clone().render_help().to_string())
}

fn shown_in(command: &clap::Command) -> Vec<String> {
    let shown = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    shown.map(|below| below.get_name().to_owned()).collect()
}

/// Adds the help of a command and its subcommands.
fn add_full_help(command: &mut clap::Command, text: &mut String) {
    text.push_str(&command.render_help().to_string());
    for name in shown_in(command) {
        if let Some(below) = command.find_subcommand_mut(name) {
            text.push('\n');
            add_full_help(below, text);
        }
    }
}

fn said(text: String) -> Line {
    Line::Done(say(&text))
}

fn say(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => console::exit_code_of_write(&error),
    }
}
