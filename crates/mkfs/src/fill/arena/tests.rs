//! Values can be read at their positions, within one segment and in several.

use super::*;

#[test]
fn positions_ascend_and_lead_to_what_was_put() {
    let mut arena = Arena::default();
    let lens = [
        0,
        1,
        SEGMENT_BYTES - 1,
        7,
        3 * SEGMENT_BYTES,
        0,
        SEGMENT_BYTES,
        9,
    ];
    let puts: Vec<(Position, Vec<u8>)> = lens
        .iter()
        .enumerate()
        .map(|(number, &len)| {
            let bytes = vec![number as u8; len];
            let (head, tail) = bytes.split_at(len / 2);
            (arena.push(&[head, tail]), bytes)
        })
        .collect();
    assert!(puts.is_sorted_by_key(|(position, _)| *position));
    for (position, bytes) in &puts {
        assert!(arena.from(*position).starts_with(bytes));
    }
    assert_eq!(arena.len_bytes(), lens.iter().sum::<usize>());
}
