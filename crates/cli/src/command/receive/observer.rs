//! Messages of receive on a console, in the words of btrfs-progs where scripts depend on them.

use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use jiff::tz::TimeZone;
use ubtrfs::{Event, Progress, StreamCommand};

use crate::presentation::console::Console;
use crate::presentation::quoting::Escaped;
use crate::print::IsoTime;
use crate::volume_access::control::receiving;

/// The number of commands between two updates of the displayed file.
const SHOWN_EVERY: u64 = 64;

pub(super) struct ConsoleObserver<'a> {
    console: &'a mut Console,
    zone: TimeZone,
    commands: u64,
}

impl ConsoleObserver<'_> {
    pub(super) fn new(console: &mut Console) -> ConsoleObserver<'_> {
        ConsoleObserver {
            console,
            zone: TimeZone::system(),
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

    /// Returns whether a command is displayed. With -v these are commands that create subvolumes or write
    /// data, with -vv all.
    fn is_shown(&self, command: &StreamCommand<'_>) -> bool {
        match command.name() {
            "subvol" | "snapshot" | "write" | "encoded_write" | "clone" => self.console.verbose > 0,
            _ => self.console.verbose > 1,
        }
    }
}

impl ConsoleObserver<'_> {
    fn begin(&mut self, command: &StreamCommand<'_>) {
        let subvolume = command.subvolume().as_os_str().as_bytes();
        let name = Escaped(subvolume);
        match command.name() {
            "subvol" => {
                self.console.notify_client(&receiving(subvolume));
                self.console.say(format_args!("At subvol {name}"));
            }
            "snapshot" => {
                self.console.notify_client(&receiving(subvolume));
                // In the words of btrfs-progs.
                if !self.console.quiet {
                    let out = &mut self.console.out;
                    // Continue even if the reader of standard output is gone.
                    let _ = writeln!(out, "At snapshot {name}").and_then(|()| out.flush());
                }
            }
            _ => {}
        }
        if let Some(path) = command.path() {
            self.show_path(path.as_os_str().as_bytes());
        }
        if self.is_shown(command) {
            let line = command.text(|seconds| IsoTime(seconds, &self.zone));
            self.console.say(line);
        }
    }
}

impl Progress for ConsoleObserver<'_> {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Command(command) => self.begin(command),
            Event::Advance { bytes } => {
                if let Some(bar) = self.console.progress() {
                    bar.inc(*bytes);
                }
            }
            Event::Problem(problem) => self.console.error(Escaped(problem.message.as_bytes())),
            Event::Finished {
                is_complete: true, ..
            } => self.console.notify_client(&receiving(b"")),
            Event::Finished { path, .. } => {
                let name = Escaped::of(path);
                self.console.error(format_args!(
                    "subvolume '{name}' is not finished, and writable"
                ));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
