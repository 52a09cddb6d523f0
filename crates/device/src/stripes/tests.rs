//! The arithmetic compared with a naive model that lays out a chunk block by block.

use super::*;
use crate::test_volume::{disk_chunk, disk_stripes};
use proptest::prelude::*;
use ubtrfs_format::block_group_flags::BlockGroupFlags;

fn mapped(profile: Profile, stripes: u16, len: u64) -> MappedChunk {
    let flags = BlockGroupFlags::DATA | BlockGroupFlags::of(profile);
    MappedChunk::check(
        Logical(1 << 30),
        &disk_chunk(len, flags, stripes),
        &disk_stripes(stripes),
        4096,
        false,
    )
    .unwrap()
}

/// Deals the chunk's blocks of `STRIPE_LEN` out to the stripes. Returns the copies of each as (stripe, physical block
/// on the stripe).
fn deal(profile: Profile, stripes: usize, blocks: usize) -> Vec<Vec<(usize, u64)>> {
    let mut height = vec![0u64; stripes];
    let mut put = |stripe: usize| {
        height[stripe] += 1;
        (stripe, height[stripe] - 1)
    };
    let mut dealt = Vec::new();
    let mut row = 0;
    while dealt.len() < blocks {
        match profile {
            Profile::Single
            | Profile::Dup
            | Profile::Raid1
            | Profile::Raid1c3
            | Profile::Raid1c4 => {
                dealt.push((0..stripes).map(&mut put).collect());
            }
            Profile::Raid0 => (0..stripes).for_each(|s| dealt.push(vec![put(s)])),
            Profile::Raid10 => {
                for pair in 0..stripes / 2 {
                    dealt.push(vec![put(2 * pair), put(2 * pair + 1)]);
                }
            }
            Profile::Raid5 | Profile::Raid6 => {
                let data = stripes - profile.parities();
                for member in 0..stripes {
                    let place = put((row + member) % stripes);
                    if member < data {
                        dealt.push(vec![place]);
                    }
                }
                row += 1;
            }
        }
    }
    dealt
}

fn any_layout() -> impl Strategy<Value = (Profile, u16)> {
    prop_oneof![
        Just((Profile::Single, 1)),
        Just((Profile::Dup, 2)),
        Just((Profile::Raid1, 2)),
        Just((Profile::Raid1c3, 3)),
        Just((Profile::Raid1c4, 4)),
        (1u16..8).prop_map(|n| (Profile::Raid0, n)),
        (1u16..5).prop_map(|n| (Profile::Raid10, 2 * n)),
        (2u16..8).prop_map(|n| (Profile::Raid5, n)),
        (3u16..8).prop_map(|n| (Profile::Raid6, n)),
    ]
}

proptest! {
    #[test]
    fn pieces_match_the_dealt_layout(
        (profile, stripes) in any_layout(),
        offset in 0u64..5_000_000,
        len in 1u64..1_000_000,
    ) {
        let chunk = mapped(profile, stripes, 6_000_000 / 4096 * 4096);
        let dealt = deal(profile, usize::from(stripes), 100);
        let direct = if chunk.has_parity() { 1 } else { chunk.mirrors() };
        for mirror in 1..=direct {
            let mut at = offset;
            for piece in chunk.pieces(offset, len, mirror) {
                prop_assert_eq!(piece.logical.0, chunk.logical.0 + at);
                prop_assert!(piece.len > 0);
                let start = chunk.stripes[piece.stripe].physical.0;
                prop_assert_eq!(piece.devid, chunk.stripes[piece.stripe].devid);
                for byte in [0, piece.len / 2, piece.len - 1] {
                    let place = dealt[((at + byte) / STRIPE_LEN) as usize][mirror - 1];
                    let expected = start + place.1 * STRIPE_LEN + (at + byte) % STRIPE_LEN;
                    prop_assert_eq!((piece.stripe, piece.physical.0 + byte), (place.0, expected));
                }
                prop_assert!(piece.physical.0 + piece.len <= start + chunk.stripe_bytes());
                at += piece.len;
            }
            prop_assert_eq!(at, (offset + len).min(chunk.len_bytes));
        }
    }

    #[test]
    fn rows_put_each_member_on_its_own_stripe(stripes in 3u16..9, offset in 0u64..5_000_000) {
        let chunk = mapped(Profile::Raid6, stripes, 6_000_000 / 4096 * 4096);
        let row = chunk.row(offset);
        let mut seen: Vec<usize> = (0..row.members).map(|m| row.stripe(m)).collect();
        let piece = chunk.piece(offset, 1, 1);
        prop_assert_eq!(row.stripe(chunk.row_member(offset)), piece.stripe);
        let place = chunk.row_place(row, chunk.row_member(offset), offset % STRIPE_LEN);
        prop_assert_eq!(place, (piece.devid, piece.physical));
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..usize::from(stripes)).collect::<Vec<_>>());
    }
}

#[test]
fn raid6_mirrors_exclude_each_other_member_once() {
    for stripes in 3..10u16 {
        let chunk = mapped(Profile::Raid6, stripes, 1 << 20);
        let n = usize::from(stripes);
        for wanted in 0..n - 2 {
            let mut excluded: Vec<usize> = (3..=chunk.mirrors())
                .map(|mirror| chunk.excluded_member(wanted, mirror).unwrap())
                .collect();
            assert_eq!(excluded[0], n - 2, "mirror 3 does without P");
            excluded.sort_unstable();
            let others: Vec<usize> = (0..n - 1).filter(|&m| m != wanted).collect();
            assert_eq!(excluded, others);
        }
    }
}
