//! Removing files, and directories with all that is in them.
//!
//! What cannot be removed is reported, and the rest is removed unless the observer ends the removal.
//!
//! Memory: that of a walk (`walk`), and a name for each level.

use ubtrfs_engine::{Error, FileId, FileKind, Volume};

use crate::transfer::walk::{Filter, Order, Refused, Step, Walk};

/// Something that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    File,
    Directory,
}

/// A listener to a removal. Paths begin with that of the top, as the caller wrote it: any bytes.
pub trait RemovalObserver {
    /// What ends the removal early.
    type Stop;

    /// Hears what was removed.
    fn removed(&mut self, path: &[u8], what: Removed) {
        let _ = (path, what);
    }

    /// Hears what could not be removed.
    ///
    /// # Errors
    ///
    /// An error ends the removal.
    fn failed(&mut self, failure: RemovalFailure<'_>) -> Result<(), Self::Stop>;
}

/// A step of a removal that failed.
#[derive(Debug)]
pub struct RemovalFailure<'a> {
    pub path: &'a [u8],
    pub step: RemovalStep,
    pub error: RemovalError,
}

/// A step of a removal.
#[derive(Clone, Copy, Debug)]
pub enum RemovalStep {
    /// Looking at what is to be removed.
    Find,
    /// Listing a directory.
    List,
    /// Entering a directory. Nothing in it is removed then.
    Enter,
    /// Removing a file.
    Unlink,
    /// Removing a directory that was emptied.
    Rmdir,
}

/// The reason why something is not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    #[error(transparent)]
    Walk(Refused),
    #[error(transparent)]
    Engine(#[from] Error),
}

impl From<Refused> for RemovalError {
    fn from(refused: Refused) -> RemovalError {
        match refused {
            Refused::Engine(error) => RemovalError::Engine(error),
            refused => RemovalError::Walk(refused),
        }
    }
}

/// A removal of files and trees from a volume.
#[derive(Debug)]
pub struct Removal<'a, O> {
    volume: &'a Volume,
    observer: &'a mut O,
}

impl<'a, O: RemovalObserver> Removal<'a, O> {
    /// A removal that tells `observer` what becomes of each file.
    pub fn new(volume: &'a Volume, observer: &'a mut O) -> Removal<'a, O> {
        Removal { volume, observer }
    }

    /// Removes what `name` in `dir` means, with all below. `shown` is its path for messages.
    ///
    /// # Errors
    ///
    /// The error with which the observer ended it.
    pub fn tree(&mut self, dir: FileId, name: &[u8], shown: &[u8]) -> Result<(), O::Stop> {
        let found = self.volume.lookup(dir, name);
        let found = found.and_then(|id| id.ok_or(Error::NotFound));
        let kind = found.and_then(|id| Ok((id, self.volume.attr(id)?.kind)));
        match kind {
            Ok((id, FileKind::Directory)) => {
                self.contents(id, shown)?;
                self.directory(dir, name, shown)
            }
            Ok(_) => self.file(dir, name, shown),
            Err(error) => self.report(shown, RemovalStep::Find, error),
        }
    }

    /// Removes all that is in the directory `top`. `shown` is its path for messages.
    ///
    /// # Errors
    ///
    /// The error with which the observer ended it.
    pub fn contents(&mut self, top: FileId, shown: &[u8]) -> Result<(), O::Stop> {
        let filter = Filter::default();
        let mut walk = Walk::new(self.volume, top, shown, Order::Index, filter);
        // Each directory on the way, and the name of the next in it.
        let mut way: Vec<(FileId, Vec<u8>)> = vec![(top, Vec::new())];
        while let Some(step) = walk.next_step() {
            match step {
                Step::Entry(entry) => {
                    let Some((dir, below)) = way.last_mut() else {
                        return Ok(());
                    };
                    let dir = *dir;
                    if entry.kind != FileKind::Directory {
                        self.file(dir, &entry.name, walk.path())?;
                        continue;
                    }
                    below.clone_from(&entry.name);
                    match walk.enter(&entry) {
                        Ok(()) => way.push((entry.id, Vec::new())),
                        Err(error) => {
                            self.report(walk.path(), RemovalStep::Enter, error)?;
                        }
                    }
                }
                Step::Leave => {
                    way.pop();
                    if let Some((dir, name)) = way.last() {
                        self.directory(*dir, name, walk.path())?;
                    }
                }
                Step::Failed(error) => self.report(walk.path(), RemovalStep::List, error)?,
            }
        }
        Ok(())
    }

    fn file(&mut self, dir: FileId, name: &[u8], shown: &[u8]) -> Result<(), O::Stop> {
        match self.volume.unlink(dir, name) {
            Ok(()) => {
                self.observer.removed(shown, Removed::File);
                Ok(())
            }
            Err(error) => self.report(shown, RemovalStep::Unlink, error),
        }
    }

    fn directory(&mut self, dir: FileId, name: &[u8], shown: &[u8]) -> Result<(), O::Stop> {
        match self.volume.rmdir(dir, name) {
            Ok(()) => {
                self.observer.removed(shown, Removed::Directory);
                Ok(())
            }
            Err(error) => self.report(shown, RemovalStep::Rmdir, error),
        }
    }

    fn report(
        &mut self,
        path: &[u8],
        step: RemovalStep,
        error: impl Into<RemovalError>,
    ) -> Result<(), O::Stop> {
        let error = error.into();
        self.observer.failed(RemovalFailure { path, step, error })
    }
}
