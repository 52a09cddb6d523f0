//! Parity compared with its definition byte by byte, and every loss of one or two members.

use super::*;
use proptest::prelude::*;

/// Multiplies by shifting, according to the field's definition.
pub(crate) fn slow_mul(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = (a << 1) ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    product
}

fn row(data: usize, len: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed | 1;
    let mut members: Vec<Vec<u8>> = (0..data)
        .map(|_| {
            (0..len)
                .map(|_| {
                    state = state
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    (state >> 56) as u8
                })
                .collect()
        })
        .collect();
    let mut p = vec![0; len];
    let mut q = vec![0; len];
    let mut factor = 1;
    for member in &members {
        for i in 0..len {
            p[i] ^= member[i];
            q[i] ^= slow_mul(factor, member[i]);
        }
        factor = slow_mul(factor, 2);
    }
    members.extend([p, q]);
    members
}

#[test]
fn parity_of_data_is_what_the_definition_gives() {
    for parities in 0..=2 {
        for data in 1..=8 {
            let members = row(data, 61, 7 + data as u64);
            let expected = &members[data..data + parities];
            assert_eq!(parity(&members[..data], parities), expected);
        }
    }
}

#[test]
fn tables_agree_with_the_definition() {
    for a in 0..=255 {
        for b in 0..=255 {
            assert_eq!(mul(a, b), slow_mul(a, b));
        }
        if a != 0 {
            assert_eq!(slow_mul(a, inverse(a)), 1);
        }
    }
    let mut bytes: Vec<u8> = (0..=255).chain(0..5).collect();
    let expected: Vec<u8> = bytes.iter().map(|&b| slow_mul(b, 2)).collect();
    double(&mut bytes);
    assert_eq!(bytes, expected);
}

proptest! {
    #[test]
    fn any_two_lost_members_come_back(data in 1usize..12, len in 1usize..70, seed: u64) {
        let whole = row(data, len, seed);
        for a in 0..data + 2 {
            for b in 0..data + 2 {
                let lost = if a == b { vec![a] } else { vec![a, b] };
                let mut members = whole.clone();
                for &member in &lost {
                    members[member].fill(0xee);
                }
                rebuild(&mut members, 2, &lost).unwrap();
                prop_assert_eq!(&members, &whole);
            }
        }
    }

    #[test]
    fn one_lost_member_comes_back_by_p(data in 1usize..12, len in 1usize..70, seed: u64) {
        let mut whole = row(data, len, seed);
        whole.pop();
        for lost in 0..=data {
            let mut members = whole.clone();
            members[lost].fill(0xee);
            rebuild(&mut members, 1, &[lost]).unwrap();
            prop_assert_eq!(&members, &whole);
        }
    }
}

#[test]
fn more_losses_than_parities_are_refused() {
    let mut members = row(3, 8, 1);
    assert_eq!(rebuild(&mut members, 2, &[0, 1, 2]), Err(TooManyLost));
    members.pop();
    assert_eq!(rebuild(&mut members, 1, &[0, 3]), Err(TooManyLost));
}
