//! Attributes of directories that new files in them inherit.
//!
//! A file created at the receiver must not inherit them: in the snapshot it may have been created earlier or
//! elsewhere.
//!
//! Invariants
//! - INHERIT-1: when something is created in a directory, the receiver's directory has no such attribute. They are
//!   restored after the last creation.

use std::collections::HashSet;

use ubtrfs_format::item::acl;
use ubtrfs_spill::ScratchDir;

use super::error::Result;
use super::job::{Dir, Job};
use super::spilled::{FirstSeen, InodeSet};
use super::xattrs::settable;
use crate::format::Command;

const HANDED_DOWN: [&[u8]; 2] = [acl::DEFAULT, b"btrfs.compression"];
/// Maximum number of remembered directories without such attributes.
const MAX_PLAIN: usize = 1 << 16;

/// The directories whose attributes are set at the end.
#[derive(Debug)]
pub(super) struct Inherited {
    /// Directories whose attributes were removed at the receiver, although the old snapshot has them.
    bared: InodeSet,
    /// Some of the directories without such attributes in the old snapshot.
    plain: HashSet<u64>,
    /// Directories whose attributes differ between the snapshots, or were removed.
    changed: FirstSeen,
}

pub(super) fn is_handed_down(name: &[u8]) -> bool {
    HANDED_DOWN.contains(&name)
}

impl Inherited {
    pub(super) fn new(scratch_dir: &ScratchDir) -> Inherited {
        Inherited {
            bared: InodeSet::new(scratch_dir),
            plain: HashSet::new(),
            changed: FirstSeen::new(scratch_dir),
        }
    }

    /// Notes that an inheritable attribute of a directory differs.
    pub(super) fn note(&mut self, dir: u64) -> Result<()> {
        Ok(self.changed.add(dir)?)
    }
}

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
