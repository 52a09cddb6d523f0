//! Logs of the layers below: to standard error, to a file, or to syslog. On standard error they look like the
//! command's own messages.
//!
//! A mount changes the destination at runtime: it begins with the command's standard error, which it closes
//! later.

mod syslog;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{OnceLock, PoisonError, RwLock};

use clap::ValueEnum;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use self::syslog::Syslog;
use super::clock;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogLevel {
    Default,
    Info,
    Verbose,
    Debug,
    Quiet,
}

impl LogLevel {
    fn directive(self) -> &'static str {
        match self {
            LogLevel::Quiet => "error",
            LogLevel::Default => "warn",
            LogLevel::Info | LogLevel::Verbose => "info",
            LogLevel::Debug => "debug",
        }
    }
}

type SetFilter = Box<dyn Fn(EnvFilter) + Send + Sync>;

static PLACE: RwLock<Place> = RwLock::new(Place::Stderr);
static SET_FILTER: OnceLock<SetFilter> = OnceLock::new();

/// The variable that overrides all levels.
const LEVEL_VARIABLE: &str = "UBTRFS_LOG";

/// Starts the log. Shows warnings, and more if the options request it. UBTRFS_LOG overrides the options.
pub(crate) fn start(level: Option<LogLevel>, verbose: u8, quiet: bool) {
    let by_options = match (level, quiet, verbose) {
        (Some(level), ..) => level,
        (None, true, _) => LogLevel::Quiet,
        (None, false, 0) => LogLevel::Default,
        (None, false, 1) => LogLevel::Info,
        (None, false, 2..) => LogLevel::Debug,
    };
    let builder = tracing_subscriber::fmt()
        .with_writer(Output)
        .with_ansi(false)
        .event_format(Message)
        .with_env_filter(filter(by_options))
        .with_filter_reloading();
    let handle = builder.reload_handle();
    let _ = SET_FILTER.set(Box::new(move |filter| {
        // It fails only when the program ends.
        let _ = handle.reload(filter);
    }));
    builder.init();
}

fn filter(level: LogLevel) -> EnvFilter {
    EnvFilter::builder()
        .with_env_var(LEVEL_VARIABLE)
        .try_from_env()
        .unwrap_or_else(|_| EnvFilter::new(level.directive()))
}

/// Changes the level, unless UBTRFS_LOG sets it.
pub(crate) fn set_level(level: LogLevel) {
    if let Some(set) = SET_FILTER.get() {
        set(filter(level));
    }
}

/// The destination of logs.
#[derive(Debug)]
pub(crate) enum Place {
    Stderr,
    File(File),
    Syslog(Syslog),
}

impl Place {
    /// Opens a log file for appending.
    pub(crate) fn file(path: &Path) -> io::Result<Place> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Place::File(file))
    }

    /// Connects to syslog, if it is available.
    pub(crate) fn syslog() -> io::Result<Place> {
        Ok(Place::Syslog(Syslog::connect()?))
    }
}

/// Redirects later logs.
pub(crate) fn redirect(place: Place) {
    *PLACE.write().unwrap_or_else(PoisonError::into_inner) = place;
}

pub(crate) fn is_on_stderr() -> bool {
    let place = PLACE.read().unwrap_or_else(PoisonError::into_inner);
    matches!(*place, Place::Stderr)
}

struct Output;

impl<'a> MakeWriter<'a> for Output {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line {
            level: Level::INFO,
            text: Vec::new(),
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line {
        Line {
            level: *metadata.level(),
            text: Vec::new(),
        }
    }
}

/// A message in progress, sent as a whole when it is dropped.
struct Line {
    level: Level,
    text: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // An error here cannot be reported anywhere.
        let _ = match &*PLACE.read().unwrap_or_else(PoisonError::into_inner) {
            Place::Stderr => io::stderr().write_all(&self.text),
            Place::File(file) => {
                let mut line = format!("{:.6} ", clock::now()).into_bytes();
                line.extend_from_slice(&self.text);
                (&*file).write_all(&line)
            }
            Place::Syslog(syslog) => syslog.send(self.level, &self.text),
        };
    }
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
