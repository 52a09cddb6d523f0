//! Physical volumes of an LVM volume group.

use std::fmt::Write;

const SECTOR: u64 = 512;
const EXTENT_BYTES: u64 = 64 << 10;
const AREA_START: usize = 4096;
const AREA_BYTES: usize = 60 << 10;
const FIRST_EXTENT: u64 = 64 << 10;
const CRC_START: u32 = 0xf597_a6cf;

/// A volume group to write.
#[derive(Clone, Debug)]
pub struct LvmGroup {
    pub name: String,
    pub seqno: u64,
    pub volumes: Vec<LvmVolume>,
    /// The offset of the text in its ring, which may wrap around.
    pub text_offset: usize,
}

#[derive(Clone, Debug)]
pub struct LvmVolume {
    pub name: String,
    pub segments: Vec<LvmSegment>,
}

/// Extents on one or more physical volumes.
#[derive(Clone, Debug)]
pub struct LvmSegment {
    pub kind: String,
    /// The number of extents, of all stripes together.
    pub extents: u64,
    /// The index of a physical volume, and its first extent.
    pub stripes: Vec<(usize, u64)>,
    pub stripe_bytes: u64,
}

impl LvmSegment {
    pub fn linear(disk: usize, first_extent: u64, extents: u64) -> LvmSegment {
        LvmSegment {
            kind: "striped".to_owned(),
            extents,
            stripes: vec![(disk, first_extent)],
            stripe_bytes: 0,
        }
    }
}

impl LvmGroup {
    pub fn new(name: &str, volumes: Vec<LvmVolume>) -> LvmGroup {
        LvmGroup {
            name: name.to_owned(),
            seqno: 3,
            volumes,
            text_offset: 512,
        }
    }

    /// Returns the bytes of an extent.
    pub fn extent_bytes() -> u64 {
        EXTENT_BYTES
    }

    /// Returns the number of extents on a disk.
    pub fn extents_of(disk: &[u8]) -> u64 {
        (disk.len() as u64 - FIRST_EXTENT) / EXTENT_BYTES
    }

    /// Writes labels and metadata to disks, and the contents of each volume to its extents.
    pub fn write(&self, disks: &mut [Vec<u8>], contents: &[&[u8]]) {
        let text = self.text(disks);
        for (index, disk) in disks.iter_mut().enumerate() {
            self.write_metadata(disk, index, text.as_bytes());
        }
        for (volume, content) in self.volumes.iter().zip(contents) {
            self.write_content(volume, content, disks);
        }
    }

    fn write_content(&self, volume: &LvmVolume, content: &[u8], disks: &mut [Vec<u8>]) {
        let mut rest = content;
        for segment in &volume.segments {
            let len = (segment.extents * EXTENT_BYTES) as usize;
            let (part, after) = rest.split_at(len.min(rest.len()));
            rest = after;
            let width = segment.stripes.len() as u64;
            let unit = match width {
                1 => len as u64,
                _ => segment.stripe_bytes,
            };
            for (number, chunk) in (0..).zip(part.chunks(unit as usize)) {
                let (disk, extent) = segment.stripes[(number % width) as usize];
                let at = FIRST_EXTENT + extent * EXTENT_BYTES + number / width * unit;
                disks[disk][at as usize..at as usize + chunk.len()].copy_from_slice(chunk);
            }
        }
    }

    /// Writes label and text of the disk of this number.
    fn write_metadata(&self, disk: &mut [u8], index: usize, text: &[u8]) {
        let mut label = [0; 512];
        let mut put = |at: usize, bytes: &[u8]| label[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"LABELONE");
        put(8, &1_u64.to_le_bytes());
        put(20, &32_u32.to_le_bytes());
        put(24, b"LVM2 001");
        put(32, uuid(index).replace('-', "").as_bytes());
        put(64, &(disk.len() as u64).to_le_bytes());
        // One data area and one metadata area, each followed by an end.
        put(72, &FIRST_EXTENT.to_le_bytes());
        put(104, &(AREA_START as u64).to_le_bytes());
        put(112, &(AREA_BYTES as u64).to_le_bytes());
        disk[512..1024].copy_from_slice(&label);

        let area = &mut disk[AREA_START..AREA_START + AREA_BYTES];
        for (index, &byte) in text.iter().enumerate() {
            let at = self.text_offset + index;
            let wrapped = if at < AREA_BYTES {
                at
            } else {
                at - AREA_BYTES + 512
            };
            area[wrapped] = byte;
        }
        let mut put = |at: usize, bytes: &[u8]| area[at..at + bytes.len()].copy_from_slice(bytes);
        put(4, b" LVM2 x[5A%r0N*>");
        put(20, &1_u32.to_le_bytes());
        put(24, &(AREA_START as u64).to_le_bytes());
        put(32, &(AREA_BYTES as u64).to_le_bytes());
        put(40, &(self.text_offset as u64).to_le_bytes());
        put(48, &(text.len() as u64).to_le_bytes());
        seal_lvm(disk);
    }

    fn text(&self, disks: &[Vec<u8>]) -> String {
        let mut text = String::new();
        self.write_text(&mut text, disks)
            .expect("writing to a string succeeds");
        text.push('\0');
        text
    }

    fn write_text(&self, text: &mut String, disks: &[Vec<u8>]) -> std::fmt::Result {
        let LvmGroup { name, seqno, .. } = self;
        writeln!(text, "{name} {{\nid = \"{}\"\nseqno = {seqno}", uuid(90))?;
        writeln!(
            text,
            "format = \"lvm2\"\nstatus = [\"RESIZEABLE\", \"READ\", \"WRITE\"]\nflags = []"
        )?;
        writeln!(
            text,
            "extent_size = {}\nmax_lv = 0\nmax_pv = 0",
            EXTENT_BYTES / SECTOR
        )?;
        writeln!(text, "metadata_copies = 0\n\nphysical_volumes {{\n")?;
        for (index, disk) in disks.iter().enumerate() {
            writeln!(
                text,
                "pv{index} {{\nid = \"{}\"\ndevice = \"/dev/md{index}\" # hint",
                uuid(index)
            )?;
            writeln!(text, "status = [\"ALLOCATABLE\"]\nflags = []")?;
            writeln!(text, "dev_size = {}", disk.len() as u64 / SECTOR)?;
            let extents = LvmGroup::extents_of(disk);
            writeln!(
                text,
                "pe_start = {}\npe_count = {extents}\n}}",
                FIRST_EXTENT / SECTOR
            )?;
        }
        writeln!(text, "}}\n\nlogical_volumes {{\n")?;
        for (index, volume) in self.volumes.iter().enumerate() {
            writeln!(text, "{} {{\nid = \"{}\"", volume.name, uuid(index + 50))?;
            writeln!(
                text,
                "status = [\"READ\", \"WRITE\", \"VISIBLE\"]\nflags = []"
            )?;
            writeln!(text, "segment_count = {}\n", volume.segments.len())?;
            let mut start = 0;
            for (number, segment) in (1..).zip(&volume.segments) {
                let LvmSegment {
                    kind,
                    extents,
                    stripes,
                    ..
                } = segment;
                writeln!(
                    text,
                    "segment{number} {{\nstart_extent = {start}\nextent_count = {extents}"
                )?;
                writeln!(text, "type = \"{kind}\"\nstripe_count = {}", stripes.len())?;
                if stripes.len() > 1 {
                    writeln!(text, "stripe_size = {}", segment.stripe_bytes / SECTOR)?;
                }
                let places = stripes
                    .iter()
                    .map(|(disk, extent)| format!("\"pv{disk}\", {extent}"));
                let places: Vec<String> = places.collect();
                writeln!(text, "stripes = [\n{}\n]\n}}", places.join(",\n"))?;
                start += extents;
            }
            writeln!(text, "}}")?;
        }
        writeln!(text, "}}\n\n}}\n# Generated for a test\n")?;
        writeln!(
            text,
            "contents = \"Text Format Volume Group\"\nversion = 1\n"
        )?;
        writeln!(
            text,
            "description = \"Written from userspace\"\ncreation_host = \"nas\""
        )?;
        writeln!(text, "creation_time = 1500000000")
    }
}

/// Returns a UUID in the notation of LVM.
fn uuid(number: usize) -> String {
    format!("abcdef-0123-4567-89AB-CDEF-GHIJ-{number:06}")
}

/// Corrects the checksums of a label in sector 1, and of its metadata at 4096.
pub fn seal_lvm(disk: &mut [u8]) {
    let label = crc(&disk[532..1024]);
    disk[528..532].copy_from_slice(&label.to_le_bytes());
    let Some(area) = disk.get_mut(AREA_START..AREA_START + AREA_BYTES) else {
        return;
    };
    let field =
        |at: usize| u32::from_le_bytes([area[at], area[at + 1], area[at + 2], area[at + 3]]);
    let (start, len) = (field(40) as usize, field(48) as usize);
    if start < AREA_BYTES && len <= AREA_BYTES - 512 {
        let ring = area[start..].iter().chain(&area[512..]);
        let text: Vec<u8> = ring.take(len).copied().collect();
        area[56..60].copy_from_slice(&crc(&text).to_le_bytes());
    }
    let header = crc(&area[4..512]);
    area[..4].copy_from_slice(&header.to_le_bytes());
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = CRC_START;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { 0xedb8_8320 } else { 0 };
        }
    }
    crc
}
