//! Logs of the layers below, on standard error beside the command's own messages and in their form.

use std::fmt;
use std::io;

use clap::ValueEnum;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogLevel {
    Default,
    Info,
    Verbose,
    Debug,
    Quiet,
}

/// Warnings are shown, and more as the options ask. UBTRFS_LOG has the last word.
pub(crate) fn start(level: Option<LogLevel>, verbose: u8, quiet: bool) {
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
        .with_ansi(false)
        .event_format(Message)
        .init();
}

/// "WARNING: bad mirror logical=13672448 mirror=1"
struct Message;

impl<S, N> FormatEvent<S, N> for Message
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        match *metadata.level() {
            Level::ERROR => writer.write_str("ERROR: ")?,
            Level::WARN => writer.write_str("WARNING: ")?,
            Level::INFO => writer.write_str("INFO: ")?,
            level => write!(writer, "{level} {}: ", metadata.target())?,
        }
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
