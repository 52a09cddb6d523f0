//! Extended attributes in listings: the forms of a value that can be asked for, and JSON.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::ValueEnum;
use serde::Serialize;
use ubtrfs::transfer::xattr_text;

use super::json;

/// A form of values that a user asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Encoding {
    Text,
    Hex,
    Base64,
}

impl From<Encoding> for xattr_text::Encoding {
    fn from(encoding: Encoding) -> xattr_text::Encoding {
        match encoding {
            Encoding::Text => xattr_text::Encoding::Text,
            Encoding::Hex => xattr_text::Encoding::Hex,
            Encoding::Base64 => xattr_text::Encoding::Base64,
        }
    }
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
