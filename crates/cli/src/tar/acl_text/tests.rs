//! The text of an ACL that `setfacl -m u:1000:r` made, and of bytes that are none.

use super::acl_text;

const ACL: [u8; 44] = [
    2, 0, 0, 0, //
    1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, //
    2, 0, 4, 0, 0xe8, 3, 0, 0, //
    4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, //
    16, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, //
    32, 0, 4, 0, 0xff, 0xff, 0xff, 0xff,
];

#[test]
fn entries_are_written_with_numbers() {
    let text = acl_text(&ACL).expect("the bytes are an ACL");
    assert_eq!(
        text,
        "user::rw-,user:1000:r--,group::r--,mask::r--,other::r--"
    );
}

#[test]
fn other_bytes_are_no_acl() {
    assert_eq!(acl_text(&[]), None);
    assert_eq!(acl_text(&ACL[..43]), None);
    assert_eq!(acl_text(&[1, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0]), None);
    assert_eq!(acl_text(&[2, 0, 0, 0, 3, 0, 6, 0, 0, 0, 0, 0]), None);
}
