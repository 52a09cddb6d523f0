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
    Attr, AttrChange, Attributes, ConnectionFlags, Context, DeviceNr, DirPlusSink, DirSink, Errno,
    FileKind, FileSystem, Handle, IoctlAnswer, Lookup, NodeId, OpenFlags, Opened, ReadHow,
    Result as Answer, SeekFor, StatFs, Time, WriteHow,
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
    fn attributes(&self) -> Answer<Attributes> {
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

    fn lookup(&self, _: &Context, _: NodeId, _: &[u8]) -> Answer<Lookup> {
        Err(Errno::NOTDIR)
    }

    fn forget(&self, _: NodeId, _: u64) {}

    fn getattr(&self, _: &Context, _: NodeId) -> Answer<Attributes> {
        self.attributes()
    }

    /// Does nothing: the image has its own times.
    fn setattr(
        &self,
        _: &Context,
        _: NodeId,
        _: Option<Handle>,
        _: &AttrChange,
    ) -> Answer<Attributes> {
        self.attributes()
    }

    fn readlink(&self, _: &Context, _: NodeId, _: &mut [u8]) -> Answer<usize> {
        Err(Errno::INVAL)
    }

    fn open(&self, _: &Context, _: NodeId, _: OpenFlags) -> Answer<Opened> {
        Ok(Opened::Elided)
    }

    fn read(
        &self,
        _: &Context,
        _: NodeId,
        _: Handle,
        offset: u64,
        out: &mut [u8],
        _: &ReadHow,
    ) -> Answer<usize> {
        let mut done = 0;
        while done < out.len() {
            match self.image.read_at(&mut out[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(len) => done += len,
                Err(error) => return Err(errno(error)),
            }
        }
        Ok(done)
    }

    fn write(
        &self,
        _: &Context,
        _: NodeId,
        _: Handle,
        offset: u64,
        bytes: &[u8],
        _: &WriteHow,
    ) -> Answer<usize> {
        self.image.write_all_at(bytes, offset).map_err(errno)?;
        Ok(bytes.len())
    }

    fn fsync(&self, _: &Context, _: NodeId, _: Handle, data_only: bool) -> Answer<()> {
        let synced = if data_only {
            self.image.sync_data()
        } else {
            self.image.sync_all()
        };
        synced.map_err(errno)
    }

    fn fallocate(
        &self,
        _: &Context,
        _: NodeId,
        _: Handle,
        range: (u64, u64),
        mode: u32,
    ) -> Answer<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let flags = FallocateFlags::from_bits_retain(mode);
        if flags.contains(FallocateFlags::PUNCH_HOLE) {
            thread::sleep(self.takes.of(range.1));
        }
        rustix::fs::fallocate(&self.image, flags, range.0, range.1).map_err(errno)
    }

    fn release(&self, _: &Context, _: NodeId, _: Handle) -> Answer<()> {
        Ok(())
    }

    fn opendir(&self, _: &Context, _: NodeId) -> Answer<Opened> {
        Err(Errno::NOTDIR)
    }

    fn readdir(
        &self,
        _: &Context,
        _: NodeId,
        _: Handle,
        _: u64,
        _: &mut dyn DirSink,
    ) -> Answer<()> {
        Err(Errno::NOTDIR)
    }

    fn readdirplus(
        &self,
        _: &Context,
        _: NodeId,
        _: Handle,
        _: u64,
        _: &mut dyn DirPlusSink,
    ) -> Answer<()> {
        Err(Errno::NOTDIR)
    }

    fn releasedir(&self, _: &Context, _: NodeId, _: Handle) -> Answer<()> {
        Ok(())
    }

    fn getxattr(&self, _: &Context, _: NodeId, _: &[u8], _: &mut [u8]) -> Answer<usize> {
        Err(Errno::OPNOTSUPP)
    }

    fn listxattr(&self, _: &Context, _: NodeId, _: &mut [u8]) -> Answer<usize> {
        Err(Errno::OPNOTSUPP)
    }

    fn statfs(&self, _: &Context, _: NodeId) -> Answer<StatFs> {
        let shown = rustix::fs::fstatvfs(&self.image).map_err(errno)?;
        Ok(StatFs {
            block_bytes: shown.f_bsize as u32,
            blocks: shown.f_blocks,
            blocks_free: shown.f_bfree,
            blocks_available: shown.f_bavail,
            name_max: shown.f_namemax as u32,
        })
    }

    fn access(&self, _: &Context, _: NodeId, _: u32) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    fn lseek(&self, _: &Context, _: NodeId, _: Handle, offset: u64, what: SeekFor) -> Answer<u64> {
        let from = match what {
            SeekFor::Data => rustix::fs::SeekFrom::Data(offset),
            SeekFor::Hole => rustix::fs::SeekFrom::Hole(offset),
        };
        rustix::fs::seek(&self.image, from).map_err(errno)
    }

    fn ioctl(&self, _: &Context, _: NodeId, _: u32, _: &[u8], _: &mut [u8]) -> Answer<IoctlAnswer> {
        Err(Errno::NOTTY)
    }
}
