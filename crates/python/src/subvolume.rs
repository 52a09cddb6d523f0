//! Operations by path.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ubtrfs::{Access, DirBuilder, FileTime, FileTimes, Metadata, OpenOptions, ReadDir, XattrMode};

use crate::failure::{failed, failed_as};
use crate::file::File;
use crate::handle::Handle;

/// The number of entries that are passed to Python at a time.
const BATCH: usize = 64;

/// Seconds and nanoseconds since 1970.
pub(crate) type Time = (i64, u32);
/// Mode, inode, subvolume, links, user, group, size, blocks, device; times of access, modification, change and birth.
pub(crate) type Stat = (
    (u32, u64, u64, u64, u32, u32, u64, u64, u64),
    (Time, Time, Time, Time),
);
/// Name, path, inode, (directory, file, link), subvolume.
type Entry = (Vec<u8>, Vec<u8>, u64, (bool, bool, bool), bool);

pub(crate) fn time_of(time: SystemTime) -> Time {
    let FileTime { sec, nsec } = time.into();
    (sec, nsec)
}

fn to_time((sec, nsec): Time) -> PyResult<SystemTime> {
    let time = FileTime { sec, nsec }.to_system_time();
    time.ok_or_else(|| PyValueError::new_err("no such time"))
}

pub(crate) fn stat_of(of: &Metadata) -> Stat {
    (
        (
            of.mode(),
            of.ino(),
            of.subvolume_id(),
            of.nlink(),
            of.uid(),
            of.gid(),
            of.len(),
            of.blocks(),
            of.rdev(),
        ),
        (
            time_of(of.accessed()),
            time_of(of.modified()),
            time_of(of.changed()),
            time_of(of.created()),
        ),
    )
}

pub(crate) fn bytes_of(text: impl Into<OsString>) -> Vec<u8> {
    text.into().into_vec()
}

pub(crate) fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[pyclass(frozen, weakref, module = "ubtrfs._ubtrfs")]
#[derive(Debug)]
pub(crate) struct Subvolume {
    handle: Handle<ubtrfs::Subvolume>,
}

impl Subvolume {
    pub(crate) fn new(subvolume: ubtrfs::Subvolume) -> Subvolume {
        let handle = Handle::new(subvolume);
        Subvolume { handle }
    }

    pub(crate) fn handle(&self) -> &Handle<ubtrfs::Subvolume> {
        &self.handle
    }

    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&ubtrfs::Subvolume) -> ubtrfs::Result<T> + Send,
    ) -> PyResult<T> {
        let subvolume = self.handle.get()?;
        let done = py.detach(move || work(&subvolume));
        done.map_err(|error| failed(&error))
    }
}

#[pymethods]
impl Subvolume {
    fn close(&self, py: Python<'_>) {
        let subvolume = self.handle.take();
        py.detach(move || drop(subvolume));
    }

    fn id(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |of| Ok(of.id()))
    }

    fn is_read_only(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, ubtrfs::Subvolume::is_read_only)
    }

    fn set_read_only(&self, py: Python<'_>, read_only: bool) -> PyResult<()> {
        self.run(py, |of| of.set_read_only(read_only))
    }

    fn subvolume(&self, py: Python<'_>, path: &[u8]) -> PyResult<Subvolume> {
        let opened = self.run(py, |of| of.subvolume(path_of(path)));
        opened.map(Subvolume::new)
    }

    fn create_subvolume(&self, py: Python<'_>, path: &[u8]) -> PyResult<Subvolume> {
        let made = self.run(py, |of| of.create_subvolume(path_of(path)));
        made.map(Subvolume::new)
    }

    fn snapshot(
        &self,
        py: Python<'_>,
        source: &[u8],
        to: &[u8],
        read_only: bool,
    ) -> PyResult<Subvolume> {
        let access = if read_only {
            Access::ReadOnly
        } else {
            Access::Writable
        };
        let made = self.run(py, |of| of.snapshot(path_of(source), path_of(to), access));
        made.map(Subvolume::new)
    }

    fn delete_subvolume(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, |of| of.delete_subvolume(path_of(path)))
    }

    fn stat(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Stat> {
        self.run(py, |of| {
            let metadata = if follow {
                of.metadata(path_of(path))
            } else {
                of.symlink_metadata(path_of(path))
            };
            Ok(stat_of(&metadata?))
        })
    }

    fn list(&self, py: Python<'_>, path: &[u8]) -> PyResult<Listing> {
        let entries = self.run(py, |of| of.read_dir(path_of(path)))?;
        Ok(Listing {
            handle: Handle::new(Arc::new(Mutex::new(entries))),
        })
    }

    /// Opens a file. `access` has r, w or a; `making` is "", "c" (create if missing) or "x" (create, must not exist).
    fn open(
        &self,
        py: Python<'_>,
        path: &[u8],
        access: &str,
        making: &str,
        truncate: bool,
    ) -> PyResult<File> {
        let options = OpenOptions::new()
            .read(access.contains('r'))
            .write(access.contains('w'))
            .append(access.contains('a'))
            .create(making == "c")
            .create_new(making == "x")
            .truncate(truncate);
        let (file, is_dir) = self.run(py, |of| {
            let file = of.open_with(path_of(path), &options)?;
            let is_dir = file.metadata()?.is_dir();
            Ok((file, is_dir))
        })?;
        let file = File::new(file);
        if is_dir {
            Err(failed_as(libc::EISDIR, path_of(path)))
        } else {
            Ok(file)
        }
    }

    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        let builder = DirBuilder::new().mode(mode);
        self.run(py, |of| of.create_dir_with(path_of(path), &builder))
    }

    fn unlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, |of| of.remove_file(path_of(path)))
    }

    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, |of| of.remove_dir(path_of(path)))
    }

    fn rmtree(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, |of| of.remove_dir_all(path_of(path)))
    }

    fn rename(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<()> {
        self.run(py, |of| of.rename(path_of(from), path_of(to)))
    }

    fn symlink(&self, py: Python<'_>, target: &[u8], link: &[u8]) -> PyResult<()> {
        self.run(py, |of| of.symlink(path_of(target), path_of(link)))
    }

    fn readlink<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let target = self.run(py, |of| of.read_link(path_of(path)))?;
        Ok(PyBytes::new(py, target.as_os_str().as_bytes()))
    }

    fn link(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<()> {
        self.run(py, |of| of.hard_link(path_of(from), path_of(to)))
    }

    fn reflink(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<()> {
        self.run(py, |of| of.reflink(path_of(from), path_of(to)))
    }

    fn chmod(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        let permissions = Permissions::from_mode(mode & 0o7777);
        self.run(py, |of| of.set_permissions(path_of(path), permissions))
    }

    fn chown(
        &self,
        py: Python<'_>,
        path: &[u8],
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> PyResult<()> {
        self.run(py, |of| {
            if follow {
                of.chown(path_of(path), uid, gid)
            } else {
                of.lchown(path_of(path), uid, gid)
            }
        })
    }

    /// Sets the access and modification times. Without a value, both are set to the current time.
    fn utime(
        &self,
        py: Python<'_>,
        path: &[u8],
        times: Option<(Time, Time)>,
        follow: bool,
    ) -> PyResult<()> {
        let times = match times {
            Some((atime, mtime)) => FileTimes::new()
                .set_accessed(to_time(atime)?)
                .set_modified(to_time(mtime)?),
            None => FileTimes::new().set_accessed_now().set_modified_now(),
        };
        self.run(py, |of| {
            if follow {
                of.set_times(path_of(path), times)
            } else {
                of.set_times_nofollow(path_of(path), times)
            }
        })
    }

    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: &[u8],
        name: &[u8],
        follow: bool,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let name = OsStr::from_bytes(name);
        let value = self.run(py, |of| {
            if follow {
                of.xattr(path_of(path), name)
            } else {
                of.symlink_xattr(path_of(path), name)
            }
        })?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    fn listxattr<'py>(
        &self,
        py: Python<'py>,
        path: &[u8],
        follow: bool,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let all = self.run(py, |of| {
            if follow {
                of.xattrs(path_of(path))
            } else {
                of.symlink_xattrs(path_of(path))
            }
        })?;
        let names = all.iter().map(|(name, _)| name.as_bytes());
        Ok(names.map(|name| PyBytes::new(py, name)).collect())
    }

    /// Sets an extended attribute. `making` is "", "c" (must be new) or "r" (must exist).
    fn setxattr(
        &self,
        py: Python<'_>,
        path: &[u8],
        name: &[u8],
        value: &[u8],
        making: &str,
        follow: bool,
    ) -> PyResult<()> {
        let (path, name) = (path_of(path), OsStr::from_bytes(name));
        let mode = match making {
            "c" => XattrMode::Create,
            "r" => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        self.run(py, |of| {
            if follow {
                of.set_xattr(path, name, value, mode)
            } else {
                of.set_symlink_xattr(path, name, value, mode)
            }
        })
    }

    fn removexattr(&self, py: Python<'_>, path: &[u8], name: &[u8], follow: bool) -> PyResult<()> {
        let name = OsStr::from_bytes(name);
        self.run(py, |of| {
            if follow {
                of.remove_xattr(path_of(path), name)
            } else {
                of.remove_symlink_xattr(path_of(path), name)
            }
        })
    }
}

/// A directory that is being listed.
#[pyclass(frozen, weakref, module = "ubtrfs._ubtrfs")]
#[derive(Debug)]
pub(crate) struct Listing {
    handle: Handle<Arc<Mutex<ReadDir>>>,
}

#[pymethods]
impl Listing {
    fn close(&self, py: Python<'_>) {
        let listing = self.handle.take();
        py.detach(move || drop(listing));
    }

    /// Returns the next entries, or an empty list at the end.
    fn next_entries(&self, py: Python<'_>) -> PyResult<Vec<Entry>> {
        let listing = self.handle.get()?;
        let entries = py.detach(move || {
            let mut entries = listing.lock().unwrap_or_else(PoisonError::into_inner);
            let batch = entries.by_ref().take(BATCH).map(|entry| {
                let entry = entry?;
                let kind = entry.file_type();
                let kind = (kind.is_dir(), kind.is_file(), kind.is_symlink());
                let name = bytes_of(entry.file_name());
                let path = bytes_of(entry.path());
                Ok((name, path, entry.ino(), kind, entry.is_subvolume()))
            });
            batch.collect::<ubtrfs::Result<Vec<Entry>>>()
        });
        entries.map_err(|error| failed(&error))
    }
}
