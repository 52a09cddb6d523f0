//! The options -v and -q, which every command accepts after its name unless it defines the letter itself.

use clap::{Arg, ArgAction, ArgMatches};

const VERBOSE: &str = "verbose_after";
const QUIET: &str = "quiet_after";
const HEADING: &str = "Global options";

/// Adds -v and -q to every command.
pub(crate) fn with_verbosity(command: clap::Command) -> clap::Command {
    if command.has_subcommands() {
        return command.mut_subcommands(with_verbosity);
    }
    let verbose = Arg::new(VERBOSE)
        .action(ArgAction::Count)
        .help("Increase verbosity; repeat for more");
    let quiet = Arg::new(QUIET)
        .action(ArgAction::SetTrue)
        .help("Print only errors");
    let command = with_flag(command, verbose, 'v', "verbose");
    with_flag(command, quiet, 'q', "quiet")
}

/// Adds a flag under each of its names that the command does not use itself.
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

/// The amount of output.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verbosity {
    pub(crate) verbose: u8,
    pub(crate) quiet: bool,
}

impl Verbosity {
    /// Reads the options after the name of the command.
    pub(crate) fn after(mut matches: &ArgMatches) -> Verbosity {
        while let Some((_, below)) = matches.subcommand() {
            matches = below;
        }
        // A command that defines an option with the same name does not have ours.
        let count = |id| matches.try_get_one::<u8>(id).ok().flatten().copied();
        let is_set = |id| matches.try_get_one::<bool>(id).ok().flatten().copied();
        Verbosity {
            verbose: count(VERBOSE).unwrap_or_default(),
            quiet: is_set(QUIET).unwrap_or_default(),
        }
    }
}
