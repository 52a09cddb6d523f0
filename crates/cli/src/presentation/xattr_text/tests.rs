//! Values are encoded and decoded as by getfattr and setfattr.

use super::{Encoding, decode, encode};

#[test]
fn every_form_is_read_back() {
    let all: Vec<u8> = (0..=255).collect();
    for len in [0, 1, 2, 3, 4, 5, 256] {
        for encoding in [
            None,
            Some(Encoding::Text),
            Some(Encoding::Hex),
            Some(Encoding::Base64),
        ] {
            let text = encode(&all[..len], encoding);
            assert_eq!(decode(text.as_bytes()).unwrap(), &all[..len], "{text}");
        }
    }
}

#[test]
fn forms_are_those_of_getfattr() {
    assert_eq!(encode(b"a \"\\b", None), r#""a \"\\b""#);
    assert_eq!(encode(b"a\n", Some(Encoding::Text)), r#""a\012""#);
    assert_eq!(encode(b"a\n", None), "0sYQo=");
    assert_eq!(encode(b"a\n", Some(Encoding::Hex)), "0x610a");
    assert_eq!(decode(b"plain \\x").unwrap(), b"plain \\x");
    assert_eq!(decode(b"\"a\\101\\\\\"").unwrap(), b"aA\\");
}

#[test]
fn texts_of_no_such_form_are_refused() {
    for text in ["0x1", "0xgg", "0s*", "0sA", "\"a\\\""] {
        assert!(decode(text.as_bytes()).is_err(), "{text}");
    }
}
