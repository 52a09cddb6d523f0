//! `ubtrfs man`: the manual pages, generated from the command line's definition.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, ArgAction, Command};

use crate::program::Program;

/// Write the manual pages into a directory
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Man {
    /// Directory to write into
    dir: PathBuf,
}

impl Man {
    pub(crate) fn run(&self, program: &Program) -> anyhow::Result<()> {
        let definition = with_synopsis((program.definition)(), "ubtrfs");
        std::fs::create_dir_all(&self.dir)
            .and_then(|()| clap_mangen::generate_to(definition, &self.dir))
            .with_context(|| format!("cannot write manual pages to '{}'", self.dir.display()))
    }
}

/// Adds a synopsis with the value names of options to a command and its subcommands, as the generator omits
/// them.
fn with_synopsis(command: Command, path: &str) -> Command {
    let usage = synopsis(&command, path);
    let path = path.to_owned();
    let command = command.override_usage(usage);
    command.mut_subcommands(move |below| {
        let path = format!("{path} {}", below.get_name());
        with_synopsis(below, &path)
    })
}

fn synopsis(command: &Command, path: &str) -> String {
    let mut words = vec![path.to_owned()];
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    for arg in shown().filter(|arg| !arg.is_positional()) {
        let option = option(arg);
        words.push(if arg.is_required_set() {
            option
        } else {
            format!("[{option}]")
        });
    }
    if command.has_subcommands() {
        words.push("<command>".to_owned());
    }
    words.extend(shown().filter(|arg| arg.is_positional()).map(operand));
    words.join(" ")
}

fn option(arg: &Arg) -> String {
    let short = arg.get_short().map(|letter| format!("-{letter}"));
    let long = arg.get_long().map(|name| format!("--{name}"));
    let names: Vec<String> = [short, long].into_iter().flatten().collect();
    let names = names.join("|");
    let value = if arg.get_action().takes_values() {
        value_names(arg).join(" ")
    } else {
        String::new()
    };
    match (value.as_str(), arg.is_require_equals_set()) {
        ("", _) if matches!(arg.get_action(), ArgAction::Count) => format!("{names}..."),
        ("", _) => names,
        // Options that require the equals sign have an optional value.
        (value, true) => format!("{names}[={value}]"),
        (value, false) => format!("{names} {value}"),
    }
}

fn operand(arg: &Arg) -> String {
    let names = value_names(arg).join(" ");
    let names = match arg.get_action() {
        ArgAction::Append if !names.contains(' ') => format!("{names}..."),
        _ => names,
    };
    if arg.is_required_set() {
        names
    } else {
        format!("[{names}]")
    }
}

fn value_names(arg: &Arg) -> Vec<String> {
    let id = || vec![arg.get_id().as_str().to_uppercase()];
    let names = arg.get_value_names();
    let names = names.map_or_else(id, |names| names.iter().map(ToString::to_string).collect());
    names.iter().map(|name| format!("<{name}>")).collect()
}
