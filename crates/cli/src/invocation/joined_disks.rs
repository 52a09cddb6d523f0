//! Disks before `DISK:/path`: several operands that name one path in a volume.
//!
//! `ls DISK1 DISK2 DISK3:/path` reads a volume that needs the three disks. The parser gets them as one operand. Disks
//! that can be read alone stay operands of their own (`assembled::is_part`).

use std::any::TypeId;
use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction};
use ubtrfs::DeviceName;

use crate::arguments::option_order::{is_option, subcommand_like, takes_next};
use crate::volume_access::assembled;
use crate::volume_access::joined::join;
use crate::volume_access::location::Location;
use crate::volume_access::operand::Operand;

/// Joins disks with the `DISK:/path` after them. Command names begin at `start`.
pub(crate) fn join_disks(
    command: &clap::Command,
    args: Vec<OsString>,
    start: usize,
) -> Vec<OsString> {
    join_with(command, args, start, &assembled::is_part)
}

fn join_with(
    command: &clap::Command,
    args: Vec<OsString>,
    start: usize,
    is_part: &dyn Fn(&OsStr) -> bool,
) -> Vec<OsString> {
    let (verb, operands) = operands_of(command, &args, start);
    let positionals: Vec<&Arg> = verb.get_positionals().collect();
    let takes_several = |arg: &Arg| matches!(arg.get_action(), ArgAction::Append);
    // A destination is written, and such volumes are only read.
    let destinations = match positionals.as_slice() {
        [.., sources, _] if takes_several(sources) => 1,
        _ => 0,
    };
    let candidates = operands.len().saturating_sub(destinations);
    let is_whole = |at: usize| DeviceName::split(&args[at]).0.as_os_str() == args[at];
    // Nothing is looked at without need: a path may be in a mount whose server does not answer.
    if operands[..candidates]
        .iter()
        .skip(1)
        .all(|&at| is_whole(at))
    {
        return args;
    }
    let mut joined = args.clone();
    let mut is_joined = vec![false; args.len()];
    let mut before: Vec<usize> = Vec::new();
    let mut position = 0;
    for &at in &operands[..candidates] {
        let arg = &args[at];
        let is_place = positionals
            .get(position)
            .or_else(|| positionals.last().filter(|last| takes_several(last)))
            .or_else(|| positionals.first().filter(|first| takes_several(first)))
            .is_some_and(|place| names_volume(place));
        if is_place && is_whole(at) && is_part(arg) {
            before.push(at);
            continue;
        }
        if is_place && !is_whole(at) && !before.is_empty() {
            let names = before.iter().chain([&at]);
            joined[at] = join(names.map(|&at| args[at].as_os_str()));
            before.iter().for_each(|&at| is_joined[at] = true);
            position += 1;
        } else {
            position += before.len() + 1;
        }
        before.clear();
    }
    let kept = joined.into_iter().zip(is_joined);
    kept.filter(|(_, is_joined)| !is_joined)
        .map(|(arg, _)| arg)
        .collect()
}

/// Returns the command of a line, and the indexes of its operands.
fn operands_of<'a>(
    command: &'a clap::Command,
    args: &[OsString],
    start: usize,
) -> (&'a clap::Command, Vec<usize>) {
    let mut commands = vec![command];
    let mut operands = Vec::new();
    let mut index = start;
    while index < args.len() {
        let arg = &args[index];
        let verb = commands[commands.len() - 1];
        if arg == "--" {
            operands.extend(index + 1..args.len());
            break;
        }
        if is_option(arg) {
            if takes_next(&commands, Some(arg)) {
                index += 1;
            }
        } else if verb.has_subcommands() {
            match subcommand_like(verb, arg) {
                Some(below) => commands.push(below),
                // The parser will refuse it.
                None => break,
            }
        } else {
            operands.push(index);
        }
        index += 1;
    }
    (commands[commands.len() - 1], operands)
}

/// Returns whether a positional argument is a path in a volume.
fn names_volume(arg: &Arg) -> bool {
    let of = arg.get_value_parser().type_id();
    of == TypeId::of::<Location>() || of == TypeId::of::<Operand>()
}

#[cfg(test)]
mod tests;
