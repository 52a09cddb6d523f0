//! The output of a command: results to standard output, errors as `ERROR: ...` and logs to standard error.
//!
//! A command writes results to `Console::out` with `?`. If the reader goes away (`| head`), the program ends
//! quietly. A command that continues after an error calls `Console::error`, which changes the exit code.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use ubtrfs::{Event, Progress};

use crate::presentation::delayed_term::DelayedTerm;
use crate::presentation::error_chain::ErrorChain;
use crate::presentation::progress_line;
use crate::presentation::quoting::Escaped;

const FAILURE: u8 = 1;
/// The exit code that a shell reports for a program ended by SIGPIPE.
const SIGPIPE_EXIT: u8 = 128 + 13;
/// The progress of a copy. The message is the file.
pub(crate) const COPY_PROGRESS: &str = "{spinner} {binary_bytes} {binary_bytes_per_sec} {wide_msg}";
/// The progress of a removal. The message is the file.
pub(crate) const REMOVAL_PROGRESS: &str = "{spinner} {human_pos} removed {wide_msg}";
/// The progress of a trim.
pub(crate) const REPLACE_PROGRESS: &str = "{spinner} {binary_bytes} copied {binary_bytes_per_sec}";
pub(crate) const TRIM_PROGRESS: &str = "{spinner} {binary_bytes} trimmed {binary_bytes_per_sec}";
/// The progress of moving block groups away.
pub(crate) const MOVING_PROGRESS: &str = "{spinner} {binary_bytes} moved {binary_bytes_per_sec}";
const PROGRESS_TICK: Duration = Duration::from_millis(100);
const PROGRESS_HZ: u8 = 20;
/// Work that ends earlier displays no progress.
const PROGRESS_DELAY: Duration = Duration::from_millis(400);
/// A writable pipe has room for at least this much.
const PIPE_BUF: usize = 4096;
const OUT_BUFFER_BYTES: usize = 64 << 10;
/// The size of the pieces that a command gathers in memory before it releases a resource and writes them.
pub(crate) const PIECE_BYTES: usize = OUT_BUFFER_BYTES;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    /// For 'filesystem stats' only.
    Prometheus,
}

/// Standard output of this process, or of the client that a command runs for.
#[derive(Debug)]
pub(crate) struct Out {
    /// Not `io::stdout`, whose own buffer would cause another copy.
    file: File,
    client: Option<Client>,
}

/// A client process that a command runs for.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stderr: File,
    /// The client's input, for commands that read it.
    pub(crate) input: Option<File>,
    /// Open while the client waits for the command to end.
    pub(crate) connection: Arc<UnixStream>,
}

impl Client {
    /// Writes to a file of the client, at most as much as there is room for. Waits for room or until the
    /// client is gone, so that a blocked client does not keep the mount from ending.
    fn write(&self, mut to: &File, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut both = [
                PollFd::new(&*self.connection, PollFlags::empty()),
                PollFd::new(to, PollFlags::OUT),
            ];
            match poll(&mut both, None) {
                Ok(_) if !both[0].revents().is_empty() => {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let is_file = to.metadata().is_ok_and(|metadata| metadata.is_file());
        let len = if is_file {
            bytes.len()
        } else {
            bytes.len().min(PIPE_BUF)
        };
        to.write(&bytes[..len])
    }
}

/// The input that a client provides for its command.
#[derive(Debug)]
pub(crate) struct ClientInput {
    file: File,
    connection: Arc<UnixStream>,
}

impl Read for ClientInput {
    /// Waits for bytes, or until the client is gone.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut both = [
                PollFd::new(&*self.connection, PollFlags::empty()),
                PollFd::new(&self.file, PollFlags::IN),
            ];
            match poll(&mut both, None) {
                Ok(_) if !both[0].revents().is_empty() => {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                Ok(_) => return self.file.read(bytes),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A writer of messages for a client.
struct ClientErr<'a>(&'a Client);

impl Write for ClientErr<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&self.0.stderr, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Out {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.client {
            Some(client) => client.write(&self.file, bytes),
            None => self.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[derive(Debug)]
pub(crate) struct Console {
    pub(crate) out: BufWriter<Out>,
    pub(crate) format: Format,
    pub(crate) verbose: u8,
    pub(crate) quiet: bool,
    /// Whether nothing may be changed.
    pub(crate) dry_run: bool,
    progress: Option<ProgressBar>,
    failed: bool,
    /// The exit code of a successful command.
    found: u8,
    /// The exit code of a failed command.
    failure: u8,
    /// The current line of a script.
    line: Option<u64>,
    pub(crate) if_refused: Option<RefusalHint>,
}

/// A hint for callers whose operation is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusalHint {
    pub(crate) text: &'static str,
    /// Returns whether a cause of an error is such a refusal.
    pub(crate) is_refusal: fn(&(dyn std::error::Error + 'static)) -> bool,
}

impl Console {
    pub(crate) fn new(format: Format, verbose: u8, quiet: bool) -> io::Result<Console> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let out = Out { file, client: None };
        Ok(Console::with_out(out, format, verbose, quiet))
    }

    /// Creates the console of a client, whose end also ends the command.
    pub(crate) fn of_client(
        stdout: File,
        client: Client,
        format: Format,
        verbose: u8,
        quiet: bool,
    ) -> Console {
        let out = Out {
            file: stdout,
            client: Some(client),
        };
        Console::with_out(out, format, verbose, quiet)
    }

    fn with_out(out: Out, format: Format, verbose: u8, quiet: bool) -> Console {
        Console {
            out: BufWriter::with_capacity(OUT_BUFFER_BYTES, out),
            format,
            verbose,
            quiet,
            dry_run: false,
            progress: None,
            failed: false,
            found: 0,
            failure: FAILURE,
            line: None,
            if_refused: None,
        }
    }

    /// Returns standard output for bulk data, so that the console remains free to report errors.
    pub(crate) fn data_out(&self) -> io::Result<BufWriter<File>> {
        let stdout = self.out.get_ref().file.try_clone()?;
        Ok(BufWriter::with_capacity(OUT_BUFFER_BYTES, stdout))
    }

    /// Returns whether the command runs for a client.
    pub(crate) fn is_of_client(&self) -> bool {
        self.out.get_ref().client.is_some()
    }

    /// Returns whether the client has stopped waiting for the command.
    pub(crate) fn client_has_gone(&self) -> bool {
        let Some(client) = &self.out.get_ref().client else {
            return false;
        };
        let mut connection = [PollFd::new(&*client.connection, PollFlags::empty())];
        let now = Timespec::default();
        poll(&mut connection, Some(&now)).is_ok() && !connection[0].revents().is_empty()
    }

    /// Sends a message to the client, if there is one and it reads.
    pub(crate) fn notify_client(&self, message: &[u8]) {
        if let Some(client) = &self.out.get_ref().client {
            // Never wait for a stopped client.
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = send(&*client.connection, message, flags);
        }
    }

    /// Takes the client's input. Returns None after the first call.
    pub(crate) fn take_client_input(&mut self) -> Option<ClientInput> {
        let client = self.out.get_mut().client.as_mut()?;
        Some(ClientInput {
            file: client.input.take()?,
            connection: Arc::clone(&client.connection),
        })
    }

    /// Displays progress on standard error if it is a terminal. Messages appear above it.
    pub(crate) fn start_progress(&mut self, template: &str) {
        let is_own = self.out.get_ref().client.is_none();
        if self.quiet || !is_own || !io::stderr().is_terminal() {
            return;
        }
        // An invalid template of ours would be noticed at its first use.
        if let Ok(style) = ProgressStyle::with_template(template) {
            let term = DelayedTerm::new(::console::Term::buffered_stderr(), PROGRESS_DELAY);
            let target = ProgressDrawTarget::term_like_with_hz(Box::new(term), PROGRESS_HZ);
            let bar = ProgressBar::with_draw_target(None, target).with_style(style);
            progress_line::clear_at_signals();
            bar.enable_steady_tick(PROGRESS_TICK);
            self.progress = Some(bar);
        }
    }

    pub(crate) fn progress(&self) -> Option<&ProgressBar> {
        self.progress.as_ref()
    }

    pub(crate) fn end_progress(&mut self) {
        if let Some(bar) = self.progress.take() {
            bar.finish_and_clear();
            progress_line::was_cleared();
        }
    }

    /// Runs work with an observer that displays its bytes, and cancels it when the client has gone.
    pub(crate) fn count_bytes<T>(
        &mut self,
        template: &str,
        work: impl FnOnce(&mut dyn Progress) -> T,
    ) -> T {
        self.start_progress(template);
        let outcome = work(&mut |event: &Event<'_>| {
            if let (Event::Advance { bytes }, Some(bar)) = (event, self.progress()) {
                bar.inc(*bytes);
            }
            if self.client_has_gone() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        self.end_progress();
        outcome
    }

    fn message(&mut self, level: &str, text: impl fmt::Display) {
        // Earlier output must appear before the message.
        let _ = self.out.flush();
        let message = match self.line {
            Some(line) => format!("{level}: line {line}: {text}\n"),
            None => format!("{level}: {text}\n"),
        };
        self.write_message(&message);
    }

    fn write_message(&self, message: &str) {
        let client = self.out.get_ref().client.as_ref();
        // If this fails, it cannot be reported anywhere.
        let show = || match client {
            Some(client) => drop(ClientErr(client).write_all(message.as_bytes())),
            None => drop(io::stderr().write_all(message.as_bytes())),
        };
        match &self.progress {
            Some(bar) => bar.suspend(show),
            None => show(),
        }
    }

    /// Prints an informational message to standard error, unless only errors are wanted.
    pub(crate) fn say(&mut self, text: impl fmt::Display) {
        if !self.quiet {
            self.write_message(&format!("{text}\n"));
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Returns whether the output is a terminal, so that control characters in names must be escaped.
    pub(crate) fn is_terminal(&self) -> bool {
        self.out.get_ref().file.is_terminal()
    }

    /// Writes a name or path, escaped if the output is a terminal.
    pub(crate) fn write_path(&mut self, path: &[u8]) -> io::Result<()> {
        let is_terminal = self.is_terminal();
        write_path_to(&mut self.out, path, is_terminal)
    }

    /// Reports an error after which the command continues. The exit code will be 1.
    pub(crate) fn error(&mut self, error: impl fmt::Display) {
        self.failed = true;
        self.message("ERROR", error);
    }

    /// Reports a fault of the volume. The command itself succeeds.
    pub(crate) fn report(&mut self, error: impl fmt::Display) {
        self.message("ERROR", error);
    }

    /// Reports an error with its causes, like `error`.
    pub(crate) fn failed(&mut self, error: &anyhow::Error) {
        match self.if_refused {
            Some(hint) if error.chain().any(hint.is_refusal) => {
                self.error(format_args!("{} ({})", ErrorChain(error), hint.text));
            }
            _ => self.error(ErrorChain(error)),
        }
    }

    /// Sets the exit code of a successful command.
    pub(crate) fn end_with(&mut self, code: u8) {
        self.found = code;
    }

    /// Sets the exit code of a failed command.
    pub(crate) fn fail_with(&mut self, code: u8) {
        self.failure = code;
    }

    /// Notes that another process has reported an error. The exit code will be 1.
    pub(crate) fn error_was_reported(&mut self) {
        self.failed = true;
    }

    /// Sets the script line for later messages.
    pub(crate) fn set_line(&mut self, line: Option<u64>) {
        self.line = line;
    }

    /// Returns whether an error was reported since the last call.
    pub(crate) fn take_failed(&mut self) -> bool {
        std::mem::take(&mut self.failed)
    }

    /// Reports a problem that does not make the command fail.
    pub(crate) fn warning(&mut self, warning: impl fmt::Display) {
        self.message("WARNING", warning);
    }

    /// Reports the error that ended the command, and returns the exit code.
    pub(crate) fn finish(mut self, result: anyhow::Result<()>) -> u8 {
        self.end_progress();
        let result = result.and_then(|()| Ok(self.out.flush()?));
        let Err(error) = result else {
            return if self.failed {
                self.failure
            } else {
                self.found
            };
        };
        if broken_pipe(&error).is_some() {
            return SIGPIPE_EXIT;
        }
        self.failed(&error);
        self.failure
    }
}

/// Writes a name or path to a buffer for standard output, escaped if the output is a terminal.
pub(crate) fn write_path_to(
    out: &mut impl Write,
    path: &[u8],
    is_terminal: bool,
) -> io::Result<()> {
    if is_terminal {
        write!(out, "{}", Escaped(path))
    } else {
        out.write_all(path)
    }
}

fn broken_pipe(error: &anyhow::Error) -> Option<&io::Error> {
    error
        .chain()
        .find_map(|cause| cause.downcast_ref::<io::Error>())
        .filter(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Returns whether the reader of standard output is gone.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    broken_pipe(error).is_some()
}

/// Returns the exit code for an error of standard output itself.
pub(crate) fn exit_code_of_write(error: &io::Error) -> ExitCode {
    match error.kind() {
        io::ErrorKind::BrokenPipe => ExitCode::from(SIGPIPE_EXIT),
        _ => ExitCode::FAILURE,
    }
}
