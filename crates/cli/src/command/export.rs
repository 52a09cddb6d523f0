//! `ubtrfs export --tar`: a directory or file as a tar archive on standard output.
//!
//! Invariants
//! - EXPORT-1: the archive stays sound whatever cannot be read: a damaged range is archived as zeros
//!   and reported, a file that cannot be examined is left out and reported.
//! - EXPORT-2: memory is bounded by `MAX_SPARSE_PARTS` of one file, and the files with several names of which
//!   not all were met yet.
//! - EXPORT-3: no member's name leads out of the directory that is archived.

use std::collections::HashMap;
use std::io::{BufWriter, IsTerminal};
use std::ops::Range;

use anyhow::bail;
use ubtrfs_engine::{Attr, FileId, FileKind, Volume};

use crate::file_data::{DataRanges, READ_BYTES, read_past_damage};
use crate::presentation::console::{COPY_PROGRESS, Console};
use crate::presentation::quoting::Escaped;
use crate::rdev::DeviceNumber;
use crate::tar::{Member, MemberKind, TarWriter};
use crate::volume_access::location::{Location, Opened, VolumeOptions};
use crate::walk::{Filter, Order, Step, Walk, is_component};

/// A file with more parts between holes is left out: the holes may be longer than any disk.
const MAX_SPARSE_PARTS: usize = 1 << 20;

/// Write a directory or file as an archive to standard output
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// As a tar archive (POSIX PAX, with extended attributes, ACLs, times in ns and sparse files)
    #[arg(long, required = true)]
    tar: bool,
    #[arg(value_name = "IMAGE[:/PATH]")]
    location: Location,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Export {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        if std::io::stdout().is_terminal() {
            bail!("refusing to write an archive to a terminal");
        }
        let opened = self.volume.open(&self.location)?;
        let out = console.data_out()?;
        console.start_progress(COPY_PROGRESS);
        let mut export = Exporter {
            volume: &opened.volume,
            tar: TarWriter::new(out),
            links: HashMap::new(),
            console,
            buffer: vec![0; READ_BYTES],
        };
        export.all(&self.location, &opened)?;
        Ok(export.tar.finish()?)
    }
}

struct Exporter<'a> {
    volume: &'a Volume,
    tar: TarWriter<BufWriter<std::fs::File>>,
    /// Where a file with several names was archived, and how many of the names are still to come.
    links: HashMap<FileId, (Vec<u8>, u32)>,
    console: &'a mut Console,
    buffer: Vec<u8>,
}

impl Exporter<'_> {
    /// Members are named from the last name of the path, or from "." for the root.
    fn all(&mut self, location: &Location, opened: &Opened) -> anyhow::Result<()> {
        let name = location.file_name().unwrap_or(b".").to_vec();
        let kind = self.volume.attr(opened.target)?.kind;
        self.member(&name, opened.target)?;
        if kind != FileKind::Directory {
            return Ok(());
        }
        let filter = Filter::default();
        let mut walk = Walk::new(self.volume, opened.target, &name, Order::Index, filter);
        while let Some(step) = walk.next() {
            match step {
                Step::Entry(entry) => {
                    if !is_component(&entry.name) {
                        self.complain(
                            walk.path(),
                            "left out: not a name that a directory can hold",
                        );
                        continue;
                    }
                    let archived = self.member(walk.path(), entry.id)?;
                    if archived == Some(FileKind::Directory)
                        && let Err(error) = walk.enter(&entry)
                    {
                        self.complain(walk.path(), error);
                    }
                }
                Step::Leave => {}
                Step::Failed(error) => self.complain(walk.path(), error),
            }
        }
        Ok(())
    }

    fn complain(&mut self, path: &[u8], error: impl std::fmt::Display) {
        self.console
            .error(format_args!("'{}': {error}", Escaped(path)));
    }

    /// Archives one file and tells its kind; None if it had to be left out. An error is one of the output.
    fn member(&mut self, path: &[u8], id: FileId) -> anyhow::Result<Option<FileKind>> {
        let facts = self
            .volume
            .attr(id)
            .and_then(|attr| Ok((attr, self.volume.xattrs(id)?)));
        let (attr, xattrs) = match facts {
            Ok(facts) => facts,
            Err(error) => {
                self.complain(path, error);
                return Ok(None);
            }
        };
        if let Some(bar) = self.console.progress() {
            bar.set_message(Escaped(path).to_string());
        }
        if attr.kind != FileKind::Directory && attr.nlink > 1 && self.link(path, id, &attr)? {
            return Ok(Some(attr.kind));
        }
        let mut member = member_of(path, &attr, &xattrs);
        match attr.kind {
            FileKind::Directory => {
                let path = [path, b"/"].concat();
                member.path = &path;
                self.tar.begin(&member)?;
            }
            FileKind::Symlink => match self.volume.readlink(id) {
                Ok(target) => {
                    member.kind = MemberKind::Symlink(&target);
                    self.tar.begin(&member)?;
                }
                Err(error) => {
                    self.complain(path, error);
                    return Ok(None);
                }
            },
            FileKind::Regular => {
                if !self.file(member, id, attr.size)? {
                    return Ok(None);
                }
            }
            FileKind::CharDevice | FileKind::BlockDevice | FileKind::Fifo => {
                let device = DeviceNumber::from_inode(attr.rdev);
                member.kind = match attr.kind {
                    FileKind::CharDevice => MemberKind::CharDevice(device),
                    FileKind::BlockDevice => MemberKind::BlockDevice(device),
                    _ => MemberKind::Fifo,
                };
                self.tar.begin(&member)?;
            }
            FileKind::Socket => {
                self.console
                    .warning(format_args!("'{}': socket left out", Escaped(path)));
                return Ok(None);
            }
        }
        if attr.kind != FileKind::Directory && attr.nlink > 1 {
            self.links.insert(id, (path.to_vec(), attr.nlink - 1));
        }
        Ok(Some(attr.kind))
    }

    /// Archives a further name of a file that is in the archive; false if it is not.
    fn link(&mut self, path: &[u8], id: FileId, attr: &Attr) -> anyhow::Result<bool> {
        let Some((first, remaining)) = self.links.get_mut(&id) else {
            return Ok(false);
        };
        let mut member = member_of(path, attr, &[]);
        member.kind = MemberKind::HardLink(first);
        self.tar.begin(&member)?;
        *remaining -= 1;
        if *remaining == 0 {
            self.links.remove(&id);
        }
        Ok(true)
    }

    /// Archives a regular file; false if it was left out.
    fn file(&mut self, member: Member<'_>, id: FileId, size: u64) -> anyhow::Result<bool> {
        let Some(map) = self.sparse_parts(member.path, id, size) else {
            self.complain(member.path, "left out: too many holes");
            return Ok(false);
        };
        let whole: Vec<Range<u64>> = std::iter::once(0..size).collect();
        let sparse = map != whole && size > 0;
        let kind = MemberKind::File {
            size,
            map: sparse.then_some(&map),
        };
        let member = Member { kind, ..member };
        self.tar.begin(&member)?;
        let mut damage = Vec::new();
        for part in if sparse { &map } else { &whole } {
            let mut at = part.start;
            while at < part.end {
                let len = (part.end - at).min(READ_BYTES as u64) as usize;
                read_past_damage(self.volume, id, at, &mut self.buffer[..len], &mut damage);
                for damage in damage.drain(..) {
                    let Range { start, end } = damage.range;
                    let error = damage.error;
                    self.complain(
                        member.path,
                        format_args!("bytes {start} to {end} archived as zeros: {error}"),
                    );
                }
                self.tar.data(&self.buffer[..len])?;
                if let Some(bar) = self.console.progress() {
                    bar.inc(len as u64);
                }
                at += len as u64;
            }
        }
        self.tar.pad()?;
        Ok(true)
    }

    /// The parts of a file that hold data, in whole sectors as extents are. GNU tar wants a part of length 0
    /// at the end of a file that ends in a hole. None if there are too many.
    fn sparse_parts(&mut self, path: &[u8], id: FileId, size: u64) -> Option<Vec<Range<u64>>> {
        let mut parts: Vec<Range<u64>> = Vec::new();
        let mut ranges = DataRanges::of(self.volume, id);
        loop {
            match ranges.next() {
                Ok(Some(range)) if parts.len() + 1 < MAX_SPARSE_PARTS => match parts.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => parts.push(range),
                },
                Ok(Some(_)) => return None,
                Ok(None) => break,
                Err(error) => {
                    self.complain(path, error);
                    break;
                }
            }
        }
        if parts.last().is_none_or(|last| last.end < size) {
            parts.push(size..size);
        }
        Some(parts)
    }
}

fn member_of<'a>(path: &'a [u8], attr: &Attr, xattrs: &'a [(Vec<u8>, Vec<u8>)]) -> Member<'a> {
    Member {
        path,
        kind: MemberKind::Directory,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        mtime: attr.mtime,
        atime: attr.atime,
        ctime: attr.ctime,
        xattrs,
    }
}
