//! The temporary file of a collection, created when it is first written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::scratch_dir::{ScratchDir, ScratchError};

#[derive(Debug)]
pub(crate) struct SpillFile {
    scratch_dir: ScratchDir,
    open: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    folder: PathBuf,
}

impl SpillFile {
    pub(crate) fn new(scratch_dir: &ScratchDir) -> SpillFile {
        SpillFile {
            scratch_dir: scratch_dir.clone(),
            open: None,
        }
    }

    pub(crate) fn exists(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn scratch_dir(&self) -> &ScratchDir {
        &self.scratch_dir
    }

    pub(crate) fn write_all_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let (file, folder) = self.scratch_dir.create()?;
                self.open.insert(OpenFile { file, folder })
            }
        };
        open.file
            .write_all_at(bytes, at)
            .map_err(|error| open.named(error))
    }

    pub(crate) fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let Some(open) = &self.open else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        open.file
            .read_exact_at(buf, at)
            .map_err(|error| open.named(error))
    }

    /// Fills `buf` from `at`. Bytes that were never written are zero.
    pub(crate) fn read_sparse_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let mut done = 0;
        if let Some(open) = &self.open {
            while done < buf.len() {
                let read = open.file.read_at(&mut buf[done..], at + done as u64);
                match read.map_err(|error| open.named(error))? {
                    0 => break,
                    len => done += len,
                }
            }
        }
        buf[done..].fill(0);
        Ok(())
    }
}

impl OpenFile {
    /// Adds the folder to an error of the file.
    fn named(&self, error: io::Error) -> io::Error {
        let folder = self.folder.clone();
        ScratchError::File { folder, error }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SCRATCH-3
    #[test]
    fn error_of_a_full_disk_names_the_folder() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut file = SpillFile::new(&ScratchDir::named("/small"));
        file.open = Some(OpenFile {
            file: full,
            folder: PathBuf::from("/small"),
        });
        let error = file.write_all_at(b"bytes", 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let message = error.to_string();
        assert!(
            message.starts_with("temporary file in /small: No space left"),
            "{message}"
        );
    }
}
