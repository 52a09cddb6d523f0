//! Signals of a shell at a prompt. Ctrl-C begins a new line or cancels a transfer. A hangup of the terminal
//! acts as the end of the input. Neither loses uncommitted changes.

use std::io::{self, stdin};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::low_level::pipe;

use crate::presentation::interrupt;

/// The signals since the shell began. The handlers stay until the process ends.
#[derive(Debug)]
pub(super) struct Signals {
    ends: UnixStream,
}

/// An event that ends the wait at a prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// There is a line, or the input has ended.
    Input,
    /// Ctrl-C: the terminal has discarded the typed text.
    Interrupt,
    /// The process must end, or its terminal has hung up.
    End,
}

impl Signals {
    pub(super) fn watch() -> io::Result<Signals> {
        interrupt::watch_ctrl_c()?;
        let (ends, writer) = interrupt::pipe()?;
        pipe::register(SIGTERM, writer.try_clone()?)?;
        pipe::register(SIGHUP, writer)?;
        Ok(Signals { ends })
    }

    /// Waits for a line or a signal.
    pub(super) fn wait(&self) -> io::Result<Event> {
        let input = stdin();
        loop {
            let mut all = vec![
                PollFd::new(&self.ends, PollFlags::IN),
                PollFd::new(&input, PollFlags::IN),
            ];
            all.extend(interrupt::pressed().map(|pressed| PollFd::new(pressed, PollFlags::IN)));
            match poll(&mut all, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            if !all[0].revents().is_empty() {
                return Ok(Event::End);
            }
            if interrupt::take() {
                return Ok(Event::Interrupt);
            }
            if !all[1].revents().is_empty() {
                return Ok(Event::Input);
            }
        }
    }
}
