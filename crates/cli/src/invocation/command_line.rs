//! The whole command line, including the options that all commands share.
//!
//! As in btrfs-progs, -v and -q may precede a command; they may also follow it (`verbosity`). Commands that
//! could only ignore --format or --dry-run refuse them. Options may appear between operands (`option_order`).

use std::any::TypeId;

use anyhow::bail;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser};

use crate::arguments::verbosity::{Verbosity, with_verbosity};
use crate::command::{Command, absent};
use crate::presentation::console::{Console, Format};
use crate::presentation::log::LogLevel;
use crate::program::{ClientOutput, Program};
use crate::volume_access::control;
use crate::volume_access::location::Location;

/// This program, for commands that need it.
pub(crate) const PROGRAM: Program = Program {
    definition: || with_short_help(definition()),
    run_for,
};

/// The argument that prints help.
const HELP: &str = "help";

/// Read and change btrfs images and devices, and make new ones, without a mount and without the kernel's btrfs.
///
/// A path inside a volume is written IMAGE:/path. IMAGE alone is its top directory. Some commands also take a path in
/// a mount of ubtrfs, as it is: receive, send, and the groups device, filesystem, inspect-internal, property and
/// subvolume. Many of these take a path in a mount of the kernel's btrfs as well.
#[derive(Debug, Parser)]
#[command(
    name = "ubtrfs",
    version,
    infer_subcommands = true,
    infer_long_args = true,
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true,
    arg_required_else_help = true,
    subcommand_required = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GlobalOptions {
    /// Print listings in this format
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value_t = Format::Text,
          help_heading = "Global options")]
    pub(crate) format: Format,
    /// Increase verbosity; repeat for more
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print only errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Change nothing, and show what would be done; only for 'subvolume delete'
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Set the log level; the variable UBTRFS_LOG sets it for each part of the program
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "LEVEL",
        help_heading = "Global options"
    )]
    pub(crate) log: Option<LogLevel>,
    /// Wait until the volume is not open elsewhere, at most for this long. By default a command waits for 10 seconds
    /// for another command, and not for a mount
    #[arg(long, global = true, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          help_heading = "Global options")]
    pub(crate) wait: Option<Option<f64>>,
    /// Print version
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
}

pub(crate) fn definition() -> clap::Command {
    with_mounts(absent::with_note(with_verbosity(with_operands(with_help(
        Cli::command(),
    )))))
}

/// Adds --help to every command.
fn with_help(command: clap::Command) -> clap::Command {
    let help = Arg::new(HELP)
        .long("help")
        .action(ArgAction::HelpLong)
        .help("Print help")
        .help_heading("Global options");
    command.arg(help).mut_subcommands(with_help)
}

/// Adds `-h` as help to all commands that do not use it otherwise. btrfs-progs does not have this option.
pub(crate) fn with_short_help(command: clap::Command) -> clap::Command {
    let is_free = command
        .get_arguments()
        .all(|arg| arg.get_short() != Some('h'));
    let command = command.mut_subcommands(with_short_help);
    if is_free {
        command.mut_arg(HELP, |help| help.short('h'))
    } else {
        command
    }
}

pub(crate) fn parse(matches: &ArgMatches) -> Result<Cli, clap::Error> {
    let mut cli = Cli::from_arg_matches(matches)?;
    let after = Verbosity::after(matches);
    cli.global.verbose = cli.global.verbose.saturating_add(after.verbose);
    cli.global.quiet |= after.quiet;
    Ok(cli)
}

/// Runs a command for another process.
fn run_for(matches: &ArgMatches, output: ClientOutput) -> anyhow::Result<u8> {
    let cli = parse(matches)?;
    let global = &cli.global;
    let (stdout, client) = (output.stdout, output.client);
    let mut console =
        Console::of_client(stdout, client, global.format, global.verbose, global.quiet);
    console.dry_run = global.dry_run;
    console.if_refused = output.if_refused;
    let result = cli.command.run(&mut console, &PROGRAM);
    Ok(console.finish(result))
}

/// Adds help to operands that lack it, based on their value names.
fn with_operands(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match operand_help(&arg) {
        Some(help) if arg.is_positional() && arg.get_help().is_none() => arg.help(help),
        _ => arg,
    });
    command.mut_subcommands(with_operands)
}

fn operand_help(arg: &Arg) -> Option<&'static str> {
    let [name] = arg.get_value_names()? else {
        return None;
    };
    match name.as_str() {
        "IMAGE" => Some("Image or device of the volume"),
        "IMAGE:/PATH" => Some("Path in a volume"),
        "IMAGE[:/PATH]" => Some("Path in a volume; IMAGE alone is its top directory"),
        "IMAGE:/SUBVOL" | "IMAGE[:/SUBVOLUME]" => Some("Subvolume; IMAGE alone is its root"),
        _ => None,
    }
}

/// Adds to the help which commands also work on mounts.
fn with_mounts(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|group| {
        if !control::GROUPS.contains(&group.get_name()) {
            group
        } else if group.has_subcommands() {
            group.mut_subcommands(with_mount)
        } else {
            with_mount(group)
        }
    })
}

fn with_mount(command: clap::Command) -> clap::Command {
    let is_location = |arg: &Arg| arg.get_value_parser().type_id() == TypeId::of::<Location>();
    let names_volume = command.get_positionals().any(is_location);
    if names_volume {
        command.after_help("A path in a mount of ubtrfs may replace IMAGE or IMAGE:/PATH.")
    } else {
        command
    }
}

impl Cli {
    /// Checks that the command supports the global options.
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

#[cfg(test)]
mod tests {
    use clap::ValueHint;
    use clap::error::ErrorKind;
    use ubtrfs::DeviceName;

    use super::*;

    #[test]
    fn the_command_line_is_defined_without_contradictions() {
        definition().debug_assert();
    }

    #[test]
    fn names_of_devices_are_completed_as_paths() {
        fn check(command: &clap::Command) -> usize {
            let is_name =
                |arg: &&Arg| arg.get_value_parser().type_id() == TypeId::of::<DeviceName>();
            let names: Vec<&Arg> = command.get_arguments().filter(is_name).collect();
            for name in &names {
                assert_eq!(name.get_value_hint(), ValueHint::AnyPath, "{name}");
            }
            let below = command.get_subcommands().map(check);
            names.len() + below.sum::<usize>()
        }
        assert!(check(&definition()) > 2);
    }

    #[test]
    fn short_help_is_help_of_each_command() {
        let command = with_short_help(definition());
        command.clone().debug_assert();
        let others = without_short_help(&command, &command, &["ubtrfs"]);
        let others = others.join(" ");
        // For sizes, attribute values, and links themselves.
        assert_eq!(
            others,
            "chown device usage filesystem df filesystem usage getfattr ls setfattr subvolume show touch"
        );
    }

    /// Returns the commands for which `-h` does not request help.
    fn without_short_help(
        whole: &clap::Command,
        command: &clap::Command,
        path: &[&str],
    ) -> Vec<String> {
        let asked = [path, &["-h"]].concat();
        let answer = whole.clone().try_get_matches_from(asked);
        let is_help = answer.is_err_and(|error| error.kind() == ErrorKind::DisplayHelp);
        let own = if is_help {
            vec![]
        } else {
            vec![path[1..].join(" ")]
        };
        let below = command.get_subcommands().flat_map(|below| {
            let path = [path, &[below.get_name()]].concat();
            without_short_help(whole, below, &path)
        });
        own.into_iter().chain(below).collect()
    }

    #[test]
    fn each_option_and_operand_has_help() {
        assert_eq!(without_help(definition()), [""; 0]);
    }

    fn without_help(mut command: clap::Command) -> Vec<String> {
        command.build();
        let name = command.get_name();
        let arguments = command.get_arguments();
        let unexplained = arguments
            .filter(|arg| !arg.is_hide_set() && arg.get_help().is_none())
            .map(|arg| format!("{name} {arg}"));
        let below = command.get_subcommands().cloned().flat_map(without_help);
        unexplained.chain(below).collect()
    }
}
