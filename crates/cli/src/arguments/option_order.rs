//! Options between the operands of a command.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, ArgAction};

/// Moves the options of a command before its operands, if it takes several operands and one more. The parser
/// would otherwise count operands after an option as too many. Command names begin at `start`.
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

pub(crate) fn is_option(arg: &OsStr) -> bool {
    arg.len() > 1 && arg.as_bytes().starts_with(b"-")
}

/// Returns the subcommand with this name, which may be abbreviated.
pub(crate) fn subcommand_like<'a>(
    command: &'a clap::Command,
    name: &OsStr,
) -> Option<&'a clap::Command> {
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

/// Returns whether the next argument is the value of an option of these commands.
pub(crate) fn takes_next(commands: &[&clap::Command], option: Option<&OsString>) -> bool {
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
    // Otherwise the text after the letter is already its value.
    valued.is_some_and(|(at, letter)| at + letter.len_utf8() == letters.len())
}
