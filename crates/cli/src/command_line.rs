//! The whole command line: the structs with what is the same for every command.
//!
//! -v and -q may stand before a command, as btrfs-progs takes them, and after it, where the command gives the
//! letter no meaning of its own. --format and --dry-run are refused by commands that could only ignore them.
//! Options may stand between the operands of a command (`options_first`).

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use anyhow::bail;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches};

use crate::Cli;
use crate::command::{Command, absent};
use crate::console::Format;
use crate::control;
use crate::location::Location;

const VERBOSE: &str = "verbose_after";
const QUIET: &str = "quiet_after";
const HEADING: &str = "Global options";

pub(crate) fn definition() -> clap::Command {
    with_mounts(absent::with_note(with_verbosity(Cli::command())))
}

pub(crate) fn parse(matches: &ArgMatches) -> Result<Cli, clap::Error> {
    let mut cli = Cli::from_arg_matches(matches)?;
    let after = Verbosity::after(matches);
    cli.global.verbose = cli.global.verbose.saturating_add(after.verbose);
    cli.global.quiet |= after.quiet;
    Ok(cli)
}

/// Has every command take -v and -q after its name.
pub(crate) fn with_verbosity(command: clap::Command) -> clap::Command {
    if command.has_subcommands() {
        return command.mut_subcommands(with_verbosity);
    }
    let verbose = Arg::new(VERBOSE)
        .action(ArgAction::Count)
        .help("Say more; repeat for more");
    let quiet = Arg::new(QUIET)
        .action(ArgAction::SetTrue)
        .help("Print only errors");
    let command = with_flag(command, verbose, 'v', "verbose");
    with_flag(command, quiet, 'q', "quiet")
}

/// By those of its names that the command has not.
fn with_flag(command: clap::Command, flag: Arg, short: char, long: &'static str) -> clap::Command {
    let has_short = command
        .get_arguments()
        .any(|arg| arg.get_short() == Some(short));
    let has_long = command
        .get_arguments()
        .any(|arg| arg.get_long() == Some(long));
    let flag = match (has_short, has_long) {
        (_, true) => return command,
        (true, false) => flag.long(long),
        (false, false) => flag.short(short).long(long),
    };
    command.arg(flag.help_heading(HEADING))
}

/// Has help say which commands work on mounts as well.
fn with_mounts(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|group| match control::GROUPS.contains(&group.get_name()) {
        true => group.mut_subcommands(with_mount),
        false => group,
    })
}

fn with_mount(command: clap::Command) -> clap::Command {
    let is_location = |arg: &Arg| arg.get_value_parser().type_id() == TypeId::of::<Location>();
    let names_volume = command.get_positionals().any(is_location);
    match names_volume {
        true => command.after_help(
            "In the place of IMAGE or IMAGE:/PATH there may be a path in a mount of ubtrfs.",
        ),
        false => command,
    }
}

/// Puts the options of a command before its operands, if several operands and one more may be given: the parser
/// takes those after an option for operands too many. Names of commands begin at `start`.
pub(crate) fn options_first(
    command: &clap::Command,
    args: Vec<OsString>,
    start: usize,
) -> Vec<OsString> {
    let mut rest = args.into_iter();
    let mut line: Vec<OsString> = rest.by_ref().take(start).collect();
    let mut verb = None;
    for arg in rest.by_ref() {
        if line.len() > start && takes_next(&[command], line.last()) || is_option(&arg) {
            line.push(arg);
            continue;
        }
        verb = subcommand_like(command, &arg);
        line.push(arg);
        break;
    }
    let Some(verb) = verb.filter(|verb| has_operand_behind_several(verb)) else {
        line.extend(rest);
        return line;
    };
    let mut operands = vec![OsString::from("--")];
    while let Some(arg) = rest.next() {
        if arg == "--" {
            operands.extend(rest.by_ref());
        } else if is_option(&arg) {
            line.push(arg);
            if takes_next(&[verb, command], line.last()) {
                line.extend(rest.next());
            }
        } else {
            operands.push(arg);
        }
    }
    line.extend(operands);
    line
}

fn is_option(arg: &OsStr) -> bool {
    arg.len() > 1 && arg.as_bytes().starts_with(b"-")
}

/// The subcommand that a name means, which may be shortened.
fn subcommand_like<'a>(command: &'a clap::Command, name: &OsStr) -> Option<&'a clap::Command> {
    let name = name.to_str()?;
    let mut like = command
        .get_subcommands()
        .filter(|verb| verb.get_name().starts_with(name));
    command
        .find_subcommand(name)
        .or_else(|| like.next().filter(|_| like.next().is_none()))
}

fn has_operand_behind_several(command: &clap::Command) -> bool {
    let takes_several = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Append);
    let mut operands = command
        .get_positionals()
        .skip_while(|arg| !takes_several(arg));
    operands.nth(1).is_some()
}

/// Whether the next argument is the value of an option of these commands.
fn takes_next(commands: &[&clap::Command], option: Option<&OsString>) -> bool {
    let Some(option) = option.and_then(|option| option.to_str()) else {
        return false;
    };
    let options = || commands.iter().flat_map(|command| command.get_arguments());
    let has_value = |arg: &Arg| arg.get_action().takes_values() && !arg.is_require_equals_set();
    if let Some(long) = option.strip_prefix("--") {
        let is = |arg: &&Arg| arg.get_long() == Some(long);
        let is_like = |arg: &&Arg| arg.get_long().is_some_and(|name| name.starts_with(long));
        let found = options().find(is).or_else(|| options().find(is_like));
        return !long.is_empty() && found.is_some_and(has_value);
    }
    let Some(letters) = option.strip_prefix('-') else {
        return false;
    };
    let of = |letter| options().find(|arg| arg.get_short() == Some(letter));
    let valued = letters
        .char_indices()
        .find(|(_, letter)| of(*letter).is_some_and(has_value));
    // What follows the letter is its value already.
    valued.is_some_and(|(at, letter)| at + letter.len_utf8() == letters.len())
}

/// How much a command shall say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verbosity {
    pub(crate) verbose: u8,
    pub(crate) quiet: bool,
}

impl Verbosity {
    /// As said after the name of the command.
    pub(crate) fn after(mut matches: &ArgMatches) -> Verbosity {
        while let Some((_, below)) = matches.subcommand() {
            matches = below;
        }
        // A command that has an option of the name does not have ours.
        let count = |id| matches.try_get_one::<u8>(id).ok().flatten().copied();
        let is_set = |id| matches.try_get_one::<bool>(id).ok().flatten().copied();
        Verbosity {
            verbose: count(VERBOSE).unwrap_or_default(),
            quiet: is_set(QUIET).unwrap_or_default(),
        }
    }
}

impl Cli {
    /// Whether the command can do what is asked of all commands.
    pub(crate) fn check(&self, matches: &ArgMatches) -> anyhow::Result<()> {
        if self.global.dry_run && !self.command.knows_dry_run() {
            let mut at = matches;
            let mut verb = "";
            while let Some((name, below)) = at.subcommand() {
                (verb, at) = (name, below);
            }
            bail!("--dry-run option not supported for {verb}");
        }
        self.command.check_format(self.global.format)
    }
}

impl Command {
    pub(crate) fn check_format(&self, format: Format) -> anyhow::Result<()> {
        match format {
            Format::Text => Ok(()),
            Format::Json if self.knows_json() => Ok(()),
            Format::Json => bail!("output format json is unsupported for this command"),
            Format::Prometheus if self.knows_prometheus() => Ok(()),
            Format::Prometheus => bail!("only 'filesystem stats' has the format prometheus"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_defined_without_contradictions() {
        definition().debug_assert();
    }
}
