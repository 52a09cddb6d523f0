//! Values of extended attributes as text, in the forms of getfattr(1) and setfattr(1), and as JSON.
//!
//! As text: `0x...` is hexadecimal, `0s...` is base64, and `"..."` is text with octal escapes. Other text is
//! taken literally.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use clap::ValueEnum;
use serde::Serialize;

use super::json;

#[cfg(test)]
mod tests;

/// A form of a value as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Encoding {
    Text,
    Hex,
    Base64,
}

/// A text in none of the forms.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value: '{0}'")]
pub(crate) struct InvalidValue(pub(crate) String);

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes a value: as text if it is printable ASCII, and in base64 otherwise, unless a form is requested.
pub(crate) fn encode(value: &[u8], encoding: Option<Encoding>) -> String {
    let is_text = value.iter().all(|byte| (b' '..=b'~').contains(byte));
    match encoding {
        Some(Encoding::Text) => quoted(value),
        None if is_text => quoted(value),
        Some(Encoding::Hex) => {
            let mut text = "0x".to_owned();
            for byte in value {
                // Writing to a String cannot fail.
                let _ = write!(text, "{byte:02x}");
            }
            text
        }
        Some(Encoding::Base64) | None => base64(value),
    }
}

fn quoted(value: &[u8]) -> String {
    let mut text = "\"".to_owned();
    for &byte in value {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            byte => {
                let _ = write!(text, "\\{byte:03o}");
            }
        }
    }
    text.push('"');
    text
}

fn base64(value: &[u8]) -> String {
    let mut text = "0s".to_owned();
    for group in value.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            if at <= group.len() {
                text.push(char::from(BASE64[(bits >> (18 - 6 * at) & 63) as usize]))
            } else {
                text.push('=')
            }
        }
    }
    text
}

/// Decodes a value in any of the forms.
///
/// # Errors
///
/// Malformed hexadecimal digits, base64 or escapes.
pub(crate) fn decode(text: &[u8]) -> Result<Vec<u8>, InvalidValue> {
    let rest = |len: usize| &text[len..];
    let decoded = match text {
        [b'0', b'x' | b'X', ..] => unhex(rest(2)),
        [b'0', b's' | b'S', ..] => unbase64(rest(2)),
        [b'"', quoted @ .., b'"'] => unquoted(quoted),
        text => Some(text.to_vec()),
    };
    decoded.ok_or_else(|| InvalidValue(String::from_utf8_lossy(text).into_owned()))
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let digits: Vec<u8> = text
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? << 4 | digit(*low)?) as u8);
    pairs.iter().map(byte).collect()
}

fn unbase64(text: &[u8]) -> Option<Vec<u8>> {
    let mut text: Vec<u8> = text
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    while text.last() == Some(&b'=') {
        text.pop();
    }
    let mut bytes = Vec::new();
    for group in text.chunks(4) {
        let mut bits = 0u32;
        for at in 0..4 {
            let value = match group.get(at) {
                Some(letter) => BASE64.iter().position(|known| known == letter)? as u32,
                None => 0,
            };
            bits = bits << 6 | value;
        }
        let [_, group_bytes @ ..] = bits.to_be_bytes();
        bytes.extend_from_slice(&group_bytes[..group.len().checked_sub(1).filter(|len| *len > 0)?]);
    }
    Some(bytes)
}

fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let mut octal = None;
        for _ in 0..3 {
            let Some(digit) = rest.next_if(|byte| matches!(byte, b'0'..=b'7')) else {
                break;
            };
            octal = Some(octal.unwrap_or(0) * 8 + u32::from(digit - b'0'));
        }
        bytes.push(match octal {
            Some(number) => number as u8,
            None => rest.next()?,
        });
    }
    Some(bytes)
}

/// An extended attribute in a JSON listing.
#[derive(Debug, Serialize)]
pub(crate) struct XattrJson {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
}

impl XattrJson {
    pub(crate) fn list(xattrs: &[(OsString, Vec<u8>)]) -> Vec<XattrJson> {
        let each = xattrs.iter().map(|(name, value)| XattrJson {
            name: json::text(name.as_bytes()),
            name_hex: json::hex_if_lossy(name.as_bytes()),
            value: json::text(value),
            value_hex: json::hex_if_lossy(value),
        });
        each.collect()
    }
}
