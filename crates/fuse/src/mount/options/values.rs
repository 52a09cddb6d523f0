//! Values of options, in the kernel's syntax.

use ubtrfs_format::compress::Compression;
use ubtrfs_fs::Compress;

/// Parses a number with the kernel's syntax for options: decimal, hexadecimal after 0x, or octal after 0.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => digits_of(digits, 16),
        None if text.len() > 1 && text.starts_with('0') => digits_of(&text[1..], 8),
        None => digits_of(text, 10),
    }
}

fn digits_of(text: &str, radix: u32) -> Option<u64> {
    // The standard library accepts a sign.
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    u64::from_str_radix(text, radix).ok().filter(|_| plain)
}

/// Parses a number of bytes with the kernel's suffixes: k, m, g, t, p, e.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let (digits, suffix) = match text.bytes().last()? {
        last if last.is_ascii_digit() => (text, None),
        // A digit of a hexadecimal number.
        b'e' | b'E' if text.starts_with("0x") => (text, None),
        last => (text.get(..text.len() - 1)?, Some(last)),
    };
    let shift = match suffix.map(|suffix| suffix.to_ascii_lowercase()) {
        None => 0,
        Some(b'k') => 10,
        Some(b'm') => 20,
        Some(b'g') => 30,
        Some(b't') => 40,
        Some(b'p') => 50,
        Some(b'e') => 60,
        Some(_) => return None,
    };
    number(digits)?.checked_mul(1 << shift)
}

/// Parses `zlib`, `zstd:9`, `lzo`, `no`. A level out of range is clamped, as by the kernel. The level of LZO is
/// ignored.
pub(super) fn compress(text: &str, force: bool) -> Option<Compress> {
    if matches!(text, "no" | "none") {
        return Some(Compress::default());
    }
    let (name, level) = match text.split_once(':') {
        Some((name, level)) => (name, Some(level)),
        None => (text, None),
    };
    let algorithm = Compression::from_name(name)?;
    let level = match (algorithm, level) {
        (Compression::None, _) => return None,
        (_, None) => 0,
        (_, Some(level)) => {
            let level = level.parse().ok()?;
            match algorithm {
                Compression::Lzo => 0,
                _ => level,
            }
        }
    };
    Some(Compress {
        algorithm,
        level,
        force,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_kernel_reads_them() {
        assert_eq!(number("010"), Some(8));
        assert_eq!(number("0x1f"), Some(31));
        assert_eq!(number("0"), Some(0));
        for bad in ["", "+1", "-1", "0x", "0x+1", "08", "1 "] {
            assert_eq!(number(bad), None, "{bad}");
        }
        assert_eq!(bytes("2k"), Some(2048));
        assert_eq!(bytes("1G"), Some(1 << 30));
        assert_eq!(bytes("0x1e"), Some(30));
        for bad in ["", "k", "1x", "1kk", "16E", "\u{e9}"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn compression_has_the_values_of_the_kernel() {
        let of = |text| compress(text, false);
        let with = |algorithm, level| {
            Some(Compress {
                algorithm,
                level,
                force: false,
            })
        };
        assert_eq!(of("zlib"), with(Compression::Zlib, 0));
        assert_eq!(of("zstd:15"), with(Compression::Zstd, 15));
        assert_eq!(of("zstd:-3"), with(Compression::Zstd, -3));
        assert_eq!(of("lzo"), with(Compression::Lzo, 0));
        assert_eq!(of("lzo:1"), with(Compression::Lzo, 0));
        assert_eq!(of("no"), Some(Compress::default()));
        for bad in ["", "zip", "zstd:", "zstd:x", "lzo:x", "zstd:1:2", "no:1"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
