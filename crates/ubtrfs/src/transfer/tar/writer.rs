//! Writing a tar archive as a stream: POSIX headers, with PAX records for oversized fields, and sparse files in GNU's
//! format 1.0.
//!
//! Names are bytes and are written unchanged. The two zero blocks at the end and the padding to a record of 20 blocks
//! make the archive readable by every tar.

use std::io::{self, Write};
use std::ops::Range;

use ubtrfs_format::item::acl;
use ubtrfs_fs::{DeviceNumber, PreservedAttributes};
use ubtrfs_mkfs::archive::acl_text;

use super::pax::PaxRecords;

const BLOCK: u64 = 512;
const RECORD: u64 = 20 * BLOCK;
const NAME_MAX: usize = 100;
/// The largest number of seven octal digits.
const ID_MAX: u32 = 0o7_777_777;
/// The largest number of eleven octal digits.
const SIZE_MAX: u64 = 0o77_777_777_777;

#[derive(Debug)]
pub(crate) enum MemberKind<'a> {
    /// `map` has the archived ranges of a sparse file.
    File {
        size: u64,
        map: Option<&'a [Range<u64>]>,
    },
    Directory,
    Symlink(&'a [u8]),
    /// Another name of the member at this path.
    HardLink(&'a [u8]),
    CharDevice(DeviceNumber),
    BlockDevice(DeviceNumber),
    Fifo,
}

#[derive(Debug)]
pub(crate) struct Member<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) kind: MemberKind<'a>,
    pub(crate) file: PreservedAttributes,
    pub(crate) xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

#[derive(Debug)]
pub(crate) struct TarWriter<W> {
    out: W,
    written: u64,
}

impl<W: Write> TarWriter<W> {
    pub(crate) fn new(out: W) -> TarWriter<W> {
        TarWriter { out, written: 0 }
    }

    /// Begins a member. The data of a file follows, then [`TarWriter::pad`].
    pub(crate) fn begin(&mut self, member: &Member<'_>) -> io::Result<()> {
        let sparse_map = match &member.kind {
            MemberKind::File { map: Some(map), .. } => Some(sparse_map(map)),
            _ => None,
        };
        let stored = stored_bytes(&member.kind, sparse_map.as_deref());
        let records = pax_records(member, sparse_map.is_some(), stored);
        if !records.is_empty() {
            self.write_pax(member, &records)?;
        }
        let mut header = tar::Header::new_ustar();
        let name = match sparse_map {
            Some(_) => [b"GNUSparseFile.0/", file_name(member.path)].concat(),
            None => member.path.to_vec(),
        };
        put_name(&mut header.as_old_mut().name, &name);
        let file = &member.file;
        header.set_mode(file.mode & 0o7777);
        header.set_uid(u64::from(if file.uid > ID_MAX { 0 } else { file.uid }));
        header.set_gid(u64::from(if file.gid > ID_MAX { 0 } else { file.gid }));
        header.set_size(if stored > SIZE_MAX { 0 } else { stored });
        let mtime = u64::try_from(file.times.modification.sec).unwrap_or(0);
        header.set_mtime(if mtime > SIZE_MAX { 0 } else { mtime });
        self.set_kind(&mut header, &member.kind)?;
        header.set_cksum();
        self.write(header.as_bytes())?;
        if let Some(map) = sparse_map {
            self.write(&map)?;
        }
        Ok(())
    }

    fn set_kind(&self, header: &mut tar::Header, kind: &MemberKind<'_>) -> io::Result<()> {
        use tar::EntryType;
        let (entry_type, link, device) = match *kind {
            MemberKind::File { .. } => (EntryType::Regular, None, None),
            MemberKind::Directory => (EntryType::Directory, None, None),
            MemberKind::Symlink(target) => (EntryType::Symlink, Some(target), None),
            MemberKind::HardLink(path) => (EntryType::Link, Some(path), None),
            MemberKind::CharDevice(device) => (EntryType::Char, None, Some(device)),
            MemberKind::BlockDevice(device) => (EntryType::Block, None, Some(device)),
            MemberKind::Fifo => (EntryType::Fifo, None, None),
        };
        header.set_entry_type(entry_type);
        if let Some(link) = link {
            put_name(&mut header.as_old_mut().linkname, link);
        }
        if let Some(device) = device {
            header.set_device_major(device.major)?;
            header.set_device_minor(device.minor)?;
        }
        Ok(())
    }

    /// Appends to the data of the current member.
    pub(crate) fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes)
    }

    /// Ends a member's data.
    pub(crate) fn pad(&mut self) -> io::Result<()> {
        self.pad_to(BLOCK)
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.write(&[0; 2 * BLOCK as usize])?;
        self.pad_to(RECORD)?;
        self.out.flush()
    }

    fn write_pax(&mut self, member: &Member<'_>, records: &PaxRecords) -> io::Result<()> {
        let mut header = tar::Header::new_ustar();
        let name = [b"PaxHeaders/", file_name(member.path)].concat();
        put_name(&mut header.as_old_mut().name, &name);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(records.bytes().len() as u64);
        header.set_entry_type(tar::EntryType::XHeader);
        header.set_cksum();
        self.write(header.as_bytes())?;
        self.write(records.bytes())?;
        self.pad()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn pad_to(&mut self, unit: u64) -> io::Result<()> {
        let padding = self.written.next_multiple_of(unit) - self.written;
        self.write(&[0; RECORD as usize][..padding as usize])
    }
}

fn pax_records(member: &Member<'_>, sparse: bool, stored: u64) -> PaxRecords {
    let mut records = PaxRecords::default();
    if sparse {
        if let MemberKind::File { size, .. } = member.kind {
            records.push_number("GNU.sparse.major", 1);
            records.push_number("GNU.sparse.minor", 0);
            records.push(b"GNU.sparse.name", member.path);
            records.push_number("GNU.sparse.realsize", size);
        }
    } else if member.path.len() > NAME_MAX {
        records.push(b"path", member.path);
    }
    match member.kind {
        MemberKind::Symlink(target) | MemberKind::HardLink(target) if target.len() > NAME_MAX => {
            records.push(b"linkpath", target);
        }
        _ => {}
    }
    if stored > SIZE_MAX {
        records.push_number("size", stored);
    }
    let file = &member.file;
    if file.uid > ID_MAX {
        records.push_number("uid", u64::from(file.uid));
    }
    if file.gid > ID_MAX {
        records.push_number("gid", u64::from(file.gid));
    }
    if matches!(member.kind, MemberKind::HardLink(_)) {
        return records;
    }
    records.push_time("mtime", file.times.modification);
    records.push_time("atime", file.times.access);
    records.push_time("ctime", file.times.change);
    for (name, value) in member.xattrs {
        // ACLs are stored twice: as text for `tar --acls`, and unchanged for `tar --xattrs`.
        let key: Option<&[u8]> = match name.as_slice() {
            acl::ACCESS => Some(b"SCHILY.acl.access"),
            acl::DEFAULT => Some(b"SCHILY.acl.default"),
            _ => None,
        };
        if let Some((key, text)) = key.zip(acl_text(value)) {
            records.push(key, text.as_bytes());
        }
        records.push_xattr(name, value);
    }
    records
}

/// Returns the number of bytes of a member after its header, without padding.
fn stored_bytes(kind: &MemberKind<'_>, sparse_map: Option<&[u8]>) -> u64 {
    match (kind, sparse_map) {
        (MemberKind::File { map: Some(map), .. }, Some(text)) => {
            text.len() as u64 + map.iter().map(|part| part.end - part.start).sum::<u64>()
        }
        (MemberKind::File { size, .. }, _) => *size,
        _ => 0,
    }
}

/// Formats the map at the start of a sparse member's data: decimal numbers, one per line, padded to a block.
fn sparse_map(map: &[Range<u64>]) -> Vec<u8> {
    let mut text = format!("{}\n", map.len());
    for part in map {
        text.push_str(&format!("{}\n{}\n", part.start, part.end - part.start));
    }
    let mut bytes = text.into_bytes();
    bytes.resize(bytes.len().next_multiple_of(BLOCK as usize), 0);
    bytes
}

/// Fills a name field; a longer name is in a PAX record.
fn put_name(field: &mut [u8; NAME_MAX], name: &[u8]) {
    let len = name.len().min(NAME_MAX);
    field.fill(0);
    field[..len].copy_from_slice(&name[..len]);
}

fn file_name(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}
