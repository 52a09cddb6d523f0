//! Attributes of directories that new files in them inherit: cleared while files are created, and set at the end.
//!
//! A file created at the receiver must not inherit them: in the snapshot it may have been created earlier or
//! elsewhere.
//!
//! Invariants
//! - INHERIT-1: when something is created in a directory, the receiver's directory has no such attribute. They are
//!   restored after the last creation.

use super::error::Result;
use super::inherited::{INHERITABLE, Inherited};
use super::job::Job;
use super::receiver::Dir;
use super::xattrs::settable;
use crate::format::Command;

/// Maximum number of remembered directories without inheritable attributes.
const MAX_PLAIN: usize = 1 << 16;

impl Job<'_> {
    /// Removes inheritable attributes from a directory before something is created in it.
    pub(super) fn clear_inheritable(&mut self, dir: u64) -> Result<()> {
        // A stream without data is for inspection, and must show only differences.
        let Some(old) = self.old.filter(|_| !self.options.no_data) else {
            return Ok(());
        };
        let inherited = &mut self.inherited;
        if inherited.plain.contains(&dir) || inherited.cleared.contains(dir)? {
            return Ok(());
        }
        let mut is_cleared = false;
        if self.is_kept_dir(dir)? {
            for name in INHERITABLE {
                if old.xattr(dir, name)?.is_some() {
                    is_cleared = true;
                    let path = &self.dir_path(Dir::New(dir))?;
                    self.write(&Command::RemoveXattr { path, name })?;
                }
            }
        }
        let inherited = &mut self.inherited;
        if is_cleared {
            inherited.cleared.insert(dir)?;
            return inherited.note(dir);
        }
        if inherited.plain.len() >= MAX_PLAIN {
            inherited.plain.clear();
        }
        inherited.plain.insert(dir);
        Ok(())
    }

    /// Sets the inheritable attributes of all directories after the last creation.
    pub(super) fn set_inheritable(&mut self) -> Result<()> {
        // INHERIT-1
        let none = Inherited::new(&self.scratch_dir);
        let Inherited {
            mut cleared,
            changed,
            ..
        } = std::mem::replace(&mut self.inherited, none);
        changed.into_each(|dir| {
            let keeps_old = self.is_kept_dir(dir)? && !cleared.contains(dir)?;
            let old = self.old.filter(|_| keeps_old);
            let path = &self.dir_path(Dir::New(dir))?;
            for name in INHERITABLE {
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
