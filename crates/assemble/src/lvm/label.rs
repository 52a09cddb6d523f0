//! Physical volumes: the label, and the text of the metadata.
//!
//! Source: `lib/format_text` of LVM2. The text is in a ring after the header of its area; a checksum covers the label,
//! the header and the text.

use std::io;

use ubtrfs_device::BlockDevice;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::problem::LabelProblem;
use crate::crc32;

const SECTOR: usize = 512;
/// The label is in one of the first sectors.
const LABEL_SECTORS: usize = 4;
const CRC_START: u32 = 0xf597_a6cf;
const AREA_MAGIC: [u8; 16] = *b"\x20LVM2\x20x[5A%r0N*>";
/// Bytes of an area before its ring.
const AREA_HEADER_BYTES: u64 = 512;
/// Metadata of a large volume group has one megabyte.
const MAX_TEXT_BYTES: u64 = 8 << 20;
/// The tools create at most two.
const MAX_AREAS: usize = 8;

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LabelHeader {
    id: [u8; 8],
    sector: U64,
    crc: U32,
    /// Offset of the contents from the start of the label.
    offset: U32,
    kind: [u8; 8],
}
const _: () = assert!(size_of::<LabelHeader>() == 32);

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Area {
    offset: U64,
    size: U64,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AreaHeader {
    checksum: U32,
    magic: [u8; 16],
    version: U32,
    start: U64,
    size: U64,
    /// The place of the committed text in the area.
    offset: U64,
    text_bytes: U64,
    text_checksum: U32,
    flags: U32,
}
const IGNORED: u32 = 1;

/// The label of a physical volume.
#[derive(Debug)]
pub(crate) struct Label {
    /// Without dashes.
    pub(crate) uuid: String,
    /// The texts of its metadata areas. May be empty.
    pub(crate) texts: Vec<Vec<u8>>,
    pub(crate) problem: Option<LabelProblem>,
}

/// Finds the label of a device.
pub(crate) fn find(device: &dyn BlockDevice) -> io::Result<Option<Label>> {
    let mut bytes = [0; SECTOR * LABEL_SECTORS];
    if device.len_bytes() < bytes.len() as u64 {
        return Ok(None);
    }
    device.read_at(&mut bytes, 0)?;
    let sectors = bytes.chunks_exact(SECTOR).enumerate();
    let mut labels = sectors.filter_map(|(number, sector)| decode(number as u64, sector));
    let Some((uuid, areas)) = labels.next() else {
        return Ok(None);
    };
    let mut label = Label {
        uuid,
        texts: Vec::new(),
        problem: None,
    };
    for (offset, size) in areas {
        match read_text(device, offset, size) {
            Ok(Some(text)) => label.texts.push(text),
            Ok(None) => {}
            Err(problem) => label.problem = Some(problem),
        }
    }
    Ok(Some(label))
}

/// Returns the uuid and the metadata areas of a sector that is a label.
fn decode(number: u64, sector: &[u8]) -> Option<(String, Vec<(u64, u64)>)> {
    const CRC_END: usize = 20;
    const UUID_BYTES: usize = 32;
    /// After the uuid and the size of the device.
    const LISTS_AT: usize = UUID_BYTES + 8;
    let (header, _) = LabelHeader::ref_from_prefix(sector).ok()?;
    let is_label = header.id == *b"LABELONE" && header.kind == *b"LVM2 001";
    let crc = crc32::update(CRC_START, &sector[CRC_END..]);
    if !is_label || header.sector.get() != number || header.crc.get() != crc {
        return None;
    }
    let contents = sector.get(header.offset.get() as usize..)?;
    let uuid = contents.get(..UUID_BYTES)?;
    let (areas, _) = <[Area]>::ref_from_prefix_with_elems(
        contents.get(LISTS_AT..)?,
        (contents.len() - LISTS_AT) / size_of::<Area>(),
    )
    .ok()?;
    // Data areas, then metadata areas; each list ends with zeros.
    let is_end = |area: &Area| area.offset.get() == 0 && area.size.get() == 0;
    let after = areas.iter().skip_while(|area| !is_end(area)).skip(1);
    let metadata = after.take_while(|area| !is_end(area)).take(MAX_AREAS);
    let metadata = metadata.map(|area| (area.offset.get(), area.size.get()));
    Some((
        String::from_utf8_lossy(uuid).into_owned(),
        metadata.collect(),
    ))
}

/// Reads the text of an area. Returns None for an empty area.
fn read_text(
    device: &dyn BlockDevice,
    offset: u64,
    size: u64,
) -> Result<Option<Vec<u8>>, LabelProblem> {
    const CRC_BYTES: usize = 4;
    let mut sector = [0; SECTOR];
    device
        .read_at(&mut sector, offset)
        .map_err(|error| LabelProblem::Read(error.kind()))?;
    let Ok((header, _)) = AreaHeader::ref_from_prefix(&sector) else {
        return Err(LabelProblem::Area);
    };
    let crc = crc32::update(CRC_START, &sector[CRC_BYTES..]);
    if header.magic != AREA_MAGIC || header.checksum.get() != crc {
        return Err(LabelProblem::Area);
    }
    let (start, len) = (header.offset.get(), header.text_bytes.get());
    if start == 0 || header.flags.get() & IGNORED != 0 {
        return Ok(None);
    }
    let is_within = (AREA_HEADER_BYTES..size).contains(&start);
    if !is_within || len > MAX_TEXT_BYTES || len > size - AREA_HEADER_BYTES {
        return Err(LabelProblem::Area);
    }
    let mut text = vec![0; len as usize];
    // The ring continues after the header.
    let (first, wrapped) = text.split_at_mut(len.min(size - start) as usize);
    for (part, at) in [(first, start), (wrapped, AREA_HEADER_BYTES)] {
        let at = offset.checked_add(at).ok_or(LabelProblem::Area)?;
        device
            .read_at(part, at)
            .map_err(|error| LabelProblem::Read(error.kind()))?;
    }
    if crc32::update(CRC_START, &text) != header.text_checksum.get() {
        return Err(LabelProblem::Checksum);
    }
    Ok(Some(text))
}
