//! A tar archive as a source.
//!
//! Members may have any order and may replace each other. Therefore all of them are read before the walk through the
//! resulting tree. In a seekable archive, only headers are read before the walk, and data during it. From a pipe, data
//! is placed as it arrives. If that differs from the order of the walk, the data is moved to a temporary file and
//! placed again. The order of an archive's members therefore does not affect the volume.
//!
//! Memory: parts of the budget for the tree (`names`), and for attributes, link targets and inline contents.
//!
//! Not here: the format of archives (`crate::archive`).

mod contents;
mod named;
mod names;
mod node;
mod replay;
mod stored;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ubtrfs_format::item::Times;

use self::contents::{MemberData, read_stream};
use self::names::Names;
use self::node::Stored;
use self::replay::Replay;
use self::stored::StoredLog;
use super::LeftOutAcls;
use super::data_space::DataSpace;
use super::encode::{Coding, Part};
use super::error::FillError;
use super::marks::Marks;
use super::scratch::Scratch;
use super::source::Attributes;
use super::watch::FillWatch;
use crate::archive::{Member, MemberBody, Members, OwnerNames};
use crate::error::MkfsError;

/// An archive before the walk.
#[derive(Debug)]
pub(super) struct Archive {
    members: Members<'static>,
    names: Names,
    stored: StoredLog,
    coding: Coding,
    owners: OwnerNames,
    left_out: Option<LeftOutAcls>,
}

impl Archive {
    pub(super) fn new(
        members: Members<'static>,
        marks: Marks,
        coding: Coding,
        (made, owners): (Times, OwnerNames),
        scratch: &Scratch,
    ) -> Result<Archive, FillError> {
        Ok(Archive {
            members,
            names: Names::new(marks, made, scratch)?,
            stored: StoredLog::new(scratch),
            coding,
            owners,
            left_out: None,
        })
    }

    /// Returns whether data can be read later.
    pub(super) fn is_seekable(&self) -> bool {
        self.members.stream.file().is_some()
    }

    /// Reads all members of a seekable archive.
    pub(super) fn scan(&mut self, watch: &mut FillWatch<'_>) -> Result<(), FillError> {
        while let Some(member) = self.members.next_member()? {
            watch.poll()?;
            self.visit(member, None)?;
        }
        Ok(self.names.finish()?)
    }

    /// Reads all members, and places their data.
    pub(super) fn receive(
        &mut self,
        data: &mut DataSpace<'_>,
        watch: &mut FillWatch<'_>,
    ) -> Result<(), FillError> {
        while let Some(member) = self.members.next_member()? {
            watch.begin(|| PathBuf::from(OsStr::from_bytes(&member.path)))?;
            self.visit(member, Some((data, watch)))?;
            if data.is_over() {
                self.coding.skip_contents();
            }
        }
        // Read the rest as well, so that the writer does not get EPIPE.
        self.members.drain()?;
        watch.end_files();
        Ok(self.names.finish()?)
    }

    /// Begins the walk of the tree. Moves data to a temporary file if it was placed in another order.
    pub(super) fn replay(
        self,
        data: &mut DataSpace<'_>,
        scratch: &Scratch,
    ) -> Result<Replay, FillError> {
        let file = self.members.stream.file().cloned();
        let mut replay = Replay::new(self.names, self.stored, self.coding, file)?;
        replay.left_out = self.left_out;
        if !data.is_over() && !replay.is_in_place()? {
            replay.put_aside(data, scratch)?;
            data.restart();
        }
        Ok(replay)
    }

    fn leave_out(&mut self, path: &[u8]) {
        let first = || LeftOutAcls {
            path: PathBuf::from(OsStr::from_bytes(path)),
            files: 0,
        };
        self.left_out.get_or_insert_with(first).files += 1;
    }

    fn visit(
        &mut self,
        member: Member,
        placing: Option<(&mut DataSpace<'_>, &mut FillWatch<'_>)>,
    ) -> Result<(), FillError> {
        let path = &member.path;
        member.check().map_err(|limit| FillError::Limit {
            path: PathBuf::from(OsStr::from_bytes(path)),
            limit,
        })?;
        let (attributes, is_whole) = &Attributes::of(&member, &self.owners);
        if let MemberBody::HardLink(target) = &member.body {
            return Ok(self.names.link(path, attributes, target)?);
        }
        if !is_whole {
            self.leave_out(path);
        }
        let id = self.names.place(path, attributes, false)?;
        let xattrs_at = self.stored.push_xattrs(&attributes.xattrs)?;
        let flags = self.names.node(id).map_err(put_aside)?.flags;
        let mut stored = Stored::Nothing;
        let mut file = (0, None);
        match member.body {
            MemberBody::Symlink(target) => {
                stored = self.stored.push_target(&target)?;
            }
            MemberBody::File { size, parts } => {
                let sparse = parts.as_deref();
                let parts_at = sparse
                    .map(|parts| self.stored.push_parts(parts))
                    .transpose()?;
                let at = self.members.stream.position();
                stored = match placing {
                    None => Stored::InArchive { at },
                    Some((data, watch)) => {
                        let mut contents = MemberData::new(size, parts);
                        let mut encoder = self.coding.encoder(flags);
                        let mut place = self.stored.placing();
                        let (stream, offset) = (&mut self.members.stream, member.offset);
                        let mut emit = |part| match part {
                            Part::Inline(inline) => {
                                place.inline(&inline)?;
                                Ok(watch.advance(inline.file_bytes)?)
                            }
                            Part::Piece(piece) => {
                                data.place(&piece, &mut |extent| place.extent(extent))?;
                                Ok(watch.advance(piece.file_bytes)?)
                            }
                        };
                        let read = &mut read_stream(stream, offset);
                        contents.encode(read, &mut encoder, &mut emit)?;
                        place.finish(encoder.is_incompressible())?
                    }
                };
                file = (size, parts_at);
            }
            MemberBody::Directory | MemberBody::Special | MemberBody::HardLink(_) => {}
        }
        let stored = self.names.update(id, |node| {
            node.xattrs_at = xattrs_at;
            node.stored = stored;
            (node.size, node.parts) = file;
        });
        stored.map_err(put_aside)
    }
}

fn put_aside(error: io::Error) -> FillError {
    MkfsError::Scratch(error).into()
}
