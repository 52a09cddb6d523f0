//! The scheme at the edges of its forms.

use super::*;

const HOME: RootId = RootId(257);

fn file(root: u64, inode: u64) -> FileId {
    FileId {
        root: RootId(root),
        ino: InodeNr(inode),
    }
}

fn edges() -> Vec<FileId> {
    let roots = [
        5,
        256,
        257,
        258,
        0xffff,
        0x1_0000,
        0xff_ffff,
        1 << 24,
        u64::from(u32::MAX),
    ];
    let inodes = [
        256,
        257,
        (1 << 28) - 1,
        1 << 28,
        (1 << 36) - 1,
        1 << 36,
        (1 << 44) - 1,
        1 << 44,
        (1 << 62) - 1,
        1 << 62,
        -256i64 as u64,
    ];
    roots
        .iter()
        .flat_map(|&root| inodes.iter().map(move |&inode| file(root, inode)))
        .collect()
}

// FUSE-1
#[test]
fn numbers_of_the_mounted_subvolume_are_unchanged() {
    let numbering = Numbering::new(HOME);
    assert_eq!(numbering.number(file(257, 256)), Some(256));
    assert_eq!(numbering.number(file(257, 1 << 40)), Some(1 << 40));
}

#[test]
fn a_number_leads_back_to_its_file() {
    let numbering = Numbering::new(HOME);
    for id in edges() {
        if let Some(number) = numbering.number(id) {
            assert_eq!(numbering.meaning(number), Meaning::File(id), "{id:?}");
        }
    }
}

#[test]
fn no_two_files_share_a_number() {
    let numbering = Numbering::new(HOME);
    let mut numbers: Vec<_> = edges()
        .into_iter()
        .filter_map(|id| numbering.number(id))
        .collect();
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), all);
}

#[test]
fn numbers_fit_a_signed_field() {
    let numbering = Numbering::new(HOME);
    assert!(
        edges()
            .into_iter()
            .filter_map(|id| numbering.number(id))
            .chain([Numbering::listed(u64::MAX)])
            .all(|number| number <= i64::MAX as u64)
    );
}

#[test]
fn a_million_snapshots_and_a_hundred_billion_inodes_need_no_table() {
    let numbering = Numbering::new(HOME);
    assert!(numbering.number(file(1_000_000, 60_000_000_000)).is_some());
    assert!(numbering.number(file(60_000, 10_000_000_000_000)).is_some());
}

#[test]
fn fuse_root_and_empty_subvolume_dir_numbers_are_never_given() {
    let numbering = Numbering::new(HOME);
    for inode in [0, 1, 2, 255] {
        assert_eq!(numbering.number(file(257, inode)), None);
        assert_eq!(numbering.number(file(258, inode)), None);
        assert_eq!(numbering.meaning(inode), Meaning::Nothing);
    }
}

#[test]
fn a_number_in_a_wider_form_than_needed_is_nobodys() {
    let numbering = Numbering::new(HOME);
    let wide = 0b110 << FORM_SHIFT | 300 << 28 | 256;
    assert_eq!(numbering.meaning(wide), Meaning::Nothing);
    let own = 0b100 << FORM_SHIFT | 257 << 44 | 256;
    assert_eq!(numbering.meaning(own), Meaning::Nothing);
    assert_eq!(numbering.meaning(u64::MAX), Meaning::Nothing);
}
