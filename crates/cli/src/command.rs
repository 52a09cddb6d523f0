//! The commands: one file per command, one folder per group.
//!
//! A command is a struct of options with a `run` method. Its doc comment is its help text.

pub(crate) mod absent;
mod cat;
mod check;
mod chmod;
mod chown;
mod completions;
mod cp;
mod device;
mod export;
mod filesystem;
mod getfattr;
mod import;
mod inspect_internal;
mod ln;
mod ls;
mod man;
mod mkdir;
pub(crate) mod mkfs;
mod mount;
mod mv;
mod property;
mod receive;
mod replace;
mod rescue;
mod rm;
mod rmdir;
mod scrub;
mod send;
mod setfattr;
mod shell;
mod stat;
mod subvolume;
mod touch;
mod tree;
mod truncate;
mod umount;
mod version;

use anyhow::bail;

use crate::presentation::console::{Console, Format};
use crate::program::Program;
use crate::volume_access::ioctls::ByIoctls;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Cat(cat::Cat),
    Check(Box<check::Check>),
    Chmod(chmod::Chmod),
    Chown(chown::Chown),
    Completions(completions::Completions),
    Cp(cp::Cp),
    Device(device::Device),
    Export(export::Export),
    Filesystem(filesystem::Filesystem),
    Getfattr(getfattr::Getfattr),
    Import(import::Import),
    InspectInternal(inspect_internal::InspectInternal),
    Ln(ln::Ln),
    Ls(ls::Ls),
    Man(man::Man),
    Mkdir(mkdir::Mkdir),
    Mkfs(Box<mkfs::Mkfs>),
    Mount(mount::Mount),
    Mv(mv::Mv),
    Property(property::Property),
    Receive(receive::Receive),
    Replace(replace::Replace),
    Rescue(rescue::Rescue),
    Rm(rm::Rm),
    Rmdir(rmdir::Rmdir),
    Scrub(Box<scrub::Scrub>),
    Send(Box<send::Send>),
    Setfattr(setfattr::Setfattr),
    Shell(shell::Shell),
    Stat(stat::Stat),
    Subvolume(Box<subvolume::Subvolume>),
    Touch(touch::Touch),
    Tree(tree::Tree),
    Truncate(truncate::Truncate),
    Umount(umount::Umount),
    Version(version::Version),
}

impl Command {
    /// Returns whether it supports JSON. A shell passes the format on.
    pub(crate) fn knows_json(&self) -> bool {
        match self {
            Command::Check(_)
            | Command::Getfattr(_)
            | Command::Ls(_)
            | Command::Shell(_)
            | Command::Stat(_)
            | Command::Tree(_) => true,
            Command::Device(group) => group.knows_json(),
            Command::Filesystem(group) => group.knows_json(),
            Command::InspectInternal(group) => group.knows_json(),
            Command::Property(group) => group.knows_json(),
            Command::Replace(group) => group.knows_json(),
            Command::Scrub(group) => group.knows_json(),
            Command::Subvolume(group) => group.knows_json(),
            _ => false,
        }
    }

    /// Returns whether it supports the Prometheus format.
    pub(crate) fn knows_prometheus(&self) -> bool {
        matches!(self, Command::Filesystem(group) if group.knows_prometheus())
    }

    /// Returns whether it supports a dry run.
    pub(crate) fn knows_dry_run(&self) -> bool {
        matches!(self, Command::Subvolume(group) if group.knows_dry_run())
    }

    /// Returns the command if it can work through ioctls on a path in a mount.
    pub(crate) fn by_ioctls(&self) -> Option<&dyn ByIoctls> {
        match self {
            Command::Device(group) => group.by_ioctls(),
            Command::Filesystem(group) => group.by_ioctls(),
            Command::InspectInternal(group) => group.by_ioctls(),
            Command::Property(group) => group.by_ioctls(),
            Command::Replace(group) => group.by_ioctls(),
            Command::Scrub(group) => group.by_ioctls(),
            Command::Send(command) => Some(&**command),
            Command::Receive(command) => Some(command),
            Command::Subvolume(group) => group.by_ioctls(),
            _ => None,
        }
    }

    /// Refuses an output format that the command does not support.
    pub(crate) fn check_format(&self, format: Format) -> anyhow::Result<()> {
        match format {
            Format::Text => Ok(()),
            Format::Json if self.knows_json() => Ok(()),
            Format::Json => bail!("output format json is unsupported for this command"),
            Format::Prometheus if self.knows_prometheus() => Ok(()),
            Format::Prometheus => bail!("only 'filesystem stats' has the format prometheus"),
        }
    }

    pub(crate) fn run(&self, console: &mut Console, program: &Program) -> anyhow::Result<()> {
        match self {
            Command::Cat(command) => command.run(console),
            Command::Check(command) => command.run(console),
            Command::Chmod(command) => command.run(console),
            Command::Chown(command) => command.run(console),
            Command::Completions(command) => command.run(console, program),
            Command::Cp(command) => command.run(console),
            Command::Device(group) => group.run(console),
            Command::Export(command) => command.run(console),
            Command::Filesystem(group) => group.run(console),
            Command::Getfattr(command) => command.run(console),
            Command::Import(command) => command.run(console),
            Command::InspectInternal(group) => group.run(console),
            Command::Ln(command) => command.run(console),
            Command::Ls(command) => command.run(console),
            Command::Man(command) => command.run(program),
            Command::Mkdir(command) => command.run(console),
            Command::Mkfs(command) => command.run(console),
            Command::Mount(command) => command.run(console, program),
            Command::Mv(command) => command.run(console),
            Command::Property(group) => group.run(console),
            Command::Receive(command) => command.run(console),
            Command::Replace(group) => group.run(console),
            Command::Rescue(group) => group.run(console),
            Command::Rm(command) => command.run(console),
            Command::Rmdir(command) => command.run(console),
            Command::Scrub(group) => group.run(console),
            Command::Send(command) => command.run(console),
            Command::Setfattr(command) => command.run(console),
            Command::Shell(command) => command.run(console, program),
            Command::Stat(command) => command.run(console),
            Command::Subvolume(group) => group.run(console),
            Command::Touch(command) => command.run(console),
            Command::Tree(command) => command.run(console),
            Command::Truncate(command) => command.run(console),
            Command::Umount(command) => command.run(console),
            Command::Version(command) => command.run(console),
        }
    }
}
