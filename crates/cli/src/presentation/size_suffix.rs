//! Sizes in the notation of users: a number and K, M, G, T, P or E.

use anyhow::anyhow;

/// Parses a number of bytes. The suffixes are powers of 1024, in either case, and B is bytes.
pub(crate) fn parse_size(text: &str) -> anyhow::Result<u64> {
    let invalid = || anyhow!("{text} is not a valid numeric value with supported size suffixes");
    let (digits, suffix) = match text.char_indices().last() {
        Some((at, last)) if !last.is_ascii_digit() => (&text[..at], Some(last)),
        _ => (text, None),
    };
    // A sign is not allowed.
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(invalid());
    }
    let number: u64 = digits.parse().map_err(|_| invalid())?;
    let shift = match suffix.map(|suffix| suffix.to_ascii_lowercase()) {
        None | Some('b') => 0,
        Some('k') => 10,
        Some('m') => 20,
        Some('g') => 30,
        Some('t') => 40,
        Some('p') => 50,
        Some('e') => 60,
        Some(_) => return Err(invalid()),
    };
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| anyhow!("{text} is more bytes than there can be"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("16k", 16 << 10),
            ("16K", 16 << 10),
            ("3M", 3 << 20),
            ("7g", 7 << 30),
            ("4T", 4 << 40),
            ("2P", 2 << 50),
            ("15E", 15 << 60),
            ("512B", 512),
        ] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "", "K", "1.5G", "1GiB", "0x100", "-1", "+1", "1KK", "16E", "1e9", "10é",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
