//! An image with slow discards, for the kernel and ubtrfs alike.
//!
//! It is a FUSE mount on a single file, which forwards everything to the image. Punching holes is slow and serialised
//! there, like discards on drives that do not queue them.

use std::fs::{self, File};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::fs::FallocateFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use ubtrfs_fuse_server::request::{
    self, Answer, AnswerBuffer, Attr, Attributes, ConnectionFlags, Context as Caller, DeviceNr,
    Errno, FileKind, FileSystem, NodeId, Opened, Operation, SeekFor, StatFs, Time,
};
use ubtrfs_fuse_server::{Capacity, Connection, TransportChoice};

const SERVER_MEMORY_BYTES: u64 = 256 << 20;
const THREADS: NonZeroUsize = NonZeroUsize::new(4).unwrap();
/// The attribute lifetime. No other process changes the file, so any value is correct.
const ATTRIBUTES_LAST: Duration = Duration::from_secs(3600);

/// The duration of a discard.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiscardTime {
    pub(super) request: Duration,
    pub(super) per_mib: Duration,
}

impl DiscardTime {
    fn of(self, len_bytes: u64) -> Duration {
        self.request + self.per_mib.mul_f64(len_bytes as f64 / (1 << 20) as f64)
    }
}

/// The mount over an image.
#[derive(Debug)]
pub(super) struct SlowDiscards {
    path: PathBuf,
    server: JoinHandle<io::Result<()>>,
}

impl SlowDiscards {
    /// Mounts the image at `path`, which must not exist yet. It must be in the work directory, whose mounts end with
    /// the run.
    pub(super) fn new(image: &Path, path: PathBuf, takes: DiscardTime) -> Result<SlowDiscards> {
        File::create(&path)?;
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!(
            "fd={},rootmode=100000,user_id=0,group_id=0",
            device.as_raw_fd()
        );
        let options = std::ffi::CString::new(options)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount(
            "slow-discards",
            &path,
            "fuse.slow-discards",
            flags,
            &*options,
        )
        .context("cannot mount over a file")?;
        let image = File::options().read(true).write(true).open(image)?;
        let slow = SlowImage {
            image,
            takes,
            turn: Mutex::new(()),
        };
        let device = OwnedFd::from(device);
        let capacity = Capacity::of(SERVER_MEMORY_BYTES);
        let server = thread::Builder::new()
            .name("slow-discards".into())
            .spawn(move || {
                let choice = TransportChoice::Classic;
                Connection::establish(slow, device, THREADS, choice, capacity)
                    .map_err(|refused| refused.error)?
                    .serve(|| ())
            })?;
        Ok(SlowDiscards { path, server })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts the file, which must not be open, and removes it.
    pub(super) fn end(self) -> Result<()> {
        unmount(&self.path, UnmountFlags::empty())?;
        let ended = self.server.join();
        ended
            .ok()
            .context("the server of slow discards panicked")??;
        fs::remove_file(&self.path)?;
        Ok(())
    }
}

/// The file system of one file.
#[derive(Debug)]
struct SlowImage {
    image: File,
    takes: DiscardTime,
    /// Serialises discards.
    turn: Mutex<()>,
}

fn errno(error: impl Into<io::Error>) -> Errno {
    let error: io::Error = error.into();
    let known = [Errno::NOSPC, Errno::NXIO, Errno::OPNOTSUPP, Errno::INVAL];
    let code = error.raw_os_error();
    let same = known.into_iter().find(|errno| Some(errno.code()) == code);
    same.unwrap_or(Errno::IO)
}

impl SlowImage {
    fn attributes(&self) -> request::Result<Attributes> {
        let metadata = self.image.metadata().map_err(errno)?;
        let changed = Time {
            secs: metadata.mtime(),
            nanos: metadata.mtime_nsec() as u32,
        };
        let attr = Attr {
            ino: metadata.ino(),
            kind: FileKind::Regular,
            permissions: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: DeviceNr::default(),
            size_bytes: metadata.size(),
            blocks: metadata.blocks(),
            block_bytes: metadata.blksize() as u32,
            atime: changed,
            mtime: changed,
            ctime: changed,
            btime: changed,
        };
        Ok(Attributes {
            attr,
            ttl: ATTRIBUTES_LAST,
        })
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> request::Result<Answer> {
        let mut done = 0;
        while done < out.len() {
            match self.image.read_at(&mut out[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error) => return Err(errno(error)),
            }
        }
        Ok(Answer::Len(done))
    }

    fn fallocate(&self, (offset, len): (u64, u64), mode: u32) -> request::Result<Answer> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let flags = FallocateFlags::from_bits_retain(mode);
        if flags.contains(FallocateFlags::PUNCH_HOLE) {
            thread::sleep(self.takes.of(len));
        }
        rustix::fs::fallocate(&self.image, flags, offset, len).map_err(errno)?;
        Ok(Answer::Done)
    }

    fn statfs(&self) -> request::Result<Answer> {
        let found = rustix::fs::fstatvfs(&self.image).map_err(errno)?;
        Ok(Answer::StatFs(StatFs {
            block_bytes: found.f_bsize as u32,
            blocks: found.f_blocks,
            blocks_free: found.f_bfree,
            blocks_available: found.f_bavail,
            name_max: found.f_namemax as u32,
        }))
    }
}

impl FileSystem for SlowImage {
    fn connection_flags(&self) -> ConnectionFlags {
        ConnectionFlags {
            posix_acl: false,
            writable: true,
            writeback_cache: false,
            idmapped: false,
        }
    }

    fn perform(
        &self,
        _: &Caller,
        _: NodeId,
        operation: &Operation<'_>,
        out: &mut impl AnswerBuffer,
    ) -> request::Result<Answer> {
        match *operation {
            Operation::Getattr => self.attributes().map(Answer::Attributes),
            // The image has its own times.
            Operation::Setattr { .. } => self.attributes().map(Answer::Attributes),
            Operation::Open { .. } => Ok(Answer::Opened(Opened::Elided)),
            Operation::Read { offset, .. } => self.read(offset, out.bytes()),
            Operation::Write { offset, bytes, .. } => {
                self.image.write_all_at(bytes, offset).map_err(errno)?;
                Ok(Answer::Written(bytes.len()))
            }
            Operation::Fsync { data_only, .. } => {
                let synced = if data_only {
                    self.image.sync_data()
                } else {
                    self.image.sync_all()
                };
                synced.map_err(errno)?;
                Ok(Answer::Done)
            }
            Operation::Fallocate { range, mode, .. } => self.fallocate(range, mode),
            Operation::Lseek { offset, what, .. } => {
                let from = match what {
                    SeekFor::Data => rustix::fs::SeekFrom::Data(offset),
                    SeekFor::Hole => rustix::fs::SeekFrom::Hole(offset),
                };
                let found = rustix::fs::seek(&self.image, from).map_err(errno)?;
                Ok(Answer::Offset(found))
            }
            Operation::Statfs => self.statfs(),
            Operation::Lookup { .. }
            | Operation::Opendir
            | Operation::Readdir { .. }
            | Operation::Readdirplus { .. } => Err(Errno::NOTDIR),
            Operation::Readlink => Err(Errno::INVAL),
            Operation::Getxattr { .. } | Operation::Listxattr { .. } => Err(Errno::OPNOTSUPP),
            Operation::Ioctl { .. } => Err(Errno::NOTTY),
            Operation::Forget { .. }
            | Operation::Release { .. }
            | Operation::Releasedir { .. }
            | Operation::Destroy => Ok(Answer::Done),
            _ => Err(Errno::NOSYS),
        }
    }
}
