//! Checksums of GUID partition tables.

const HEADER: std::ops::Range<usize> = 512..1024;
const HEADER_BYTES: usize = 92;

/// Corrects the checksums of the first table of a disk with sectors of 512 bytes.
pub fn seal_gpt(disk: &mut [u8]) {
    let field = |at: usize| {
        let bytes = &disk[HEADER.start + at..][..4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
    };
    let start = field(72).saturating_mul(512);
    let len = field(80).saturating_mul(field(84));
    if let Some(entries) = disk.get(start..start.saturating_add(len)) {
        let crc = crc32(entries);
        disk[HEADER.start + 88..][..4].copy_from_slice(&crc.to_le_bytes());
    }
    let header = &mut disk[HEADER.start..][..HEADER_BYTES];
    header[12..20].copy_from_slice(&[HEADER_BYTES as u8, 0, 0, 0, 0, 0, 0, 0]);
    let crc = crc32(header);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { 0xedb8_8320 } else { 0 };
        }
    }
    !crc
}
