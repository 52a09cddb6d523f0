//! The count, compared with a list of flags.

use std::convert::Infallible;
use std::ops::Range;

use ubtrfs_sim::{Rng, seed};

use super::*;

const LEN: u64 = 64;

/// The buffered sectors, and the sectors with space.
struct Flags {
    buffered: [bool; LEN as usize],
    has_space: [bool; LEN as usize],
}

impl Flags {
    fn gaps(&self, sectors: Range<u64>) -> Vec<Range<u64>> {
        let is_gap = |at: &u64| !self.has_space[*at as usize];
        sectors.filter(is_gap).map(|at| at..at + 1).collect()
    }

    fn bytes(&self) -> u64 {
        let flags = self.buffered.iter().zip(&self.has_space);
        flags
            .filter(|(buffered, space)| **buffered && !**space)
            .count() as u64
    }
}

fn part<'f>(flags: &'f mut [bool; LEN as usize], range: &Range<u64>) -> &'f mut [bool] {
    &mut flags[range.start as usize..range.end as usize]
}

/// DELALLOC-COUNT-1, DELALLOC-COUNT-2
#[test]
fn count_agrees_with_a_list_of_flags() {
    let mut rng = Rng::new(seed("count_agrees_with_a_list_of_flags"));
    let (mut count, mut flags) = (
        DelallocCount::default(),
        Flags {
            buffered: [false; LEN as usize],
            has_space: [false; LEN as usize],
        },
    );
    for _ in 0..10_000 {
        let start = rng.below(LEN);
        let range = start..(start + 1 + rng.below(12)).min(LEN);
        match rng.below(4) {
            0 => {
                part(&mut flags.buffered, &range).fill(true);
                count.add(range);
            }
            1 => {
                part(&mut flags.buffered, &range).fill(false);
                count.remove(range);
            }
            2 => {
                let space = rng.one_in(2);
                part(&mut flags.has_space, &range).fill(space);
                count.note_changed(range);
            }
            _ => {
                let look_up = |sectors| Ok::<_, Infallible>(flags.gaps(sectors));
                assert_eq!(count.bytes(look_up), Ok(flags.bytes()));
            }
        }
    }
}

#[test]
fn sectors_are_looked_up_once() {
    let mut count = DelallocCount::default();
    count.add(0..4);
    count.add(8..12);
    let all = |sectors| Ok::<_, Infallible>(vec![sectors]);
    assert_eq!(count.bytes(all), Ok(8));
    count.add(2..5);
    let mut looked_up = Vec::new();
    let bytes = count.bytes(|sectors| {
        looked_up.push(sectors.clone());
        all(sectors)
    });
    assert_eq!(bytes, Ok(9));
    assert!(looked_up.into_iter().eq(std::iter::once(4..5)));
    let refused = |_| Err::<Vec<Range<u64>>, _>("refused");
    count.note_changed(9..10);
    assert_eq!(count.bytes(refused), Err("refused"));
    assert_eq!(count.bytes(all), Ok(9));
}
