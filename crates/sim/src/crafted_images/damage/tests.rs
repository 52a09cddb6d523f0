//! Damage is limited to the given ranges.

use super::*;
use crate::Scratch;
use crate::kernel::Stripe;

fn chunk(flags: &str, sub_stripes: u16, stripes: u64) -> Chunk {
    Chunk {
        logical: 0,
        len_bytes: 1 << 20,
        flags: flags.to_owned(),
        sub_stripes,
        stripes: (0..stripes)
            .map(|number| Stripe {
                devid: number + 1,
                physical: 1 << 20,
            })
            .collect(),
    }
}

#[test]
fn mirror_ranges_name_one_copy() {
    let range = |len: u64| (1_u64 << 20)..((1 << 20) + len);
    let of = |flags, sub_stripes, stripes| mirror_ranges(&[chunk(flags, sub_stripes, stripes)], 1);
    assert_eq!(
        of("DATA|RAID1", 1, 2),
        Ranges::from([(2, vec![range(1 << 20)])])
    );
    assert_eq!(
        of("DATA|RAID1C3", 1, 3),
        Ranges::from([(2, vec![range(1 << 20)])])
    );
    assert_eq!(
        of("DATA|RAID10", 2, 4),
        Ranges::from([(2, vec![range(1 << 19)]), (4, vec![range(1 << 19)])])
    );
    assert_eq!(
        of("DATA|RAID5", 1, 3),
        Ranges::from([(2, vec![range(1 << 19)])])
    );
    assert_eq!(
        of("DATA|RAID6", 1, 4),
        Ranges::from([(2, vec![range(1 << 19)])])
    );
    assert_eq!(of("DATA|RAID0", 1, 2), Ranges::new());
    assert_eq!(of("DATA|single", 1, 1), Ranges::new());
}

#[test]
fn corruption_hits_only_used_sectors_in_its_ranges() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.file("device", 1 << 20).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(&[1; 5 * 4096], 4096).unwrap();
    let before = std::fs::read(&path).unwrap();
    let hit = corrupt(
        &path,
        &[8192..16_384, 500_000..900_000],
        1,
        &mut Rng::new(1),
    )
    .unwrap();
    assert_eq!(hit, 2);
    let after = std::fs::read(&path).unwrap();
    for (number, (old, new)) in before.chunks(4096).zip(after.chunks(4096)).enumerate() {
        assert_eq!(old != new, (2..4).contains(&number), "sector {number}");
    }
}

#[test]
fn wiped_device_is_all_zeros_and_as_long() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("device");
    std::fs::write(&path, [3; 10_000]).unwrap();
    wipe(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [0; 10_000]);
}
