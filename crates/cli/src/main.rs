//! The `ubtrfs` command: btrfs images and devices from the command line.
//!
//! Called through a link named `btrfs`, `mkfs.btrfs` or `fsck.btrfs` it acts as that command. Links named
//! `mount.fuse.ubtrfs` and the like make it a helper of mount(8) and umount(8).
//!
//! Exit codes:
//! - 0: success
//! - 1: any error, including usage errors
//! - 64: `device stats --check` found counted errors
//! - 141: the reader of standard output went away, as if SIGPIPE had ended the program
//!
//! Here: the start of the program. The command line is defined in `invocation`, each command in a file in
//! `command`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod arguments;
mod command;
mod invocation;
mod presentation;
mod print;
mod program;
mod volume_access;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::arguments::option_order::options_first;
use crate::command::absent;
use crate::command::mkfs::AS_MKFS_BTRFS;
use crate::invocation::command_line::{Cli, PROGRAM};
use crate::invocation::invoked_as::InvokedAs;
use crate::invocation::joined_disks::join_disks;
use crate::invocation::{as_btrfs, command_line, invoked_as, mount_helper};
use crate::presentation::console::Console;
use crate::presentation::error_chain::ErrorChain;
use crate::presentation::{console, log};
use crate::volume_access::control::Outcome;
use crate::volume_access::location::LocationParser;
use crate::volume_access::{control, held, ioctls};

/// Changes in memory are many small allocations, which are often freed by another thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut args: Vec<_> = std::env::args_os().collect();
    let invoked_as = invoked_as::invoked_as(args.first().map(|arg| arg.as_os_str()));
    let name = match invoked_as {
        InvokedAs::MountHelper => {
            let ours = mount_helper::mount(args.get(1..).unwrap_or_default());
            args.splice(1.., ours);
            "ubtrfs"
        }
        InvokedAs::UmountHelper => {
            let ours = mount_helper::umount(args.get(1..).unwrap_or_default());
            args.splice(1.., ours);
            "ubtrfs"
        }
        InvokedAs::Fsck => return invoked_as::fsck(args.get(1..).unwrap_or_default()),
        InvokedAs::Mkfs => {
            if let Some(code) = as_btrfs::mkfs_version(&args) {
                return code;
            }
            let ours = ["mkfs".into(), format!("--{AS_MKFS_BTRFS}").into()];
            args.splice(1..1, ours);
            "ubtrfs"
        }
        InvokedAs::Btrfs => "btrfs",
        InvokedAs::Ubtrfs => "ubtrfs",
    };
    let mut command = command_line::definition().name(name).bin_name(name);
    if invoked_as == InvokedAs::Ubtrfs {
        command = command_line::with_short_help(command);
    }
    if invoked_as == InvokedAs::Btrfs {
        command = as_btrfs::without_ours(command);
        args = match as_btrfs::read(&command, args) {
            as_btrfs::Line::Parse(args) => args,
            as_btrfs::Line::Done(code) => return code,
        };
    }
    let args = join_disks(&command, options_first(&command, args, 1), 1);
    let matches = command.clone().try_get_matches_from(&args);
    let parsed = matches.and_then(|matches| Ok((command_line::parse(&matches)?, matches)));
    let code = match parsed {
        Ok((cli, matches)) => {
            let elsewhere = cli
                .check(&matches)
                .and_then(|()| control::run_elsewhere(&command, &matches, &args));
            match elsewhere {
                Ok(Outcome::Here) => run(&cli, |console| cli.command.run(console, &PROGRAM)),
                Ok(Outcome::Ran(code)) => ExitCode::from(code),
                Ok(Outcome::Refused(refusal)) => run_by_ioctls(command, &args, refusal),
                Err(error) => failure(&error),
            }
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            usage(refused_before_help(&command, &args).unwrap_or(error))
        }
        Err(error) => match absent::named(&command, args.get(1..).unwrap_or_default(), &error) {
            Some(name) => {
                eprintln!("ERROR: {}", absent::refusal(&name));
                ExitCode::FAILURE
            }
            None => usage(error),
        },
    };
    match invoked_as {
        InvokedAs::MountHelper | InvokedAs::UmountHelper if code == ExitCode::FAILURE => {
            ExitCode::from(mount_helper::FAILED)
        }
        _ => code,
    }
}

/// Returns the error of an option before the word `help`, at which the parser stops before it reads the option's value.
fn refused_before_help(command: &clap::Command, args: &[OsString]) -> Option<clap::Error> {
    let word = args.iter().position(|arg| arg == "help")?;
    let mut line = args[..word].to_vec();
    line.push("--help".into());
    let matches = command.clone().try_get_matches_from(line);
    matches.err().filter(clap::Error::use_stderr)
}

fn failure(error: &anyhow::Error) -> ExitCode {
    eprintln!("ERROR: {}", ErrorChain(error));
    ExitCode::FAILURE
}

/// Runs a command through ioctls, on paths in a mount without a server for commands.
fn run_by_ioctls(command: clap::Command, args: &[OsString], refusal: anyhow::Error) -> ExitCode {
    let command = LocationParser::Written.put_into(command);
    let parsed = command.try_get_matches_from(args);
    let cli = match parsed.and_then(|matches| command_line::parse(&matches)) {
        Ok(cli) => cli,
        Err(error) => return usage(error),
    };
    let Some(by_ioctls) = cli.command.by_ioctls() else {
        return failure(&refusal);
    };
    run(&cli, |console| {
        tracing::debug!(reason = %ErrorChain(&refusal), "done by ioctls");
        let done = by_ioctls.run_by_ioctls(console);
        done.map_err(|error| {
            if ioctls::is_unknown(&error) {
                refusal
            } else {
                error
            }
        })
    })
}

fn run(cli: &Cli, command: impl FnOnce(&mut Console) -> anyhow::Result<()>) -> ExitCode {
    let global = &cli.global;
    log::start(global.log, global.verbose, global.quiet);
    if let Some(seconds) = global.wait {
        held::wait_for(seconds);
    }
    match Console::new(global.format, global.verbose, global.quiet) {
        Ok(mut console) => {
            console.dry_run = global.dry_run;
            let result = command(&mut console);
            ExitCode::from(console.finish(result))
        }
        Err(error) => {
            eprintln!("ERROR: cannot use standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a message of the parser. Help and version go to standard output and are not errors. Everything else
/// is an error, with the usual exit code.
fn usage(mut error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => console::exit_code_of_write(&error),
        };
    }
    // `-h` was meant as help, not as an operand with that name.
    if error.get(ContextKind::InvalidArg) == Some(&ContextValue::String("-h".into())) {
        error.remove(ContextKind::Suggested);
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        eprint!("{}", error.render());
    } else {
        let text = error.render().to_string();
        eprint!("ERROR: {}", text.strip_prefix("error: ").unwrap_or(&text));
    }
    ExitCode::FAILURE
}
