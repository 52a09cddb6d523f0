//! The text of an ACL made by `setfacl -m u:1000:r`, and of invalid bytes.

use super::{OwnerNames, acl_bytes, acl_text};

const ACL: [u8; 44] = [
    2, 0, 0, 0, //
    1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, //
    2, 0, 4, 0, 0xe8, 3, 0, 0, //
    4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, //
    16, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, //
    32, 0, 4, 0, 0xff, 0xff, 0xff, 0xff,
];

fn names() -> OwnerNames {
    OwnerNames {
        users: [("somebody".to_owned(), 7)].into(),
        groups: [("some people".to_owned(), 8)].into(),
    }
}

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

#[test]
fn texts_of_several_writers_are_read() {
    for text in [
        "user::rw-,user:1000:r--,group::r--,mask::rwx,other::r--",
        "user::rw-\nuser:1000:r--\t#effective:r--\ngroup::r--\nmask::rwx\nother::r--\n",
        "u::rw,other:r--,mask:rwx,group::r--,user:somebody:r--:1000",
        "default:user::rw-,default:user:1000:r--,default:group::r--,default:mask::rwx,default:other::r--",
    ] {
        let bytes = acl_bytes(text.as_bytes(), &names()).expect(text);
        let again = acl_text(&bytes).expect(text);
        assert_eq!(
            again,
            "user::rw-,user:1000:r--,group::r--,mask::rwx,other::r--"
        );
    }
    let named = acl_bytes(b"user:somebody:r--,group:some people:-w-", &names());
    let named = named.expect("names are known");
    assert_eq!(acl_text(&named).expect("an ACL"), "user:7:r--,group:8:-w-");
}

#[test]
fn other_texts_are_no_acl() {
    for text in [
        "",
        "user",
        "user::",
        "nobody::r--",
        "user::rq-",
        "user:no such user:r--",
        "mask:x:r--",
    ] {
        let bytes = acl_bytes(text.as_bytes(), &names());
        // Empty permissions are valid.
        assert_eq!(bytes.is_some(), text == "user::", "{text}");
    }
    assert_eq!(acl_bytes(&[0xff], &names()), None);
}
