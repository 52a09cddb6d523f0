//! Sizes, compared with the output of btrfs-progs 6.14.

use super::Units;

fn units(raw: bool, decimal: bool, fixed: Option<usize>) -> Units {
    Units {
        raw,
        decimal,
        fixed,
    }
}

#[test]
fn human_sizes_are_cut_at_the_unit_below() {
    let human = Units::default();
    assert_eq!(human.size(0), "0.00B");
    assert_eq!(human.size(18), "18.00B");
    assert_eq!(human.size(20_983_808), "20.01MiB");
    assert_eq!(human.size(5_767_168), "5.50MiB");
    assert_eq!(human.size(u64::MAX), "16.00EiB");
}

#[test]
fn decimal_sizes_have_their_own_suffixes() {
    let si = units(false, true, None);
    assert_eq!(si.size(75_497_472), "75.50MB");
    assert_eq!(si.size(16_384), "16.38kB");
}

#[test]
fn a_fixed_unit_is_kept_for_small_sizes() {
    assert_eq!(units(false, false, Some(1)).size(20_983_808), "20492.00KiB");
    assert_eq!(units(false, false, Some(4)).size(20_983_808), "0.00TiB");
    assert_eq!(units(false, true, Some(1)).size(20_983_808), "20983.81kB");
}

#[test]
fn raw_sizes_are_bytes() {
    assert_eq!(Units::RAW.size(u64::MAX), "18446744073709551615");
    assert_eq!(Units::RAW.signed(-1), "-1");
}

#[test]
fn negative_differences_keep_their_sign() {
    assert_eq!(Units::default().signed(-(3 << 20)), "-3.00MiB");
}
