//! A directory of the host as the destination of copies.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt};

use rustix::fs::FileType;
use ubtrfs_fs::{FileId, FileKind, Volume};

use super::CopyError;
use super::attributes::Attributes;
use super::dest;
use super::destination::Destination;
use super::metadata::{Handle, MetadataSetter};
use super::options::CopyOptions;

/// A directory of the host as the destination of copies.
#[derive(Debug)]
pub(crate) struct ToHost {
    metadata: MetadataSetter,
    /// Device and inode numbers of the images being read, which nothing may replace.
    images: Vec<(u64, u64)>,
}

impl ToHost {
    /// Creates the destination. `images` has the device and inode numbers of files that nothing may replace.
    pub(crate) fn new(options: CopyOptions, images: Vec<(u64, u64)>) -> ToHost {
        ToHost {
            metadata: MetadataSetter::new(options),
            images,
        }
    }
}

/// A created file.
#[derive(Debug)]
pub(crate) enum Made {
    File(File),
    /// A pipe, a terminal or similar, which is written sequentially.
    Stream(Stream),
    Other(OwnedFd),
}

impl Made {
    /// Wraps a file that is open for writing.
    ///
    /// # Errors
    ///
    /// Its kind cannot be determined.
    pub(crate) fn of_open(file: File) -> io::Result<Made> {
        let kind = file.metadata()?.file_type();
        Ok(if kind.is_file() || kind.is_block_device() {
            Made::File(file)
        } else {
            Made::Stream(Stream {
                file,
                written: Cell::new(0),
            })
        })
    }
}

/// A file that is only appended to.
#[derive(Debug)]
pub(crate) struct Stream {
    file: File,
    written: Cell<u64>,
}

impl Stream {
    /// Writes zeros up to an offset that is not reached yet.
    fn fill_to(&self, end: u64) -> io::Result<()> {
        let zeros = [0; ZERO_BYTES];
        while self.written.get() < end {
            let len = zeros.len().min((end - self.written.get()) as usize);
            self.append(&zeros[..len])?;
        }
        Ok(())
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.file).write_all(bytes)?;
        self.written.set(self.written.get() + bytes.len() as u64);
        Ok(())
    }
}

/// The size of writes in a hole.
const ZERO_BYTES: usize = 64 << 10;

/// The first created name of a file with several names.
#[derive(Debug)]
pub(crate) struct FirstName {
    dir: Vec<u8>,
    name: Vec<u8>,
}

impl Destination for ToHost {
    type Dir = OwnedFd;
    type File = Made;
    type Link = FirstName;

    fn directory(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        _: &Attributes,
    ) -> Result<(OwnedFd, bool), CopyError> {
        Ok(dest::directory(parent, name)?)
    }

    fn file(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        _: &Attributes,
        _: Option<(&Volume, FileId)>,
    ) -> Result<Made, CopyError> {
        Ok(Made::File(dest::file(parent, name, &self.images)?))
    }

    fn write(&mut self, file: &Made, at: u64, bytes: &[u8]) -> Result<(), CopyError> {
        match file {
            Made::File(file) => file.write_all_at(bytes, at).map_err(CopyError::Write),
            Made::Stream(stream) => {
                let written = stream.fill_to(at).and_then(|()| stream.append(bytes));
                written.map_err(CopyError::Write)
            }
            Made::Other(_) => Ok(()),
        }
    }

    fn set_size(&mut self, file: &Made, size: u64) -> Result<(), CopyError> {
        match file {
            Made::File(file) => match file.set_len(size) {
                // A device has a fixed size.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                set => set.map_err(CopyError::Write),
            },
            Made::Stream(stream) => stream.fill_to(size).map_err(CopyError::Write),
            Made::Other(_) => Ok(()),
        }
    }

    fn share(&mut self, _: &Made, _: (&Volume, FileId)) -> Result<bool, CopyError> {
        Ok(false)
    }

    fn symlink(&mut self, parent: &OwnedFd, name: &[u8], target: &[u8]) -> Result<Made, CopyError> {
        dest::symlink(parent, name, target, &self.images)?;
        Ok(Made::Other(dest::refer(parent, name)?))
    }

    fn node(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        attributes: &Attributes,
    ) -> Result<Made, CopyError> {
        let kind = match attributes.kind {
            FileKind::CharDevice => FileType::CharacterDevice,
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::Socket => FileType::Socket,
            _ => FileType::Fifo,
        };
        let device = match kind {
            FileType::CharacterDevice | FileType::BlockDevice => {
                let device = attributes.file.device;
                rustix::fs::makedev(device.major, device.minor)
            }
            _ => 0,
        };
        dest::node(parent, name, kind, device, &self.images)?;
        Ok(Made::Other(dest::refer(parent, name)?))
    }

    fn link_to(&self, dir: Vec<u8>, name: &[u8], _: &Made) -> FirstName {
        FirstName {
            dir,
            name: name.to_vec(),
        }
    }

    fn link(
        &mut self,
        top: &OwnedFd,
        first: &FirstName,
        parent: &OwnedFd,
        name: &[u8],
    ) -> Result<(), CopyError> {
        let images = &self.images;
        Ok(dest::link(
            top,
            &first.dir,
            &first.name,
            parent,
            name,
            images,
        )?)
    }

    fn keep(&mut self, file: &Made, attributes: &Attributes) -> Vec<CopyError> {
        let problems = match file {
            Made::File(file) => self.metadata.apply(file, Handle::Open, attributes),
            Made::Stream(_) => Vec::new(),
            Made::Other(fd) => self.metadata.apply(fd, Handle::Reference, attributes),
        };
        problems.into_iter().map(CopyError::from).collect()
    }

    fn keep_directory(&mut self, dir: &OwnedFd, attributes: &Attributes) -> Vec<CopyError> {
        let problems = self.metadata.apply(dir, Handle::Open, attributes);
        problems.into_iter().map(CopyError::from).collect()
    }
}
