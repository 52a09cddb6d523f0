//! Where a command's output goes: results to standard output, errors as `ERROR: ...` and logs to
//! standard error.
//!
//! A command writes results to `Console::out` with `?`; a reader that goes away (`| head`) ends the
//! program quietly. A command that goes on past an error tells `Console::error`, and the exit code
//! says so at the end.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// What a shell reports for a program that SIGPIPE ended.
const SIGPIPE_EXIT: u8 = 128 + 13;
const OUT_BUFFER_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogLevel {
    Default,
    Info,
    Verbose,
    Debug,
    Quiet,
}

#[derive(Debug)]
#[allow(dead_code, reason = "the commands that use all of it follow")]
pub(crate) struct Console {
    /// Not `io::stdout`, whose own buffer would only copy once more.
    pub(crate) out: BufWriter<File>,
    pub(crate) format: Format,
    pub(crate) verbose: u8,
    pub(crate) quiet: bool,
    failed: bool,
}

#[allow(dead_code, reason = "the commands that use all of it follow")]
impl Console {
    pub(crate) fn new(format: Format, verbose: u8, quiet: bool) -> io::Result<Console> {
        let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Console {
            out: BufWriter::with_capacity(OUT_BUFFER_BYTES, stdout),
            format,
            verbose,
            quiet,
            failed: false,
        })
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether a person reads the output, so that odd characters of a name must not reach them raw.
    pub(crate) fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Reports an error after which the command goes on; the exit code will be 1.
    pub(crate) fn error(&mut self, error: impl fmt::Display) {
        self.failed = true;
        // What was written before the error shall be seen before it.
        let _ = self.out.flush();
        eprintln!("ERROR: {error}");
    }

    /// Reports what does not make the command fail.
    pub(crate) fn warning(&mut self, warning: impl fmt::Display) {
        let _ = self.out.flush();
        eprintln!("WARNING: {warning}");
    }

    pub(crate) fn finish(mut self, result: anyhow::Result<()>) -> ExitCode {
        let result = result.and_then(|()| Ok(self.out.flush()?));
        let Err(error) = result else {
            return match self.failed {
                false => ExitCode::SUCCESS,
                true => ExitCode::FAILURE,
            };
        };
        if let Some(error) = broken_pipe(&error) {
            return exit_code_of_write(error);
        }
        self.error(format_args!("{error:#}"));
        ExitCode::FAILURE
    }
}

fn broken_pipe(error: &anyhow::Error) -> Option<&io::Error> {
    error
        .chain()
        .find_map(|cause| cause.downcast_ref::<io::Error>())
        .filter(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The exit code for an error of standard output itself.
pub(crate) fn exit_code_of_write(error: &io::Error) -> ExitCode {
    match error.kind() {
        io::ErrorKind::BrokenPipe => ExitCode::from(SIGPIPE_EXIT),
        _ => ExitCode::FAILURE,
    }
}

/// Logs go to standard error: warnings, and more as the options ask. UBTRFS_LOG has the last word.
pub(crate) fn start_log(level: Option<LogLevel>, verbose: u8, quiet: bool) {
    let by_options = match (level, quiet, verbose) {
        (Some(LogLevel::Quiet), ..) | (None, true, _) => "error",
        (Some(LogLevel::Info | LogLevel::Verbose), ..) | (None, false, 1) => "info",
        (Some(LogLevel::Debug), ..) | (None, false, 2..) => "debug",
        (Some(LogLevel::Default), ..) | (None, false, 0) => "warn",
    };
    let filter = EnvFilter::builder()
        .with_env_var("UBTRFS_LOG")
        .try_from_env()
        .unwrap_or_else(|_| EnvFilter::new(by_options));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .init();
}
