//! The socket of a running scrub: `status` reads the counts from it, and `cancel` learns the process.
//!
//! It is the socket of btrfs-progs, so `btrfs scrub status` also sees scrubs of mounts that this command started.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;
use ubtrfs_device::thread;

use super::record::{Record, path};

/// The longest time that a reader may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A record that readers of the socket get.
#[derive(Debug)]
pub(super) struct Serving {
    record: Arc<Mutex<Record>>,
    path: PathBuf,
}

impl Serving {
    /// Serves a record until the scrub ends.
    pub(super) fn start(fsid: &str, record: Record) -> io::Result<Serving> {
        let path = path("progress", fsid);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // A socket that is left from a killed process accepts no connection.
        let _ = std::fs::remove_file(&path);
        let (short, _folder) = short_path(&path)?;
        let listener = UnixListener::bind(short)?;
        let record = Arc::new(Mutex::new(record));
        let shared = Arc::clone(&record);
        let fsid = fsid.to_owned();
        thread::start("scrub status", move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else {
                    return;
                };
                let text = {
                    let record = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    record.to_live_text(&fsid)
                };
                let _ = stream.set_write_timeout(Some(PATIENCE));
                let _ = stream.write_all(text.as_bytes());
            }
        })?;
        Ok(Serving { record, path })
    }

    pub(super) fn update(&self, record: &Record) {
        let mut shared = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        shared.clone_from(record);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns a path of the socket that is short enough for an address. It is valid while its folder is open.
fn short_path(path: &Path) -> io::Result<(PathBuf, File)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let folder = File::open(folder)?;
    let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    Ok((short.join(name), folder))
}

/// A scrub that is running in some process.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) record: Record,
    pub(super) pid: Option<Pid>,
}

impl Running {
    /// Returns the running scrub of a volume.
    pub(super) fn find(fsid: &str) -> Option<Running> {
        let (short, _folder) = short_path(&path("progress", fsid)).ok()?;
        let mut stream = UnixStream::connect(short).ok()?;
        let pid = socket_peercred(&stream).ok().map(|peer| peer.pid);
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(Running {
            record: Record::parse(&text, fsid),
            pid,
        })
    }
}
