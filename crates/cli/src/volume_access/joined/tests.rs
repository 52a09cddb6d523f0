//! Operands with several names.

use std::ffi::OsStr;

use super::{is_joined, join, split_joined};

#[test]
fn joined_operand_is_split_into_its_names() {
    let names = ["disk1", "disk2", "disk3:/a"].map(OsStr::new);
    let operand = join(names.into_iter());
    assert!(is_joined(&operand));
    let (others, last) = split_joined(&operand);
    assert_eq!(others, ["disk1".into(), "disk2".into()]);
    assert_eq!(last, "disk3:/a");
    let (others, last) = split_joined(OsStr::new("a.img:/b"));
    assert_eq!((others.len(), last), (0, OsStr::new("a.img:/b")));
}
