//! The system's logger, journald or a syslog daemon: datagrams to `/dev/log`, in the format of syslog(3).

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use jiff::tz::TimeZone;
use tracing::Level;

use crate::presentation::clock;

const SOCKET: &str = "/dev/log";
const FACILITY_DAEMON: u8 = 3 << 3;

#[derive(Debug)]
pub(crate) struct Syslog {
    socket: UnixDatagram,
}

impl Syslog {
    pub(super) fn connect() -> io::Result<Syslog> {
        Syslog::connect_to(Path::new(SOCKET))
    }

    fn connect_to(path: &Path) -> io::Result<Syslog> {
        let socket = UnixDatagram::unbound()?;
        // A mount's server must never wait for a logger, which may store its files on that mount.
        socket.set_nonblocking(true)?;
        socket.connect(path)?;
        Ok(Syslog { socket })
    }

    /// Sends a line. `text` begins with the level's name, in addition to the priority.
    pub(super) fn send(&self, level: Level, text: &[u8]) -> io::Result<()> {
        let severity = match level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        let now = clock::now().to_zoned(TimeZone::system());
        let time = now.strftime("%b %e %H:%M:%S").to_string();
        let head = format!(
            "<{}>{time} ubtrfs[{}]: ",
            FACILITY_DAEMON | severity,
            std::process::id()
        );
        let message = [head.as_bytes(), text.trim_ascii_end()].concat();
        self.socket.send(&message).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_priority_the_time_and_its_sender() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let logger = UnixDatagram::bind(&path).unwrap();
        let syslog = Syslog::connect_to(&path).unwrap();
        syslog.send(Level::WARN, b"WARNING: bad mirror\n").unwrap();
        let mut bytes = [0; 256];
        let len = logger.recv(&mut bytes).unwrap();
        let said = str::from_utf8(&bytes[..len]).unwrap();
        assert!(said.starts_with("<28>"), "{said}");
        let tail = format!(" ubtrfs[{}]: WARNING: bad mirror", std::process::id());
        assert!(said.ends_with(&tail), "{said}");
        assert_eq!(said.len(), "<28>Nov 22 02:47:00".len() + tail.len());
    }
}
