//! The checksum of IEEE 802.3, as in GPT and, with another start value, in LVM metadata.

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = value >> 1 ^ if value & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

/// Continues a CRC. It is inverted neither before nor after.
pub(crate) fn update(crc: u32, bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| crc >> 8 ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize];
    bytes.iter().fold(crc, step)
}

/// Computes the checksum with its usual inversions.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !update(!0, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_is_that_of_the_catalogue() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
