//! Results of the heuristic for known kinds of data.

use ubtrfs_sim::Rng;

use super::*;

fn noise(len: usize, symbols: u64) -> Vec<u8> {
    let mut rng = Rng::new(11);
    (0..len).map(|_| rng.below(symbols) as u8).collect()
}

#[test]
fn text_zeros_and_repetitions_are_worth_compressing() {
    let text = b"The quick brown fox jumps over the lazy dog. ".repeat(3000);
    let repeated = noise(64 << 10, 256).repeat(2);
    for data in [&text[..], &[0; 128 << 10], &repeated, &noise(128 << 10, 60)] {
        assert!(looks_compressible(data));
    }
}

#[test]
fn noise_is_not_worth_compressing() {
    for len in [8 << 10, 100_000, 128 << 10] {
        assert!(!looks_compressible(&noise(len, 256)));
    }
}

#[test]
fn entropy_decides_between() {
    // Half of the bytes have 16 values, the rest are noise: about 6.5 bits per byte.
    let mut rng = Rng::new(5);
    let mut mixed = |common: u64| -> Vec<u8> {
        let mut byte = |_| {
            if rng.below(100) < common {
                rng.below(16) as u8
            } else {
                rng.below(256) as u8
            }
        };
        (0..128 << 10).map(&mut byte).collect()
    };
    assert!(looks_compressible(&mixed(60)));
    assert!(!looks_compressible(&mixed(20)));
}

#[test]
fn little_data_is_tried() {
    assert!(looks_compressible(b""));
    assert!(looks_compressible(b"few"));
}
