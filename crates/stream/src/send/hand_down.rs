//! Attributes of directories that new files in them inherit.
//!
//! A file created at the receiver must not inherit them: in the snapshot it may have been created earlier or
//! elsewhere.
//!
//! Invariants
//! - INHERIT-1: when something is created in a directory, the receiver's directory has no such attribute. They are
//!   restored after the last creation.

use super::error::Result;
use super::inherited::{HANDED_DOWN, Inherited};
use super::job::Job;
use super::receiver::Dir;
use super::xattrs::settable;
use crate::format::Command;

/// Maximum number of remembered directories without such attributes.
const MAX_PLAIN: usize = 1 << 16;

impl Job<'_> {
    /// Removes such attributes from a directory before something is created in it.
    pub(super) fn bare(&mut self, dir: u64) -> Result<()> {
        // A stream without data is for inspection, and must show only differences.
        let Some(old) = self.old.filter(|_| !self.options.no_data) else {
            return Ok(());
        };
        let inherited = &mut self.inherited;
        if inherited.plain.contains(&dir) || inherited.bared.contains(dir)? {
            return Ok(());
        }
        let mut is_bared = false;
        if self.is_kept_dir(dir)? {
            for name in HANDED_DOWN {
                if old.xattr(dir, name)?.is_some() {
                    is_bared = true;
                    let path = &self.dir_path(Dir::New(dir))?;
                    self.write(&Command::RemoveXattr { path, name })?;
                }
            }
        }
        let inherited = &mut self.inherited;
        if is_bared {
            inherited.bared.insert(dir)?;
            return inherited.note(dir);
        }
        if inherited.plain.len() >= MAX_PLAIN {
            inherited.plain.clear();
        }
        inherited.plain.insert(dir);
        Ok(())
    }

    /// Sets these attributes of all directories after the last creation.
    pub(super) fn hand_down(&mut self) -> Result<()> {
        // INHERIT-1
        let none = Inherited::new(&self.scratch_dir);
        let Inherited {
            mut bared, changed, ..
        } = std::mem::replace(&mut self.inherited, none);
        changed.into_each(|dir| {
            let keeps_old = self.is_kept_dir(dir)? && !bared.contains(dir)?;
            let old = self.old.filter(|_| keeps_old);
            let path = &self.dir_path(Dir::New(dir))?;
            for name in HANDED_DOWN {
                let before = old.map_or(Ok(None), |old| old.xattr(dir, name))?;
                match self.new.xattr(dir, name)? {
                    after if after == before => {}
                    None => self.write(&Command::RemoveXattr { path, name })?,
                    Some(value) => {
                        let value = settable(name, &value);
                        self.write(&Command::SetXattr { path, name, value })?;
                    }
                }
            }
            Ok(())
        })
    }
}
