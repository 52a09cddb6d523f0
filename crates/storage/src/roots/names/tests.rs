//! Cached names while entries are created, changed and deleted.

use super::*;

const ROOT: RootId = RootId::FS_TREE;
const DIR: InodeNr = InodeNr(256);

fn name(name: &[u8]) -> Name {
    Name::new(ROOT, DIR, name).unwrap()
}

fn changes(of: &[(&[u8], Option<u64>)]) -> NameChanges {
    let mut changes = NameChanges::default();
    for (of, ino) in of {
        changes.note(name(of), ino.map(InodeNr));
    }
    changes
}

fn change(names: &NameCache, of: &[u8], ino: Option<u64>) {
    let changes = changes(&[(of, ino)]);
    let tickets = changes.take_out(names);
    changes.enter(names, tickets);
}

fn ino(names: &NameCache, of: &[u8]) -> Option<u64> {
    names.get(&name(of)).ok().map(|ino| ino.0)
}

// NAMES-1
#[test]
fn last_change_is_kept_until_the_name_goes() {
    let names = NameCache::default();
    change(&names, b"a", Some(257));
    change(&names, b"b", Some(258));
    change(&names, b"a", Some(259));
    assert_eq!(
        (ino(&names, b"a"), ino(&names, b"b")),
        (Some(259), Some(258))
    );
    change(&names, b"a", None);
    assert_eq!((ino(&names, b"a"), ino(&names, b"b")), (None, Some(258)));
}

#[test]
fn name_is_one_of_its_directory_and_its_tree() {
    let names = NameCache::default();
    change(&names, b"a", Some(257));
    for number in 257..1000 {
        let there = Name::new(ROOT, InodeNr(number), b"a").unwrap();
        assert!(names.get(&there).is_err());
        let there = Name::new(RootId(number), DIR, b"a").unwrap();
        assert!(names.get(&there).is_err());
    }
}

// NAMES-2
#[test]
fn names_read_before_a_change_do_not_enter_after_it() {
    let names = NameCache::default();
    let early = names.get(&name(b"a")).unwrap_err();
    change(&names, b"a", None);
    names.enter(early, &name(b"a"), InodeNr(257));
    assert_eq!(ino(&names, b"a"), None);
    let late = names.get(&name(b"a")).unwrap_err();
    names.enter(late, &name(b"a"), InodeNr(258));
    assert_eq!(ino(&names, b"a"), Some(258));
}

// NAMES-3
#[test]
fn a_call_shows_its_names_when_all_of_it_is_made() {
    let names = NameCache::default();
    change(&names, b"a", Some(257));
    change(&names, b"b", Some(258));
    let exchange = changes(&[
        (b"a", None),
        (b"b", None),
        (b"a", Some(258)),
        (b"b", Some(257)),
    ]);
    let tickets = exchange.take_out(&names);
    assert_eq!((ino(&names, b"a"), ino(&names, b"b")), (None, None));
    exchange.enter(&names, tickets);
    assert_eq!(
        (ino(&names, b"a"), ino(&names, b"b")),
        (Some(258), Some(257))
    );
}

#[test]
fn names_that_a_later_change_has_met_are_not_kept_of_an_earlier_one() {
    let names = NameCache::default();
    let early = changes(&[(b"a", Some(257))]);
    let tickets = early.take_out(&names);
    change(&names, b"a", None);
    early.enter(&names, tickets);
    assert_eq!(ino(&names, b"a"), None);
}

#[test]
fn names_of_one_set_take_turns() {
    let names = NameCache::default();
    let all: Vec<Vec<u8>> = (0..)
        .map(|number: u32| number.to_string().into_bytes())
        .filter(|of| name(of).set == name(b"0").set)
        .take(WAYS + 1)
        .collect();
    for (of, ino) in all.iter().zip(257..) {
        change(&names, of, Some(ino));
    }
    assert_eq!(ino(&names, &all[0]), None);
    let kept = |number: usize| ino(&names, &all[number]);
    assert!((1..=WAYS).all(|number| kept(number) == Some(257 + number as u64)));
    change(&names, &all[1], None);
    change(&names, &all[0], Some(257));
    assert!((2..=WAYS).all(|number| kept(number) == Some(257 + number as u64)));
    assert_eq!((kept(0), kept(1)), (Some(257), None));
}

#[test]
fn names_that_are_counted_lie_side_by_side_and_others_apart() {
    let page = |of: &[u8]| name(of).set as usize / PAGE_SETS;
    let sets: std::collections::BTreeSet<u32> = (100..200)
        .map(|number| name(format!("IMG_{number}.jpg").as_bytes()).set)
        .collect();
    assert_eq!(sets.len(), 100);
    let first = page(b"IMG_100.jpg");
    assert!(sets.iter().all(|&set| set as usize / PAGE_SETS == first));
    let others: std::collections::BTreeSet<u32> = (b'a'..=b'z')
        .map(|letter| name(&[letter, letter, b'.', b'c']).set)
        .collect();
    assert!(others.len() > 20);
}

#[test]
fn only_short_names_are_kept() {
    let longest = [b'n'; BYTES - 1];
    assert!(Name::new(ROOT, DIR, &longest).is_some());
    for len in [0, BYTES, 255, 256 + 3] {
        assert!(Name::new(ROOT, DIR, &vec![b'n'; len]).is_none());
    }
}
