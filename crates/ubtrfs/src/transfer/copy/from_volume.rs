//! A volume as the source of copies.

use std::ops::Range;

use ubtrfs_format::limits;
use ubtrfs_fs::{FileId, FileKind, Volume};

use super::CopyError;
use super::attributes::Attributes;
use super::source::{CopyStep, Data, Source, Walking};
use crate::transfer::file_data::{Damage, DataRanges, read_past_damage};
use crate::transfer::walk::{Entry, Filter, Order, Step, Walk};

/// A volume as the source of copies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromVolume<'v> {
    pub(crate) volume: &'v Volume,
}

impl Source for FromVolume<'_> {
    type File = FileId;
    type Id = FileId;

    fn attributes(&self, file: &FileId, with_xattrs: bool) -> Result<Attributes, CopyError> {
        let attr = self.volume.attr(*file)?;
        if attr.kind == FileKind::Regular {
            limits::check_file_size(attr.size)?;
        }
        let xattrs = if with_xattrs {
            self.volume.xattrs(*file)?
        } else {
            Vec::new()
        };
        Ok(Attributes::of(&attr, xattrs))
    }

    fn id(&self, file: &FileId) -> FileId {
        *file
    }

    fn link_target(&self, file: &FileId) -> Result<Vec<u8>, CopyError> {
        Ok(self.volume.readlink(*file)?)
    }

    fn open<'a>(&'a self, file: &FileId, _: u64) -> Result<Box<dyn Data + 'a>, CopyError> {
        Ok(Box::new(VolumeData {
            volume: self.volume,
            id: *file,
            ranges: DataRanges::of(self.volume, *file),
        }))
    }

    fn walk<'a>(
        &'a self,
        dir: &FileId,
        path: &[u8],
    ) -> Result<Box<dyn Walking<File = FileId> + 'a>, CopyError> {
        Ok(Box::new(VolumeWalk {
            walk: Walk::new(self.volume, *dir, path, Order::Index, Filter::default()),
            last: None,
        }))
    }

    fn in_volume(&self, file: &FileId) -> Option<(&Volume, FileId)> {
        Some((self.volume, *file))
    }
}

struct VolumeData<'v> {
    volume: &'v Volume,
    id: FileId,
    ranges: DataRanges<'v>,
}

impl Data for VolumeData<'_> {
    fn next_range(&mut self) -> Result<Option<Range<u64>>, CopyError> {
        Ok(self.ranges.next()?)
    }

    fn read(
        &mut self,
        at: u64,
        buf: &mut [u8],
        damage: &mut Vec<Damage>,
    ) -> Result<bool, CopyError> {
        Ok(read_past_damage(self.volume, self.id, at, buf, damage))
    }
}

struct VolumeWalk<'v> {
    walk: Walk<'v>,
    last: Option<Entry>,
}

impl Walking for VolumeWalk<'_> {
    type File = FileId;

    fn next(&mut self) -> Option<CopyStep<FileId>> {
        Some(match self.walk.next_step()? {
            Step::Entry(entry) => {
                let step = CopyStep::Entry {
                    name: entry.name.clone(),
                    file: entry.id,
                };
                self.last = Some(entry);
                step
            }
            Step::Leave => CopyStep::Leave,
            Step::Failed(error) => CopyStep::Failed(error.into()),
        })
    }

    fn enter(&mut self) -> Result<(), CopyError> {
        match &self.last {
            Some(entry) => Ok(self.walk.enter(entry)?),
            None => Ok(()),
        }
    }

    fn path(&self) -> &[u8] {
        self.walk.path()
    }
}
