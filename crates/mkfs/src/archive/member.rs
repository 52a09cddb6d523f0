//! Members of a tar archive: POSIX (ustar, pax), GNU and old headers, with their extensions.
//!
//! Names of users and groups are ignored, except in ACLs, because they refer to the machine that created the archive.
//!
//! Not here: the use of the members.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

use ubtrfs_format::item::acl::{self, Parsed};
use ubtrfs_format::item::{DeviceNumber, FileKind, FileTime, PreservedAttributes, Times};
use ubtrfs_format::limits::{self, LimitError};

use super::acl_text::{OwnerNames, acl_bytes};
use super::error::ArchiveError;
use super::pax::PaxRecords;
use super::sparse::{self, Part};
use super::stream::{BLOCK, TarStream};

/// Limit for the names and extended headers of a member, and for global headers. Valid archives stay below it.
const MAX_EXTENSION_BYTES: u64 = 64 << 20;

/// The position of the checksum within a header.
const SUM: Range<usize> = 148..156;

/// One file of an archive.
#[derive(Debug)]
pub struct Member {
    pub path: Vec<u8>,
    pub attributes: MemberAttributes,
    pub body: MemberBody,
    /// The offset of its header.
    pub(crate) offset: u64,
}

impl Member {
    /// Checks limits of the volume format that headers can exceed: file size and device numbers.
    pub fn check(&self) -> Result<(), LimitError> {
        if let MemberBody::File { size, .. } = self.body {
            limits::check_file_size(size)?;
        }
        let device = self.attributes.file.device;
        limits::check_device(device.major, device.minor)
    }
}

/// Name and value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// The attributes of a member, without its contents.
#[derive(Clone, Debug)]
pub struct MemberAttributes {
    /// Times that the archive lacks are the modification time.
    pub file: PreservedAttributes,
    /// Sorted by name.
    pub xattrs: Vec<Xattr>,
    /// ACLs in text form, which some writers use instead of attributes.
    pub acl_access: Option<Vec<u8>>,
    pub acl_default: Option<Vec<u8>>,
}

impl MemberAttributes {
    /// Returns the extended attributes, including ACLs that exist only as text. The flag is false if an ACL was left
    /// out, because it is invalid or names a user or group that is not in `names`.
    pub fn xattrs_with_acls(&self, names: &OwnerNames) -> (Vec<Xattr>, bool) {
        let mut xattrs = self.xattrs.clone();
        let mut is_whole = true;
        let texts = [
            (acl::ACCESS, &self.acl_access),
            (acl::DEFAULT, &self.acl_default),
        ];
        for (name, text) in texts {
            let is_there = || xattrs.iter().any(|(known, _)| known == name);
            let Some(text) = text
                .as_deref()
                .filter(|text| !text.is_empty() && !is_there())
            else {
                continue;
            };
            match acl_bytes(text, names).map(|bytes| (acl::parse(&bytes), bytes)) {
                Some((Parsed::Acl(_), bytes)) => xattrs.push((name.to_vec(), bytes)),
                _ => is_whole = false,
            }
        }
        (xattrs, is_whole)
    }
}

#[derive(Debug)]
pub enum MemberBody {
    Directory,
    /// A file with holes has data only in `parts`.
    File {
        size: u64,
        parts: Option<Vec<Part>>,
    },
    Symlink(Vec<u8>),
    /// Another name of the member with this path.
    HardLink(Vec<u8>),
    /// A device or a pipe.
    Special,
}

/// Reads the members of an archive in order.
#[derive(Debug)]
pub struct Members<'a> {
    pub(crate) stream: TarStream<'a>,
    /// The records of global headers, which apply to all later members.
    global: PaxRecords,
    /// The offsets of the first header and of the next one.
    start: u64,
    next: u64,
}

/// The extended headers before a member's own header.
#[derive(Default)]
struct Extensions {
    pax: PaxRecords,
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

impl<'a> Members<'a> {
    /// Reads a file, from its current position, or a pipe.
    ///
    /// Errors: the file's metadata cannot be read.
    pub fn open(file: File) -> Result<Members<'a>, ArchiveError> {
        Members::new(TarStream::new(file))
    }

    /// Reads an archive from a reader.
    ///
    /// Errors: the first bytes cannot be read.
    pub fn of(reader: impl Read + 'a) -> Result<Members<'a>, ArchiveError> {
        Members::new(TarStream::of(reader))
    }

    fn new(stream: io::Result<TarStream<'a>>) -> Result<Members<'a>, ArchiveError> {
        let offset = 0;
        let stream = stream.map_err(|source| ArchiveError::Read { offset, source })?;
        Ok(Members {
            start: stream.position(),
            next: stream.position(),
            stream,
            global: PaxRecords::default(),
        })
    }

    /// Reads the next member. The caller may then read as much of its data as it needs.
    pub fn next_member(&mut self) -> Result<Option<Member>, ArchiveError> {
        let mut extensions = Extensions {
            pax: self.global.clone(),
            ..Extensions::default()
        };
        // Size of the extended headers before the member's own header.
        let mut extension_bytes = 0;
        loop {
            let offset = self.next;
            let left = offset - self.stream.position();
            self.stream.skip(left, offset)?;
            let Some(header) = self.header(offset)? else {
                return Ok(None);
            };
            let entry_type = header.entry_type();
            // GNU tar leaves the size field empty in a volume header.
            let size = number_in(&header.as_old().size, header.entry_size());
            let field = "size";
            let size = size.ok_or(ArchiveError::Number { offset, field })?;
            if !matches!(
                entry_type.as_byte(),
                b'x' | b'X' | b'g' | b'L' | b'K' | b'V'
            ) {
                return self.member(&header, offset, size, extensions).map(Some);
            }
            let data = match entry_type.as_byte() {
                b'V' => Vec::new(),
                b'g' => self.extension(offset, size, self.global.len_bytes)?,
                _ => {
                    let data = self.extension(offset, size, extension_bytes)?;
                    extension_bytes += size;
                    data
                }
            };
            match entry_type.as_byte() {
                b'g' => {
                    let added = self.global.add(&data);
                    added.ok_or(ArchiveError::Pax { offset })?;
                    extensions.pax = self.global.clone();
                }
                b'L' => extensions.name = Some(until_nul(&data)),
                b'K' => extensions.link = Some(until_nul(&data)),
                b'V' => {}
                _ => {
                    // Only the last extended header before a member applies.
                    extensions.pax = self.global.clone();
                    let added = extensions.pax.add(&data);
                    added.ok_or(ArchiveError::Pax { offset })?;
                }
            }
            self.end_at(offset, BLOCK as u64, size)?;
        }
    }

    /// Reads and discards the rest of the input, so that the writer of a pipe does not get EPIPE.
    pub fn drain(&mut self) -> Result<(), ArchiveError> {
        let offset = self.next;
        let mut buf = vec![0; 64 << 10];
        loop {
            match self.stream.read(&mut buf) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(source) => return Err(ArchiveError::Read { offset, source }),
            }
        }
    }

    /// Reads the next bytes of a member's data, without the holes.
    pub fn read(&mut self, member: &Member, buf: &mut [u8]) -> Result<(), ArchiveError> {
        self.stream.read_exact(buf, member.offset)
    }

    /// Sets the offset of the next header, after a header of `header` bytes and `stored` bytes of data.
    fn end_at(&mut self, offset: u64, header: u64, stored: u64) -> Result<(), ArchiveError> {
        let padded = stored.checked_next_multiple_of(BLOCK as u64);
        let end = padded.and_then(|padded| offset.checked_add(header)?.checked_add(padded));
        let end = end.filter(|&end| end <= i64::MAX as u64);
        self.next = end.ok_or(ArchiveError::Number {
            offset,
            field: "size",
        })?;
        Ok(())
    }

    /// Reads a header. Returns None at the end: a block of zeros, or the end of the input.
    fn header(&mut self, offset: u64) -> Result<Option<tar::Header>, ArchiveError> {
        let mut header = tar::Header::new_old();
        let bytes = header.as_mut_bytes();
        match self.stream.read(bytes) {
            Err(source) => return Err(ArchiveError::Read { offset, source }),
            // Some writers omit the two zero blocks at the end.
            Ok(0) if offset > self.start => return Ok(None),
            Ok(read) if read < BLOCK && offset == self.start => {
                return Err(ArchiveError::NoHeader { offset });
            }
            Ok(read) if read < BLOCK => return Err(ArchiveError::Truncated { offset }),
            Ok(_) => {}
        }
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        // The checksum field itself counts as spaces.
        let summed = || {
            let bytes = bytes.iter().enumerate();
            bytes.map(|(at, &byte)| if SUM.contains(&at) { b' ' } else { byte })
        };
        let sum: i64 = summed().map(i64::from).sum();
        // Some old writers summed up signed bytes.
        let signed: i64 = summed().map(|byte| i64::from(byte.cast_signed())).sum();
        match header.cksum().map(i64::from) {
            Ok(stored) if stored == sum || stored == signed => Ok(Some(header)),
            _ => Err(ArchiveError::NoHeader { offset }),
        }
    }

    /// Reads the data of an extended header. `held_bytes` counts against the same limit.
    fn extension(
        &mut self,
        offset: u64,
        len: u64,
        held_bytes: u64,
    ) -> Result<Vec<u8>, ArchiveError> {
        if len > MAX_EXTENSION_BYTES.saturating_sub(held_bytes) {
            return Err(ArchiveError::TooLong { offset, len });
        }
        let mut data = vec![0; len as usize];
        self.stream.read_exact(&mut data, offset)?;
        Ok(data)
    }

    fn member(
        &mut self,
        header: &tar::Header,
        offset: u64,
        size: u64,
        extensions: Extensions,
    ) -> Result<Member, ArchiveError> {
        let Extensions { pax, name, link } = extensions;
        let wrong = |field| ArchiveError::Number { offset, field };
        let size = pax
            .number("size")
            .unwrap_or(Some(size))
            .ok_or(wrong("size"))?;
        let long = pax.get("GNU.sparse.name").or(pax.get("path"));
        let path = long.map(<[u8]>::to_vec).or(name);
        let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = pax.get("linkpath").map(<[u8]>::to_vec).or(link);
        let link = || {
            let short = || header.link_name_bytes().unwrap_or_default().into_owned();
            link.unwrap_or_else(short)
        };
        let entry_type = header.entry_type().as_byte();
        let (kind, body, stored_bytes, header_bytes) = match entry_type {
            // Old archives mark directories only by a trailing slash.
            b'0' | 0 if path.ends_with(b"/") => (
                FileKind::Directory,
                MemberBody::Directory,
                size,
                BLOCK as u64,
            ),
            b'5' | b'D' => (
                FileKind::Directory,
                MemberBody::Directory,
                size,
                BLOCK as u64,
            ),
            // Some writers store the file's size here, without its data.
            b'1' => (
                FileKind::Regular,
                MemberBody::HardLink(link()),
                0,
                BLOCK as u64,
            ),
            b'2' => (
                FileKind::Symlink,
                MemberBody::Symlink(link()),
                size,
                BLOCK as u64,
            ),
            b'3' => (
                FileKind::CharDevice,
                MemberBody::Special,
                size,
                BLOCK as u64,
            ),
            b'4' => (
                FileKind::BlockDevice,
                MemberBody::Special,
                size,
                BLOCK as u64,
            ),
            b'6' => (FileKind::Fifo, MemberBody::Special, size, BLOCK as u64),
            b'M' => return Err(ArchiveError::MultiVolume { offset }),
            _ => {
                let file = self.file(header, offset, size, &pax)?;
                (
                    FileKind::Regular,
                    file.body,
                    file.stored_bytes,
                    file.header_bytes,
                )
            }
        };
        self.end_at(offset, header_bytes, stored_bytes)?;
        Ok(Member {
            path,
            attributes: attributes(header, offset, kind, &pax)?,
            body,
            offset,
        })
    }

    fn file(
        &mut self,
        header: &tar::Header,
        offset: u64,
        stored_bytes: u64,
        pax: &PaxRecords,
    ) -> Result<FileHead, ArchiveError> {
        let before = self.stream.position();
        let real = |key| {
            let size = pax.number(key).flatten();
            size.ok_or(ArchiveError::SparseMap { offset })
        };
        let (size, parts) = if header.entry_type().as_byte() == b'S' {
            sparse::read_gnu(header, &mut self.stream, offset)?
        } else if pax.get("GNU.sparse.major") == Some(b"1") {
            let parts = sparse::read_in_data(&mut self.stream, stored_bytes, offset)?;
            (real("GNU.sparse.realsize")?, parts)
        } else if let Some(map) = pax.get("GNU.sparse.map") {
            let parts = sparse::from_text(map).ok_or(ArchiveError::SparseMap { offset })?;
            (real("GNU.sparse.size")?, parts)
        } else if pax.get("GNU.sparse.numblocks").is_some() {
            (real("GNU.sparse.size")?, pax.sparse_parts.clone())
        } else {
            return Ok(FileHead {
                body: MemberBody::File {
                    size: stored_bytes,
                    parts: None,
                },
                stored_bytes,
                header_bytes: BLOCK as u64,
            });
        };
        let read = self.stream.position() - before;
        // GNU's own map precedes the data; a map of version 1.0 is part of the data.
        let (stored_bytes, map_bytes) = match header.entry_type().as_byte() {
            b'S' => (stored_bytes, read),
            _ => (stored_bytes.saturating_sub(read), read),
        };
        let parts = sparse::checked(parts, size, stored_bytes);
        let parts = parts.ok_or(ArchiveError::SparseMap { offset })?;
        Ok(FileHead {
            body: MemberBody::File {
                size,
                parts: Some(parts),
            },
            stored_bytes,
            header_bytes: BLOCK as u64 + map_bytes,
        })
    }
}

/// The body of a file, and the sizes of its header and data.
struct FileHead {
    body: MemberBody,
    stored_bytes: u64,
    header_bytes: u64,
}

fn until_nul(data: &[u8]) -> Vec<u8> {
    let name = data.split(|&byte| byte == 0).next();
    name.unwrap_or_default().to_vec()
}

/// Returns the number in a header field as parsed. An empty field is 0.
fn number_in(field: &[u8], parsed: io::Result<u64>) -> Option<u64> {
    if field.iter().all(|byte| matches!(byte, 0 | b' ')) {
        return Some(0);
    }
    parsed.ok()
}

fn attributes(
    header: &tar::Header,
    offset: u64,
    kind: FileKind,
    pax: &PaxRecords,
) -> Result<MemberAttributes, ArchiveError> {
    let wrong = |field| ArchiveError::Number { offset, field };
    let old = header.as_old();
    let id = |key: &'static str, field: &[u8], value: io::Result<u64>| {
        let value = pax.number(key).unwrap_or(number_in(field, value));
        let value = value.and_then(|value| u32::try_from(value).ok());
        value.ok_or(wrong(key))
    };
    let format_bits = match kind {
        FileKind::Regular => 0o100_000,
        FileKind::Directory => 0o040_000,
        FileKind::CharDevice => 0o020_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::Fifo => 0o010_000,
        FileKind::Socket => 0o140_000,
        FileKind::Symlink => 0o120_000,
    };
    let mode = number_in(&old.mode, header.mode().map(u64::from));
    let mode = mode.ok_or(wrong("mode"))? as u32 & 0o7777;
    let device = match kind {
        FileKind::CharDevice | FileKind::BlockDevice => {
            // Both header types store the numbers at the same offset.
            let fields = header
                .as_ustar()
                .map(|head| (head.dev_major, head.dev_minor));
            let gnu = || header.as_gnu().map(|head| (head.dev_major, head.dev_minor));
            let number = |name, field: &[u8], parsed: io::Result<Option<u32>>| {
                let parsed = parsed.map(|number| number.unwrap_or_default().into());
                let number = number_in(field, parsed).and_then(|number| u32::try_from(number).ok());
                number.ok_or(wrong(name))
            };
            let (major, minor) = fields.or_else(gnu).ok_or(wrong("major"))?;
            DeviceNumber {
                major: number("major", &major, header.device_major())?,
                minor: number("minor", &minor, header.device_minor())?,
            }
        }
        _ => DeviceNumber::default(),
    };
    // In GNU's 64-bit numbers, times before 1970 are negative.
    let seconds = number_in(&old.mtime, header.mtime()).map(|seconds| FileTime {
        sec: seconds as i64,
        nsec: 0,
    });
    let mtime = pax.time("mtime").unwrap_or(seconds).ok_or(wrong("mtime"))?;
    let other = |key| {
        let time = pax.time(key).unwrap_or(Some(mtime));
        time.ok_or(wrong(key))
    };
    let text = |key| pax.get(key).map(<[u8]>::to_vec);
    Ok(MemberAttributes {
        file: PreservedAttributes {
            mode: format_bits | mode,
            uid: id("uid", &old.uid, header.uid())?,
            gid: id("gid", &old.gid, header.gid())?,
            device,
            times: Times {
                access: other("atime")?,
                modification: mtime,
                change: other("ctime")?,
            },
        },
        xattrs: pax.xattrs(),
        acl_access: text("SCHILY.acl.access"),
        acl_default: text("SCHILY.acl.default"),
    })
}
