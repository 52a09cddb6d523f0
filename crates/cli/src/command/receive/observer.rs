//! Messages of receiving on a console, in the words of btrfs-progs where these are known to scripts.

use std::io::Write;

use jiff::tz::TimeZone;
use ubtrfs_stream::{Command, CommandError, CommandLines, ReceiveObserver};

use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;
use crate::print::IsoTime;
use crate::volume_access::control::receiving;

/// Commands after which the file that is shown is another one.
const SHOWN_EVERY: u64 = 64;

type LocalTime = fn(i64) -> String;

pub(super) struct ConsoleObserver<'a> {
    console: &'a mut Console,
    lines: CommandLines<LocalTime>,
    commands: u64,
}

impl ConsoleObserver<'_> {
    pub(super) fn new(console: &mut Console) -> ConsoleObserver<'_> {
        let local_time: LocalTime = |seconds| IsoTime(seconds, &TimeZone::system()).to_string();
        ConsoleObserver {
            console,
            lines: CommandLines::new(local_time),
            commands: 0,
        }
    }

    fn show_path(&mut self, path: &[u8]) {
        self.commands += 1;
        if self.commands % SHOWN_EVERY == 1
            && let Some(bar) = self.console.progress()
        {
            bar.set_message(Escaped(path).to_string());
        }
    }

    /// With -v what makes subvolumes and writes data, with -vv all.
    fn is_shown(&self, command: &Command<'_>) -> bool {
        match command {
            Command::Subvol { .. }
            | Command::Snapshot { .. }
            | Command::Write { .. }
            | Command::EncodedWrite { .. }
            | Command::Clone { .. } => self.console.verbose > 0,
            _ => self.console.verbose > 1,
        }
    }
}

impl ReceiveObserver for ConsoleObserver<'_> {
    fn begin(&mut self, subvolume: &[u8], command: &Command<'_>) {
        if matches!(command, Command::Subvol { .. } | Command::Snapshot { .. }) {
            self.console.tell_client(&receiving(subvolume));
        }
        let name = Escaped(subvolume);
        match command {
            Command::Subvol { .. } => self.console.say(format_args!("At subvol {name}")),
            // As btrfs-progs has it.
            Command::Snapshot { .. } if !self.console.quiet => {
                let out = &mut self.console.out;
                // A reader that has gone away is no reason to stop.
                let _ = writeln!(out, "At snapshot {name}").and_then(|()| out.flush());
            }
            _ => {}
        }
        if let Some(path) = command.path() {
            self.show_path(path);
        }
        if self.is_shown(command) {
            let line = self.lines.line_of(command);
            self.console.say(line.trim_end_matches('\n'));
        }
    }

    fn advanced(&mut self, bytes: u64) {
        if let Some(bar) = self.console.progress() {
            bar.inc(bytes);
        }
    }

    fn finished(&mut self, _: &[u8]) {
        self.console.tell_client(&receiving(b""));
    }

    fn failed(&mut self, error: &CommandError) {
        self.console.error(error);
    }

    fn unfinished(&mut self, subvolume: &[u8]) {
        let name = Escaped(subvolume);
        self.console.error(format_args!(
            "subvolume '{name}' is not finished, and writable"
        ));
    }
}
