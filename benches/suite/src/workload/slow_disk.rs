//! Storage that takes no more than so many bytes a second: a file that FUSE shows, as a filter below both
//! sides.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Result;
use ubtrfs_fuse::mount::{Options, Session, mount_file_system};
use ubtrfs_fuse::request::{
    Attr, AttrChange, Attributes, Context, DeviceNr, DirEntry, DirPlusSink, DirSink, Entry, Errno,
    FileKind, FileSystem, Handle, Lookup, NodeId, OpenFlags, Opened, SeekFor, StatFs, Time, Wishes,
    WriteHow,
};

use crate::cleanup::{self, Undo};
use crate::kit::Kit;

const NAME: &str = "disk";
const DISK: NodeId = NodeId(2);
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// The slow view of an image.
#[derive(Debug)]
pub(super) struct SlowDisk {
    session: Session,
    dir: PathBuf,
    path: PathBuf,
}

impl SlowDisk {
    pub(super) fn new(kit: &Kit, image: &Path, bytes_per_second: u64) -> Result<SlowDisk> {
        let dir = kit.fresh("slow");
        std::fs::create_dir(&dir)?;
        let file = File::options().read(true).write(true).open(image)?;
        let served = Served {
            len: file.metadata()?.len(),
            file,
            bytes_per_second,
            free_from: Mutex::new(Instant::now()),
        };
        let mut options = Options::default();
        options.add("rw".as_ref())?;
        let session = mount_file_system(served, image, &dir, &options)?;
        cleanup::push(Undo::Mount(dir.clone()));
        let path = dir.join(NAME);
        Ok(SlowDisk { session, dir, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn end(mut self) -> Result<()> {
        self.session.unmount()?;
        cleanup::done(&Undo::Mount(self.dir.clone()));
        std::fs::remove_dir(&self.dir)?;
        Ok(())
    }
}

#[derive(Debug)]
struct Served {
    file: File,
    len: u64,
    bytes_per_second: u64,
    /// When the storage has done what it took.
    free_from: Mutex<Instant>,
}

impl Served {
    /// Waits as long as the storage takes.
    fn take(&self, bytes: usize) {
        let took = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let until = {
            let mut free_from = self
                .free_from
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            *free_from = (*free_from).max(Instant::now()) + took;
            *free_from
        };
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    fn attributes(&self, node: NodeId) -> Attributes {
        let is_disk = node == DISK;
        Attributes {
            attr: Attr {
                ino: node.0,
                kind: match is_disk {
                    true => FileKind::Regular,
                    false => FileKind::Directory,
                },
                permissions: if is_disk { 0o600 } else { 0o700 },
                nlink: 1,
                uid: 0,
                gid: 0,
                rdev: DeviceNr::default(),
                size_bytes: if is_disk { self.len } else { 0 },
                blocks: if is_disk { self.len / 512 } else { 0 },
                block_bytes: 4096,
                atime: Time::default(),
                mtime: Time::default(),
                ctime: Time::default(),
                btime: Time::default(),
            },
            ttl: FOREVER,
        }
    }
}

type Reply<T> = ubtrfs_fuse::request::Result<T>;

fn failed(error: std::io::Error) -> Errno {
    eprintln!("slow disk: {error}");
    Errno::IO
}

impl FileSystem for Served {
    fn wishes(&self) -> Wishes {
        Wishes {
            posix_acl: false,
            writable: true,
            writeback_cache: false,
        }
    }

    fn lookup(&self, _context: &Context, _dir: NodeId, name: &[u8]) -> Reply<Lookup> {
        if name != NAME.as_bytes() {
            return Ok(Lookup::Absent { ttl: FOREVER });
        }
        Ok(Lookup::Found(Entry {
            node: DISK,
            generation: 1,
            attributes: self.attributes(DISK),
            ttl: FOREVER,
        }))
    }

    fn forget(&self, _node: NodeId, _lookups: u64) {}

    fn getattr(&self, _context: &Context, node: NodeId) -> Reply<Attributes> {
        Ok(self.attributes(node))
    }

    /// Times change, to nobody's interest.
    fn setattr(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Option<Handle>,
        _change: &AttrChange,
    ) -> Reply<Attributes> {
        Ok(self.attributes(node))
    }

    fn readlink(&self, _context: &Context, _node: NodeId, _out: &mut [u8]) -> Reply<usize> {
        Err(Errno::INVAL)
    }

    fn open(&self, _context: &Context, _node: NodeId, _flags: OpenFlags) -> Reply<Opened> {
        Ok(Opened::Handle {
            handle: Handle(0),
            keep_cache: true,
            direct: false,
        })
    }

    fn read(
        &self,
        _context: &Context,
        _node: NodeId,
        _handle: Handle,
        offset: u64,
        out: &mut [u8],
    ) -> Reply<usize> {
        let len = self.len.saturating_sub(offset).min(out.len() as u64) as usize;
        self.file
            .read_exact_at(&mut out[..len], offset)
            .map_err(failed)?;
        Ok(len)
    }

    fn write(
        &self,
        _context: &Context,
        _node: NodeId,
        _handle: Handle,
        offset: u64,
        bytes: &[u8],
        _how: &WriteHow,
    ) -> Reply<usize> {
        self.take(bytes.len());
        self.file.write_all_at(bytes, offset).map_err(failed)?;
        Ok(bytes.len())
    }

    fn fsync(
        &self,
        _context: &Context,
        _node: NodeId,
        _handle: Handle,
        _data_only: bool,
    ) -> Reply<()> {
        self.file.sync_data().map_err(failed)
    }

    fn release(&self, _context: &Context, _node: NodeId, _handle: Handle) -> Reply<()> {
        Ok(())
    }

    fn opendir(&self, _context: &Context, _node: NodeId) -> Reply<Opened> {
        Ok(Opened::Handle {
            handle: Handle(0),
            keep_cache: true,
            direct: false,
        })
    }

    fn readdir(
        &self,
        _context: &Context,
        _node: NodeId,
        _handle: Handle,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Reply<()> {
        if offset == 0 {
            let _ = sink.push(&DirEntry {
                ino: DISK.0,
                kind: FileKind::Regular,
                name: NAME.as_bytes(),
                next_offset: 1,
            });
        }
        Ok(())
    }

    fn readdirplus(
        &self,
        _context: &Context,
        _node: NodeId,
        _handle: Handle,
        _offset: u64,
        _sink: &mut dyn DirPlusSink,
    ) -> Reply<()> {
        Err(Errno::NOSYS)
    }

    fn releasedir(&self, _context: &Context, _node: NodeId, _handle: Handle) -> Reply<()> {
        Ok(())
    }

    fn getxattr(
        &self,
        _context: &Context,
        _node: NodeId,
        _name: &[u8],
        _out: &mut [u8],
    ) -> Reply<usize> {
        Err(Errno::NODATA)
    }

    fn listxattr(&self, _context: &Context, _node: NodeId, _out: &mut [u8]) -> Reply<usize> {
        Ok(0)
    }

    fn statfs(&self, _context: &Context, _node: NodeId) -> Reply<StatFs> {
        Ok(StatFs {
            block_bytes: 4096,
            blocks: self.len / 4096,
            blocks_free: 0,
            blocks_available: 0,
            name_max: 255,
        })
    }

    fn access(&self, _context: &Context, _node: NodeId, _mask: u32) -> Reply<()> {
        Err(Errno::NOSYS)
    }

    fn lseek(
        &self,
        _context: &Context,
        _node: NodeId,
        _handle: Handle,
        _offset: u64,
        _what: SeekFor,
    ) -> Reply<u64> {
        Err(Errno::NOSYS)
    }

    fn ioctl(
        &self,
        _context: &Context,
        _node: NodeId,
        _command: u32,
        _input: &[u8],
        _out: &mut [u8],
    ) -> Reply<usize> {
        Err(Errno::NOTTY)
    }
}
