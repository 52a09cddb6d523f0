//! Removing files, and directories with all that is in them.
//!
//! What cannot be removed is reported and the rest is removed, unless it would fail for the same reason.

use std::io::Write;

use ubtrfs_engine::{Error, FileId, FileKind, Volume};

use crate::final_error::is_final_error;
use crate::presentation::console::Console;
use crate::presentation::quoting::{Escaped, ShellQuoted};
use crate::volume_access::place::Place;
use crate::walk::{Filter, Order, Step, Walk};

/// How far a removal is; the message is the file.
pub(crate) const REMOVAL_PROGRESS: &str = "{spinner} {human_pos} removed {wide_msg}";

#[derive(Debug)]
pub(crate) struct Removal<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) console: &'a mut Console,
    /// Name each file.
    pub(crate) verbose: bool,
}

impl Removal<'_> {
    /// Removes what has a name, with all below. `shown` is its path. An error is one that ends the command.
    pub(crate) fn tree(&mut self, place: &Place, shown: &[u8]) -> Result<(), Error> {
        let Some(id) = place.existing else {
            return self.report(shown, Error::NotFound);
        };
        let is_dir = match self.volume.attr(id) {
            Ok(attr) => attr.kind == FileKind::Directory,
            Err(error) => return self.report(shown, error),
        };
        if !is_dir {
            return self.file(place.dir, &place.name, shown);
        }
        self.contents(id, shown)?;
        self.directory(place.dir, &place.name, shown)
    }

    fn contents(&mut self, top: FileId, shown: &[u8]) -> Result<(), Error> {
        let filter = Filter::default();
        let mut walk = Walk::new(self.volume, top, shown, Order::Index, filter);
        // Each directory on the way, and the name of the next in it.
        let mut way: Vec<(FileId, Vec<u8>)> = vec![(top, Vec::new())];
        while let Some(step) = walk.next() {
            match step {
                Step::Entry(entry) => {
                    let Some((dir, below)) = way.last_mut() else {
                        return Ok(());
                    };
                    if entry.kind != FileKind::Directory {
                        let dir = *dir;
                        self.file(dir, &entry.name, walk.path())?;
                    } else {
                        below.clone_from(&entry.name);
                        match walk.enter(&entry) {
                            Ok(()) => way.push((entry.id, Vec::new())),
                            Err(error) => self.complain(walk.path(), error),
                        }
                    }
                }
                Step::Leave => {
                    way.pop();
                    if let Some((dir, name)) = way.last() {
                        let (dir, name) = (*dir, name.clone());
                        self.directory(dir, &name, walk.path())?;
                    }
                }
                Step::Failed(error) => self.report(walk.path(), error)?,
            }
        }
        Ok(())
    }

    fn file(&mut self, dir: FileId, name: &[u8], shown: &[u8]) -> Result<(), Error> {
        match self.volume.unlink(dir, name) {
            Ok(()) => self.tell("removed", shown),
            Err(error) => self.report(shown, error),
        }
    }

    fn directory(&mut self, dir: FileId, name: &[u8], shown: &[u8]) -> Result<(), Error> {
        match self.volume.rmdir(dir, name) {
            Ok(()) => self.tell("removed directory", shown),
            Err(error) => self.report(shown, error),
        }
    }

    fn tell(&mut self, done: &str, shown: &[u8]) -> Result<(), Error> {
        if let Some(bar) = self.console.progress() {
            bar.inc(1);
            bar.set_message(Escaped(shown).to_string());
        }
        if self.verbose {
            let _ = writeln!(self.console.out, "{done} {}", ShellQuoted(shown));
        }
        Ok(())
    }

    fn report(&mut self, shown: &[u8], error: Error) -> Result<(), Error> {
        if is_final_error(&error) {
            return Err(error);
        }
        self.complain(shown, error);
        Ok(())
    }

    fn complain(&mut self, shown: &[u8], error: impl std::fmt::Display) {
        self.console
            .error(format_args!("cannot remove '{}': {error}", Escaped(shown)));
    }
}
