//! Validity of ACLs, and their changes.

use super::{Acl, Parsed, parse};

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn sound(entries: &[(u16, u16, u32)]) -> Option<Acl> {
    match parse(&acl(entries)) {
        Parsed::Acl(acl) => Some(acl),
        Parsed::Empty | Parsed::Invalid => None,
    }
}

#[test]
fn entries_stand_in_order_with_a_mask_if_anyone_is_named() {
    let (owner, group, mask, other) = ((1, 7, 0), (4, 5, 0), (16, 7, 0), (32, 5, 0));
    let (user, named_group) = ((2, 7, 1), (8, 7, 1));
    for good in [
        &[owner, group, other][..],
        &[owner, group, mask, other],
        &[
            owner,
            user,
            user,
            group,
            named_group,
            named_group,
            mask,
            other,
        ],
    ] {
        assert!(sound(good).is_some(), "{good:?}");
    }
    for bad in [
        &[owner, group][..],
        &[owner, other],
        &[group, owner, other],
        &[owner, user, group, other],
        &[owner, group, named_group, other],
        &[owner, group, user, mask, other],
        &[owner, group, mask, mask, other],
        &[owner, group, other, other],
        &[owner, owner, group, other],
        &[(1, 8, 0), group, other],
        &[(3, 7, 0), group, other],
        &[owner, (2, 7, u32::MAX), group, mask, other],
    ] {
        assert!(sound(bad).is_none(), "{bad:?}");
    }
}

#[test]
fn entries_of_the_owner_and_of_others_have_no_id() {
    let acl = sound(&[(1, 7, 11), (4, 5, 12), (32, 5, 13)]).unwrap();
    let none = u32::MAX;
    assert_eq!(
        acl.to_bytes(),
        super::tests::acl(&[(1, 7, none), (4, 5, none), (32, 5, none)])
    );
}

#[test]
fn mode_limits_the_classes_of_a_default_acl() {
    let acl = sound(&[(1, 7, 0), (2, 7, 1), (4, 7, 0), (16, 5, 0), (32, 7, 0)]).unwrap();
    let given = acl.inherited_with(0o100_624);
    assert_eq!(given.mode, 0o100_604);
    let expected = sound(&[(1, 6, 0), (2, 7, 1), (4, 7, 0), (16, 0, 0), (32, 4, 0)]);
    assert_eq!(given.access, expected);
    let plain = sound(&[(1, 7, 0), (4, 7, 0), (32, 7, 0)]).unwrap();
    let given = plain.inherited_with(0o100_624);
    assert_eq!((given.mode, given.access), (0o100_624, None));
}
