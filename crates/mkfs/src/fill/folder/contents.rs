//! Reading of regular files: data in blocks, without holes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::FolderOptions;
use super::open_dir::OpenDir;
use crate::fill::encode::{Encoder, FileData, Part, Shared};
use crate::fill::error::FillError;
use crate::fill::source::{Deferred, LinkId};

/// An open regular file.
#[derive(Debug)]
pub(super) struct OpenFile<'a> {
    pub(super) dir: &'a OpenDir,
    pub(super) name: &'a [u8],
    pub(super) file: Arc<File>,
    /// The size when the file was opened.
    pub(super) size: u64,
}

impl OpenFile<'_> {
    /// Reads and encodes the whole file.
    pub(super) fn read(
        &mut self,
        sharing: bool,
        encoder: &mut Encoder<'_>,
        emit: &mut dyn FnMut(Part) -> Result<(), FillError>,
    ) -> Result<(), FillError> {
        let (size, sector) = (self.size, encoder.sectorsize());
        let file = Arc::clone(&self.file);
        encoder.file(size, self, &mut |mut part| {
            if let (true, Part::Piece(piece)) = (sharing, &mut part) {
                let in_file = piece.file_bytes.min(size - piece.offset);
                // Compressed bytes cannot be shared with the file.
                let is_same = piece.disk_bytes == piece.file_bytes;
                piece.shared = is_same.then(|| Shared {
                    file: Arc::clone(&file),
                    offset: piece.offset,
                    len: in_file - in_file % sector,
                });
            }
            emit(part)
        })
    }
}

impl FileData for OpenFile<'_> {
    fn fill(&mut self, buf: &mut [u8], at: u64) -> Result<(), FillError> {
        match self.file.read_exact_at(buf, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let found = self.file.metadata().map_or(at, |metadata| metadata.size());
                Err(FillError::Shrank {
                    path: self.dir.path_of(self.name),
                    expected: self.size,
                    found,
                })
            }
            read => read.map_err(|error| self.dir.failed("read", self.name, error)),
        }
    }

    fn next_data(&mut self, from: u64) -> Result<Option<Range<u64>>, FillError> {
        if from >= self.size {
            return Ok(None);
        }
        let failed = |errno: Errno| self.dir.failed("seek in", self.name, errno);
        // Most files have no hole, which a single call shows.
        if from == 0 {
            match seek(&self.file, SeekFrom::Hole(0)) {
                Ok(hole) if hole >= self.size => return Ok(Some(0..self.size)),
                Ok(_) => {}
                // The file system does not report holes.
                Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                    return Ok(Some(0..self.size));
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
        let start = match seek(&self.file, SeekFrom::Data(from)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return Ok(Some(from..self.size));
            }
            Err(errno) => return Err(failed(errno)),
        };
        if start >= self.size {
            return Ok(None);
        }
        let end = seek(&self.file, SeekFrom::Hole(start)).map_err(failed)?;
        // Limited to the file size as of the opening.
        Ok(Some(start..end.clamp(start + 1, self.size)))
    }
}

/// A file that may already have been found under another name.
#[derive(Debug)]
pub(super) struct DeferredFile {
    pub(super) dir: Arc<OpenDir>,
    pub(super) name: Vec<u8>,
    pub(super) id: LinkId,
    pub(super) size: u64,
    pub(super) options: Arc<FolderOptions>,
}

impl Deferred for DeferredFile {
    fn read(
        self: Box<Self>,
        encoder: &mut Encoder<'_>,
        emit: &mut dyn FnMut(Part) -> Result<(), FillError>,
    ) -> Result<(), FillError> {
        let file = self.dir.open_file(&self.name)?;
        let metadata = file.metadata();
        let metadata = metadata.map_err(|error| self.dir.failed("examine", &self.name, error))?;
        if (metadata.dev(), metadata.ino()) != (self.id.device, self.id.number) {
            let path = self.dir.path_of(&self.name);
            return Err(FillError::Replaced { path });
        }
        let mut file = OpenFile {
            dir: &self.dir,
            name: &self.name,
            file: Arc::new(file),
            size: self.size,
        };
        file.read(self.options.sharing, encoder, emit)
    }
}
