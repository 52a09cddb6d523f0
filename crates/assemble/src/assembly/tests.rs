//! Arrays and volumes from images of disks, some of them missing, stale or damaged.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::MemDevice;
use ubtrfs_sim::{LvmGroup, LvmSegment, LvmVolume, MdArray, MdMetadata, Rng};

use super::*;
use crate::lvm::problem::VolumeProblem;
use crate::md::problem::{ArrayNote, ArrayProblem, SuperblockProblem};

pub(super) const KIB: usize = 1 << 10;

pub(super) fn content(len: usize) -> Vec<u8> {
    let mut rng = Rng::new(7);
    let mut bytes = vec![0; len];
    for word in bytes.chunks_mut(8) {
        word.copy_from_slice(&rng.next_u64().to_le_bytes()[..word.len()]);
    }
    bytes
}

/// Assembles images; an empty one is not there.
pub(super) fn assemble(images: &[Vec<u8>]) -> Assembly {
    let present = images
        .iter()
        .enumerate()
        .filter(|(_, image)| !image.is_empty());
    Assembly::of(present.map(|(index, image)| Disk {
        path: PathBuf::from(format!("disk{index}")),
        device: Arc::new(MemDevice::from_bytes(image)),
    }))
}

pub(super) fn top(assembly: &Assembly, kind: &str) -> LayerId {
    let tops = assembly
        .iter()
        .filter(|(_, layer)| layer.kind.driver() == kind);
    tops.last().expect("such a layer").0
}

fn read(layer: &Layer, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    let device = layer
        .device()
        .unwrap_or_else(|| panic!("{:?}", layer.problem));
    device.read_at(&mut bytes, offset as u64).expect("readable");
    bytes
}

/// Checks that a layer holds `content`, with reads of many sizes and offsets.
#[track_caller]
pub(super) fn check(layer: &Layer, content: &[u8]) {
    assert!(layer.len_bytes >= content.len() as u64);
    assert!(read(layer, 0, content.len()) == content, "as a whole");
    let mut rng = Rng::new(1);
    for _ in 0..40 {
        let offset = rng.below(content.len() as u64) as usize;
        let len = 1 + rng.below((content.len() - offset).min(400 * KIB) as u64) as usize;
        let (start, end) = (offset, offset + len);
        assert!(
            read(layer, offset, len) == content[start..end],
            "{len} bytes at {offset}"
        );
    }
}

/// Checks an array with each set of members missing, up to `redundancy`, in another order of disks.
#[track_caller]
fn check_array(array: &MdArray, redundancy: usize) {
    let content = content(1200 * KIB + 4096);
    let members = array.write(&content);
    let count = members.len();
    for first in 0..=count {
        for second in first..=count {
            let mut present = members.clone();
            let mut missing = 0;
            for lost in [first, second] {
                if lost < count && !present[lost].is_empty() {
                    present[lost].clear();
                    missing += 1;
                }
            }
            present.reverse();
            let assembly = assemble(&present);
            let layer = assembly.layer(top(&assembly, "md"));
            if missing <= redundancy {
                check(layer, &content);
                assert_eq!(layer.is_degraded(), missing > 0);
            } else if redundancy == 0 {
                assert!(layer.device().is_none());
            }
        }
    }
}

#[test]
fn raid1_is_read_from_any_member() {
    for metadata in [MdMetadata::End, MdMetadata::Start, MdMetadata::AfterStart] {
        let array = MdArray {
            metadata,
            ..MdArray::new(1, 0, 3)
        };
        check_array(&array, 2);
    }
}

#[test]
fn metadata_0_90_is_read_at_every_level() {
    for (level, layout, members, redundancy) in [
        (1, 0, 3, 2),
        (5, 2, 4, 1),
        (6, 2, 5, 2),
        (4, 0, 4, 1),
        (10, 0x102, 4, 1),
        (0, 0, 3, 0),
        (-1, 0, 3, 0),
    ] {
        let array = MdArray {
            metadata: MdMetadata::Version0,
            ..MdArray::new(level, layout, members)
        };
        check_array(&array, redundancy);
    }
}

#[test]
fn members_of_metadata_0_90_are_left_out_like_others() {
    let array = MdArray {
        metadata: MdMetadata::Version0,
        ..MdArray::new(5, 2, 3)
    };
    let content = content(600 * KIB);
    let word = |sb: &mut [u8], word: usize, value: u32| {
        sb[word * 4..word * 4 + 4].copy_from_slice(&value.to_le_bytes());
    };
    let left_out = |change: &dyn Fn(usize, &mut [u8])| {
        let mut members = array.write(&content);
        for (role, member) in members.iter_mut().enumerate() {
            array.edit(member, |sb| change(role, sb));
        }
        let assembly = assemble(&members);
        let layer = assembly.layer(top(&assembly, "md"));
        assert_eq!(layer.name, "md1");
        check(layer, &content);
        let out = layer.components.iter().find_map(|part| match part {
            Component::LeftOut(_, reason) => Some(reason.clone()),
            _ => None,
        });
        out.expect("a member that is left out")
    };
    let stale = LeftOut::Stale {
        events: 42,
        newest: 50,
    };
    assert_eq!(
        left_out(&|role, sb| if role > 0 {
            word(sb, 39, 50)
        }),
        stale
    );
    // The descriptor of member 0: faulty and removed, and then active without being in sync.
    let newest = |role: usize, sb: &mut [u8], state: u32| {
        if role > 0 {
            word(sb, 39, 43);
            word(sb, 128 + 4, state);
        }
    };
    assert_eq!(left_out(&|role, sb| newest(role, sb, 9)), LeftOut::Faulty);
    assert_eq!(left_out(&|role, sb| newest(role, sb, 2)), LeftOut::Faulty);

    let mut members = array.write(&content);
    for member in &mut members {
        array.edit(member, |sb| word(sb, 2, 91));
    }
    let assembly = assemble(&members);
    let layer = assembly.layer(top(&assembly, "md"));
    assert_eq!(layer.problem, Some(Problem::Array(ArrayProblem::Reshape)));

    // Not stopped: the word for the state is 0.
    for member in &mut members {
        array.edit(member, |sb| {
            word(sb, 2, 90);
            word(sb, 33, 0);
        });
    }
    members[1].clear();
    let assembly = assemble(&members);
    let layer = assembly.layer(top(&assembly, "md"));
    assert_eq!(layer.notes, [ArrayNote::NotStopped]);
}

#[test]
fn damaged_metadata_0_90_is_reported() {
    let array = MdArray {
        metadata: MdMetadata::Version0,
        ..MdArray::new(1, 0, 2)
    };
    let problem = |change: &dyn Fn(&mut [u8])| {
        let mut member = array.write(&content(300 * KIB)).swap_remove(0);
        let range = array.superblock_range(&member);
        change(&mut member[range]);
        assemble(&[member]).layers()[0].problem.clone()
    };
    let sealed = |at: usize, value: u8| {
        problem(&|sb| {
            sb[at] = value;
            ubtrfs_sim::seal_md(sb);
        })
    };
    assert!(matches!(
        problem(&|sb| sb[4000] ^= 1),
        Some(Problem::Superblock(SuperblockProblem::Checksum { .. }))
    ));
    let members = |members| {
        let max = if members == 0 { 1920 } else { 27 };
        Some(Problem::Superblock(SuperblockProblem::Members {
            members,
            max,
        }))
    };
    assert_eq!(sealed(40, 28), members(28));
    assert_eq!(sealed(40, 0), members(0));
}

#[test]
fn superblock_at_the_end_of_disk_and_partition_is_that_of_the_partition() {
    let array = MdArray {
        metadata: MdMetadata::Version0,
        ..MdArray::new(1, 0, 2)
    };
    let content = content(512 * KIB);
    let start = 1 << 20;
    let disks: Vec<Vec<u8>> = array
        .write(&content)
        .into_iter()
        .map(|member| {
            let mut disk = vec![0; start];
            let sectors = (member.len() / 512) as u32;
            let entry = [
                &[0, 0, 0, 0, 0xfd, 0, 0, 0][..],
                &(start as u32 / 512).to_le_bytes(),
                &sectors.to_le_bytes(),
            ];
            disk[446..462].copy_from_slice(&entry.concat());
            disk[510..512].copy_from_slice(&[0x55, 0xaa]);
            disk.extend(member);
            disk
        })
        .collect();
    let assembly = assemble(&disks);
    let layer = assembly.layer(top(&assembly, "md"));
    check(layer, &content);
    let on = layer.below().map(|id| assembly.layer(id).kind.driver());
    assert_eq!(on.collect::<Vec<_>>(), ["partition", "partition"]);

    // An array of whole disks, with a partition that its data does not fit into.
    let mut members = array.write(&disks[0]);
    for member in &mut members {
        let sectors = (member.len() - start) as u32 / 512;
        member[458..462].copy_from_slice(&sectors.to_le_bytes());
    }
    let assembly = assemble(&members);
    let on = assembly.layer(top(&assembly, "md"));
    assert_eq!(on.below().count(), 2);
    assert_eq!(assembly.layers()[0].contents, Contents::Member);
}

#[test]
fn raid5_of_every_layout_is_read_without_one_member() {
    for layout in 0..=5 {
        check_array(&MdArray::new(5, layout, 4), 1);
    }
    check_array(&MdArray::new(5, 2, 3), 1);
    check_array(&MdArray::new(4, 0, 4), 1);
}

#[test]
fn raid6_of_every_layout_is_read_without_two_members() {
    for layout in [0, 1, 2, 3, 4, 5, 16, 17, 18, 19, 20] {
        check_array(&MdArray::new(6, layout, 5), 2);
    }
    check_array(&MdArray::new(6, 2, 4), 2);
}

#[test]
fn raid10_of_every_layout_is_read_without_one_member() {
    const OFFSET: u32 = 1 << 16;
    let far_sets = 2 << 17;
    for layout in [
        0x102,
        0x201,
        OFFSET | 0x201,
        far_sets | 0x201,
        1 << 17 | 0x201,
    ] {
        for members in [4, 5] {
            check_array(&MdArray::new(10, layout, members), 1);
        }
    }
    check_array(&MdArray::new(10, 0x103, 4), 2);
    check_array(&MdArray::new(10, 0x202, 4), 1);
    check_array(&MdArray::new(10, OFFSET | 0x202, 5), 1);
}

#[test]
fn raid0_and_linear_need_all_members() {
    check_array(&MdArray::new(0, 0, 3), 0);
    check_array(&MdArray::new(-1, 0, 3), 0);
    let sizes = vec![3, 9, 5, 9];
    for (level, layout) in [(0, 0), (0, 1), (0, 2), (-1, 0)] {
        let array = MdArray {
            sizes: sizes.clone(),
            ..MdArray::new(level, layout, 4)
        };
        check_array(&array, 0);
    }
}

#[test]
fn large_chunks_and_odd_numbers_of_sectors_are_read() {
    for chunk_bytes in [4 * KIB, 12 * KIB, 512 * KIB] {
        let array = MdArray {
            chunk_bytes: chunk_bytes as u64,
            ..MdArray::new(5, 2, 3)
        };
        check_array(&array, 1);
    }
}

#[test]
fn too_few_members_are_counted() {
    let mut members = MdArray::new(6, 2, 5).write(&content(600 * KIB));
    for member in &mut members[..3] {
        member.clear();
    }
    let assembly = assemble(&members);
    let layer = assembly.layer(top(&assembly, "md"));
    let problem = ArrayProblem::TooFew {
        present: 2,
        members: 5,
        needed: 3,
    };
    assert_eq!(layer.problem, Some(Problem::Array(problem)));
    let missing = [0, 1, 2].map(|role| Component::Missing(MissingPart::Member(role)));
    assert_eq!(layer.components[..3], missing);
}

// MD-1
#[test]
fn stale_members_are_left_out() {
    let array = MdArray::new(5, 2, 3);
    let content = content(600 * KIB);
    let mut members = array.write(&content);
    // The others continued without it.
    for member in &mut members[1..] {
        array.edit(member, |sb| sb[200] = 50);
    }
    let range = array.data_range(&members[0]);
    members[0][range].fill(0xaa);
    let assembly = assemble(&members);
    let layer = assembly.layer(top(&assembly, "md"));
    check(layer, &content);
    let stale = LeftOut::Stale {
        events: 42,
        newest: 50,
    };
    assert!(
        layer
            .components
            .contains(&Component::LeftOut(LayerId(0), stale))
    );
}

// MD-2
#[test]
fn one_event_behind_is_not_stale_unless_the_newest_dropped_it() {
    let array = MdArray::new(5, 2, 3);
    let content = content(600 * KIB);
    let mut members = array.write(&content);
    array.edit(&mut members[2], |sb| sb[200] = 43);
    let assembly = assemble(&members);
    let layer = assembly.layer(top(&assembly, "md"));
    assert!(!layer.is_degraded());
    check(layer, &content);

    array.edit(&mut members[2], |sb| {
        sb[256..258].copy_from_slice(&[0xfe, 0xff])
    });
    let assembly = assemble(&members);
    let layer = assembly.layer(top(&assembly, "md"));
    assert!(
        layer
            .components
            .contains(&Component::LeftOut(LayerId(0), LeftOut::Faulty))
    );
    check(layer, &content);
}

#[test]
fn member_is_valid_only_as_far_as_it_was_rebuilt() {
    for array in [
        MdArray::new(5, 2, 4),
        MdArray::new(1, 0, 2),
        MdArray::new(10, 0x102, 4),
    ] {
        let content = content(1200 * KIB);
        let mut members = array.write(&content);
        let valid = 96 * KIB;
        array.edit(&mut members[0], |sb| {
            sb[8] |= 2;
            sb[152..160].copy_from_slice(&(valid as u64 / 512).to_le_bytes());
        });
        let data = array.data_range(&members[0]);
        members[0][data.start + valid..].fill(0x55);
        let assembly = assemble(&members);
        let layer = assembly.layer(top(&assembly, "md"));
        check(layer, &content);
        let note = ArrayNote::BeingRebuilt {
            role: 0,
            valid_bytes: valid as u64,
        };
        assert_eq!(layer.notes, [note]);
    }
}

#[test]
fn bad_blocks_are_read_from_other_members() {
    let array = MdArray::new(5, 2, 4);
    let content = content(1200 * KIB);
    let mut members = array.write(&content);
    for (role, start) in [(0, 70), (1, 110)] {
        let start = start * KIB;
        array.edit(&mut members[role], |sb| {
            sb[8] |= 8;
            sb[184 + 2..184 + 4].copy_from_slice(&8_u16.to_le_bytes());
            sb[188..192].copy_from_slice(&8_i32.to_le_bytes());
        });
        let list = array.superblock_range(&members[role]).start + 4096;
        let entry = (start as u64 / 512) << 10 | 40;
        members[role][list..list + 4096].fill(0xff);
        members[role][list..list + 8].copy_from_slice(&entry.to_le_bytes());
        members[role][start..start + 20 * KIB].fill(0x77);
    }
    let assembly = assemble(&members);
    let layer = assembly.layer(top(&assembly, "md"));
    check(layer, &content);
    assert_eq!(layer.notes.len(), 2);
}

#[test]
fn arrays_that_cannot_be_trusted_are_refused() {
    let array = MdArray::new(5, 2, 3);
    let refused = |change: &dyn Fn(&mut [u8])| {
        let mut members = array.write(&content(300 * KIB));
        for member in &mut members {
            array.edit(member, change);
        }
        let assembly = assemble(&members);
        match assembly.layer(top(&assembly, "md")).problem.clone() {
            Some(Problem::Array(problem)) => problem,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(&|sb| sb[8] |= 4), ArrayProblem::Reshape);
    assert_eq!(refused(&|sb| sb[9] |= 2), ArrayProblem::JournalMissing);
    assert_eq!(
        refused(&|sb| sb[11] |= 0x80),
        ArrayProblem::Features(0x8000_0000)
    );
    assert_eq!(refused(&|sb| sb[72] = 45), ArrayProblem::Level(45));
    let layout = ArrayProblem::Layout {
        level: 5,
        layout: 9,
    };
    assert_eq!(refused(&|sb| sb[76] = 9), layout);
    assert_eq!(
        refused(&|sb| sb[88] = 1),
        ArrayProblem::Chunk { sectors: 1 }
    );
}

#[test]
fn damaged_superblock_is_reported() {
    let array = MdArray::new(1, 0, 2);
    let content = content(300 * KIB);
    let mut members = array.write(&content);
    members[1][4096 + 300] ^= 1;
    let assembly = assemble(&members);
    assert!(matches!(
        assembly.layers()[1].problem,
        Some(Problem::Superblock(_))
    ));
    check(assembly.layer(top(&assembly, "md")), &content);
}

#[test]
fn degraded_array_that_was_not_stopped_is_noted() {
    let array = MdArray::new(5, 2, 3);
    let mut members = array.write(&content(300 * KIB));
    for member in &mut members {
        array.edit(member, |sb| sb[208..216].fill(0));
    }
    let notes = |members: &[Vec<u8>]| {
        let assembly = assemble(members);
        assembly.layer(top(&assembly, "md")).notes.clone()
    };
    assert_eq!(notes(&members), []);
    members[1].clear();
    assert_eq!(notes(&members), [ArrayNote::NotStopped]);
}

fn volume(name: &str, segments: Vec<LvmSegment>) -> LvmVolume {
    LvmVolume {
        name: name.to_owned(),
        segments,
    }
}

#[test]
fn volumes_with_linear_and_striped_segments_are_read() {
    let striped = LvmSegment {
        kind: "striped".to_owned(),
        extents: 6,
        stripes: vec![(1, 2), (0, 8)],
        stripe_bytes: 16 << 10,
    };
    let first = vec![
        LvmSegment::linear(0, 1, 3),
        striped,
        LvmSegment::linear(1, 10, 2),
    ];
    let group = LvmGroup {
        // Most of the text is after the end of its ring.
        text_offset: 60 * KIB - 100,
        ..LvmGroup::new(
            "vg1000",
            vec![
                volume("lv", first),
                volume("other", vec![LvmSegment::linear(0, 4, 4)]),
            ],
        )
    };
    let (lv, other) = (content(11 * 64 * KIB), content(4 * 64 * KIB));
    let mut disks = vec![vec![0; 1 << 20]; 2];
    group.write(&mut disks, &[&lv, &other]);
    disks.reverse();
    let assembly = assemble(&disks);
    let names: Vec<&str> = assembly
        .layers()
        .iter()
        .map(|layer| layer.name.as_str())
        .collect();
    assert_eq!(names, ["disk0", "disk1", "vg1000/lv", "vg1000/other"]);
    check(&assembly.layers()[2], &lv);
    check(&assembly.layers()[3], &other);

    disks[0].clear();
    let assembly = assemble(&disks);
    let [_, lv, other] = assembly.layers() else {
        panic!("{assembly:?}");
    };
    assert!(matches!(
        lv.problem,
        Some(Problem::Volume(VolumeProblem::Missing { .. }))
    ));
    check(other, &content(4 * 64 * KIB));
}

#[test]
fn newest_metadata_of_a_group_wins() {
    let old = LvmGroup::new("vg", vec![volume("lv", vec![LvmSegment::linear(0, 0, 2)])]);
    let new = LvmGroup {
        seqno: 4,
        ..LvmGroup::new("vg", vec![volume("lv", vec![LvmSegment::linear(1, 3, 2)])])
    };
    let content = content(128 * KIB);
    let mut disks = vec![vec![0; 1 << 20]; 2];
    new.write(&mut disks, &[&content]);
    let mut of_old = disks.clone();
    old.write(&mut of_old, &[&[]]);
    disks[0] = of_old.swap_remove(0);
    let assembly = assemble(&disks);
    check(assembly.layer(top(&assembly, "LVM")), &content);
}

#[test]
fn other_segments_are_named() {
    let segment = LvmSegment {
        kind: "thin".to_owned(),
        ..LvmSegment::linear(0, 0, 1)
    };
    let group = LvmGroup::new("vg", vec![volume("lv", vec![segment])]);
    let mut disks = vec![vec![0; 1 << 20]];
    group.write(&mut disks, &[&[]]);
    let assembly = assemble(&disks);
    let layer = assembly.layer(top(&assembly, "LVM"));
    let problem = VolumeProblem::Segment("thin".to_owned());
    assert_eq!(layer.problem, Some(Problem::Volume(problem)));
}

/// Synology's SHR: arrays of different sizes and levels, joined by one volume.
#[test]
fn volume_on_two_degraded_arrays_is_read() {
    let lv = content(20 * 64 * KIB);
    let segments = vec![LvmSegment::linear(0, 0, 13), LvmSegment::linear(1, 1, 7)];
    let group = LvmGroup::new("vg1000", vec![volume("lv", segments)]);
    let mut arrays = vec![vec![0; 1 << 20]; 2];
    group.write(&mut arrays, &[&lv]);
    let large = MdArray::new(5, 2, 4);
    let small = MdArray {
        number: 2,
        ..MdArray::new(1, 0, 2)
    };
    let mut disks = large.write(&arrays[0]);
    disks.extend(small.write(&arrays[1]));
    disks[2].clear();
    disks[4].clear();
    let assembly = assemble(&disks);
    let volume = top(&assembly, "LVM");
    check(assembly.layer(volume), &lv);
    assert_eq!(assembly.tops(), [volume]);
    assert_eq!(
        assembly.closure(volume).len(),
        7,
        "4 disks, 2 arrays and the volume"
    );
}

#[test]
fn nothing_can_be_written() {
    let members = MdArray::new(5, 2, 3).write(&content(300 * KIB));
    let assembly = assemble(&members);
    let device = assembly
        .layer(top(&assembly, "md"))
        .device()
        .expect("readable");
    let refused = device.write_at(&[0], 0).expect_err("refused");
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert!(device.resize(0).is_err());
    assert!(device.discard(0, 4096).is_err());
    assert!(device.read_at(&mut [0], device.len_bytes()).is_err());
}

// LAYERS-1
#[test]
fn nesting_is_bounded() {
    let mut image = content(64 * KIB);
    for number in 0..12 {
        let array = MdArray {
            number,
            ..MdArray::new(1, 0, 1)
        };
        image = array.write(&image).swap_remove(0);
    }
    let assembly = assemble(&[image]);
    let depths: Vec<usize> = assembly.layers().iter().map(|layer| layer.depth).collect();
    assert_eq!(depths, (0..=MAX_DEPTH).collect::<Vec<_>>());
}

// LAYERS-2
#[test]
fn array_within_itself_is_assembled_once() {
    let array = MdArray::new(1, 0, 1);
    let inner = array.write(&content(64 * KIB)).swap_remove(0);
    let outer = array.write(&inner).swap_remove(0);
    let assembly = assemble(&[outer]);
    assert_eq!(assembly.layers().len(), 2);
    let late = Component::LeftOut(LayerId(1), LeftOut::Late);
    assert_eq!(assembly.layers()[1].components[1], late);
}

/// Damaged metadata with valid checksums: no panic, no hang, and no write.
#[test]
fn any_metadata_is_survived() {
    const SEED: u64 = 20;
    let mut rng = Rng::new(SEED);
    let content = content(256 * KIB);
    let mut group_disks = vec![vec![0; 1 << 20]; 2];
    let segments = vec![LvmSegment::linear(0, 0, 3), LvmSegment::linear(1, 1, 1)];
    let group = LvmGroup::new("vg", vec![volume("lv", segments)]);
    group.write(&mut group_disks, &[&content]);
    let arrays = [
        MdArray::new(5, 2, 3),
        MdArray::new(6, 2, 4),
        MdArray::new(10, 0x201, 3),
        MdArray::new(0, 2, 2),
        MdArray::new(1, 0, 2),
        MdArray::new(-1, 0, 2),
    ];
    for round in 0..600 {
        let array = &arrays[round % arrays.len()];
        let mut disks = array.write(&content);
        for disk in &mut disks {
            array.edit(disk, |superblock| {
                for _ in 0..1 + rng.below(3) {
                    // The array, its member, and the first roles.
                    let at = 8 + rng.below(260) as usize;
                    superblock[at] = random_byte(&mut rng);
                }
            });
        }
        read_all(&assemble(&disks));

        let mut disks = group_disks.clone();
        for disk in &mut disks {
            let (start, len) = match rng.below(3) {
                0 => (512, 160),
                1 => (4096, 80),
                _ => (4096 + 512, 1800),
            };
            for _ in 0..1 + rng.below(4) {
                disk[start + rng.below(len) as usize] = random_byte(&mut rng);
            }
            ubtrfs_sim::seal_lvm(disk);
        }
        read_all(&assemble(&disks));
    }
}

fn random_byte(rng: &mut Rng) -> u8 {
    const EDGES: [u8; 8] = [0, 1, 2, 0x7f, 0x80, 0xff, b'"', b'{'];
    match rng.below(2) {
        0 => EDGES[rng.below(8) as usize],
        _ => rng.below(256) as u8,
    }
}

fn read_all(assembly: &Assembly) {
    for layer in assembly.layers() {
        let Some(device) = layer.device() else {
            continue;
        };
        let last = device.len_bytes().saturating_sub(8192);
        for offset in [0, last / 2, last] {
            let mut bytes = vec![0; device.len_bytes().min(8192) as usize];
            let _ = device.read_at(&mut bytes, offset);
        }
    }
}

#[test]
fn disks_of_any_size_are_examined() {
    for len in [1, 511, 512, 4095, 4096, 4100, 8192, 70_000, 1 << 20] {
        let assembly = assemble(&[vec![1; len]]);
        assert_eq!(assembly.layers()[0].problem, None, "{len} bytes");
    }
}
