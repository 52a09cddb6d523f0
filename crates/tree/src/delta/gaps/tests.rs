//! Gaps against a plain array of keys.

use ubtrfs_format::key::KeyType;
use ubtrfs_sim::{Rng, seed};

use super::*;

const KEYS: u64 = 60;

fn key(number: u64) -> Key {
    Key::new(1, KeyType(1), number)
}

#[test]
fn any_history_agrees_with_an_array() {
    let mut rng = Rng::new(seed("gaps"));
    let mut gaps = Gaps::default();
    let mut hidden = vec![false; KEYS as usize];
    for _ in 0..20_000 {
        let number = rng.below(KEYS);
        if rng.below(3) == 0 {
            let end = (number + rng.below(10)).min(KEYS - 1);
            gaps.add(key(number)..=key(end));
            hidden[number as usize..=end as usize].fill(true);
        } else {
            gaps.cut(&key(number));
            hidden[number as usize] = false;
        }
        for number in 0..KEYS {
            let around = gaps.around(&key(number));
            assert_eq!(around.is_some(), hidden[number as usize]);
            // GAPS-2: the gap is maximal.
            if let Some(gap) = around {
                let (first, last) = (gap.start().offset, gap.end().offset);
                assert!(first <= number && number <= last);
                assert!(first == 0 || !hidden[first as usize - 1]);
                assert!(last == KEYS - 1 || !hidden[last as usize + 1]);
            }
        }
    }
}
