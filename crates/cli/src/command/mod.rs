//! The commands: a file each, a folder for each group.
//!
//! A command is a struct of options, whose doc comment is its help, with a `run`.

mod cat;
mod check;
mod completions;
mod cp;
mod device;
mod export;
mod filesystem;
mod inspect_internal;
mod ls;
mod man;
mod mkfs;
mod mount;
mod stat;
mod subvolume;
mod tree;
mod umount;

use crate::console::Console;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Cat(cat::Cat),
    Check(check::Check),
    Completions(completions::Completions),
    Cp(cp::Cp),
    Device(device::Device),
    Export(export::Export),
    Filesystem(filesystem::Filesystem),
    InspectInternal(inspect_internal::InspectInternal),
    Ls(ls::Ls),
    Man(man::Man),
    Mkfs(Box<mkfs::Mkfs>),
    Mount(mount::Mount),
    Stat(stat::Stat),
    Subvolume(subvolume::Subvolume),
    Tree(tree::Tree),
    Umount(umount::Umount),
}

impl Command {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        match self {
            Command::Cat(command) => command.run(console),
            Command::Check(command) => command.run(console),
            Command::Completions(command) => command.run(console),
            Command::Cp(command) => command.run(console),
            Command::Device(group) => group.run(console),
            Command::Export(command) => command.run(console),
            Command::Filesystem(group) => group.run(console),
            Command::InspectInternal(group) => group.run(console),
            Command::Ls(command) => command.run(console),
            Command::Man(command) => command.run(),
            Command::Mkfs(command) => command.run(console),
            Command::Mount(command) => command.run(console),
            Command::Stat(command) => command.run(console),
            Command::Subvolume(group) => group.run(console),
            Command::Tree(command) => command.run(console),
            Command::Umount(command) => command.run(console),
        }
    }
}
