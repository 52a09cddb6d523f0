//! `ubtrfs shell`: several commands on one open volume, from a script or a prompt.
//!
//! The commands are the same as on the command line. Arguments that would name a volume are paths in this one
//! (`Session`). Changes are committed by `sync`, and at the end.

mod signals;
mod words;

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{ArgAction, CommandFactory, FromArgMatches};
use ubtrfs::DeviceAccess;

use self::signals::{Event, Signals};
use self::words::WordsError;
use super::{Command, absent};
use crate::arguments::option_order::options_first;
use crate::arguments::verbosity::{Verbosity, with_verbosity};
use crate::presentation::console::{Console, Format, is_broken_pipe};
use crate::presentation::interrupt;
use crate::presentation::quoting::{Escaped, ShellQuoted};
use crate::program::Program;
use crate::volume_access::location::{Location, LocationParser, VolumeOptions};
use crate::volume_access::operand::{Operand, OperandParser};
use crate::volume_access::reason::Reasoned;
use crate::volume_access::session::Session;

/// Run several commands on one volume, from standard input or a prompt
///
/// A line is a command with its arguments, without the program's name: "ls -l /etc". Words are quoted as in a
/// shell, and a comment begins with '#'. Where the commands take IMAGE:/PATH, write the path alone; one without
/// a leading slash begins at the directory of the last 'cd'. A file of this machine is host:PATH. Besides the
/// commands for paths in a volume there are cd, pwd, sync, help and exit.
///
/// Changes are committed by sync and at the end, also if an error ends the shell. At a prompt Ctrl-C drops the line, or
/// ends a copy or removal that runs; Ctrl-D and the end of the terminal commit. A signal that ends a script leaves the
/// volume as of its last sync.
#[derive(Debug, clap::Args)]
pub(crate) struct Shell {
    #[arg(value_name = "IMAGE[:/PATH]")]
    location: Location,
    /// Refuse commands that write, and let others read the volume meanwhile
    #[arg(long)]
    read_only: bool,
    /// Keep changes of times alone in memory until sync, or the end
    #[arg(long, conflicts_with = "read_only")]
    lazytime: bool,
    /// Continue after a command that failed; the exit code is 1 at the end
    #[arg(short, long)]
    keep_going: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

/// A command with its arguments, as on the command line, with paths in this volume
#[derive(Debug, clap::Parser)]
#[command(
    name = "",
    no_binary_name = true,
    infer_subcommands = true,
    infer_long_args = true,
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true,
    subcommand_required = true
)]
struct Line {
    /// Print listings in this format
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Print help
    #[arg(long, global = true, action = ArgAction::Help)]
    help: Option<bool>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    #[command(flatten)]
    Command(Command),
    /// Have paths without a leading slash begin at this directory
    Cd {
        #[arg(value_name = "IMAGE:/PATH", default_value = "/")]
        dir: Location,
    },
    /// Show where paths without a leading slash begin
    Pwd,
    /// Commit all changes so far
    Sync,
    /// Commit and end
    #[command(visible_alias = "quit")]
    Exit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    Continue,
    Exit,
}

impl Shell {
    pub(crate) fn run(&self, console: &mut Console, program: &Program) -> anyhow::Result<()> {
        let access = if self.read_only {
            DeviceAccess::Read
        } else {
            DeviceAccess::Write
        };
        let volume = match access {
            DeviceAccess::Read => self.volume.devices.open(&self.location)?,
            DeviceAccess::Write => {
                let options = self.volume.with_lazy_times(self.lazytime);
                options.open_for_writing(&self.location)?
            }
        };
        let files = self.volume.root(&volume)?;
        let session = Session::of_shell(
            self.location.image.as_path().to_owned(),
            volume.clone(),
            files,
        );
        session.set_dir(directory(&session, &self.location)?);
        let session = Arc::new(session);
        let outcome = self.lines(&session, console, program);
        if access == DeviceAccess::Write {
            let committed = volume
                .free_deleted_subvolumes()
                .and_then(|()| volume.close());
            if let Err(error) = committed {
                console.error(format_args!("cannot commit: {}", error.reason()));
            }
        }
        outcome
    }

    fn lines(
        &self,
        session: &Arc<Session>,
        console: &mut Console,
        program: &Program,
    ) -> anyhow::Result<()> {
        let command = line_command(session);
        let mut input = Input::new()?;
        let mut failed = false;
        let outcome = loop {
            let words = match input.next(session, console) {
                Ok(None) => break Ok(()),
                Ok(Some(words)) if words.is_empty() => continue,
                words => words,
            };
            console.set_line(input.prompt.is_none().then_some(input.first_line));
            let done = words.and_then(|words| {
                let words = words.unwrap_or_default();
                run_line(&command, &words, session, (console, program))
            });
            let flow = match done {
                Ok(flow) => flow,
                Err(error) if is_broken_pipe(&error) => break Err(error),
                Err(error) => {
                    console.failed(&error);
                    Flow::Continue
                }
            };
            console.set_line(None);
            // At a prompt the user has seen the error.
            failed |= console.take_failed() && input.prompt.is_none();
            if flow == Flow::Exit || failed && !self.keep_going {
                break Ok(());
            }
        };
        if failed {
            console.error_was_reported();
        }
        outcome
    }
}

/// Returns the path for `cd` to `location`.
fn directory(session: &Session, location: &Location) -> anyhow::Result<Vec<u8>> {
    let path = normal(&location.path);
    let shown = Escaped(&path);
    let dir = session.files().metadata(OsStr::from_bytes(&path)).reason();
    let dir = dir.with_context(|| format!("cannot enter '{shown}'"))?;
    if !dir.is_dir() {
        bail!("'{shown}' is not a directory");
    }
    Ok(path)
}

/// Normalizes a path: removes empty names and dots, and resolves ".." lexically.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let mut normal = b"/".to_vec();
    normal.extend(names.join(&b'/'));
    normal
}

/// Returns the definition of a line. Its paths are in the volume of `session`.
fn line_command(session: &Arc<Session>) -> clap::Command {
    fn within(command: clap::Command, session: &Arc<Session>) -> clap::Command {
        let is_alone = command.get_positionals().count() == 1;
        let command = command.mut_args(|arg| {
            let id = arg.get_id().as_str();
            if arg.get_value_parser().type_id() == TypeId::of::<Location>() {
                // If an image alone is enough, the argument is optional here.
                let names = arg.get_value_names().unwrap_or_default();
                let is_optional = is_alone && names.iter().all(|name| !name.contains("IMAGE:"));
                let arg = arg
                    .value_parser(LocationParser::within(session))
                    .value_name("PATH");
                if is_optional {
                    arg.required(false).default_value(".")
                } else {
                    arg
                }
            } else if arg.get_value_parser().type_id() == TypeId::of::<Operand>() {
                arg.value_parser(OperandParser::within(session))
            } else if OPENING.contains(&id) {
                arg.hide(true)
            } else {
                arg
            }
        });
        command.mut_subcommands(|command| within(command, session))
    }
    let command = with_verbosity(Line::command()).mut_subcommands(|command| {
        let is_hidden = NOT_IN_SHELL.contains(&command.get_name());
        command.hide(is_hidden)
    });
    within(command, session)
}

/// Arguments for opening a volume.
const OPENING: [&str; 4] = ["devices", "scan", "degraded", "nodiscard"];
/// Commands that do not work on a path in an open volume.
const NOT_IN_SHELL: [&str; 9] = [
    "check",
    "completions",
    "man",
    "mkfs",
    "mount",
    "receive",
    "rescue",
    "shell",
    "umount",
];

fn run_line(
    command: &clap::Command,
    words: &[OsString],
    session: &Arc<Session>,
    (console, program): (&mut Console, &Program),
) -> anyhow::Result<Flow> {
    let words = options_first(command, words.to_vec(), 0);
    let matches = command.clone().try_get_matches_from(&words);
    let parsed = matches.and_then(|matches| {
        let name = matches.subcommand_name().unwrap_or_default().to_owned();
        let verbosity = Verbosity::after(&matches);
        Ok((name, Line::from_arg_matches(&matches)?, verbosity))
    });
    let (name, line, verbosity) = match parsed {
        Ok(parsed) => parsed,
        Err(help) if !help.use_stderr() => {
            write!(console.out, "{}", help.render())?;
            console.out.flush()?;
            return Ok(Flow::Continue);
        }
        Err(error) => {
            if let Some(name) = absent::named(command, &words, &error) {
                bail!("{}", absent::refusal(&name));
            }
            let text = error.render().to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            bail!("{}", first.trim_start_matches("error: ").trim_end());
        }
    };
    if let (Verb::Command(command), Some(format)) = (&line.verb, line.format) {
        command.check_format(format)?;
    }
    // Discard a Ctrl-C from before this command.
    let _ = interrupt::take();
    let (format, verbose, quiet) = (console.format, console.verbose, console.quiet);
    console.format = line.format.unwrap_or(format);
    console.verbose = verbose.saturating_add(verbosity.verbose);
    console.quiet |= verbosity.quiet;
    let done = match &line.verb {
        Verb::Command(_) if NOT_IN_SHELL.contains(&name.as_str()) => {
            bail!("'{name}' is not a command of the shell")
        }
        Verb::Command(command) => command.run(console, program),
        Verb::Cd { dir } => directory(session, dir).map(|dir| session.set_dir(dir)),
        Verb::Pwd => {
            console.write_path(&session.dir())?;
            writeln!(console.out).map_err(Into::into)
        }
        Verb::Sync => {
            if session.volume().is_read_only() {
                Ok(())
            } else {
                session.volume().sync().reason().context("cannot commit")
            }
        }
        Verb::Exit => return Ok(Flow::Exit),
    };
    (console.format, console.verbose, console.quiet) = (format, verbose, quiet);
    console.end_progress();
    console.out.flush()?;
    done.map(|()| Flow::Continue)
}

/// The source of lines.
struct Input {
    /// The signals of a terminal, if there is a prompt.
    prompt: Option<Signals>,
    /// The first line of the last command, counted from 1.
    first_line: u64,
    lines: u64,
}

impl Input {
    fn new() -> anyhow::Result<Input> {
        let is_prompt = io::stdin().is_terminal();
        let prompt = is_prompt.then(Signals::watch).transpose();
        Ok(Input {
            prompt: prompt.context("cannot handle signals")?,
            first_line: 0,
            lines: 0,
        })
    }

    /// Returns the words of the next command, or None at the end. A command may extend over several lines.
    fn next(
        &mut self,
        session: &Session,
        console: &mut Console,
    ) -> anyhow::Result<Option<Vec<OsString>>> {
        let mut text = Vec::new();
        loop {
            if let Some(signals) = &self.prompt {
                prompt(session, console, text.is_empty())?;
                match signals.wait().context("cannot read standard input")? {
                    Event::Input => {}
                    // Drop the line, as in other shells.
                    Event::Interrupt => {
                        writeln!(console.out)?;
                        text.clear();
                        continue;
                    }
                    Event::End => return Ok(None),
                }
            }
            let before = text.len();
            io::stdin()
                .lock()
                .read_until(b'\n', &mut text)
                .context("cannot read standard input")?;
            let is_end = text.len() == before;
            if before == 0 {
                if is_end {
                    return Ok(None);
                }
                self.first_line = self.lines + 1;
            }
            self.lines += 1;
            match words::split(&text) {
                Err(WordsError::Unfinished) if !is_end => {}
                words => return Ok(Some(words?)),
            }
        }
    }
}

fn prompt(session: &Session, console: &mut Console, is_first: bool) -> anyhow::Result<()> {
    if is_first {
        write!(console.out, "ubtrfs:{}> ", ShellQuoted(&session.dir()))?
    } else {
        write!(console.out, "> ")?
    }
    Ok(console.out.flush()?)
}
